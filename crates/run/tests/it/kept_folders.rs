//! Folders of version 0.2.0 at commit 79f1990d, one of each kind and each also published: `verify` says of them what it said then, or
//! more, where a fault of that version was found since.
//!
//! `fixtures/kept/README.md` says how they were made. `fixtures/kept/found.txt` is what that version said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use undertone_verify::{Verification, verify};

/// A line that `verify` says since then, or says no more.
struct Since {
    /// Folders of one kind, by their name.
    kind: &'static str,
    /// Words of the line.
    words: &'static str,
    /// The reason.
    fault: &'static str,
}

/// The lines that have changed since the folders were made. A line of `found.txt` never changes.
const SINCE: [Since; 24] = [
    Since {
        kind: "session",
        words: "the statements lack a condition of the guarantee",
        fault: "a session did not say that a unit depends on no other unit",
    },
    Since {
        kind: "session",
        words: "the checklist says that the keys of the noise are never stored",
        fault: "a session keeps its keys until its next state",
    },
    Since {
        kind: "gpu-sum",
        words: "the statements lack a condition of the guarantee",
        fault: "the condition stood in the sentence about the device alone",
    },
    Since {
        kind: "gpu-sum",
        words: "the checklist says that the keys of the noise are never stored",
        fault: "a session keeps its keys until its next state",
    },
    Since {
        kind: "task",
        words: "no line of the ledger names the issuer",
        fault: "the issuer stood in service.json alone",
    },
    Since {
        kind: "memory",
        words: "settings: vocabulary",
        fault: "nothing said that the run file declares the words public",
    },
    Since {
        kind: "uls",
        words: "settings: vocabulary",
        fault: "nothing said that the run file declares the words public",
    },
    Since {
        kind: "memory",
        words: "do not say that the words are declared public",
        fault: "the sentence was missing",
    },
    Since {
        kind: "uls",
        words: "do not say that the words are declared public",
        fault: "the sentence was missing",
    },
    Since {
        kind: "task",
        words: "settings: vocabulary",
        fault: "nothing said that the words are declared public",
    },
    Since {
        kind: "task",
        words: "do not say that the words are declared public",
        fault: "the sentence was missing",
    },
    Since {
        kind: "session",
        words: "it does not say what it was trained on",
        fault: "the model of a session had no description",
    },
    Since {
        kind: "gpu-sum",
        words: "it does not say what it was trained on",
        fault: "the model of a session had no description",
    },
    Since {
        kind: "audited",
        words: "note: audit.json: that replays",
        fault: "nothing said which figures of an audit no file determines",
    },
    Since {
        kind: "els",
        words: "ledger.public.jsonl, total_weight: publishes the number of examples",
        fault: "the number of examples was counted on people's text",
    },
    Since {
        kind: "els",
        words: "its description: does not say what its guarantee does not cover",
        fault: "no model said what its guarantee does not cover",
    },
    Since {
        kind: "ftrl",
        words: "lane.json, shadows: publishes names of users",
        fault: "pseudonyms stood outside of the participation of the ledger",
    },
    Since {
        kind: "memory",
        words: "data.source.rows: publishes the number of rows",
        fault: "the settings had the number of rows of people's text",
    },
    Since {
        kind: "memory",
        words: "data.source.sha256: publishes the digest of people's text",
        fault: "the settings had a digest of people's text",
    },
    Since {
        kind: "memory",
        words: "data.vocabulary.path: publishes a path",
        fault: "paths were published",
    },
    Since {
        kind: "task",
        words: "task.toml, vocabulary.path: publishes a path",
        fault: "paths were published",
    },
    Since {
        kind: "uls",
        words: "data.source.path: publishes a path",
        fault: "paths were published",
    },
    Since {
        kind: "uls",
        words: "data.vocabulary.path: publishes a path",
        fault: "paths were published",
    },
    Since {
        kind: "uls",
        words: "names its text by a digest of a path",
        fault: "a digest of a path can be guessed",
    },
];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kept")
}

/// The result of a verification in lines: each check, the guarantee, the start of each note, and each warning.
fn lines(verification: &Verification) -> Vec<String> {
    let checks = verification
        .checks
        .iter()
        .map(|check| match check.problems.len() {
            0 => format!("{}: {}", check.name, check.found),
            _ => format!("{} DOES NOT HOLD: {}", check.name, check.problems.join("; ")),
        });
    let guarantee = verification.recomputed.as_ref().map(|guarantee| {
        let (epsilon, delta) = (guarantee.epsilon, guarantee.delta);
        format!("recomputed: epsilon {epsilon:.6}, delta {delta:e}")
    });
    let notes = verification.notes.iter().map(|note| {
        let start: String = note.chars().take(60).collect();
        format!("note: {start}")
    });
    let warnings = verification
        .warnings
        .iter()
        .map(|warning| format!("warning: {warning}"));
    checks.chain(guarantee).chain(notes).chain(warnings).collect()
}

