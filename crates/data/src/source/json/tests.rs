use super::*;
use crate::columns::Keys;
use crate::rows::Rows;

/// The rows of a text and what was noted.
#[derive(Debug, Default, PartialEq)]
struct Got {
    rows: Vec<(String, String, i64)>,
    noted: Vec<(String, u64)>,
}

const COLUMNS: Columns<'static> = Columns {
    user: Some("user_id"),
    text: "text",
    time: None,
    split: None,
    time_unit: None,
    keys: Keys::SOURCE,
};

fn read_as(bytes: impl AsRef<[u8]>, columns: Columns<'_>, records: Option<&str>) -> Result<Got> {
    let (mut got, mut seen, mut noted) = (Got::default(), Seen::default(), crate::noted::Noted::default());
    let content = Coded::of_bytes("a.jsonl", bytes.as_ref().to_vec())?;
    read(content, columns, records, &mut seen, &mut |rows: &Rows, _| {
        noted.merge(&rows.noted);
        for row in 0..rows.len() {
            let (user, text) = (rows.users.get(row), rows.texts.get(row));
            got.rows.push((user.to_owned(), text.to_owned(), rows.times[row]));
        }
        Ok(())
    })?;
    seen.check(Path::new("a.jsonl"), columns, false)?;
    got.noted = noted
        .iter()
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect();
    Ok(got)
}

fn rows(bytes: impl AsRef<[u8]>) -> Vec<(String, String)> {
    let shown = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let got = read_as(bytes, COLUMNS, None).unwrap_or_else(|error| panic!("{shown}: {error}"));
    got.rows.into_iter().map(|(user, text, _)| (user, text)).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs
        .map(|(user, text)| (user.to_owned(), text.to_owned()))
        .to_vec()
}

#[track_caller]
fn fails(bytes: impl AsRef<[u8]>, records: Option<&str>, parts: &[&str]) {
    let shown = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let error = read_as(bytes, COLUMNS, records).expect_err(&shown).to_string();
    for part in parts {
        assert!(error.contains(part), "{shown:?}: {error:?} lacks {part:?}");
    }
}

const ROW: &str = "{\"user_id\": \"a\", \"text\": \"one\"}";

#[test]
fn marks_of_utf_8_are_no_letters_wherever_files_were_joined() {
    let expected = pairs([("a", "one"), ("a", "one")]);
    for text in [
        format!("\u{feff}{ROW}\n{ROW}\n"),
        format!("{ROW}\n\u{feff}{ROW}\n"),
        format!("\u{feff}{ROW}\r\n\u{feff}\r\n{ROW}"),
        format!("\u{feff}[{ROW},{ROW}]"),
    ] {
        assert_eq!(rows(text), expected);
    }
}

#[test]
fn half_emojis_are_replaced_and_counted() {
    let line = |user: &str, text: &str| {
        format!("{{\"user_id\": \"{user}\", \"text\": \"{text}\", \"x\": \"\\ud83d\"}}\n")
    };
    for (text, expected, count) in [
        (line("a", "cut \\ud83d"), ("a", "cut \u{fffd}"), 1),
        (line("a", "\\ude00 low"), ("a", "\u{fffd} low"), 1),
        (line("\\ud83d", "one"), ("\u{fffd}", "one"), 1),
        (
            line("a", "\\ud83d\\ud83d\\ude00\\ude00"),
            ("a", "\u{fffd}😀\u{fffd}"),
            2,
        ),
    ] {
        for text in [text.clone(), format!("[{text}]")] {
            let got = read_as(&text, COLUMNS, None).expect(&text);
            assert_eq!((got.rows[0].0.as_str(), got.rows[0].1.as_str()), expected);
            assert_eq!(
                got.noted,
                [("half emojis (lone surrogates) replaced".to_owned(), count)],
                "{text}"
            );
        }
    }
    assert_eq!(
        read_as(line("a", "whole \\ud83d\\ude00"), COLUMNS, None)
            .expect("rows")
            .noted,
        []
    );
    // A half in the name of another field concerns nobody.
    let got = read_as(format!("{{\"\\ud83d\": 1, {}", &ROW[1..]), COLUMNS, None).expect("rows");
    assert_eq!(got.noted, []);
}

