//! Runs that are killed at any moment, or meet a full disk, end in the bytes of the run that nothing disturbed; no row of
//! noise is used for two sums.
//!
//! There are no points in the program where it can be told to fail: processes are killed from outside, half of them after a
//! random part of the run's duration, half of them on seeing a file that is being written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Folder, contains, ftrl, same_files};

const TREE: &str = "kind = \"tree\"\nrestarts = { first = 4, every = 5 }";
const BLT: &str = "kind = \"blt\"\nbuffers = 2";

/// A run of a few tenths of a second that spends much of them on writing: a checkpoint after every round.
fn run_file(mechanism: &str) -> String {
    ftrl(mechanism)
        .replace("rounds = 30", "rounds = 10")
        .replace("hidden = 12", "hidden = 4")
        .replace("every = 2\nmax_tokens", "every = 5\nmax_tokens")
        .replace("[checkpoint]\nevery = 2", "[checkpoint]\nevery = 1")
}

/// Random numbers for the moments, SplitMix64: the same in every run of the test.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.next() % (end.as_nanos() as u64).max(1))
    }
}

/// The moment at which a process is killed.
enum Moment {
    /// The time after the start of the process.
    After(Duration),
    /// The delay after an unfinished file was seen in the folder of checkpoints, or the latest time after the start.
    WhileWriting { delay: Duration, latest: Duration },
}

/// The work of a killed run, as far as its folder shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    BeforeTheFirstCheckpoint,
    WritingACheckpointOrItsNoise,
    BetweenNoiseAndCheckpoint,
    WritingAnotherFile,
    BetweenLedgerAndCheckpoint,
    Elsewhere,
}

/// One run that is killed and resumed.
struct Victim<'a> {
    folder: &'a Folder,
    out: String,
}

impl Victim<'_> {
    fn run_dir(&self) -> PathBuf {
        self.folder.path(&self.out).join("tiny")
    }

    fn checkpoint(&self) -> PathBuf {
        self.run_dir().join("checkpoint/state.safetensors")
    }

    /// Starts or resumes the run; true if it ended before the moment came.
    fn attempt(&self, moment: &Moment) -> bool {
        let mut child = self
            .command()
            .stderr(std::fs::File::create(self.folder.path("stderr")).expect("a file"))
            .stdout(Stdio::null())
            .spawn()
            .expect("starting");
        let started = Instant::now();
        let mut seen = None;
        loop {
            if let Some(status) = child.try_wait().expect("waiting") {
                let stderr = self.folder.text("stderr");
                assert!(status.success(), "failed: {stderr}");
                return true;
            }
            let due = match *moment {
                Moment::After(wait) => started.elapsed() >= wait,
                Moment::WhileWriting { delay, latest } => {
                    if seen.is_none() && !partial(&self.run_dir().join("checkpoint")).is_empty() {
                        seen = Some(Instant::now());
                    }
                    seen.is_some_and(|seen| seen.elapsed() >= delay) || started.elapsed() >= latest
                }
            };
            if due {
                child.kill().expect("killing");
                child.wait().expect("waiting");
                // A run that has a manifest is over. Its checkpoint, or a part of it, may be there still, and resuming removes it.
                let is_over = self.run_dir().join("manifest.json").exists();
                if is_over && self.run_dir().join("checkpoint").exists() {
                    let resume = format!("train run.toml --out {} --resume", self.out);
                    let output = self.folder.run(resume);
                    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                    contains(&stderr, "is finished");
                }
                return is_over;
            }
            if let Moment::After(_) = moment {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn command(&self) -> Command {
        let line = format!("train run.toml --out {} --threads 1", self.out);
        let mut command = self.folder.command(line);
        if self.checkpoint().exists() {
            command.arg("--resume");
        }
        command
    }

    fn phase(&self) -> Phase {
        let folder = self.run_dir().join("checkpoint");
        if !self.checkpoint().exists() {
            Phase::BeforeTheFirstCheckpoint
        } else if !partial(&folder).is_empty() {
            Phase::WritingACheckpointOrItsNoise
        } else if names(&folder)
            .iter()
            .filter(|name| name.starts_with("noise-"))
            .count()
            > 1
        {
            Phase::BetweenNoiseAndCheckpoint
        } else if !partial(&self.run_dir()).is_empty() {
            Phase::WritingAnotherFile
        } else if self.lines().len() as u64 > rounds_of(&self.checkpoint()) {
            Phase::BetweenLedgerAndCheckpoint
        } else {
            Phase::Elsewhere
        }
    }

    /// The ledger's lines, as far as they are whole.
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read(self.run_dir().join("ledger.jsonl")).unwrap_or_default();
        text.split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .map(|line| serde_json::from_slice(line).expect("a whole line is JSON"))
            .collect()
    }
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Files that a writer has not finished.
fn partial(folder: &Path) -> Vec<String> {
    names(folder)
        .into_iter()
        .filter(|name| name.starts_with(".partial-"))
        .collect()
}

/// Copies a folder of files and folders.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copying");
        }
    }
}

