//! The language of pages, help texts, error messages, comments and strings, by rules that a program can check. The test accepts no
//! finding.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::root;

/// Openings of sentences without a subject.
const FRAGMENTS: [&str; 7] = ["That of", "The same", "As ", "Of ", "Whether ", "What ", "How "];

/// Openings of doc comments that hide their subject.
const HIDDEN: [&str; 10] = [
    "Its ", "It ", "Which ", "From ", "For ", "By ", "In ", "Where ", "That ", "Those ",
];

/// Openings of doc comments that hide their subject, unless a comma ends them and a subject follows.
const BEFORE_A_COMMA: [&str; 17] = [
    "With ", "Without ", "On ", "To ", "Up ", "Beyond ", "Before ", "After ", "Above ", "Under ", "At ",
    "Too ", "Between ", "Against ", "Among ", "Within ", "Then ",
];

/// Words and phrases that have a plainer form.
const STOP_LIST: [&str; 6] = [
    "so-manieth",
    "whoever",
    "foresee",
    "in vain",
    "thousand million",
    "what came",
];

/// Units of a rate: "two bytes per user".
const UNITS: &str = "round user worker thread coordinate parameter client sample crate step line pair second process \
    machine pass";

/// Nouns that are counted per unit.
const COUNTED: &str = "bit bits byte bytes client clients coefficient coefficients count counts digest draw draws element \
    elements entry entries event example examples file files gb gradient gradients index message \
    messages number numbers object part parts process row rows sample samples sentences thread tokens \
    user users vector vectors word words";

/// Numbers in words; digits count as well.
const NUMBERS: &str = "one two three four five six seven eight nine ten once twice";

/// The wordings of earlier versions.
const EARLIER: &str = "crates/verify/src/verify/wording.rs";

/// Words of a sentence in a document.
const MAX_WORDS: usize = 30;

/// Characters of the first paragraph of a help text, which `-h` shows as one line.
const MAX_HELP: usize = 160;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Doc comments.
    Doc,
    /// Strings of `#[error]`.
    Error,
    /// Doc comments that clap shows.
    Help,
    /// README and docs.
    Page,
    /// All other text: notebooks, and whole sources with their strings and comments. Only rates and words are judged.
    Text,
}

/// A piece of text to judge.
#[derive(Debug, PartialEq, Eq)]
struct Passage {
    kind: Kind,
    line: usize,
    /// `true` for sentences. Headings and tables are no sentences.
    prose: bool,
    text: String,
}

mod rules;

/// Passages of a Markdown page.
fn page(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut fenced = false;
    let mut open = false;
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        if fenced || trimmed.is_empty() {
            open = false;
            continue;
        }
        let passage = |prose, text: &str| Passage {
            kind: Kind::Page,
            line,
            prose,
            text: text.to_owned(),
        };
        if trimmed.starts_with(['|', '#']) {
            passages.push(passage(false, trimmed));
            open = false;
        } else if let Some(item) = list_item(trimmed) {
            passages.push(passage(true, item));
            open = true;
        } else if let Some(last) = passages.last_mut().filter(|_| open) {
            last.text.push(' ');
            last.text.push_str(trimmed);
        } else {
            passages.push(passage(true, trimmed));
            open = true;
        }
    }
    passages
}

/// The text after the mark of a list item.
fn list_item(line: &str) -> Option<&str> {
    if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(item.trim_start());
    }
    let (number, item) = line.split_once(". ")?;
    let counted = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    counted.then(|| item.trim_start())
}

/// Doc comments, help texts and error messages of a source file.
fn source(text: &str, has_help: bool) -> Vec<Passage> {
    let mut passages = comments(text, has_help);
    passages.extend(errors(text));
    passages
}

fn comments(text: &str, has_help: bool) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let (mut open, mut fenced, mut first) = (false, false, false);
    // Inside of a type whose fields or variants clap shows.
    let mut shown = false;
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim_start();
        if trimmed.starts_with("#[derive(") {
            let clap = ["clap::", "ValueEnum", "Args", "Parser", "Subcommand"];
            shown = has_help && clap.iter().any(|word| trimmed.contains(word));
        } else if text.starts_with('}') {
            shown = false;
        }
        let comment = trimmed
            .strip_prefix("///")
            .filter(|rest| !rest.starts_with('/'))
            .or_else(|| trimmed.strip_prefix("//!"));
        let Some(comment) = comment.map(str::trim) else {
            (open, fenced, first) = (false, false, false);
            continue;
        };
        if comment.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced || comment.is_empty() {
            open &= fenced;
            continue;
        }
        if let Some(last) = passages.last_mut().filter(|_| open) {
            last.text.push(' ');
            last.text.push_str(comment);
            continue;
        }
        let help = shown && text.starts_with(' ') && !first;
        passages.push(Passage {
            kind: if help { Kind::Help } else { Kind::Doc },
            line,
            // Only the first sentence of a comment has to stand alone.
            prose: !first && !comment.starts_with(['#', '|']),
            text: comment.to_owned(),
        });
        (open, first) = (true, true);
    }
    passages
}

/// The strings of `#[error("...")]`.
fn errors(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    for (at, mark) in text.match_indices("#[error(") {
        let rest = text[at + mark.len()..].trim_start();
        let Some(rest) = rest.strip_prefix('"') else {
            continue;
        };
        let mut message = String::new();
        let mut escaped = false;
        for c in rest.chars() {
            match (escaped, c) {
                (false, '"') => break,
                (false, '\\') => escaped = true,
                (true, '\n') => escaped = false,
                (true, c) => {
                    message.push(c);
                    escaped = false;
                }
                (false, c) => message.push(c),
            }
        }
        passages.push(Passage {
            kind: Kind::Error,
            line: text[..at].lines().count().max(1),
            prose: true,
            text: message.split_whitespace().collect::<Vec<_>>().join(" "),
        });
    }
    passages
}

