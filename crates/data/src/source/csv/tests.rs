use super::*;

/// User, text and time of each row.
type Found = Vec<(String, String, i64)>;

fn read_as(name: &str, bytes: impl AsRef<[u8]>, format: Format<'_>, time: Option<&str>) -> Result<Found> {
    let columns = Columns {
        user: Some("user_id"),
        time,
        ..Columns::texts("text", crate::columns::Keys::SOURCE)
    };
    let mut found = Vec::new();
    let content = Coded::of_bytes(name, bytes.as_ref().to_vec())?;
    read(content, columns, format, &mut |rows, _| {
        for row in 0..rows.len() {
            let (user, text) = (rows.users.get(row), rows.texts.get(row));
            found.push((user.to_owned(), text.to_owned(), rows.times[row]));
        }
        Ok(())
    })?;
    Ok(found)
}

fn rows(name: &str, bytes: impl AsRef<[u8]>) -> Result<Vec<(String, String)>> {
    let found = read_as(name, bytes, Format::default(), None)?;
    Ok(found.into_iter().map(|(user, text, _)| (user, text)).collect())
}

#[track_caller]
fn fails(name: &str, bytes: impl AsRef<[u8]>, parts: &[&str]) {
    let shown = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let error = rows(name, bytes).expect_err(&shown).to_string();
    for part in parts {
        assert!(error.contains(part), "{shown:?}: {error:?} lacks {part:?}");
    }
}

fn dialect(dialect: Dialect) -> Format<'static> {
    Format {
        dialect,
        ..Format::default()
    }
}

#[test]
fn a_stray_quote_is_an_error_that_names_the_line_where_it_was_opened() {
    let unclosed = "expected a closing quote for the quote that begins a field here, got the end of the file";
    let after = "expected a separator or the end of the record after the closing quote";
    for (name, text, line, part) in [
        (
            "a.csv",
            "user_id,text\nu1,\"a b c\nu2,d e f\nu3,g h i\nu4,j k l\n",
            2,
            unclosed,
        ),
        (
            "a.csv",
            "user_id,text\nu1,\"a b c\nu2,d e f\nu3,\"g\" h i\nu4,j k l\n",
            2,
            after,
        ),
        ("a.csv", "user_id,text\r\nu1,a\r\nu2,\"b\r\nu3,c\r\n", 3, unclosed),
        ("a.csv", "user_id,text\nu1,a\nu2,\"b", 3, unclosed),
        ("a.csv", "user_id,text\nu1,\"", 2, unclosed),
        ("a.csv", "user_id,text\nu1,\"\"\"\nu2,b\n", 2, unclosed),
        (
            "a.csv",
            "text,user_id\n\"two\nlines\",u1\n\"two\nmore,u2\n",
            4,
            unclosed,
        ),
        // The record begins before its quote.
        ("a.csv", "text,user_id\n\"two\nlines\",\"u1\n", 3, unclosed),
        ("a.csv", "user_id,text\nu1,\"a\"b\n", 2, after),
        ("a.csv", "user_id,text\nu1,\"a\" \n", 2, after),
        ("a.csv", "user_id,text\nu1,\"a\"b\",c\n", 2, after),
        ("a.csv", "user_id,text\n\n\nu1,\"a\nb\"\"c\" d\n", 4, after),
        ("a.csv", "\"user_id\"s,text\nu1,a\n", 1, after),
        ("a.csv", "\"user_id,text\nu1,a\n", 1, unclosed),
        (
            "a.tsv",
            "user_id\ttext\nu1\t\"Never closed here\nu2\tsecond row text\n",
            2,
            unclosed,
        ),
        ("a.tsv", "user_id\ttext\nu1\t\"5\" tall\nu2\tsecond\n", 2, after),
    ] {
        fails(name, text, &[&format!("{name}, line {line}: record: "), part]);
    }
    // The next step is named.
    fails(
        "a.tsv",
        "user_id\ttext\nu1\t\"a\n",
        &["--dialect plain (dialect = \"plain\")"],
    );
}

