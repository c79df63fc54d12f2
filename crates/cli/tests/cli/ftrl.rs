//! Runs with noise that is correlated over the rounds: the same bytes after any interruption, no noise used twice.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Folder, bytes, ftrl};

const FILES: [&str; 4] = [
    "model.safetensors",
    "ledger.jsonl",
    "privacy.json",
    "mechanism.json",
];

const MECHANISMS: [&str; 6] = [
    "kind = \"tree\"",
    "kind = \"tree\"\nrestarts = { first = 7, every = 9 }",
    "kind = \"tree-full\"",
    "kind = \"blt\"\nbuffers = 2",
    "kind = \"banded\"\nbands = 5",
    "kind = \"independent\"",
];

/// The ledger's lines, as far as they are whole.
fn ledger(folder: &Folder, out: &str) -> Vec<Value> {
    let text = std::fs::read(folder.path(out).join("tiny/ledger.jsonl")).unwrap_or_default();
    text.split_inclusive(|&byte| byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[test]
fn every_kind_of_mechanism_trains_and_verifies() {
    let folder = Folder::new();
    for (index, mechanism) in MECHANISMS.into_iter().enumerate() {
        folder.write("run.toml", ftrl(mechanism));
        let out = format!("out{index}");
        let summary = folder.succeed(&["train", "run.toml", "--out", &out, "--json"]);
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        let privacy = &summary["privacy"];
        let epsilon = |name: &str| privacy[name]["epsilon"].as_f64().expect("an epsilon");
        // Some took part three times, twelve rounds apart: nothing to gain or lose against the plan.
        assert_eq!(epsilon("planned"), epsilon("worst_case"), "{mechanism}");
        assert_eq!(epsilon("planned"), epsilon("observed"), "{mechanism}");
        assert_eq!(privacy["observed"]["schema"]["min_sep"], 12, "{mechanism}");
        assert_eq!(privacy["observed"]["schema"]["max_part"], 3, "{mechanism}");
        let shown = folder.succeed(&["verify", &format!("{out}/tiny")]);
        assert!(shown.contains("recomputed"), "{shown}");
        assert!(!shown.contains("DOES NOT HOLD"), "{shown}");
        // Nothing of the noise is left behind.
        let left = std::fs::read_dir(folder.path(&out).join("tiny/checkpoint")).expect("a folder");
        assert_eq!(left.count(), 1, "{mechanism}");
    }
}

#[test]
fn threads_do_not_matter() {
    let folder = Folder::new();
    folder.write("run.toml", ftrl("kind = \"blt\"\nbuffers = 2"));
    folder.succeed(&["train", "run.toml", "--out", "one", "--threads", "1"]);
    folder.succeed(&["train", "run.toml", "--out", "two", "--threads", "2"]);
    for file in FILES {
        let of = |out: &str| bytes(&folder.path(out).join("tiny").join(file));
        assert!(of("one") == of("two"), "{file} differs");
    }
}

/// Kills a run again and again, each time a little later, and resumes it; returns how often it was killed.
fn kill_and_resume(folder: &Folder, out: &str, mut seen: impl FnMut(&[Value])) -> usize {
    let mut kills = 0;
    for attempt in 0.. {
        let mut arguments = vec!["train", "run.toml", "--out", out, "--threads", "1"];
        if folder
            .path(out)
            .join("tiny/checkpoint/state.safetensors")
            .exists()
        {
            arguments.push("--resume");
        }
        let mut child = folder
            .command(&arguments)
            .stderr(std::fs::File::create(folder.path("stderr")).expect("a file"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starting");
        // Moments all over the run: not a multiple of anything that happens in it.
        let wait = Duration::from_micros(20_000 + 7_919 * (attempt % 23) + 1_500 * attempt);
        let started = std::time::Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().expect("waiting") {
                let stderr = String::from_utf8_lossy(&folder.read("stderr")).into_owned();
                assert!(status.success(), "{arguments:?} failed: {stderr}");
                break true;
            }
            if started.elapsed() > wait {
                child.kill().expect("killing");
                child.wait().expect("waiting");
                break false;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        seen(&ledger(folder, out));
        if ended {
            return kills;
        }
        kills += 1;
        assert!(kills < 2000, "the run never ends");
    }
    kills
}

#[test]
fn killed_at_any_moment_a_seeded_run_ends_in_the_same_bytes() {
    for mechanism in [
        "kind = \"tree\"\nrestarts = { first = 7, every = 9 }",
        "kind = \"blt\"\nbuffers = 2",
    ] {
        let folder = Folder::new();
        folder.write("run.toml", ftrl(mechanism).replace("every = 2\n\"#", "every = 2"));
        folder.succeed(&["train", "run.toml", "--out", "whole"]);
        // One sum a round and key, in all attempts together.
        let mut sums: HashMap<(String, u64), String> = HashMap::new();
        let kills = kill_and_resume(&folder, "cut", |lines| one_sum_a_row(&mut sums, lines));
        assert!(kills > 0);
        for file in FILES {
            let of = |out: &str| bytes(&folder.path(out).join("tiny").join(file));
            assert!(of("whole") == of("cut"), "{file} differs after {kills} kills");
        }
        folder.succeed(&["verify", "cut/tiny"]);
    }
}

/// A row of noise is named by its key and its round; what it was added to, by the parameters that came out.
fn one_sum_a_row(sums: &mut HashMap<(String, u64), String>, lines: &[Value]) {
    for line in lines {
        let text = |name: &str| line[name].as_str().expect("text").to_owned();
        let round = line["round"].as_u64().expect("a round");
        let sum = text("parameters_sha256");
        let before = sums.insert((text("noise_key"), round), sum.clone());
        assert!(
            before.is_none_or(|before| before == sum),
            "round {round}: one row, two sums"
        );
    }
}

#[test]
fn without_a_seed_no_row_is_used_twice() {
    let folder = Folder::new();
    folder.write(
        "run.toml",
        ftrl("kind = \"blt\"\nbuffers = 2").replace("seed = 3\n", ""),
    );
    let mut sums = HashMap::new();
    let kills = kill_and_resume(&folder, "out", |lines| one_sum_a_row(&mut sums, lines));
    assert!(kills > 0);
    // Each start that came as far as a round had a key of its own.
    let keys: std::collections::HashSet<&String> = sums.keys().map(|(key, _)| key).collect();
    assert!(keys.len() > 1, "{kills} kills, one key");
    folder.succeed(&["verify", "out/tiny"]);
}

#[test]
fn adaptive_clipping_finds_the_quantile() {
    let folder = Folder::new();
    let text = ftrl("kind = \"tree\"\nrestarts = { first = 30, every = 30 }")
        .replace("rounds = 30", "rounds = 90")
        .replace(
            "kind = \"flat\"\nnorm = 1.0",
            "kind = \"adaptive\"\ninitial_norm = 0.1\nbit_noise_std = 1.0",
        )
        .replace("max_examples = 8", "max_examples = 8\nclip_every_step = false")
        .replace("noise_multiplier = 4.0", "noise_multiplier = 0.5");
    folder.write("run.toml", text);
    folder.succeed(&["train", "run.toml", "--out", "out"]);
    let metrics = String::from_utf8(folder.read("out/tiny/metrics.jsonl")).expect("text");
    let rounds: Vec<Value> = metrics
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|line| line["kind"] == "round")
        .collect();
    let clip = |round: usize| rounds[round]["clip_norm"].as_f64().expect("a norm");
    // In force from restart to restart.
    assert_eq!((clip(0), clip(29)), (0.1, 0.1));
    assert!(clip(30) > 0.1 && clip(30) == clip(59) && clip(60) != clip(59));
    // After two restarts half of the users are clipped, give or take: 30 rounds of 20 users, five deviations of
    // sqrt(0.25 / 600) are 0.1; the norms drift as the model learns.
    let clipped: f64 = rounds[60..]
        .iter()
        .map(|round| round["clipped_fraction"].as_f64().expect("a share"))
        .sum::<f64>()
        / 30.0;
    assert!((clipped - 0.5).abs() < 0.2, "{clipped}");
    folder.succeed(&["verify", "out/tiny"]);
}

#[test]
fn users_who_may_not_take_part_yet_are_not_chosen() {
    let folder = Folder::new();
    let text = ftrl("kind = \"tree\"").replace("sampling = \"shuffled_epochs\"", "sampling = \"fixed_size\"")
        + "\n[participation]\nmin_sep = 10\nmax_part = 2\n";
    folder.write("run.toml", &text);
    folder.succeed(&["train", "run.toml", "--out", "out"]);
    let shown = folder.succeed(&["verify", "out/tiny"]);
    assert!(shown.contains("at most 2 times"), "{shown}");
    // Where all have taken part as often as they may, the run ends with what it has.
    folder.write("run.toml", text.replace("max_part = 2", "max_part = 1"));
    let summary = folder.succeed(&["train", "run.toml", "--out", "short", "--json"]);
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["rounds"], 12);
    let why = summary["stopped_early"].as_str().expect("a reason");
    assert!(
        why.contains("round 12: expected 20 users who may take part again, got 9"),
        "{why}"
    );
    folder.succeed(&["verify", "short/tiny"]);
}