#[test]
fn unused_fields_are_judged_by_their_syntax_alone() {
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-0.0E+9",
        "123456789012345678901234567890",
        "\"\\ud83d\"",
        "[NaN, {\"text\": [1]}]",
        "{\"user_id\": 5, \"text\": null}",
        "[]",
        "{}",
    ] {
        let text = format!("{{\"x\": {value}, \"text\": \"one\", \"user_id\": \"a\", \"y\": {value}}}");
        assert_eq!(rows(&text), pairs([("a", "one")]), "{text}");
    }
    let latin = b"{\"x\": \"caf\xe9\", \"text\": \"one\", \"user_id\": \"a\"}";
    assert_eq!(rows(latin), pairs([("a", "one")]));
    for value in [
        "nan",
        "1.",
        "+1",
        "'a'",
        "[1,]",
        "{\"a\"}",
        "undefined",
        "\"\\x\"",
        "--1",
    ] {
        let text = format!("{ROW}\n{{\"x\": {value}, \"text\": \"one\", \"user_id\": \"a\"}}");
        fails(
            &text,
            None,
            &[
                "a.jsonl, line 2: \"line\": expected a JSON object, got invalid JSON",
                "at column",
            ],
        );
    }
}

#[test]
fn an_absent_text_is_an_empty_one_and_counted_but_a_wrong_name_is_an_error() {
    let text = format!(
        "{ROW}\n{{\"user_id\": \"b\"}}\n{{\"user_id\": \"c\", \"text\": null}}\n{{\"user_id\": \"d\", \"text\": NaN}}\n"
    );
    let got = read_as(&text, COLUMNS, None).expect("rows");
    assert_eq!(got.rows.len(), 4);
    assert!(got.rows.iter().skip(1).all(|(_, text, _)| text.is_empty()));
    assert_eq!(got.noted, [(NO_TEXT.to_owned(), 1)]);
    let body = "{\"user_id\": \"a\", \"body\": \"one\"}\n";
    fails(
        body,
        None,
        &[
            "lacks the column \"text\" that data.source.text (--text-column) names",
            "\"user_id\", \"body\"",
        ],
    );
    fails(
        "{\"author\": \"a\", \"text\": \"one\"}\n",
        None,
        &[
            "line 1: \"user_id\"",
            "no such field; its fields are \"author\", \"text\"; set data.source.user",
            "(--user-column)",
        ],
    );
}

#[test]
fn fields_below_the_top_are_named_by_pointers_and_dots_are_letters() {
    let columns = Columns {
        user: Some("/message/from"),
        text: "/message/parts/1",
        time: Some("sent.at"),
        ..COLUMNS
    };
    let row = |message: &str| format!("{{\"message\": {message}, \"sent.at\": 5, \"from\": \"no\"}}\n");
    let text = row("{\"parts\": [\"zero\", \"one\", \"two\"], \"from\": \"a\"}")
        + &row("{\"from\": 7, \"parts\": [0, null]}")
        + &row("{\"x\": {\"from\": \"no\"}, \"from\": \"b\", \"parts\": []}")
        // The last of two fields of one name counts, as elsewhere.
        + &row("{\"from\": \"no\", \"from\": \"c\", \"parts\": [1, \"lost\"], \"parts\": [1, \"last\"]}");
    let got = read_as(&text, columns, None).expect("rows");
    let expected = [("a", "one", 5), ("7", "", 5), ("b", "", 5), ("c", "last", 5)];
    assert_eq!(
        got.rows,
        expected.map(|(user, text, time)| (user.to_owned(), text.to_owned(), time))
    );
    let whole = read_as(
        row("{\"from\": \"a\", \"parts\": [0, {\"t\": 1}]}"),
        columns,
        None,
    )
    .expect_err("an object");
    assert!(
        whole
            .to_string()
            .contains("\"/message/parts/1\": expected a string, got an object"),
        "{whole}"
    );
    // Two names for one value, and a value below another.
    let same = Columns {
        user: Some("text"),
        ..COLUMNS
    };
    assert_eq!(read_as(ROW, same, None).expect("rows").rows[0].0, "one");
    let slash = Columns {
        user: Some("/a~1b/m~0n"),
        ..COLUMNS
    };
    let got = read_as("{\"a/b\": {\"m~n\": \"x\"}, \"text\": \"one\"}", slash, None).expect("rows");
    assert_eq!(got.rows[0].0, "x");
}

#[test]
fn an_array_is_its_objects_however_it_is_printed() {
    let expected = pairs([("a", "one"), ("b", "}],[{\"\\")]);
    let second = "{\n \"text\": \"}],[{\\\"\\\\\",\n \"user_id\": \"b\", \"x\": [[{\"y\": \"]\"}]]\n}";
    for text in [
        format!("[{ROW},{second}]"),
        format!("\n [\n{ROW}\n ,\r\n{second}\n]\n\n"),
        format!("  [{ROW}  ,{second}  ]"),
    ] {
        assert_eq!(rows(text), expected);
    }
    let at = |place: &str, text: &str| {
        let got = read_as(text, COLUMNS, Some(place)).unwrap_or_else(|error| panic!("{text}: {error}"));
        got.rows
            .into_iter()
            .map(|(user, text, _)| (user, text))
            .collect::<Vec<_>>()
    };
    let inner = format!("[{ROW},{second}]");
    assert_eq!(
        at(
            "/messages",
            &format!("{{\"name\": \"chat\", \"id\": -1.5, \"messages\": {inner}, \"x\": NaN}}")
        ),
        expected
    );
    assert_eq!(
        at(
            "/data/0/rows",
            &format!("{{\"data\": [{{\"n\": 2, \"rows\": {inner}}}, [1], {{}}]}}\n")
        ),
        expected
    );
    assert_eq!(at("/0", &format!("[{inner}, 1]")), expected);
    assert_eq!(at("/a~1b", &format!("{{\"a\\/b\": {inner}}}")), expected);
}

