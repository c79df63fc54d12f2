//! A folder of its own for every test, and the binary run in it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A small private run on the built-in population: a second or so.
pub(crate) const TINY: &str = r#"
name = "tiny"
seed = 3
rounds = 6

[data]
source = { kind = "synthetic", users = 300, words = 60 }

[model]
family = "dplm"
embed = 8
hidden = 12

[cohort]
sampling = "poisson"
users_per_round = 20

[user_update]
algorithm = "fedavg"
batch_size = 4
learning_rate = 1.0
max_examples = 8

[clip]
kind = "flat"
norm = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-4

[evaluation]
every = 2
max_tokens = 500
final_max_tokens = 2000

[checkpoint]
every = 2
"#;

/// A run file with noise that is correlated over the rounds: 249 users in 12 cohorts.
pub(crate) fn ftrl(mechanism: &str) -> String {
    let text = TINY
        .replace("rounds = 6", "rounds = 30")
        .replace("sampling = \"poisson\"", "sampling = \"shuffled_epochs\"")
        .replace("noise_multiplier = 1.0\n", "noise_multiplier = 4.0\n");
    format!("{text}\n[privacy.mechanism]\n{mechanism}\n")
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).expect("writing a test file");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("reading {name}: {error}"))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("running undertone")
    }

    /// Runs, expects success, returns standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "undertone {arguments:?} failed: {stderr}"
        );
        String::from_utf8(output.stdout).expect("UTF-8 output")
    }

    /// Runs, expects failure without a panic, returns standard error.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "undertone {arguments:?} succeeded");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// The bytes of a file, for comparing runs.
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

/// Starts the run of `run.toml`, which evaluates every round, and kills it after its third: nothing of the process runs any more.
pub(crate) fn train_until_killed(folder: &Folder, out: &str) {
    let mut child = folder
        .command(&["train", "run.toml", "--out", out])
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting");
    let lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let evaluated = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("round     3"));
    assert!(evaluated.is_some(), "the run ended before its third round");
    child.kill().expect("killing");
    child.wait().expect("waiting");
}

/// Asserts that two runs have left the same bytes: everything that does not hold times.
pub(crate) fn same_files(folder: &Folder, one: &str, two: &str) {
    for file in [
        "model.safetensors",
        "ledger.jsonl",
        "privacy.json",
        "mechanism.json",
    ] {
        let path = |out: &str| folder.path(out).join("tiny").join(file);
        assert_eq!(path(one).exists(), path(two).exists(), "{file}");
        if path(one).exists() {
            assert!(bytes(&path(one)) == bytes(&path(two)), "{file} of {two} differs");
        }
    }
}
