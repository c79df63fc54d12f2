//! A forger changes every leaf of what a run claims, one at a time, and makes everything else agree: the manifest, the chain of
//! the ledger, and the digests of its lines in the metrics. Verification refuses every change and names the leaf.

mod leaves;

use std::path::PathBuf;

use leaves::{Change, changes};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use undertone_present::numbers::hex;
use undertone_run_directory::config::RunConfig;
use undertone_verify::{Verification, verify};

use crate::support::{config, train};

/// Changes of the base run file.
const RUN: [&str; 9] = [
    "name=forged",
    "rounds=5",
    "data.source.users=90",
    "model={family='dplm',embed=4,hidden=5}",
    "user_update.max_examples=4",
    "clip.norm=1.0",
    "privacy={noise_multiplier=1.5,delta=1e-4}",
    "evaluation={every=2,max_tokens=100,final_max_tokens=100}",
    "checkpoint.every=2",
];

/// The figures of the metrics that ledger and configuration determine.
const DETERMINED: [&str; 19] = [
    "run",
    "model",
    "parameters",
    "frozen_parameters",
    "train_users",
    "rounds",
    "round",
    "cohort_size",
    "survivors",
    "abandoned",
    "examples",
    "clip_norm",
    "noise_std",
    "signal_to_noise",
    "epsilon",
    "ledger_sha256",
    "split",
    "kind",
    "forged",
];

/// Leaves that no other file knows: a forger who also makes the digests of lines in the metrics agree changes them unseen. So
/// are figures of an optimised matrix that its sensitivity hardly depends on.
const ONLY_BY_DIGEST: [&str; 5] = [
    "participants",
    "noise_key",
    "parameters_sha256",
    "decay_complements",
    "output_scales",
];

/// A finished run, and the files that a forger changes.
struct Run {
    _folder: tempfile::TempDir,
    path: PathBuf,
    name: &'static str,
}

