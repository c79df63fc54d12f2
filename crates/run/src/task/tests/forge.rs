//! Changes of an exported task: each is found, with its file and line.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::world::{PLAIN, SECURE, World};
use super::{Path, verified};
use undertone_coordinator::record::EndReason;

/// An exported task in a folder that is thrown away.
struct Folder {
    _temporary: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl Folder {
    fn new(text: &str) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("exported");
        World::new(text).completed().export(&path).unwrap();
        Self {
            _temporary: temporary,
            path,
        }
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
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
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
    let forge = |change: &dyn Fn(&mut Vec<Value>)| {
        folder.forge("ledger.jsonl", true, |ledger| rechained(&ledger, change))
    };
    let known = "ledger.jsonl, line 2: the line that metrics.jsonl knows";
    // A deleted attempt: the first by the numbers, any by the digest.
    let problems = forge(&|lines| {
        lines[1]["attempts"].as_array_mut().unwrap().remove(0);
    });
    names(
        &problems,
        &["ledger.jsonl, line 2, attempts: expected attempt 0, got 1", known],
    );
    let problems = forge(&|lines| {
        lines[1]["attempts"].as_array_mut().unwrap().pop();
    });
    names(&problems, &[known]);
    let problems = forge(&|lines| {
        lines[1].as_object_mut().unwrap().remove("attempts");
    });
    names(&problems, &[known]);
    // A swapped pseudonym: one that was never there, and one that was there two rounds before.
    let problems = forge(&|lines| lines[1]["participants"][0] = "000000000000000a".into());
    assert!(!problems.is_empty());
    let problems = forge(&|lines| lines[1]["participants"][4] = "00000000000000ff".into());
    names(&problems, &[known]);
    let problems = forge(&|lines| {
        let early = lines[0]["participants"][0].clone();
        lines[2]["participants"][0] = early;
    });
    names(
        &problems,
        &["ledger.jsonl, line 3: round 2, user 0000000000000000: expected a gap of at least 3 rounds"],
    );
    // A user who was lost, or in an attempt, and stands in the sum as well.
    let problems = forge(&|lines| {
        let lost = lines[1]["lost"].clone();
        lines[1]["attempts"][1]["participants"] = lost;
    });
    names(
        &problems,
        &["ledger.jsonl, line 2: round 1, user 000000000000000f: expected the user at most once per round"],
    );
    let problems = forge(&|lines| {
        lines[1].as_object_mut().unwrap().remove("lost");
    });
    names(&problems, &[known]);
    let problems = forge(&|lines| {
        lines[1].as_object_mut().unwrap().remove("mode");
    });
    names(
        &problems,
        &["ledger.jsonl, line 2, mode: expected service, got no such key"],
    );
    let problems = forge(&|lines| {
        lines[1]["attempts"][0]
            .as_object_mut()
            .unwrap()
            .remove("row_spent");
    });
    names(&problems, &["expected row_spent = false"]);
    let problems = forge(&|lines| {
        let names = lines[3]["participants"].as_array_mut().unwrap();
        names.reverse();
    });
    names(
        &problems,
        &["ledger.jsonl, line 4, participants: expected pseudonyms in ascending order"],
    );
    let problems = forge(&|lines| {
        let few = json!(["0000000000000001", "0000000000000002"]);
        (lines[0]["participants"], lines[0]["cohort_size"]) = (few, 2.into());
    });
    names(
        &problems,
        &["ledger.jsonl, line 1, cohort_size: expected from 3 to 8, got 2"],
    );
    assert_eq!(verified(&folder.path), Vec::<String>::new());
}

#[test]
fn a_ledger_without_its_end_or_with_a_wrong_one_is_refused() {
    let folder = Folder::new(PLAIN);
    let forge = |change: &dyn Fn(&mut Vec<Value>)| {
        folder.forge("ledger.jsonl", true, |ledger| rechained(&ledger, change))
    };
    let problems = forge(&|lines| {
        lines.pop();
    });
    names(
        &problems,
        &["ledger.jsonl, line 7: expected the end of the task (a line with the key `end`), found no line"],
    );
    let problems = forge(&|lines| lines[6]["end"] = "stopped".into());
    names(
        &problems,
        &["ledger.jsonl, line 7, end: expected `completed` exactly after 6 rounds"],
    );
    let problems = forge(&|lines| lines[6]["rounds"] = 5.into());
    names(&problems, &["line 7: expected an end after rounds 6, got 5"]);
    let problems = forge(&|lines| {
        let last = lines[6].clone();
        lines.push(last);
    });
    names(&problems, &["line 8: expected nothing after the end of the task"]);
    let problems = forge(&|lines| lines[6]["more"] = 1.into());
    names(
        &problems,
        &["ledger.jsonl, line 7, more: expected nothing, got 1"],
    );
}

/// The attempts after the last release count: without them the figures would be better than they are.
#[test]
fn a_deleted_attempt_of_the_end_changes_the_guarantee() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("exported");
    let world = World::new(PLAIN);
    world.made(3, EndReason::Stopped).export(&path).unwrap();
    let folder = Folder {
        _temporary: temporary,
        path,
    };
    // A user of the first round comes back in the last attempt.
    let problems = folder.forge("ledger.jsonl", true, |ledger| {
        rechained(&ledger, |lines| {
            lines[3]["attempts"][0]["participants"][0] = "0000000000000000".into();
        })
    });
    names(&problems, &["privacy.json, observed"]);
    let problems = folder.forge("ledger.jsonl", true, |ledger| {
        rechained(&ledger, |lines| {
            lines[3]["attempts"][0]["participants"] = json!(["0000000000000017"]);
        })
    });
    names(
        &problems,
        &["ledger.jsonl, line 4: round 3, user 0000000000000017: expected a gap of at least 3 rounds"],
    );
}