/// Paragraphs of any file, without the marks of comments and the ends of lines in strings.
fn paragraphs(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut open = false;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim().trim_start_matches(['/', '#', '!', ' ']);
        let text = text.trim_end_matches('\\').trim_end();
        match passages.last_mut().filter(|_| open && !text.is_empty()) {
            Some(last) => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            None if text.is_empty() => {}
            None => passages.push(Passage {
                kind: Kind::Text,
                line,
                prose: false,
                text: text.to_owned(),
            }),
        }
        open = !text.is_empty();
    }
    passages
}

/// Files below a folder with an ending, without build outputs and hidden folders.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if path.extension().unwrap_or_default() == ending {
            found.push(path);
        }
    }
}

/// Findings of the whole tree, each with its file and line.
fn judge_tree() -> Vec<String> {
    let root = root();
    let mut paths = vec![root.join("README.md")];
    files(&root.join("docs"), "md", &mut paths);
    let of_crates = super::crates().map(|folder| folder.join("README.md"));
    paths.extend(of_crates.filter(|page| page.exists()));
    for folder in ["crates", "lab", "tools", "python"] {
        files(&root.join(folder), "rs", &mut paths);
    }
    let pages = paths
        .iter()
        .filter(|path| path.extension() == Some("md".as_ref()));
    let pages: HashSet<PathBuf> = pages.cloned().collect();
    paths.extend(
        [
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        ]
        .map(|name| root.join(name)),
    );
    for folder in ["lab/notebooks", "examples", "python", ".ci"] {
        for ending in ["md", "py", "toml", ""] {
            files(&root.join(folder), ending, &mut paths);
        }
    }
    let rules = root.join("tools/gates/tests/it/language");
    let mut findings = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&root).expect("a file of the tree");
        let name = name.to_string_lossy().replace('\\', "/");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("reading {name}: {error}"));
        let mut passages = match path.extension() {
            Some(ending) if ending == "rs" => source(
                &text,
                name.starts_with("crates/cli/src/") || text.contains("clap::"),
            ),
            _ if pages.contains(&path) => page(&text),
            _ => Vec::new(),
        };
        // The rules say what must not be said.
        let quotes = path.starts_with(&rules) || path == rules.with_extension("rs") || name == EARLIER;
        if !pages.contains(&path) && !quotes {
            passages.extend(paragraphs(&text));
        }
        for passage in passages {
            let found = rules::findings(&passage).into_iter();
            findings.extend(found.map(|finding| format!("{name}:{}: {finding}", passage.line)));
        }
    }
    findings
}

#[test]
fn no_text_of_the_tree_breaks_a_rule() {
    let findings = judge_tree();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

mod the_rules;

mod the_readers {
    use super::*;

    fn texts(passages: &[Passage]) -> Vec<(Kind, bool, &str)> {
        let shown = passages.iter();
        shown
            .map(|passage| (passage.kind, passage.prose, passage.text.as_str()))
            .collect()
    }

    #[test]
    fn pages_are_cut_into_paragraphs_items_headings_and_rows() {
        let text = "# Title\n\nOne\ntwo.\n- item\n  goes on\n2. next\n\n```sh\ncode a user\n```\n| a | b |\n";
        let passages = page(text);
        assert_eq!(
            texts(&passages),
            [
                (Kind::Page, false, "# Title"),
                (Kind::Page, true, "One two."),
                (Kind::Page, true, "item goes on"),
                (Kind::Page, true, "next"),
                (Kind::Page, false, "| a | b |"),
            ]
        );
        assert_eq!(passages[1].line, 3);
    }

    #[test]
    fn comments_are_joined_and_only_their_first_paragraph_opens() {
        let text = "/// First\n/// line.\n///\n/// Of more.\n/// ```\n/// code\n/// ```\nfn f() {}\n/// Next.\nfn g() {}\n";
        assert_eq!(
            texts(&source(text, false)),
            [
                (Kind::Doc, true, "First line."),
                (Kind::Doc, false, "Of more."),
                (Kind::Doc, true, "Next."),
            ]
        );
    }

    #[test]
    fn fields_of_clap_types_are_help() {
        let text = "/// Arguments.\n#[derive(Debug, clap::Args)]\nstruct A {\n    /// Shown.\n    #[arg(long)]\n    a: u8,\n}\n\n\
                    struct B {\n    /// Hidden.\n    b: u8,\n}\n";
        let kinds = |has_help| {
            texts(&source(text, has_help))
                .iter()
                .map(|text| text.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds(true), [Kind::Doc, Kind::Help, Kind::Doc]);
        assert_eq!(kinds(false), [Kind::Doc; 3]);
    }

    #[test]
    fn other_text_is_cut_at_empty_lines() {
        let text = "// One\n// two.\nlet text = \"three \\\n    four\";\n\n# five\n";
        let passages = paragraphs(text);
        assert_eq!(
            texts(&passages),
            [
                (Kind::Text, false, "One two. let text = \"three four\";"),
                (Kind::Text, false, "five"),
            ]
        );
        assert_eq!(passages[1].line, 6);
    }

    #[test]
    fn error_strings_are_read_over_lines_and_escapes() {
        let text =
            "#[error(\"{key}: \\\"quoted\\\" and \\\n        more\")]\nA,\n#[error(transparent)]\nB,\n";
        assert_eq!(
            texts(&errors(text)),
            [(Kind::Error, true, "{key}: \"quoted\" and more")]
        );
    }
}