impl Run {
    fn train(name: &'static str, config: &RunConfig) -> Self {
        let (folder, summary) = train(config, 1);
        let run = Self {
            path: summary.run_dir,
            _folder: folder,
            name,
        };
        let honest = run.verify();
        assert!(honest.holds(), "{name}: {:?}", honest.checks);
        run
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path.join(file)).expect("a file")
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path.join(file), text).expect("writing");
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = self.read(file);
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    fn verify(&self) -> Verification {
        verify(&self.path).expect("a run directory")
    }

    /// The digest that the first line of the ledger follows.
    fn genesis(&self) -> String {
        let read = |name: &str| std::fs::read(self.path.join(name)).unwrap_or_default();
        let mut bytes = b"undertone ledger\0".to_vec();
        for part in [read("config.toml"), read("mechanism.json"), read("vocab.txt")] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        sha256(&bytes)
    }

    /// Writes a ledger whose chain holds; with `metrics` the metrics know its lines.
    fn rechain(&self, lines: &[Value], metrics: bool) {
        let mut before = self.genesis();
        let (mut text, mut digests) = (String::new(), Vec::new());
        for line in lines {
            let mut line = line.clone();
            if let Some(fields) = line.as_object_mut() {
                fields.insert("previous_sha256".to_owned(), before.clone().into());
            }
            let line = line.to_string();
            before = sha256(line.as_bytes());
            digests.push(before.clone());
            text += &(line + "\n");
        }
        self.write("ledger.jsonl", &text);
        if metrics {
            let mut records = self.lines("metrics.jsonl");
            let rounds = records.iter_mut().filter(|line| line["kind"] == "round");
            for (record, digest) in rounds.zip(digests) {
                record["ledger_sha256"] = digest.into();
            }
            self.write("metrics.jsonl", &joined(&records));
        }
    }

    /// Makes the manifest agree with every file.
    fn manifest(&self) {
        let mut manifest: Value = serde_json::from_str(&self.read("manifest.json")).expect("JSON");
        for (name, digest) in manifest["files"].as_object_mut().expect("files") {
            *digest = sha256(&std::fs::read(self.path.join(name)).expect("a file")).into();
        }
        let ledger = self.read("ledger.jsonl");
        manifest["ledger_head"] = sha256(ledger.lines().last().unwrap_or_default().as_bytes()).into();
        manifest["rounds"] = ledger.lines().count().into();
        self.write("manifest.json", &manifest.to_string());
    }

    /// Lets `forge` change files, and checks that verification refuses the run and names `key`.
    fn refuses(&self, place: &str, change: &Change, forge: impl FnOnce()) -> Option<String> {
        let files = [
            "config.toml",
            "ledger.jsonl",
            "metrics.jsonl",
            "privacy.json",
            "mechanism.json",
            "manifest.json",
        ];
        let before: Vec<_> = files
            .iter()
            .map(|name| std::fs::read(self.path.join(name)).ok())
            .collect();
        forge();
        self.manifest();
        let verification = self.verify();
        let said = verification
            .checks
            .iter()
            .flat_map(|check| check.problems.iter().cloned())
            .collect::<Vec<_>>()
            .join("\n");
        for (name, bytes) in files.iter().zip(before) {
            if let Some(bytes) = bytes {
                std::fs::write(self.path.join(name), bytes).expect("writing");
            }
        }
        let shown = format!("{}: {place}{}: {}", self.name, change.path, change.what);
        if verification.holds() {
            return Some(format!("{shown}: accepted"));
        }
        (!said.contains(&change.key)).then(|| format!("{shown}: `{}` is not named in {said}", change.key))
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn joined(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Every leaf of every file, one change at a time; of each leaf every `stride`-th change, so that all kinds of changes are made
/// somewhere and the test ends soon. With UNDERTONE_FORGE_ALL in the environment, every change.
fn forge(run: &Run, stride: usize) -> usize {
    let stride = match std::env::var_os("UNDERTONE_FORGE_ALL") {
        Some(_) => 1,
        None => stride,
    };
    let mut accepted = Vec::new();
    let mut made = 0;
    let mut turn = 0;
    let mut chosen = |changes: Vec<Change>, stride: usize| -> Vec<Change> {
        let mut seen = std::collections::HashMap::new();
        changes
            .into_iter()
            .filter(|change| {
                let count = seen.entry(change.path.clone()).or_insert_with(|| {
                    turn += 1;
                    turn
                });
                *count += 1;
                *count % stride == 0 || change.what == "a millionth less" || change.what == "one more"
            })
            .collect()
    };
    for file in ["privacy.json", "mechanism.json"] {
        let Ok(text) = std::fs::read_to_string(run.path.join(file)) else {
            continue;
        };
        let honest: Value = serde_json::from_str(&text).expect("JSON");
        for change in chosen(changes(&honest), stride) {
            made += 1;
            accepted.extend(run.refuses(file, &change, || {
                run.write(file, &change.value.to_string());
                let thorough = !ONLY_BY_DIGEST.contains(&change.key.as_str());
                run.rechain(&run.lines("ledger.jsonl"), thorough);
            }));
        }
    }
    let ledger = run.lines("ledger.jsonl");
    for index in [0, ledger.len() / 2, ledger.len() - 1] {
        for change in chosen(changes(&ledger[index]), stride) {
            if change.key == "previous_sha256" {
                continue;
            }
            made += 1;
            let thorough = !ONLY_BY_DIGEST.contains(&change.key.as_str());
            let place = format!("ledger.jsonl, line {}", index + 1);
            accepted.extend(run.refuses(&place, &change, || {
                let mut lines = ledger.clone();
                lines[index] = change.value.clone();
                run.rechain(&lines, thorough);
            }));
        }
    }
    let metrics = run.lines("metrics.jsonl");
    for index in [0, 1, 3, metrics.len() - 2, metrics.len() - 1] {
        for change in chosen(changes(&metrics[index]), stride) {
            if !DETERMINED.contains(&change.key.as_str()) {
                continue;
            }
            made += 1;
            let place = format!("metrics.jsonl, line {}", index + 1);
            accepted.extend(run.refuses(&place, &change, || {
                let mut lines = metrics.clone();
                lines[index] = change.value.clone();
                run.write("metrics.jsonl", &joined(&lines));
            }));
        }
    }
    made += records(run, &ledger, &metrics, &mut accepted);
    let (count, shown) = (accepted.len(), accepted.len().min(30));
    assert!(
        accepted.is_empty(),
        "{count} of {made}:\n{}",
        accepted[..shown].join("\n")
    );
    println!("{}: {made} changes refused and named", run.name);
    made
}

/// A change that is more than that of a leaf.
fn whole(what: &str) -> Change {
    Change {
        path: String::new(),
        key: String::new(),
        what: what.to_owned(),
        value: Value::Null,
    }
}

/// Whole records removed, added and exchanged.
fn records(run: &Run, ledger: &[Value], metrics: &[Value], accepted: &mut Vec<String>) -> usize {
    let mut made = 0;
    let mut forge = |place: &str, what: &str, forge: &dyn Fn()| {
        made += 1;
        accepted.extend(run.refuses(place, &whole(what), forge));
    };
    for index in 0..ledger.len() {
        forge("ledger.jsonl", &format!("line {index} removed"), &|| {
            let mut lines = ledger.to_vec();
            lines.remove(index);
            for (round, line) in lines.iter_mut().enumerate() {
                line["round"] = round.into();
            }
            run.rechain(&lines, true);
        });
    }
    for index in 0..metrics.len() {
        forge("metrics.jsonl", &format!("line {index} removed"), &|| {
            let mut lines = metrics.to_vec();
            lines.remove(index);
            run.write("metrics.jsonl", &joined(&lines));
        });
        forge("metrics.jsonl", &format!("line {index} twice"), &|| {
            let mut lines = metrics.to_vec();
            lines.insert(index, metrics[index].clone());
            // A second evaluation at the end is what a run leaves that was resumed after it.
            if index + 1 == metrics.len() {
                lines[0]["kind"] = json!("round");
            }
            run.write("metrics.jsonl", &joined(&lines));
        });
    }
    made
}

/// The run file of this file's runs with these changes; its noise has no seed.
fn changed(changes: &[&str]) -> RunConfig {
    let mut config = config(&[&RUN, changes].concat());
    config.seed = None;
    config
}

const FTRL: [&str; 3] = [
    "cohort.sampling=shuffled_epochs",
    "rounds=12",
    "privacy.mechanism={kind='blt',buffers=2}",
];

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_sampled_run_is_refused_and_named() {
    assert!(forge(&Run::train("sampled", &changed(&[])), 3) > 100);
}

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_run_with_correlated_noise_is_refused_and_named() {
    assert!(forge(&Run::train("ftrl", &changed(&FTRL)), 4) > 100);
}

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_run_with_adaptive_clipping_is_refused_and_named() {
    let adaptive = changed(&[
        FTRL[0],
        FTRL[1],
        "privacy.mechanism={kind='tree',restarts={first=4,every=4}}",
        "clip={kind='adaptive',initial_norm=1.0,bit_noise_std=3.0}",
        "user_update.clip_every_step=false",
    ]);
    assert!(forge(&Run::train("adaptive", &adaptive), 4) > 100);
}

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_run_by_examples_is_refused_and_named() {
    let els = changed(&[
        "user_update={algorithm='els',batch_size=4,group_size=3}",
        "cohort={sampling='poisson',examples_per_round=30}",
        "privacy.accountant=pld",
    ]);
    assert!(forge(&Run::train("els", &els), 4) > 100);
}

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_run_with_secure_sums_is_refused_and_named() {
    let sums = "aggregation={sum='secagg',min_clients=6,dropout={before_keys=0.05,before_upload=0.1}}";
    let secure = changed(&[FTRL[0], FTRL[2], sums, "rounds=7"]);
    assert!(forge(&Run::train("secagg", &secure), 5) > 100);
}

#[test]
#[ignore = "slow"]
fn every_forged_leaf_of_a_run_without_privacy_is_refused_and_named() {
    let mut open = changed(&[]);
    open.task.privacy = None;
    assert!(forge(&Run::train("open", &open), 2) > 100);
}

/// The finding: noise too small for any guarantee let every claim pass.
#[test]
#[ignore = "slow"]
fn a_run_whose_noise_allows_no_guarantee_may_claim_none() {
    let quiet = changed(&["privacy.noise_multiplier=0.0001", "privacy.accountant=rdp"]);
    let run = Run::train("meaningless", &quiet);
    let honest: Value = serde_json::from_str(&run.read("privacy.json")).expect("JSON");
    assert_eq!(honest["observed"], Value::Null);
    let sampled = Run::train("sampled", &changed(&[]));
    let claims: Value = serde_json::from_str(&sampled.read("privacy.json")).expect("JSON");
    for key in [
        "planned",
        "worst_case",
        "observed",
        "with_vocabulary",
        "with_initial_model",
        "estimate",
    ] {
        let mut value = honest.clone();
        value[key] = claims["observed"].clone();
        let change = Change {
            path: format!(".{key}"),
            key: key.to_owned(),
            what: "a guarantee".to_owned(),
            value,
        };
        let accepted = run.refuses("privacy.json", &change, || {
            run.write("privacy.json", &change.value.to_string());
        });
        assert_eq!(accepted, None);
    }
}

/// A configuration on which claims depend, with the chain, the manifest and the metrics' digests made to agree.
#[test]
#[ignore = "slow"]
fn another_configuration_does_not_fit_the_claims() {
    let run = Run::train("sampled", &changed(&[]));
    for (from, to) in [
        ("noise_multiplier = 1.5", "noise_multiplier = 3.0"),
        ("delta = 0.0001", "delta = 0.00001"),
        ("users_per_round = 12.0", "users_per_round = 6.0"),
        ("norm = 1.0", "norm = 0.5"),
        ("rounds = 5", "rounds = 50"),
        ("rounds = 5", "seed = 5\nrounds = 5"),
        ("delta = 0.0001", "delta = 0.0001\nmax_epsilon = 0.1"),
        ("every = 2\nsplit", "every = 3\nsplit"),
        ("split = \"validation\"", "split = \"test\""),
        ("words = 40", "words = 41"),
        (
            "[checkpoint]",
            "[estimate]\npopulation = 100000\nusers_per_round = 1000.0\n[checkpoint]",
        ),
    ] {
        let config = run.read("config.toml");
        assert!(config.contains(from), "{from} is not in {config}");
        let change = whole(&format!("{from} to {to}"));
        let accepted = run.refuses("config.toml", &change, || {
            run.write("config.toml", &config.replacen(from, to, 1));
            run.rechain(&run.lines("ledger.jsonl"), true);
        });
        assert_eq!(accepted, None);
    }
}

/// Verification said "BLT(2), as configured" of a run whose settings asked for another number.
#[test]
#[ignore = "slow"]
fn a_matrix_has_the_number_of_buffers_that_the_configuration_gives() {
    let run = Run::train("ftrl", &changed(&FTRL));
    let config = run.read("config.toml");
    assert!(config.contains("buffers = 2"), "{config}");
    for other in ["buffers = 1", "buffers = 3"] {
        let change = Change {
            key: "number of buffers".to_owned(),
            ..whole(other)
        };
        let accepted = run.refuses("config.toml", &change, || {
            run.write("config.toml", &config.replacen("buffers = 2", other, 1));
            run.rechain(&run.lines("ledger.jsonl"), true);
        });
        assert_eq!(accepted, None);
    }
}