#[test]
fn a_changed_setting_population_or_model_is_named() {
    let folder = Folder::new(SECURE);
    let replaced = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        move |bytes: Vec<u8>| {
            String::from_utf8(bytes)
                .unwrap()
                .replacen(&from, &to, 1)
                .into_bytes()
        }
    };
    let genesis = "line 1: expected to follow the run's config.toml";
    let identifier = "service.json, task: expected";
    let problems = folder.forge(
        "task.toml",
        true,
        replaced("noise_multiplier = 4.0", "noise_multiplier = 4.5"),
    );
    names(&problems, &[identifier, genesis]);
    let problems = folder.forge("task.toml", true, replaced("least = 3", "least = 2"));
    names(&problems, &[identifier, genesis]);
    let problems = folder.forge("task.toml", true, replaced("attested", "dev"));
    names(
        &problems,
        &[identifier, "expected no issuer with identity = \"dev\", got 1"],
    );
    let problems = folder.forge(
        "task.toml",
        true,
        replaced("name = \"secure\"", "name = \"secure\"\nseed = 3"),
    );
    names(&problems, &[identifier]);
    let problems = folder.forge("task.toml", true, replaced("check_in", "poisson"));
    names(&problems, &["cohort.sampling", "`check_in`"]);
    let problems = folder.forge("service.json", true, replaced("keyboard-en", "keyboard-de"));
    names(&problems, &[identifier, genesis]);
    let problems = folder.forge("service.json", true, replaced("0707", "07zz"));
    names(&problems, &["service.json, issuers: expected public keys"]);
    let problems = folder.forge("vocab.txt", true, replaced("word3\n", "word99\n"));
    names(&problems, &[genesis]);
    // The last parameter.
    let problems = folder.forge("model.safetensors", true, |mut bytes| {
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        bytes
    });
    names(&problems, &["model.safetensors: parameters of SHA-256"]);
    let problems = folder.forge(
        "metrics.jsonl",
        true,
        replaced("\"cohort_size\":5", "\"cohort_size\":6"),
    );
    names(
        &problems,
        &["metrics.jsonl, round 0, cohort_size: expected 5, got 6"],
    );
    let problems = folder.forge(
        "metrics.jsonl",
        true,
        replaced("\"cohort_weight\":5.0", "\"cohort_weight\":5.0,\"tokens\":9"),
    );
    names(
        &problems,
        &["metrics.jsonl, round 0, tokens: expected nothing, got 9"],
    );
    let problems = folder.forge(
        "privacy.json",
        true,
        replaced("\"max_part\": 2", "\"max_part\": 1"),
    );
    names(&problems, &["privacy.json, "]);
    assert_eq!(verified(&folder.path), Vec::<String>::new());
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
