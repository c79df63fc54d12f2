//! The export of a task verifies, and fails where anything of it was changed.

use std::fs;
use std::path::{Path, PathBuf};

use undertone_coordinator::record::LedgerLine;
use undertone_service::room::Shared;
use undertone_service_testing::export;

use super::inside::Inside;
use super::task::{Size, Template, drawn};

/// A task with an abandoned attempt in a line of its ledger, and one before its end.
fn exported(target: &Path) {
    let size = Size {
        rounds: 4,
        max_part: 4,
        ..Size::default()
    };
    let template = Template::new(size);
    let folder = template.copy();
    let inside = Inside::new(folder.path());
    inside.serve(inside.shared("local"));
    let fleet = inside.fleet(60, 1);
    fleet.enrol().unwrap();
    let (mut ticks, mut closed) = (0, false);
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "the task does not end");
            assert_eq!(inside.tick(template.task), [""; 0]);
            // A stop with devices that have joined: their attempt is abandoned, and they count.
            let store = inside.service().shared().store.clone();
            let round = store.task(template.task).unwrap().head_round;
            let rows = fleet.participations();
            if !closed && round > 0 && rows.iter().any(|row| row.participation.round == round) {
                inside.service().close();
                let abandoned = store.abandoned_since_release(template.task).unwrap();
                closed = abandoned.iter().any(|attempt| !attempt.participants.is_empty());
                drop(store);
                inside.put_away();
                inside.serve(inside.shared("local"));
            }
            inside.is_over(template.task)
        })
        .unwrap();
    assert!(closed);
    inside.put_away();
    let shared: Shared = inside.shared("export");
    export(&shared, template.task, target);
}

/// Everything that a verification complains about; empty where it passes.
fn complaints(folder: &Path) -> String {
    match undertone_verify::verify(folder) {
        Err(error) => error.to_string(),
        Ok(verified) => {
            let problems = verified.checks.iter().flat_map(|check| &check.problems);
            let text = problems.cloned().collect::<Vec<_>>().join("\n");
            assert_eq!(text.is_empty(), verified.holds());
            text
        }
    }
}

/// A file of an export, which is put back after each change.
struct Changed {
    folder: PathBuf,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Changed {
    fn new(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        let bytes = fs::read(&path).unwrap();
        Self {
            folder: folder.to_owned(),
            path,
            bytes,
        }
    }

    /// The complaints about other bytes of the file.
    fn with(&self, bytes: &[u8]) -> String {
        assert_ne!(bytes, self.bytes);
        fs::write(&self.path, bytes).unwrap();
        let complaints = complaints(&self.folder);
        fs::write(&self.path, &self.bytes).unwrap();
        complaints
    }

    /// Bytes that are changed one at a time: some of them, or all.
    fn places(&self, all: bool) -> Vec<usize> {
        match all {
            true => (0..self.bytes.len()).collect(),
            false => (0..40)
                .map(|number| drawn(&[number, 9]) as usize % self.bytes.len())
                .chain([0, self.bytes.len() - 1])
                .collect(),
        }
    }
}

/// The lines whose text may be named after a change of a byte: its own, and the next one, which follows from its digest.
fn is_named(complaints: &str, line: usize, lines: usize) -> bool {
    let named = |line: usize| {
        let forms = [
            format!("ledger.jsonl, line {line}"),
            format!("ledger.jsonl is damaged: line {line}:"),
        ];
        forms.iter().any(|form| complaints.contains(form))
    };
    // Nothing follows the last line, but the manifest names its digest.
    named(line) || named(line + 1) || (line >= lines && complaints.contains("ledger_head"))
}

fn one_changed_byte(all: bool) -> usize {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("run");
    exported(&folder);
    assert_eq!(complaints(&folder), "");
    let mut changes = 0;
    for name in ["ledger.jsonl", "task.toml", "model.safetensors"] {
        let file = Changed::new(&folder, name);
        let lines = file.bytes.iter().filter(|byte| **byte == b'\n').count();
        for place in file.places(all) {
            let mut bytes = file.bytes.clone();
            bytes[place] ^= 1;
            let found = file.with(&bytes);
            let line = 1 + bytes[..place].iter().filter(|byte| **byte == b'\n').count();
            let named = match name {
                "ledger.jsonl" => is_named(&found, line, lines),
                "task.toml" => found.contains("task.toml") || found.contains("ledger.jsonl, line 1"),
                _ => found.contains(name),
            };
            assert!(named, "byte {place} of {name}, line {line}: {found:?}");
            changes += 1;
        }
    }
    assert_eq!(complaints(&folder), "");
    changes
}

#[test]
#[ignore = "slow"]
fn a_changed_byte_of_an_export_is_found_and_its_place_is_named() {
    one_changed_byte(false);
}

mod by_hand {
    use super::*;

    /// Each byte of ledger, settings and model is changed once.
    #[test]
    #[ignore = "one to two minutes"]
    fn every_changed_byte_of_an_export_is_found() {
        println!("{} changes", one_changed_byte(true));
    }
}

#[test]
#[ignore = "slow"]
fn a_deleted_attempt_and_a_swapped_pseudonym_are_found_and_their_lines_are_named() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("run");
    exported(&folder);
    let file = Changed::new(&folder, "ledger.jsonl");
    let text = String::from_utf8(file.bytes.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let entries: Vec<_> = lines
        .iter()
        .filter_map(|line| match LedgerLine::read(line.as_bytes()).unwrap() {
            LedgerLine::Round(entry) => Some(*entry),
            LedgerLine::End(_) => None,
        })
        .collect();
    let with = |number: usize, line: &str| {
        let mut lines = lines.clone();
        lines[number] = line;
        file.with(format!("{}\n", lines.join("\n")).as_bytes())
    };

    let number = entries
        .iter()
        .position(|entry| !entry.attempts.is_empty())
        .unwrap();
    assert!(!entries[number].attempts[0].participants.is_empty());
    let start = lines[number].find("\"attempts\":[").unwrap();
    let end = start + lines[number][start..].find("}],").unwrap() + 3;
    let deleted = format!("{}{}", &lines[number][..start], &lines[number][end..]);
    LedgerLine::read(deleted.as_bytes()).unwrap();
    let found = with(number, &deleted);
    assert!(is_named(&found, number + 1, lines.len()), "{found:?}");

    let (one, other) = (entries[0].participants[0], entries[1].participants[0]);
    let name = |user| serde_json::to_string(&user).unwrap();
    let swapped = lines[0].replacen(&name(one), &name(other), 1);
    LedgerLine::read(swapped.as_bytes()).unwrap();
    let found = with(0, &swapped);
    assert!(is_named(&found, 1, lines.len()), "{found:?}");
}