/// The lines of each folder: a heading, and the lines that follow it.
fn expected() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(kept().join("found.txt")).expect("what was found");
    let mut folders = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(heading) => heading.clone_into(&mut name),
            None => folders
                .entry(name.clone())
                .or_insert_with(Vec::new)
                .push(line.to_owned()),
        }
    }
    folders
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("a name"))
        .collect();
    names.sort();
    names
}

/// The published folder of a kind. Of its files only those are kept that `publish` did not copy byte for byte.
fn published(kind: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let (private, own) = (kind.join("private"), kind.join("published"));
    let manifest = std::fs::read(own.join("manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let files = manifest["files"].as_object().expect("files").keys();
    for name in files.map(String::as_str).chain(["manifest.json"]) {
        let from = [&own, &private]
            .map(|folder| folder.join(name))
            .into_iter()
            .find(|path| path.exists());
        std::fs::copy(from.expect("a file"), folder.path().join(name)).expect("a copy");
    }
    folder
}

#[test]
#[ignore = "slow"]
fn folders_of_79f1990d_verify_as_they_did_or_with_a_line_that_names_the_fault() {
    let expected = expected();
    let mut used = vec![false; SINCE.len()];
    let mut found = BTreeMap::new();
    for kind in names(&kept()).iter().filter(|name| !name.contains('.')) {
        let folder = kept().join(kind);
        let published = published(&folder);
        for (place, folder) in [
            ("private", &*folder.join("private")),
            ("published", published.path()),
        ] {
            let verification = verify(folder).expect("a verification");
            assert!(verification.holds(), "{kind}/{place}: {:?}", verification.checks);
            found.insert(format!("{kind}/{place}"), lines(&verification));
        }
    }
    let mut unexplained = Vec::new();
    for (folder, found) in &found {
        let before = expected.get(folder).map_or(&[][..], Vec::as_slice);
        let gone = before
            .iter()
            .filter(|line| !found.contains(line))
            .map(|line| ("-", line));
        let new = found
            .iter()
            .filter(|line| !before.contains(line))
            .map(|line| ("+", line));
        for (sign, line) in gone.chain(new) {
            let explains =
                |since: &Since| folder.split('/').next() == Some(since.kind) && line.contains(since.words);
            match SINCE.iter().position(explains) {
                Some(index) => used[index] = true,
                None => unexplained.push(format!("{folder} {sign} {line}")),
            }
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert_eq!(
        found.len(),
        expected.len(),
        "a folder of each kind, and a published one"
    );
    for (since, used) in SINCE.iter().zip(used) {
        assert!(used, "{}: no line differs by {:?}", since.kind, since.fault);
    }
}

/// A copy of a folder, and the name of its ledger.
fn copied(folder: &Path) -> (tempfile::TempDir, &'static str) {
    let copy = tempfile::tempdir().expect("a folder");
    for name in names(folder) {
        std::fs::copy(folder.join(&name), copy.path().join(&name)).expect("a copy");
    }
    let ledger = ["ledger.jsonl", "ledger.public.jsonl"]
        .into_iter()
        .find(|name| copy.path().join(name).exists());
    (copy, ledger.expect("a ledger"))
}

#[test]
#[ignore = "slow"]
fn one_changed_byte_in_a_ledger_fails_with_the_line_that_follows_it() {
    for kind in names(&kept()).iter().filter(|name| !name.contains('.')) {
        let folder = kept().join(kind);
        let published = published(&folder);
        for folder in [&*folder.join("private"), published.path()] {
            let (copy, ledger) = copied(folder);
            let path = copy.path().join(ledger);
            let text = std::fs::read_to_string(&path).expect("a ledger");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // A digit of the sensitivity of the second round becomes another one.
            let line = lines
                .iter()
                .position(|line| line.contains("\"round\":1,"))
                .expect("the second round");
            let key = lines[line].find("\"sensitivity\":").expect("a sensitivity");
            let digit = key
                + lines[line][key..]
                    .find(|c: char| c.is_ascii_digit())
                    .expect("a digit");
            let other = if lines[line].as_bytes()[digit] == b'7' {
                "8"
            } else {
                "7"
            };
            lines[line].replace_range(digit..=digit, other);
            std::fs::write(&path, lines.join("\n") + "\n").expect("written");
            let verification = verify(copy.path()).expect("a verification");
            let problems: Vec<_> = verification
                .checks
                .iter()
                .flat_map(|check| &check.problems)
                .collect();
            // The line after it does not follow it any more.
            let named = format!("line {}", line + 2);
            assert!(
                problems.iter().any(|problem| problem.contains(&named)),
                "{kind}: {named} in {problems:?}"
            );
        }
    }
}