#[test]
fn honest_quotes_line_ends_and_blank_lines_are_read() {
    for (text, expected) in [
        (
            "user_id,text\nu1,5\" tall\nu2,say \"hi\"\n",
            [("u1", "5\" tall"), ("u2", "say \"hi\"")],
        ),
        (
            "user_id,text\nu1,\"5\"\" tall\"\nu2,\"\"\"\"\n",
            [("u1", "5\" tall"), ("u2", "\"")],
        ),
        (
            "user_id,text\r\nu1,\"a\r\nb\"\r\nu2,\"\"\r\n",
            [("u1", "a\r\nb"), ("u2", "")],
        ),
        (
            "user_id,text\nu1,\"a,b\nc\"\n\"u2\",\"d\"\"\n\"\"e\"",
            [("u1", "a,b\nc"), ("u2", "d\"\n\"e")],
        ),
        (
            "\u{feff}\"user_id\",\"text\"\n\nu1,a\n\r\n\nu2,b",
            [("u1", "a"), ("u2", "b")],
        ),
        (
            "user_id,text\nu1, \"a\"\nu2,b \n",
            [("u1", " \"a\""), ("u2", "b ")],
        ),
        ("user_id,text\ru1,a\ru2,b\r", [("u1", "a"), ("u2", "b")]),
        ("x,text,user_id\n,a,u1\n\"\",b,u2\n", [("u1", "a"), ("u2", "b")]),
        (
            "user_id,text\nu1,a\\\nu2,\\\"b\\\"\n",
            [("u1", "a\\"), ("u2", "\\\"b\\\"")],
        ),
    ] {
        let expected = expected.map(|(user, text)| (user.to_owned(), text.to_owned()));
        assert_eq!(rows("a.csv", text).expect(text), expected, "{text:?}");
    }
}

#[test]
fn another_number_of_fields_is_an_error_that_names_the_line_where_the_record_begins() {
    for (text, line, got) in [
        ("user_id,text\nu1,a\nu2,b,c\n", 3, "3"),
        ("user_id,text\nu1,a\nu2\n", 3, "1"),
        ("user_id,text\r\nu1,a\r\nu2,b,c\r\n", 3, "3"),
        ("user_id,text\nu1,\"a\nb\nc\"\nu2,\"d\ne\",f\n", 5, "3"),
        ("user_id,text\r\n\r\nu1,\"a\r\nb\"\r\nu2\r\n", 5, "1"),
        ("user_id,text\nu1,a\n \n", 3, "1"),
        ("user_id,text\nu1,a,\n", 2, "3"),
    ] {
        let part = format!("a.csv, line {line}: number of fields: expected 2 as in the header, got {got}");
        fails("a.csv", text, &[&part]);
    }
}

#[test]
fn errors_name_the_line_that_an_editor_shows_with_every_line_end() {
    for end in ["\n", "\r\n", "\r"] {
        let text = ["user_id,text", "u1,a", "u2,b", ",c", "u4,d", ""].join(end);
        fails(
            "a.csv",
            &text,
            &["a.csv, line 4: column \"user_id\": expected a user, got \"\""],
        );
        let text = ["user_id,text", "u1,\"a", "b\"", ",c", ""].join(end);
        fails("a.csv", &text, &["a.csv, line 4: column \"user_id\""]);
        let text = [&b"user_id,text"[..], b"u1,a", b"u2,caf\xe9", b""].join(end.as_bytes());
        fails(
            "a.csv",
            &text,
            &[
                "a.csv, line 3: column \"text\": expected UTF-8",
                "iconv -f WINDOWS-1252",
            ],
        );
    }
}

#[test]
fn letters_of_unused_columns_are_not_judged() {
    let text = b"user_id,x,text\nu1,caf\xe9,a\n";
    assert_eq!(
        rows("a.csv", text).expect("rows"),
        [("u1".to_owned(), "a".to_owned())]
    );
}

#[test]
fn a_missing_column_names_the_flag_and_the_separator_that_gives_it() {
    for (name, text, hint) in [
        (
            "a.csv",
            "user_id;text\nu1;a\n",
            "its columns are \"user_id;text\"; with --delimiter ';' (data.source.delimiter)",
        ),
        (
            "a.csv",
            "user_id\ttext\nu1\ta\n",
            "with --delimiter '\\t' (data.source.delimiter) it has that column",
        ),
        ("a.csv", "user_id|text\n", "with --delimiter '|'"),
        ("a.tsv", "user_id,text\nu1,a\n", "with --delimiter ','"),
        (
            "a.csv",
            "sep=;\nuser_id;text\n",
            "its first line is a mark of Excel",
        ),
    ] {
        fails(
            name,
            text,
            &[
                "it lacks the column \"user_id\" that data.source.user (--user-column) names",
                hint,
            ],
        );
    }
    fails(
        "a.csv",
        "user,text\nu1,a\n",
        &["its columns are \"user\", \"text\""],
    );
    for (text, shown) in [
        ("\"user_id\";\"text\"\n", "';'"),
        ("\"user_id\"\t\"text\"\n", "'\\t'"),
    ] {
        let got = format!("got {shown}; --delimiter {shown} (data.source.delimiter)");
        fails("a.csv", text, &["line 1: record", &got]);
    }
    let error = rows("a.csv", "user,text\nu1,a\n")
        .expect_err("no column")
        .to_string();
    assert!(!error.contains("--delimiter"), "{error}");
}

