//! `undertone verify` passes on what a run left behind and names the place of every change to it.

use serde_json::Value;
use undertone_present::numbers::hex;

use crate::support::{Folder, TINY, cases, contains, ftrl, json};

fn line(text: &str, index: usize, change: impl Fn(&mut Value)) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut value: Value = json(&lines[index]);
    change(&mut value);
    lines[index] = value.to_string();
    lines.join("\n") + "\n"
}

pub(crate) fn document(text: &str, change: impl Fn(&mut Value)) -> String {
    let mut value: Value = json(text);
    change(&mut value);
    value.to_string()
}

/// Rewrites a ledger from a line on so that its chain holds again: the most thorough forger.
pub(crate) fn rechained(text: &str, index: usize, change: impl Fn(&mut Value)) -> String {
    let mut before = String::new();
    let mut out = String::new();
    for (place, line) in text.lines().enumerate() {
        let mut value: Value = json(line);
        if place == index {
            change(&mut value);
        }
        if place > 0 {
            value["previous_sha256"] = before.clone().into();
        }
        let line = value.to_string();
        before = sha256(line.as_bytes());
        out += &line;
        out.push('\n');
    }
    out
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    hex(&sha2::Sha256::digest(bytes))
}

/// Changes a file of a run, expects that `verify` names the place, and changes the file back. A thorough forger makes the manifest
/// fit `again`.
fn forge(folder: &Folder, file: &str, again: bool, words: &str, change: impl Fn(&str) -> String) {
    let name = format!("out/tiny/{file}");
    let (before, manifest) = (folder.text(&name), folder.text("out/tiny/manifest.json"));
    let changed = change(&before);
    assert!(changed != before, "{words}: nothing changed");
    folder.write(&name, &changed);
    if again {
        let again = document(&manifest, |document| {
            document["files"][file] = sha256(changed.as_bytes()).into();
        });
        folder.write("out/tiny/manifest.json", again);
    }
    contains(&folder.disproved("out/tiny"), words);
    let found = folder.run("verify out/tiny --json");
    let found = json(&String::from_utf8_lossy(&found.stdout));
    let mut checks = found["checks"].as_array().expect("checks").iter();
    assert!(checks.any(|check| check["problems"][0].is_string()));
    folder.write(&name, before);
    folder.write("out/tiny/manifest.json", manifest);
}

