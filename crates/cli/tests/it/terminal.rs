//! Nothing that a file holds is obeyed by a terminal: controls are shown as escapes, and no value adds a line.

use std::process::Output;

use serde_json::Value;

use crate::support::{Folder, TINY, json};
use crate::verify::{document, rechained};

/// Each does something to a terminal: clear the screen, return to the start of the line, conceal, turn the text around; and the
/// last would add a line to a table.
const HOSTILE: [&str; 5] = [
    "\x1b[2J",
    "\rholds",
    "\u{9b}8m",
    "\u{202e}dloh",
    "\nguarantee  holds",
];

/// The visible form of these characters on the terminal.
const VISIBLE: [&str; 5] = [
    "\\u{1b}[2J",
    "\\rholds",
    "\\u{9b}8m",
    "\\u{202e}dloh",
    "\\nguarantee  holds",
];

fn all() -> String {
    HOSTILE.concat()
}

/// Both outputs, checked: valid UTF-8 with no character that a terminal would obey but line feeds.
fn checked(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let obeyed = |c: char| {
            (c.is_control() && c != '\n')
                || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!text.contains(obeyed), "{text:?}");
        text
    };
    (text(&output.stdout), text(&output.stderr))
}

fn run(folder: &Folder, arguments: &[&str]) -> Output {
    let arguments = arguments.iter().copied();
    folder.command_of(arguments).output().expect("running undertone")
}

/// Runs, expects an error of one line that shows every one of the hostile texts.
fn check_error(folder: &Folder, arguments: &[&str]) {
    let output = run(folder, arguments);
    let (_, error) = checked(&output);
    assert!(!output.status.success(), "{arguments:?}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for text in VISIBLE {
        assert!(error.contains(text), "{text} in {error}");
    }
    // As JSON, the same characters come back when it is read.
    let output = run(folder, &[arguments, &["--json"]].concat());
    let (_, error) = checked(&output);
    assert!(json(&error)["error"].is_string(), "{error}");
}

fn finished() -> Folder {
    Folder::trained(TINY.replace("rounds = 6", "rounds = 2"))
}

fn change(folder: &Folder, file: &str, change: impl Fn(&str) -> String) {
    let path = format!("runs/tiny/{file}");
    let text = folder.text(&path);
    folder.write(&path, change(&text));
}

#[test]
#[ignore = "slow"]
fn ledger_fields_cannot_repaint_the_table_of_verify() {
    let folder = finished();
    let hostile = Value::from(all());
    for key in ["sampling", "parameters_sha256", "previous_sha256", "noise_key"] {
        let honest = folder.read("runs/tiny/ledger.jsonl");
        change(&folder, "ledger.jsonl", |text| {
            rechained(text, 1, |line| line[key] = hostile.clone())
        });
        if key == "previous_sha256" {
            change(&folder, "ledger.jsonl", |text| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines[1] = document(&lines[1], |line| line[key] = hostile.clone());
                lines.join("\n")
            });
        }
        let output = folder.run("verify runs/tiny");
        let (table, error) = checked(&output);
        assert!(!output.status.success(), "{key}");
        assert_eq!(error.lines().count(), 1, "{error}");
        if matches!(key, "sampling" | "previous_sha256") {
            for text in VISIBLE {
                assert!(table.contains(text), "{key}: {text} in {table}");
            }
        }
        // A line feed in a value would start a row of its own.
        assert!(
            !table
                .lines()
                .any(|line| line.trim_start().starts_with("guarantee  holds")),
            "{table}"
        );
        checked(&folder.run("verify runs/tiny --json"));
        folder.write("runs/tiny/ledger.jsonl", honest);
    }
}

#[test]
fn the_name_of_a_run_and_its_warnings_are_shown_as_values_in_a_report() {
    let folder = finished();
    change(&folder, "metrics.jsonl", |text| {
        let (first, rest) = text.split_once('\n').expect("lines");
        let start = document(first, |line| {
            for key in ["run", "model"] {
                assert!(line[key].is_string(), "{line}");
                line[key] = all().into();
            }
        });
        format!("{start}\n{rest}")
    });
    change(&folder, "privacy.json", |text| {
        document(text, |report| report["warnings"] = vec![all()].into())
    });
    let output = folder.run("report runs/tiny");
    let (table, error) = checked(&output);
    assert!(output.status.success(), "{error}");
    assert!(table.matches(&VISIBLE.concat()).count() >= 2, "{table}");
    checked(&folder.run("report runs/tiny --json"));
}

#[test]
fn values_and_column_names_of_tables_are_shown_in_errors() {
    let folder = Folder::new();
    let hostile = all();
    folder.write("a.csv", format!("user_id,text,at\nu,t,\"{hostile}\"\n"));
    folder.write("b.csv", format!("\"{hostile}\",text\nu,t\n"));
    let row = serde_json::json!({ "user_id": "u", "text": "t", "at": hostile });
    folder.write("c.jsonl", format!("{row}\n"));
    for line in [
        "data stats --public-corpus a.csv --csv a.csv --time-column at",
        "data stats --public-corpus b.csv --csv b.csv",
        "data stats --public-corpus c.jsonl --jsonl c.jsonl --time-column at",
    ] {
        check_error(&folder, &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn names_of_files_are_shown_in_errors() {
    let folder = Folder::new();
    // A file name has no zero byte and no slash; everything else is possible.
    let name = format!("{}.toml", all());
    check_error(&folder, &["train", &name]);
    folder.write(&name, "name = \x1b");
    check_error(&folder, &["train", &name]);
    check_error(&folder, &["verify", &all()]);
    check_error(&folder, &["report", &all()]);
}

#[test]
fn names_of_tensors_are_shown_in_errors() {
    let folder = finished();
    let header =
        serde_json::json!({ all(): { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } }).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 4]);
    folder.write("runs/tiny/model.safetensors", bytes);
    check_error(&folder, &["eval", "runs/tiny"]);
}

#[test]
fn errors_are_one_line_of_bounded_length_whatever_a_file_holds() {
    let folder = Folder::new();
    let check = |text: &str| {
        folder.write("run.toml", text);
        for line in ["train run.toml", "train run.toml --json"] {
            let (_, error) = checked(&folder.run(line));
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(
                error.chars().count() < 20_000,
                "{} characters",
                error.chars().count()
            );
        }
    };
    let long = "x".repeat(3_000_000);
    check(&format!("\"{long}\" = 1\n"));
    check(&TINY.replace("poisson", &long));
    check(&TINY.replace(
        "name = \"tiny\"",
        &format!("name = \"{}\"", "\\u001b".repeat(100_000)),
    ));
    check(&"[".repeat(100_000));
    check(&format!("a = {}", "[".repeat(100_000)));
    check("name = \"\"\"\n\n\n\nx");
}