#[test]
fn a_dump_has_absent_values_escapes_and_no_quotes() {
    let text = "user_id\ttext\twhen\nu1\t\"Never\\tclosed\\\\ here\\n\\x41\\101\\q\t2024-06-05 12:00:00+00\n\
                u2\t\\N\t\\N\nu3\ta\\\nb\\\tc\t0\n\\.\n";
    let expected = [
        ("u1", "\"Never\tclosed\\ here\nAAq", 1_717_588_800),
        ("u2", "", NO_TIME),
        ("u3", "a\nb\tc", 0),
    ];
    let expected = expected.map(|(user, text, time)| (user.to_owned(), text.to_owned(), time));
    let found = read_as("a.txt", text, dialect(Dialect::Dump), Some("when")).expect("rows");
    assert_eq!(found, expected);
    // Windows line ends, and names from the settings.
    let names = ["user_id", "text", "when"].map(str::to_owned);
    let format = Format {
        header: Some(&names),
        ..dialect(Dialect::Dump)
    };
    let (_, body) = text.split_once('\n').expect("a header");
    let body = body.replace("\\\nb", "\\nb");
    for body in [body.replace('\n', "\r\n"), body] {
        assert_eq!(
            read_as("a.tsv", body, format, Some("when")).expect("rows"),
            expected
        );
    }
    for (text, part) in [
        (
            "user_id\ttext\n\\N\ta\n",
            "line 2: column \"user_id\": expected a user, got \\N, the mark of an absent value",
        ),
        (
            "user_id\ttext\nu1\ta\\",
            "line 2: record: expected a letter after a backslash",
        ),
        (
            "user_id\ttext\nu1\ta\n\\.\nSELECT 1;\n",
            "line 4: record: expected nothing after the mark \\. that ends",
        ),
        (
            "user_id\ttext\nu1\ta\\\nb\nu2\n",
            "line 4: number of fields: expected 2 as in the header, got 1",
        ),
        (
            "user_id\ttext\nu1\t\\xff\n",
            "line 2: column \"text\": expected UTF-8",
        ),
    ] {
        let error = read_as("a.tsv", text, dialect(Dialect::Dump), None)
            .expect_err(text)
            .to_string();
        assert!(error.contains(part), "{error}");
    }
    // Without the dialect a mark of an absent value is a name.
    assert_eq!(
        rows("a.tsv", "user_id\ttext\n\\N\ta\n").expect("rows")[0].0,
        "\\N"
    );
}

#[test]
fn in_the_plain_dialect_quotes_and_backslashes_are_letters() {
    let text = "user_id\ttext\nu1\t\"Never closed here\r\nu2\tsecond\\trow \"text\"\n\nu3\t\\N";
    let expected = [
        ("u1", "\"Never closed here"),
        ("u2", "second\\trow \"text\""),
        ("u3", "\\N"),
    ];
    let found = read_as("a.tsv", text, dialect(Dialect::Plain), None).expect("rows");
    let found: Vec<_> = found
        .iter()
        .map(|(user, text, _)| (user.as_str(), text.as_str()))
        .collect();
    assert_eq!(found, expected);
    let error = read_as(
        "a.tsv",
        "user_id\ttext\nu1\ta\tb\n",
        dialect(Dialect::Plain),
        None,
    )
    .expect_err("fields");
    assert!(error.to_string().contains("line 2: number of fields"), "{error}");
}

#[test]
fn records_are_the_same_wherever_the_reads_end() {
    struct Trickle<'t>(&'t [u8], usize);
    impl std::io::Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }
    let long = "x\"\"\r\n,".repeat(60_000);
    let text = format!("a,b\r\n\"{long}\",1\r\n\r\n\"\"\"\",\"\"\nlast,\"{long}\"");
    let expected = [
        vec!["a".to_owned(), "b".to_owned()],
        vec![long.replace("\"\"", "\""), "1".to_owned()],
        vec!["\"".to_owned(), String::new()],
        vec!["last".to_owned(), long.replace("\"\"", "\"")],
    ];
    for step in [100_003, 262_143, 262_144, 1 << 20] {
        let input = Trickle(text.as_bytes(), step);
        let mut records = Records::of(Path::new("a.csv"), input, b',', Dialect::Quoted);
        let (mut found, mut lines, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        while records.next(MAX_LINE_BYTES).expect("a record") {
            lines.push(records.line());
            let mut fields = Vec::new();
            for index in 0..records.len() {
                let field = records.field(index, &mut scratch).expect("a field");
                fields.push(String::from_utf8(field.to_vec()).expect("text"));
            }
            found.push(fields);
        }
        assert_eq!(found, expected);
        assert_eq!(lines, [1, 2, 60_004, 60_005]);
    }
}
