//! Dumps of Reddit: one comment or submission per line, in JSON.

use serde::Deserialize;

use crate::error::Result;
use crate::source::coded;
use crate::source::exports::html::unescape;
use crate::source::exports::json::{Scalar, line};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use crate::source::lines::Lines;

const ENDINGS: [&str; 7] = [".jsonl", ".ndjson", ".json", ".zst", ".gz", ".txt", ""];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Row {
    author: Scalar,
    title: Scalar,
    selftext: Scalar,
    body: Scalar,
    created_utc: Scalar,
}

pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    for path in tree.streams(&ENDINGS, "files")? {
        coded::each(&path, &["jsonl", "ndjson", "json", ""], &mut |content| {
            let path = content.path().to_owned();
            sink.lines_of(&path)?;
            let mut lines = Lines::of(content);
            while let Some((number, text)) = lines.next()? {
                if text.trim_ascii().is_empty() {
                    continue;
                }
                let row = line(
                    &path,
                    number,
                    text,
                    "a comment or submission as a JSON object",
                    sink,
                )?;
                take(number, &row, sink)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn take(number: u64, row: &Row, sink: &mut Sink<'_, '_>) -> Result<()> {
    let author = row.author.0.as_str();
    if matches!(author, "" | "[deleted]" | "[removed]") {
        sink.leave_out("messages without an account left out");
        return Ok(());
    }
    if author == "AutoModerator" {
        sink.leave_out("messages of bots left out");
        return Ok(());
    }
    let body = row.body.text().unwrap_or(&row.selftext.0);
    if matches!(body, "[deleted]" | "[removed]") {
        sink.leave_out("deleted messages left out");
        return Ok(());
    }
    let mut text = row.title.0.clone();
    let mut is_quoted = false;
    for line in unescape(body).lines() {
        if line.starts_with('>') {
            sink.note("quotations left out", u64::from(!is_quoted));
            is_quoted = true;
            continue;
        }
        is_quoted = false;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }
    let text = text.trim();
    if text.is_empty() {
        sink.leave_out("posts without text left out");
        return Ok(());
    }
    let Some(time) = row.created_utc.seconds() else {
        let expected = "unix seconds, as a number or as text";
        return Err(sink.bad(number, "created_utc", expected, row.created_utc.0.clone()));
    };
    sink.message(number, author, text, Some(time))
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const DUMP: &str = r#"{"author": "ada", "body": "A &amp; b\n\n&gt; theirs\n&gt; too\n\nmine \ud83d", "created_utc": 1717588800, "score": 1e999}

{"author": "ben", "title": "Boats", "selftext": "are &lt; ships", "created_utc": "1717588801"}
{"author": "ben", "title": "A link", "selftext": "", "url": "https://a.example", "created_utc": 1717588802.0}
{"author": "[deleted]", "body": "x", "created_utc": 1}
{"author": "ada", "body": "[removed]", "created_utc": 1}
{"author": "AutoModerator", "body": "x", "created_utc": 1}
"#;

    #[test]
    fn a_dump_gives_the_texts_of_accounts() {
        let expected = [
            row("ada", "A & b\n\n\nmine \u{fffd}", 1_717_588_800),
            row("ben", "Boats\nare < ships", 1_717_588_801),
            row("ben", "A link", 1_717_588_802),
        ];
        let export = Export::file(ExportKind::Reddit, "RC_2024-06", DUMP.as_bytes());
        assert_eq!(export.rows(), expected);
        assert_eq!(
            export.left_out(),
            counts(&[
                ("deleted messages left out", 1),
                ("lone surrogates replaced", 1),
                ("messages of bots left out", 1),
                ("messages without an account left out", 1),
                ("quotations left out", 1)
            ])
        );
        let packed = zstd::encode_all(DUMP.as_bytes(), 1).expect("zstd");
        assert_eq!(
            Export::file(ExportKind::Reddit, "RC_2024-06.zst", &packed).rows(),
            expected
        );
        assert_eq!(
            Export::zip(ExportKind::Reddit, &[("RC.jsonl", DUMP)]).rows(),
            expected
        );
    }

    #[test]
    fn a_broken_line_names_its_number() {
        let error = Export::file(ExportKind::Reddit, "a.jsonl", b"\n{\"author\": 1, }\n").error();
        assert!(
            error.contains("a.jsonl, line 2: line: expected a comment"),
            "{error}"
        );
        assert!(!error.contains("at line 1"), "{error}");
        let error = Export::file(
            ExportKind::Reddit,
            "a.jsonl",
            b"{\"author\": \"a\", \"body\": \"b\"}",
        )
        .error();
        assert!(
            error.contains("a.jsonl, line 1: created_utc: expected unix seconds"),
            "{error}"
        );
    }
}
