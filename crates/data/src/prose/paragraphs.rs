//! The paragraphs of a document.

use undertone_text::WordRule;

/// Min number of words of a paragraph. Shorter ones are labels.
const MIN_WORDS: u64 = 4;

/// Min fraction of a paragraph's characters that are letters, spaces or typographic. Code and figures have fewer.
const MIN_LETTERS: f64 = 0.85;

/// Max length of a link's target in bytes.
const MAX_TARGET: usize = 2048;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Markdown, reStructuredText or plain text.
    Document,
    /// Rust source code, whose doc comments are documents.
    RustSource,
}

/// The paragraphs of a file, each on one line, without code blocks, tables, marks and addresses.
pub(super) fn paragraphs(text: &str, kind: Kind) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = String::new();
    let mut fenced = false;
    for line in text.lines() {
        let line = match kind {
            Kind::Document => line,
            // A line that is no doc comment ends the comment, and a code block that was left open.
            Kind::RustSource => match doc_comment(line) {
                Some(comment) => comment,
                None => {
                    fenced = false;
                    ""
                }
            },
        };
        let indented = line.starts_with("    ") || line.starts_with('\t');
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            fenced = !fenced;
            end(&mut current, &mut all);
            continue;
        }
        // An indented line after an empty one is code; after text, it continues a list.
        let is_code = fenced || (indented && current.is_empty());
        if is_code || line.is_empty() || is_layout(line) {
            end(&mut current, &mut all);
            continue;
        }
        let is_heading = line.starts_with('#');
        // A mark counts if a space follows it: `**bold**` is text.
        let item = line.trim_start_matches(['#', '-', '*', '+', '>']);
        let line = match item.len() < line.len() && item.starts_with(' ') {
            true => {
                end(&mut current, &mut all);
                item.trim_start()
            }
            false => line,
        };
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(line);
        if is_heading {
            end(&mut current, &mut all);
        }
    }
    end(&mut current, &mut all);
    all
}

/// The text of a doc comment, without its mark and one space.
fn doc_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // A row of slashes is a rule, and no comment.
    (!comment.starts_with('/')).then(|| comment.strip_prefix(' ').unwrap_or(comment))
}

/// `true` for the lines of tables, rules, tags and references.
fn is_layout(line: &str) -> bool {
    line.starts_with(['|', '<', '=', '$', '%', '{', '}', '!', '@'])
        || line.starts_with("..")
        || (line.starts_with('[') && line.contains("]:"))
        || line
            .chars()
            .all(|letter| matches!(letter, '-' | '*' | '_' | '~' | '^' | '#'))
}

/// Ends a paragraph, and keeps it if it is prose.
fn end(current: &mut String, all: &mut Vec<String>) {
    let text = plain(&std::mem::take(current));
    let characters = text.chars().count();
    let letters = text
        .chars()
        .filter(|letter| WordRule::Unicode.is_prose(*letter) || *letter == ' ')
        .count();
    if WordRule::Unicode.pieces(&text) >= MIN_WORDS && letters as f64 >= MIN_LETTERS * characters as f64 {
        all.push(text);
    }
}

/// The text without the marks of links, code and emphasis, and without addresses.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    // `[text](target)` and `[text][target]` become `text`.
    while let Some((before, from)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((inside, after)) = from.split_once(']') else {
            rest = from;
            break;
        };
        plain.push_str(inside);
        let end = match after.as_bytes().first() {
            Some(b'(') => Some(b')'),
            Some(b'[') => Some(b']'),
            _ => None,
        };
        // Looked for nearby only, so that marks without an end cost no more than the text is long.
        let target = end.and_then(|end| after.bytes().take(MAX_TARGET).position(|byte| byte == end));
        rest = target.map_or(after, |end| &after[end + 1..]);
    }
    plain.push_str(rest);
    let plain = plain.replace(['`', '*'], "").replace("__", "");
    let words = plain.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_links_code_and_tables_are_left_out() {
        let text = "\
## What it does for you\n\
It reads [the guide](docs/a.md) and `config.toml`, **twice** if need be\n\
and goes on here.\n\n\
```sh\nundertone train run.toml now or never\n```\n\
| a | table of four words |\n\
- The first item of a list\n\
- See https://example.org/x for the second item\n\n    indented code with many words\n\n\
1 2 3 4 5 6 7 8 9\n";
        assert_eq!(
            paragraphs(text, Kind::Document),
            [
                "What it does for you",
                "It reads the guide and config.toml, twice if need be and goes on here.",
                "The first item of a list",
                "See for the second item",
            ]
        );
    }

    #[test]
    fn only_doc_comments_of_source_code_are_read() {
        let text = "\
//! The crate does one thing well.\n\
use std::fs; // a comment about this import here\n\
/// Returns the number of\n\
/// open files.\n\
///\n\
/// ```\n/// let text = many words in a code block;\n\
fn open() {}\n\
/// The block above was never closed.\n";
        assert_eq!(
            paragraphs(text, Kind::RustSource),
            [
                "The crate does one thing well.",
                "Returns the number of open files.",
                "The block above was never closed.",
            ]
        );
    }

    #[test]
    fn prose_of_every_language_is_kept() {
        for text in [
            "今天天气很好，我们去公园散步吧。你觉得怎么样？",
            "私は学生です。東京に住んでいます。",
            "วันนี้อากาศดีมากและแมวนอนบนเก้าอี้",
            "यह मेरा घर है। तुम कहाँ रहते हो?",
            "“It’s fine,” she said – “isn’t it?”",
            "«Привет!» — сказал он, и ушёл.",
        ] {
            assert_eq!(paragraphs(text, Kind::Document), [text]);
        }
        for label in ["安装", "設定", "ติดตั้ง", "你好：1 2 3 4 5 6 7 8 9"] {
            assert!(paragraphs(label, Kind::Document).is_empty(), "{label}");
        }
    }

    #[test]
    fn hostile_marks_neither_panic_nor_hang() {
        for text in [
            "[[[[",
            "[a](b",
            "[ä](ö) and three more words",
            "]][[)(",
            "```",
            "[a][b",
        ] {
            let _ = paragraphs(text, Kind::Document);
        }
        for mark in ["[", "[a](", "]("] {
            let _ = paragraphs(&mark.repeat(100_000), Kind::Document);
        }
    }
}