#[test]
#[ignore = "slow"]
fn every_forgery_is_named() {
    let folder = Folder::with(ftrl("kind = \"tree\""));
    folder.succeed("train run.toml --out out");
    folder.succeed("verify out/tiny");
    // A ledger whose chain holds again after the change of one value.
    let table = "
        $ 2 noise_std 9.0
        line 3, noise_std: expected
        $ 2 noise_multiplier 9.0
        line 3, noise_multiplier: expected 4, got 9
        $ 2 clip_norm 0.5
        line 3, clip_norm: expected 1, got 0.5
        $ 2 sensitivity 0.01
        line 3, sensitivity: expected 0.05, got 0.01
        $ 2 sampling \"poisson\"
        line 3, sampling: expected shuffled_epochs, got poisson
        $ 2 population 900
        line 3, population: expected 249, got 900
        $ 29 parameters_sha256 \"00\"
        model.safetensors: parameters of SHA-256
        ";
    for (change, words) in cases(table) {
        let (round, change) = change.split_once(' ').expect("a round");
        let (key, value) = change.split_once(' ').expect("a value");
        forge(&folder, "ledger.jsonl", true, words, |text| {
            rechained(text, round.parse().expect("a number"), |line| {
                line[key] = json(value);
            })
        });
    }
    let ledger = |words: &str, change: &dyn Fn(&str) -> String| {
        forge(&folder, "ledger.jsonl", true, words, change);
    };
    let participants = |words: &str, change: &dyn Fn(&mut Vec<Value>)| {
        ledger(words, &|text| {
            rechained(text, 2, |line| {
                change(line["participants"].as_array_mut().expect("a list"));
            })
        });
    };
    let rest = "ledger.jsonl is damaged: line 5: expected to follow the line before";
    ledger(rest, &|text| line(text, 3, |line| line["noise_std"] = 9.0.into()));
    ledger("line 1: expected round 0, got 1", &|text| {
        text.split_inclusive('\n').skip(1).collect()
    });
    ledger("manifest's ledger_head", &|text| {
        text.split_inclusive('\n').take(20).collect()
    });
    ledger("line 5", &|text| text.replacen("\"round\":4", "\"rund\":4", 1));
    participants("line 3: cohort_size is 21, 20 participants are named", &|users| {
        drop(users.pop());
    });
    participants("line 3: round 2, user", &|users| users[0] = users[1].clone());
    let first = folder.lines("out/tiny/ledger.jsonl")[0]["participants"][0].clone();
    participants("expected a gap of exactly 12 rounds", &|users| {
        users[0] = first.clone();
    });
    for (file, again, from, to, words) in [
        (
            "config.toml",
            true,
            "noise_multiplier = 4.0",
            "noise_multiplier = 8.0",
            "expected to follow the run's config.toml",
        ),
        (
            "config.toml",
            false,
            "rounds = 30",
            "rounds = 31",
            "config.toml: changed since the run ended",
        ),
        (
            "mechanism.json",
            true,
            "\"noise_multiplier\":4.0",
            "\"noise_multiplier\":8.0",
            "expected to follow the run's config.toml, mechanism.json",
        ),
        ("vocab.txt", true, "\n", "x\n", "vocab.txt"),
        (
            "metrics.jsonl",
            false,
            "\"top1\":0.",
            "\"top1\":1.",
            "metrics.jsonl: changed since the run ended",
        ),
    ] {
        forge(&folder, file, again, words, |text| text.replacen(from, to, 1));
    }
    let table = "
        $ /observed/epsilon 0.1
        privacy.json, observed.epsilon: expected
        $ /planned/epsilon 0.1
        privacy.json, planned.epsilon: expected
        $ /worst_case/delta 0.1
        privacy.json, worst_case.delta
        $ /warnings []
        privacy.json, warnings[0]: expected \"The run is seeded
        ";
    for (change, words) in cases(table) {
        let (pointer, value) = change.split_once(' ').expect("a value");
        forge(&folder, "privacy.json", true, words, |text| {
            document(text, |file| {
                *file.pointer_mut(pointer).expect("a value") = json(value);
            })
        });
    }
    let words = "metrics.jsonl, round 1, cohort_size";
    forge(&folder, "metrics.jsonl", true, words, |text| {
        line(text, 2, |line| line["cohort_size"] = 99.into())
    });
    folder.succeed("verify out/tiny");
}

#[test]
#[ignore = "slow"]
fn changed_models_and_missing_files_fail_verification() {
    let folder = Folder::with(ftrl("kind = \"independent\""));
    folder.succeed("train run.toml --out out");
    let mut model = folder.read("out/tiny/model.safetensors");
    let last = model.len() - 1;
    model[last] ^= 1;
    folder.write("out/tiny/model.safetensors", model);
    folder.fail("verify out/tiny");
    for name in [
        "model.safetensors",
        "manifest.json",
        "ledger.jsonl",
        "config.toml",
    ] {
        std::fs::remove_file(folder.path("out/tiny").join(name)).expect("removing");
        let message = folder.fail("verify out/tiny");
        assert!(
            message.contains("do not hold") || message.contains("not a run directory"),
            "{message}"
        );
    }
    folder.refuse("verify nowhere", "nowhere is not a run directory");
}

#[test]
#[ignore = "slow"]
fn sampled_and_non_private_runs_verify() {
    let folder = Folder::with(TINY);
    for (out, changes) in [
        ("pld", ""),
        ("rdp", "--set privacy.accountant=rdp"),
        (
            "weights",
            "--set user_update.weight_cap=10 --set estimator={kind='fixed_denominator',expected_weight=12}",
        ),
        ("moments", "--set privacy.accountant=moments2016"),
        ("fixed", "--set cohort.sampling=fixed_size"),
        (
            "schedule",
            "--set schedule=[{from_round=2,clip_norm=0.5},{from_round=4,noise_multiplier=2.0}]",
        ),
        (
            "estimate",
            "--set estimate={population=100000,users_per_round=1000}",
        ),
    ] {
        folder.succeed(format!("train run.toml --out {out} {changes}"));
        folder.succeed(format!("verify {out}/tiny"));
    }
    let open = TINY.replace("[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-4\n", "");
    folder.write("run.toml", open);
    folder.succeed("train run.toml --out open");
    folder.show("verify open/tiny", "no noise, no guarantee");
}
