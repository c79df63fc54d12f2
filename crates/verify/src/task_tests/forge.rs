//! Changes of an exported task: each is found, with its file and line.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::world::{Made, PLAIN, SECURE, World};
use super::{exported, verified};
use std::path::Path;
use undertone_coordinator::record::EndReason;
use undertone_present::numbers::hex;

/// An exported task in a folder that is thrown away.
struct Folder {
    _temporary: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl Folder {
    fn new(text: &str) -> Self {
        Self::of(&World::new(text).completed())
    }

    fn of(made: &Made<'_>) -> Self {
        let (_temporary, path, _) = exported(made);
        Self { _temporary, path }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path.join(name), bytes).unwrap();
    }

    /// Changes a file for one verification. `again` makes the manifest fit, as a thorough forger would.
    fn forge(&self, name: &str, again: bool, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<String> {
        let (before, manifest) = (self.read(name), self.read("manifest.json"));
        let changed = change(before.clone());
        assert_ne!(changed, before, "{name}: nothing changed");
        self.write(name, &changed);
        if again {
            let mut value: Value = serde_json::from_slice(&manifest).unwrap();
            value["files"][name] = sha256(&changed).into();
            if name == "ledger.jsonl" {
                let last = changed
                    .split(|&byte| byte == b'\n')
                    .rfind(|line| !line.is_empty());
                value["ledger_head"] = sha256(last.unwrap_or_default()).into();
            }
            self.write("manifest.json", &serde_json::to_vec(&value).unwrap());
        }
        let problems = verified(&self.path);
        self.write(name, &before);
        self.write("manifest.json", &manifest);
        problems
    }

    /// Forges the lines of the ledger, chains them again and makes the manifest fit; the problems have all the words.
    fn rechain(&self, words: &[&str], change: impl FnOnce(&mut Vec<Value>)) {
        let problems = self.forge("ledger.jsonl", true, |ledger| rechained(&ledger, change));
        assert!(!problems.is_empty());
        names(&problems, words);
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Changes the lines of a ledger and chains them again.
fn rechained(ledger: &[u8], change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let text = std::str::from_utf8(ledger).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    change(&mut lines);
    let (mut before, mut out) = (lines[0]["previous_sha256"].clone(), String::new());
    for mut line in lines {
        line["previous_sha256"] = before;
        let line = line.to_string();
        before = sha256(line.as_bytes()).into();
        out += &line;
        out.push('\n');
    }
    out.into_bytes()
}

fn names(problems: &[String], words: &[&str]) {
    assert!(
        words
            .iter()
            .all(|words| problems.iter().any(|problem| problem.contains(words))),
        "{words:?} is not in {problems:#?}"
    );
}

#[test]
fn one_changed_byte_of_any_file_is_found() {
    let folder = Folder::new(SECURE);
    for file in [
        "task.toml",
        "service.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "mechanism.json",
        "vocab.txt",
        "privacy.json",
        "privacy.md",
        "model.safetensors",
    ] {
        let length = folder.read(file).len();
        for place in [length / 7, length / 3, length / 2, length - 2] {
            let problems = folder.forge(file, false, |mut bytes| {
                bytes[place] ^= 1;
                bytes
            });
            names(&problems, &[&format!("{file}: changed since the run ended")]);
        }
    }
    assert_eq!(verified(&folder.path), Vec::<String>::new());
}

#[test]
fn a_changed_byte_of_the_ledger_is_named_by_its_line() {
    let folder = Folder::new(PLAIN);
    let ledger = folder.read("ledger.jsonl");
    let ends: Vec<usize> = (0..ledger.len())
        .filter(|&place| ledger[place] == b'\n')
        .collect();
    // A digit of a pseudonym in each line: the line after it does not follow any more; after the last one, the manifest's head.
    for (line, end) in ends[..6].iter().enumerate() {
        let start = if line == 0 { 0 } else { ends[line - 1] };
        let key = b"\"participants\":[\"";
        let place = start
            + ledger[start..*end]
                .windows(key.len())
                .position(|window| window == key)
                .unwrap()
            + key.len();
        let problems = folder.forge("ledger.jsonl", true, |mut bytes| {
            bytes[place] ^= 1;
            bytes
        });
        names(
            &problems,
            &[&format!("line {}: expected to follow the line before", line + 2)],
        );
    }
    // A byte that leaves no JSON names its own line.
    let problems = folder.forge("ledger.jsonl", true, |mut bytes| {
        bytes[ends[2] + 1] = b'[';
        bytes
    });
    names(&problems, &["ledger.jsonl, line 4"]);
}

/// The most thorough forger chains the lines again and makes the manifest fit.
#[test]
fn a_rechained_ledger_is_named_by_the_changed_line() {
    let folder = Folder::new(PLAIN);
    let known = "ledger.jsonl, line 2: the line that metrics.jsonl knows";
    // A deleted attempt: the first by the numbers, any by the digest.
    folder.rechain(
        &["ledger.jsonl, line 2, attempts: expected attempt 0, got 1", known],
        |lines| {
            lines[1]["attempts"].as_array_mut().unwrap().remove(0);
        },
    );
    folder.rechain(&[known], |lines| {
        lines[1]["attempts"].as_array_mut().unwrap().pop();
    });
    folder.rechain(&[known], |lines| {
        lines[1].as_object_mut().unwrap().remove("attempts");
    });
    // A swapped pseudonym: one that was never there, and one that was there two rounds before.
    folder.rechain(&[], |lines| {
        lines[1]["participants"][0] = "000000000000000a".into();
    });
    folder.rechain(&[known], |lines| {
        lines[1]["participants"][4] = "00000000000000ff".into();
    });
    folder.rechain(
        &["ledger.jsonl, line 3: round 2, user 0000000000000000: expected a gap of at least 3 rounds"],
        |lines| {
            let early = lines[0]["participants"][0].clone();
            lines[2]["participants"][0] = early;
        },
    );
    // A user who was lost, or in an attempt, and stands in the sum as well.
    folder.rechain(
        &["ledger.jsonl, line 2: round 1, user 000000000000000f: expected the user at most once per round"],
        |lines| {
            let lost = lines[1]["lost"].clone();
            lines[1]["attempts"][1]["participants"] = lost;
        },
    );
    folder.rechain(&[known], |lines| {
        lines[1].as_object_mut().unwrap().remove("lost");
    });
    folder.rechain(
        &["ledger.jsonl, line 2, mode: expected service, got no such key"],
        |lines| {
            lines[1].as_object_mut().unwrap().remove("mode");
        },
    );
    folder.rechain(&["expected row_spent = false"], |lines| {
        lines[1]["attempts"][0]
            .as_object_mut()
            .unwrap()
            .remove("row_spent");
    });
    folder.rechain(
        &["ledger.jsonl, line 4, participants: expected pseudonyms in ascending order"],
        |lines| {
            let names = lines[3]["participants"].as_array_mut().unwrap();
            names.reverse();
        },
    );
    folder.rechain(
        &["ledger.jsonl, line 1, cohort_size: expected from 3 to 8, got 2"],
        |lines| {
            let few = json!(["0000000000000001", "0000000000000002"]);
            (lines[0]["participants"], lines[0]["cohort_size"]) = (few, 2.into());
        },
    );
    assert_eq!(verified(&folder.path), Vec::<String>::new());
}

#[test]
fn a_ledger_without_its_end_or_with_a_wrong_one_is_refused() {
    let folder = Folder::new(PLAIN);
    folder.rechain(
        &["ledger.jsonl, line 7: expected the end of the task (a line with the key `end`), found no line"],
        |lines| {
            lines.pop();
        },
    );
    folder.rechain(
        &["ledger.jsonl, line 7, end: expected `completed` exactly after 6 rounds"],
        |lines| lines[6]["end"] = "stopped".into(),
    );
    folder.rechain(&["line 7: expected an end after rounds 6, got 5"], |lines| {
        lines[6]["rounds"] = 5.into();
    });
    folder.rechain(&["line 8: expected nothing after the end of the task"], |lines| {
        let last = lines[6].clone();
        lines.push(last);
    });
    folder.rechain(
        &["ledger.jsonl, line 7, more: expected nothing, got 1"],
        |lines| lines[6]["more"] = 1.into(),
    );
}

/// An export of an earlier version names its issuer in `service.json` alone.
#[test]
fn a_ledger_without_an_issuer_is_that_of_an_earlier_version_and_one_that_loses_it_is_refused() {
    let folder = Folder::new(SECURE);
    folder.rechain(
        &["the ledger, line 3, issuer: expected one, as in the line before, got none"],
        |lines| {
            lines[2].as_object_mut().unwrap().remove("issuer");
        },
    );
    folder.rechain(
        &["the ledger, line 2, issuer.keys: expected public keys"],
        |lines| {
            lines[1]["issuer"]["keys"] = json!(["07"]);
        },
    );
    let ledger = rechained(&folder.read("ledger.jsonl"), |lines| {
        for line in lines {
            line.as_object_mut().unwrap().remove("issuer");
        }
    });
    folder.write("ledger.jsonl", &ledger);
    let verification = crate::verify::verify(&folder.path).unwrap();
    let said = verification.warnings.join("\n");
    assert!(
        said.contains("service.json, issuers: no line of the ledger names the issuer"),
        "{said}"
    );
}

/// The attempts after the last release count: without them the figures would be better than they are.
#[test]
fn a_deleted_attempt_of_the_end_changes_the_guarantee() {
    let folder = Folder::of(&World::new(PLAIN).made(3, EndReason::Stopped));
    // A user of the first round comes back in the last attempt.
    folder.rechain(&["privacy.json, observed"], |lines| {
        lines[3]["attempts"][0]["participants"][0] = "0000000000000000".into();
    });
    folder.rechain(
        &["ledger.jsonl, line 4: round 3, user 0000000000000017: expected a gap of at least 3 rounds"],
        |lines| {
            lines[3]["attempts"][0]["participants"] = json!(["0000000000000017"]);
        },
    );
}

#[test]
fn a_changed_setting_population_or_model_is_named() {
    let folder = Folder::new(SECURE);
    let replaced = |file: &str, from: &str, to: &str, words: &[&str]| {
        let problems = folder.forge(file, true, |bytes| {
            String::from_utf8(bytes)
                .unwrap()
                .replacen(from, to, 1)
                .into_bytes()
        });
        names(&problems, words);
    };
    let genesis = "line 1: expected to follow the run's config.toml";
    let identifier = "service.json, task: expected";
    replaced(
        "task.toml",
        "noise_multiplier = 4.0",
        "noise_multiplier = 4.5",
        &[identifier, genesis],
    );
    replaced("task.toml", "least = 3", "least = 2", &[identifier, genesis]);
    replaced(
        "task.toml",
        "attested",
        "dev",
        &[
            identifier,
            "expected an empty list with identity = \"dev\", got 1",
        ],
    );
    replaced(
        "task.toml",
        "name = \"secure\"",
        "name = \"secure\"\nseed = 3",
        &[identifier],
    );
    replaced(
        "task.toml",
        "check_in",
        "poisson",
        &["cohort.sampling", "`check_in`"],
    );
    replaced(
        "service.json",
        "keyboard-en",
        "keyboard-de",
        &[identifier, genesis],
    );
    replaced(
        "service.json",
        "0707",
        "07zz",
        &["service.json, issuers: expected public keys"],
    );
    replaced("vocab.txt", "word3\n", "word99\n", &[genesis]);
    // The last parameter.
    let problems = folder.forge("model.safetensors", true, |mut bytes| {
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        bytes
    });
    names(&problems, &["model.safetensors: parameters of SHA-256"]);
    replaced(
        "metrics.jsonl",
        "\"cohort_size\":5",
        "\"cohort_size\":6",
        &["metrics.jsonl, round 0, cohort_size: expected 5, got 6"],
    );
    replaced(
        "metrics.jsonl",
        "\"cohort_weight\":5.0",
        "\"cohort_weight\":5.0,\"tokens\":9",
        &["metrics.jsonl, round 0, tokens: expected nothing, got 9"],
    );
    replaced(
        "privacy.json",
        "\"max_part\": 2",
        "\"max_part\": 1",
        &["privacy.json, "],
    );
    assert_eq!(verified(&folder.path), Vec::<String>::new());
}

/// The metrics with a measure of 40 targets behind the first round, which is said to be that of `round`.
fn measured(metrics: &[u8], round: u64) -> Vec<u8> {
    let text = String::from_utf8(metrics.to_vec()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let first: Value = serde_json::from_str(&lines[1]).unwrap();
    let line = serde_json::json!({
        "kind": "evaluation", "round": round, "split": "validation", "train_seconds": first["seconds"],
        "metrics": {
            "top1": 0.25, "top3": 0.5, "top5": 0.5, "top1_all_ids": 0.25, "in_vocab_top1": 0.25, "perplexity": 9.5, "targets": 40,
            "out_of_vocabulary": 0
        }
    });
    lines.insert(2, line.to_string());
    (lines.join("\n") + "\n").into_bytes()
}

#[test]
fn a_measure_of_the_operator_stands_behind_its_round_or_is_named() {
    let folder = Folder::new(PLAIN);
    let of = |round| folder.forge("metrics.jsonl", true, |metrics| measured(&metrics, round));
    assert_eq!(of(1), Vec::<String>::new());
    names(
        &of(2),
        &["metrics.jsonl, line 3, evaluation", "expected 1, got 2"],
    );
}

#[test]
fn files_that_a_task_has_not_are_named() {
    let folder = Folder::new(PLAIN);
    folder.write("config.toml", b"name = \"run\"\n");
    let problems = verified(&folder.path);
    names(&problems, &["task.toml: a directory holds a run or a task"]);
    std::fs::remove_file(folder.path.join("config.toml")).unwrap();
    folder.write("initial_model.json", b"[]");
    names(
        &verified(&folder.path),
        &["initial_model.json: the configuration asks for no such file"],
    );
    std::fs::remove_file(folder.path.join("initial_model.json")).unwrap();
    for file in [
        "service.json",
        "mechanism.json",
        "model.safetensors",
        "metrics.jsonl",
    ] {
        let before = folder.read(file);
        std::fs::remove_file(folder.path.join(file)).unwrap();
        names(&verified(&folder.path), &[&format!("{file}: missing")]);
        folder.write(file, &before);
    }
    assert_eq!(verified(&folder.path), Vec::<String>::new());
}

/// A file of a stranger never panics the reader, wherever it is cut.
#[test]
fn a_cut_file_is_a_problem_and_no_panic() {
    let folder = Folder::new(PLAIN);
    for file in [
        "task.toml",
        "service.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "mechanism.json",
        "privacy.json",
        "model.safetensors",
    ] {
        let length = folder.read(file).len();
        for part in 0..8 {
            let problems = folder.forge(file, true, |bytes| bytes[..length * part / 8].to_vec());
            assert!(!problems.is_empty(), "{file} cut to {part} eighths");
        }
    }
    assert!(crate::verify::verify(Path::new("/nowhere")).is_err());
}