/// Rounds that a checkpoint holds: a field of the JSON in its header.
fn rounds_of(checkpoint: &Path) -> u64 {
    let text = String::from_utf8_lossy(&std::fs::read(checkpoint).expect("a checkpoint")).into_owned();
    let key = "{\\\"rounds\\\":";
    let start = text.find(key).expect("a checkpoint's state") + key.len();
    let digits: String = text[start..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// A row of noise is named by its key and its round; what it was added to, by the parameters that came out.
#[derive(Default)]
struct Rows(HashMap<(String, u64), String>);

impl Rows {
    fn see(&mut self, lines: &[Value]) {
        for line in lines {
            let text = |name: &str| line[name].as_str().expect("text").to_owned();
            let round = line["round"].as_u64().expect("a round");
            let sum = text("parameters_sha256");
            let before = self.0.insert((text("noise_key"), round), sum.clone());
            assert!(
                before.is_none_or(|before| before == sum),
                "round {round}: one row, two sums"
            );
        }
    }

    fn keys(&self) -> usize {
        self.0.keys().map(|(key, _)| key).collect::<HashSet<_>>().len()
    }
}

/// Kills runs of `run.toml` exactly so many times, resuming each until it ends, and hands every ended one to `check`.
fn kill(folder: &Folder, kills: u64, seed: u64, mut check: impl FnMut(&Victim<'_>)) -> (Rows, Counts) {
    let started = Instant::now();
    folder.succeed("train run.toml --out timed --threads 1");
    let whole = started.elapsed();
    let mut moments = Moments(seed);
    let (mut rows, mut counts) = (Rows::default(), Counts::default());
    let mut killed = 0;
    for run in 0.. {
        let victim = Victim {
            folder,
            out: format!("victim{run}"),
        };
        // Within one run no key may come back with another sum; two seeded runs have the same keys and the same sums.
        loop {
            // One kill more than asked for would never come: the last run ends.
            let moment = match (killed < kills, killed % 2) {
                (false, _) => Moment::After(Duration::MAX),
                (true, 0) => Moment::After(moments.below(whole)),
                (true, _) => Moment::WhileWriting {
                    delay: moments.below(Duration::from_micros(3000)),
                    latest: whole,
                },
            };
            let ended = victim.attempt(&moment);
            rows.see(&victim.lines());
            if ended {
                break;
            }
            killed += 1;
            *counts.0.entry(victim.phase()).or_default() += 1;
        }
        check(&victim);
        if killed >= kills {
            break;
        }
    }
    assert_eq!(counts.0.values().sum::<u64>(), kills);
    println!("{kills} kills: {:?}", counts.0);
    (rows, counts)
}

#[derive(Default)]
struct Counts(BTreeMap<Phase, u64>);

impl Counts {
    fn of(&self, phase: Phase) -> u64 {
        self.0.get(&phase).copied().unwrap_or_default()
    }
}

fn seeded(run_file: String, kills: u64) -> Counts {
    let folder = Folder::with(run_file);
    let (_, counts) = kill(&folder, kills, 1, |victim| {
        same_files(&folder, "timed", &victim.out);
        folder.succeed(format!("verify {}/tiny", victim.out));
    });
    counts
}

fn unseeded(mechanism: &str, kills: u64) {
    let folder = Folder::with(run_file(mechanism).replace("seed = 3\n", ""));
    let (rows, _) = kill(&folder, kills, 2, |victim| {
        folder.succeed(format!("verify {}/tiny", victim.out));
    });
    // Each start that came as far as a round had a key of its own.
    assert!(rows.keys() > 1, "{kills} kills, one key");
}

#[test]
#[ignore = "slow"]
fn killed_at_any_moment_a_seeded_run_ends_in_the_same_bytes() {
    for mechanism in [TREE, BLT] {
        seeded(run_file(mechanism), 8);
    }
}

/// Users fail, and the sum is under secure aggregation: keys, graph and masks of a round come back with it.
#[test]
#[ignore = "slow"]
fn killed_at_any_moment_a_run_under_a_secure_sum_ends_in_the_same_bytes() {
    let aggregation = "\n[aggregation]\nsum = \"secagg\"\nmin_clients = 8\n\
                       encoding = { kind = \"rotated_rounding\", scale = 1000.0 }\n\
                       graph = { drop_out_rate = 0.2, corrupt_rate = 0.1 }\n\
                       dropout = { before_shares = 0.1, before_upload = 0.1, before_unmask = 0.1 }\n";
    seeded(run_file(BLT) + aggregation, 8);
}

#[test]
#[ignore = "slow"]
fn without_a_seed_no_row_is_used_twice() {
    unseeded(BLT, 8);
}

mod by_hand {
    use super::*;

    /// Kills as often as the documents claim: `cargo test -p undertone-cli --test it -- --ignored two_hundred_kills`.
    #[test]
    #[ignore = "about five minutes"]
    fn two_hundred_kills_change_nothing_and_reuse_no_row() {
        let counts = seeded(run_file(BLT), 200);
        assert!(
            counts.of(Phase::WritingACheckpointOrItsNoise) >= 20,
            "{:?}",
            counts.0
        );
        seeded(run_file(TREE), 200);
        unseeded(BLT, 200);
        unseeded(TREE, 200);
    }
}

/// A process that may not write files beyond a size is as badly off as one on a full disk: writing fails half-way.
#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn a_full_disk_is_an_error_that_names_the_file_and_the_run_goes_on_afterwards() {
    let folder = Folder::with(run_file(BLT));
    folder.succeed("train run.toml --out whole --threads 1");
    let (mut failures, mut named) = (0, HashSet::new());
    // Blocks of 512 or 1024 bytes, by the shell's taste: from nothing to more than the largest file.
    for blocks in std::iter::successors(Some(1), |blocks| Some(blocks * 2 + 1)) {
        let victim = Victim {
            folder: &folder,
            out: format!("full{blocks}"),
        };
        // The largest file is the corpus: it is there already, except on the smallest disk.
        if blocks > 1 {
            copy(
                &folder.path("whole/.corpora"),
                &folder.path(&victim.out).join(".corpora"),
            );
        }
        let limited =
            |victim: &Victim<'_>| folder.run_after(&format!("ulimit -f {blocks}"), &victim.command());
        let output = limited(&victim);
        if output.status.success() {
            break;
        }
        failures += 1;
        // Twice: resuming finds the disk as full as before.
        for output in [output, limited(&victim)] {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{blocks} blocks: {stderr}");
            let file = stderr
                .split_whitespace()
                .find(|word| word.starts_with(&victim.out))
                .unwrap_or_else(|| panic!("no file is named: {stderr}"));
            named.insert(
                file.trim_end_matches(':')
                    .trim_start_matches(&victim.out)
                    .to_owned(),
            );
        }
        assert!(
            partial(&victim.run_dir()).is_empty() && partial(&victim.run_dir().join("checkpoint")).is_empty()
        );
        if victim.run_dir().join("manifest.json").exists() {
            // The run is over, and only its report had no room.
            let run_dir = format!("{}/tiny", victim.out);
            folder.succeed(format!("report {run_dir}"));
        } else {
            assert!(victim.attempt(&Moment::After(Duration::MAX)));
        }
        same_files(&folder, "whole", &victim.out);
    }
    println!("{failures} sizes of disk, errors at {named:?}");
    assert!(failures > 4 && named.len() > 2, "{failures} {named:?}");
}
