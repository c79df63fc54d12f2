//! `undertone verify` passes on what a run left behind and names the place of every change to it.

use serde_json::Value;

use crate::support::{Folder, TINY, ftrl};

/// Changes a file of the run; `again` makes the manifest fit, as a forger would.
struct Forgery {
    file: &'static str,
    change: fn(&str) -> String,
    again: bool,
    words: &'static str,
}

fn line(text: &str, index: usize, change: impl Fn(&mut Value)) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut value: Value = serde_json::from_str(&lines[index]).expect("JSON");
    change(&mut value);
    lines[index] = value.to_string();
    lines.join("\n") + "\n"
}

pub(crate) fn document(text: &str, change: impl Fn(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(text).expect("JSON");
    change(&mut value);
    value.to_string()
}

/// Rewrites a ledger from a line on so that its chain holds again: the most thorough forger.
pub(crate) fn rechained(text: &str, index: usize, change: impl Fn(&mut Value)) -> String {
    use sha2::Digest;
    let mut before = String::new();
    let mut out = String::new();
    for (place, line) in text.lines().enumerate() {
        let mut value: Value = serde_json::from_str(line).expect("JSON");
        if place == index {
            change(&mut value);
        }
        if place > 0 {
            value["previous_sha256"] = before.clone().into();
        }
        let line = value.to_string();
        before = sha2::Sha256::digest(line.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        out += &line;
        out.push('\n');
    }
    out
}

const FORGERIES: [Forgery; 24] = [
    Forgery {
        file: "ledger.jsonl",
        change: |text| line(text, 3, |line| line["noise_std"] = 9.0.into()),
        again: true,
        words: "ledger.jsonl is damaged: line 5: expected to follow the line before",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| text.lines().skip(1).map(|line| format!("{line}\n")).collect(),
        again: true,
        words: "line 1: expected round 0, got 1",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| text.lines().take(20).map(|line| format!("{line}\n")).collect(),
        again: true,
        words: "manifest's ledger_head",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| text.replacen("\"round\":4", "\"rund\":4", 1),
        again: true,
        words: "line 5",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["noise_std"] = 9.0.into()),
        again: true,
        words: "line 3, noise_std: expected",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["noise_multiplier"] = 9.0.into()),
        again: true,
        words: "line 3, noise_multiplier: expected 4, got 9",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["clip_norm"] = 0.5.into()),
        again: true,
        words: "line 3, clip_norm: expected 1, got 0.5",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["sensitivity"] = 0.01.into()),
        again: true,
        words: "line 3, sensitivity: expected 0.05, got 0.01",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["sampling"] = "poisson".into()),
        again: true,
        words: "line 3, sampling: expected shuffled_epochs, got poisson",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 2, |line| line["population"] = 900.into()),
        again: true,
        words: "line 3, population: expected 249, got 900",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| {
            rechained(text, 2, |line| {
                line["participants"].as_array_mut().expect("a list").pop();
            })
        },
        again: true,
        words: "line 3: cohort_size is 21, 20 participants are named",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| {
            rechained(text, 2, |line| {
                line["participants"][0] = line["participants"][1].clone();
            })
        },
        again: true,
        words: "line 3: round 2, user",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| {
            let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
            rechained(text, 2, move |line| {
                line["participants"][0] = first["participants"][0].clone();
            })
        },
        again: true,
        words: "expected a gap of exactly 12 rounds",
    },
    Forgery {
        file: "ledger.jsonl",
        change: |text| rechained(text, 29, |line| line["parameters_sha256"] = "00".into()),
        again: true,
        words: "model.safetensors: parameters of SHA-256",
    },
    Forgery {
        file: "config.toml",
        change: |text| text.replacen("noise_multiplier = 4.0", "noise_multiplier = 8.0", 1),
        again: true,
        words: "expected to follow the run's config.toml",
    },
    Forgery {
        file: "config.toml",
        change: |text| text.replacen("rounds = 30", "rounds = 31", 1),
        again: false,
        words: "config.toml: changed since the run ended",
    },
    Forgery {
        file: "mechanism.json",
        change: |text| text.replacen("\"noise_multiplier\":4.0", "\"noise_multiplier\":8.0", 1),
        again: true,
        words: "expected to follow the run's config.toml, mechanism.json",
    },
    Forgery {
        file: "vocab.txt",
        change: |text| text.replacen('\n', "x\n", 1),
        again: true,
        words: "vocab.txt",
    },
    Forgery {
        file: "privacy.json",
        change: |text| document(text, |file| file["observed"]["epsilon"] = 0.1.into()),
        again: true,
        words: "privacy.json, observed.epsilon: expected",
    },
    Forgery {
        file: "privacy.json",
        change: |text| document(text, |file| file["planned"]["epsilon"] = 0.1.into()),
        again: true,
        words: "privacy.json, planned.epsilon: expected",
    },
    Forgery {
        file: "privacy.json",
        change: |text| document(text, |file| file["worst_case"]["delta"] = 0.1.into()),
        again: true,
        words: "privacy.json, worst_case.delta",
    },
    Forgery {
        file: "privacy.json",
        change: |text| document(text, |file| file["warnings"] = Value::Array(vec![])),
        again: true,
        words: "privacy.json, warnings[0]: expected \"The run is seeded",
    },
    Forgery {
        file: "metrics.jsonl",
        change: |text| line(text, 2, |line| line["cohort_size"] = 99.into()),
        again: true,
        words: "metrics.jsonl, round 1, cohort_size",
    },
    Forgery {
        file: "metrics.jsonl",
        change: |text| text.replacen("\"top1\":0.", "\"top1\":1.", 1),
        again: false,
        words: "metrics.jsonl: changed since the run ended",
    },
];

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn every_forgery_is_named() {
    let folder = Folder::new();
    folder.write("run.toml", ftrl("kind = \"tree\""));
    folder.succeed(&["train", "run.toml", "--out", "out"]);
    folder.succeed(&["verify", "out/tiny"]);
    for forgery in FORGERIES {
        let name = format!("out/tiny/{}", forgery.file);
        let (before, manifest) = (folder.read(&name), folder.read("out/tiny/manifest.json"));
        let text = String::from_utf8(before.clone()).expect("text");
        let changed = (forgery.change)(&text);
        assert!(changed != text, "{}: nothing changed", forgery.words);
        folder.write(&name, &changed);
        if forgery.again {
            let text = String::from_utf8(manifest.clone()).expect("text");
            let again = document(&text, |file| {
                file["files"][forgery.file] = sha256(changed.as_bytes()).into();
            });
            folder.write("out/tiny/manifest.json", again);
        }
        let output = folder.run(&["verify", "out/tiny"]);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{}: not found", forgery.words);
        // Tables wrap lines.
        let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(forgery.words), "{} is not in {flat}", forgery.words);
        let json = folder.run(&["verify", "out/tiny", "--json"]);
        let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert!(
            json["checks"]
                .as_array()
                .expect("checks")
                .iter()
                .any(|check| check["problems"][0].is_string())
        );
        folder.write(&name, before);
        folder.write("out/tiny/manifest.json", manifest);
    }
    folder.succeed(&["verify", "out/tiny"]);
}