#[test]
fn a_damaged_array_is_an_error_that_names_record_and_line() {
    for (text, records, parts) in [
        (
            format!("[\n{ROW},\n1\n]"),
            None,
            ["row 2: \"record\": expected a JSON object, got a number", ""],
        ),
        (
            format!("[\n{ROW},\n{{\n\"user_id\": tru }}]"),
            None,
            ["row 2: \"record\"", "expected a value at line 4 of the file"],
        ),
        (
            format!("[{ROW}, {{\"user_id\": \"b\", \"text\": 5}}]"),
            None,
            ["row 2: \"text\": expected a string, got a number", ""],
        ),
        (
            format!("[{ROW}, {{}}]"),
            None,
            ["row 2: \"user_id\"", "no such field"],
        ),
        (format!("[\n{ROW},\n]"), None, ["row 2: \"record\"", ""]),
        (
            format!("[{ROW}\n{ROW}]"),
            None,
            ["line 2: JSON: expected a comma or ]", "got \"{\""],
        ),
        (
            format!("[{ROW}\n"),
            None,
            ["line 2: JSON: expected a comma or ]", "cut off"],
        ),
        (
            format!("[{ROW},\n{{\"user_id\": \"b"),
            None,
            ["line 2: JSON", "cut off"],
        ),
        (
            format!("[{ROW}]\n{ROW}"),
            None,
            ["line 2: JSON: expected the end of the document", ""],
        ),
        (format!("[{ROW}}}"), None, ["expected a comma or ]", ""]),
        ("[]".to_owned(), None, ["a.jsonl holds no JSON objects", ""]),
        ("[".to_owned(), None, ["JSON", "cut off"]),
        (
            format!("{{\"a\": [{ROW}]}}"),
            Some("/b"),
            ["data.source.records (--records)", "the fields \"a\""],
        ),
        (
            format!("{{\"a\": [{ROW}]}}"),
            Some("/a/x"),
            ["data.source.records (--records)", "\"x\" below \"/a\""],
        ),
        (
            format!("{{\"a\": [{ROW}]}}"),
            Some("/a/1"),
            ["data.source.records (--records)", ""],
        ),
        (
            format!("{{\"a\": {ROW}}}"),
            Some("/a"),
            ["expected an array of records", "got \"{\""],
        ),
        (
            format!("{{\"a\": [{ROW}], \"a\": []}}"),
            Some("/a"),
            ["JSON: expected one field of each name", "\"a\" twice"],
        ),
        (format!("{{\"a\": [{ROW}], \"b\": 1"), Some("/a"), ["cut off", ""]),
        (
            format!("{{\"a\": [{ROW}], \"b\": [1}}"),
            Some("/a"),
            ["brackets that do not match", ""],
        ),
        (
            format!("{{\"a\": [{ROW}]}} x"),
            Some("/a"),
            ["expected the end of the document", ""],
        ),
        (
            format!("{{\"x\" 1, \"a\": [{ROW}]}}"),
            Some("/a"),
            ["a colon after the name", ""],
        ),
        (
            ROW.to_owned(),
            Some("messages"),
            ["data.source.records (--records)", "such as /messages"],
        ),
    ] {
        fails(&text, records, &parts);
    }
}

#[test]
fn a_document_over_several_lines_is_told_of_the_place_of_its_records() {
    for text in [
        format!("{{\n\"messages\": [{ROW}]}}\n"),
        "{\n \"user_id\": \"a\",\n \"text\": \"one\"\n}\n{\n}\n".to_owned(),
    ] {
        fails(
            &text,
            None,
            &[
                "line 1",
                "the first line of a longer document; --records /NAME",
                "`jq -c .`",
            ],
        );
    }
    fails(
        format!("{{\"messages\": [{ROW}]}}"),
        None,
        &["its fields are \"messages\""],
    );
}