#[test]
fn the_model_and_missing_files() {
    let folder = Folder::new();
    folder.write("run.toml", ftrl("kind = \"independent\""));
    folder.succeed(&["train", "run.toml", "--out", "out"]);
    let mut model = folder.read("out/tiny/model.safetensors");
    let last = model.len() - 1;
    model[last] ^= 1;
    folder.write("out/tiny/model.safetensors", model);
    folder.fail(&["verify", "out/tiny"]);
    for name in [
        "model.safetensors",
        "manifest.json",
        "ledger.jsonl",
        "config.toml",
    ] {
        std::fs::remove_file(folder.path("out/tiny").join(name)).expect("removing");
        let message = folder.fail(&["verify", "out/tiny"]);
        assert!(
            message.contains("do not hold") || message.contains("not a run directory"),
            "{message}"
        );
    }
    assert!(
        folder
            .fail(&["verify", "nowhere"])
            .contains("nowhere is not a run directory")
    );
}

#[test]
fn sampled_and_non_private_runs_verify() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    for (out, changes) in [
        ("pld", &[][..]),
        ("rdp", &["--set", "privacy.accountant=rdp"]),
        (
            "weights",
            &[
                "--set",
                "user_update.weight_cap=10",
                "--set",
                "estimator={kind='fixed_denominator',expected_weight=12}",
            ],
        ),
        ("moments", &["--set", "privacy.accountant=moments2016"]),
        ("fixed", &["--set", "cohort.sampling=fixed_size"]),
        (
            "schedule",
            &[
                "--set",
                "schedule=[{from_round=2,clip_norm=0.5},{from_round=4,noise_multiplier=2.0}]",
            ],
        ),
        (
            "estimate",
            &["--set", "estimate={population=100000,users_per_round=1000}"],
        ),
    ] {
        let arguments = [&["train", "run.toml", "--out", out], changes].concat();
        folder.succeed(&arguments);
        folder.succeed(&["verify", &format!("{out}/tiny")]);
    }
    let open = TINY.replace("[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-4\n", "");
    folder.write("run.toml", open);
    folder.succeed(&["train", "run.toml", "--out", "open"]);
    let shown = folder.succeed(&["verify", "open/tiny"]);
    assert!(shown.contains("no noise, no guarantee"), "{shown}");
}