#[test]
fn faults_are_named_once_with_line_and_column() {
    for (line, part) in [
        (
            "{\"user_id\": \"é\" x}",
            "line 2: \"line\": expected a JSON object, got invalid JSON (expected a comma or } at column 17)",
        ),
        (
            "{\"user_id\": \"a\", \"text\": \"one",
            "it ends too early at column 30",
        ),
        (
            "{\"user_id\": \"a\", \"text\": \"o\tne\"}",
            "a control character in a string at column 28",
        ),
        (
            "{\"user_id\": \"a\", \"text\": \"one\"} {}",
            "more text after the value at column 33",
        ),
        ("[1]", "expected a JSON object, got an array"),
    ] {
        fails(format!("{ROW}\r\n{line}\r\n"), None, &[part]);
    }
    let latin = b"{\"user_id\": \"a\", \"text\": \"caf\xe9\"}";
    fails(latin, None, &["line 1", "expected UTF-8 at column 30"]);
}

#[test]
fn users_are_texts_or_whole_numbers() {
    for (value, expected) in [
        ("7", "7"),
        ("-7", "-7"),
        ("12.0", "12"),
        ("1e3", "1000"),
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("18446744073709551616", "18446744073709551616"),
        ("\"7.0\"", "7.0"),
    ] {
        assert_eq!(
            rows(format!("{{\"user_id\": {value}, \"text\": \"one\"}}")),
            pairs([(expected, "one")])
        );
    }
    for value in [
        "1.5",
        "1e300",
        "9007199254740993.0",
        "Infinity",
        "NaN",
        "null",
        "true",
        "\"\"",
        "[]",
        "{}",
    ] {
        let text = format!("{{\"user_id\": {value}, \"text\": \"one\"}}");
        fails(
            &text,
            None,
            &["line 1: \"user_id\": expected a non-empty string or an integer"],
        );
    }
}

#[test]
fn times_of_every_make_are_floored_seconds() {
    let columns = Columns {
        time: Some("t"),
        ..COLUMNS
    };
    let time = |value: &str, unit| {
        let text = format!("{{\"user_id\": 1, \"text\": \"one\", \"t\": {value}}}");
        read_as(
            text,
            Columns {
                time_unit: unit,
                ..columns
            },
            None,
        )
        .map(|got| got.rows[0].2)
    };
    let noon = 1_717_588_800;
    for value in [
        "1717588800",
        "1717588800.75",
        "1.7175888e9",
        "\"1717588800\"",
        "\"1717588800.000200\"",
        "\"2024-06-05T14:00:00.5+02:00\"",
        "\"2024-06-05T12:00\"",
    ] {
        assert_eq!(time(value, None).expect(value), noon, "{value}");
    }
    assert_eq!(time("-1.5", None).expect("a time"), -2);
    for value in ["null", "NaN", "\"\"", "\" \""] {
        assert_eq!(time(value, None).expect(value), NO_TIME);
    }
    for value in ["1717588800000", "\"1717588800000\""] {
        let error = time(value, None).expect_err(value).to_string();
        assert!(
            error.contains("line 1: \"t\": expected unix seconds or an ISO date")
                && error.contains("--time-unit ms"),
            "{error}"
        );
        assert_eq!(
            time(value, Some(time::TimeUnit::Milliseconds)).expect(value),
            noon
        );
    }
    for value in ["true", "[]", "\"soon\"", "Infinity", "1e400"] {
        assert!(time(value, None).is_err(), "{value}");
    }
}

#[test]
#[ignore = "slow"]
fn an_array_of_any_length_is_read_in_bounded_memory() {
    struct Endless {
        left: u64,
        at: usize,
    }
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let row = b",{\"user_id\": \"a\", \"text\": \"one more text of a person\", \"x\": [1, 2, {}]}\n";
            for (filled, byte) in buffer.iter_mut().enumerate() {
                if self.left == 0 {
                    return Ok(filled);
                }
                *byte = row[self.at];
                self.at = (self.at + 1) % row.len();
                if self.at == 0 {
                    self.left -= 1;
                }
            }
            Ok(buffer.len())
        }
    }
    let first = format!(
        "{{\"skipped\": [{}1], \"rows\": [{ROW}",
        "[1, \"]\"], ".repeat(100_000)
    );
    let rows = 1_000_000;
    let input = std::io::Cursor::new(first.into_bytes()).chain(Endless { left: rows, at: 0 });
    let input = input.chain(std::io::Cursor::new(b"], \"after\": {}}".to_vec()));
    let mut document = Document::of("a.json".into(), input);
    document
        .enter(Pointer::parse("/rows").as_ref())
        .expect("an array");
    let (mut number, mut most) = (0, 0);
    while let Some(element) = document.next(number == 0).expect("a record") {
        number += 1;
        most = most.max(document.bytes(&element).len());
    }
    assert_eq!(number, rows + 1);
    assert!(
        most < 100 && document.held() <= 2 << 18,
        "{most} {}",
        document.held()
    );
}
