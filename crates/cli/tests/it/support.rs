//! A folder of its own for every test, and the binary run in it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

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

/// A file of pre-training on public text.
pub(crate) const PUBLIC: &str = r#"
name = "public"
steps = 12

[data]
source = { kind = "synthetic", users = 100, words = 60 }

[model]
family = "cifg"
cells = 12
embedding = 8
projection = 8

[training]
batch_size = 32
optimizer = { kind = "adam" }
learning_rate = 0.01

[evaluation]
every = 6
max_tokens = 500
"#;

/// A run file with noise that is correlated over the rounds: 249 users in 12 cohorts.
pub(crate) fn ftrl(mechanism: &str) -> String {
    let text = TINY
        .replace("rounds = 6", "rounds = 30")
        .replace("sampling = \"poisson\"", "sampling = \"shuffled_epochs\"")
        .replace("noise_multiplier = 1.0\n", "noise_multiplier = 4.0\n");
    format!("{text}\n[privacy.mechanism]\n{mechanism}\n")
}

/// The tiny run by one of the two algorithms over gradients, `els` or `uls`.
pub(crate) fn gradients(algorithm: &str) -> String {
    let text = TINY.replace(
        "batch_size = 4\nlearning_rate = 1.0\nmax_examples = 8\n",
        "group_size = 4\nbatch_size = 4\n",
    );
    with_algorithm(&text, algorithm)
}

/// A run file with another algorithm. The one over examples samples them instead of users.
pub(crate) fn with_algorithm(run_file: &str, algorithm: &str) -> String {
    let text = run_file.replace("algorithm = \"fedavg\"", &format!("algorithm = \"{algorithm}\""));
    match algorithm {
        "els" => text
            .replace("users_per_round = 20", "examples_per_round = 60")
            .replace("delta = 1e-4", "delta = 1e-4\naccountant = \"pld\""),
        _ => text,
    }
}

/// The tiny run over text from another source.
pub(crate) fn over(source: &str) -> String {
    TINY.replace("{ kind = \"synthetic\", users = 300, words = 60 }", source)
}

/// A run of forty rounds that evaluates every round, so that it can be killed in between.
pub(crate) fn long(config: &str) -> String {
    config
        .replace("every = 2\nmax_tokens", "every = 1\nmax_tokens")
        .replace("rounds = 6", "rounds = 40")
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A folder with this run file.
    pub(crate) fn with(run_file: impl AsRef<[u8]>) -> Self {
        let folder = Self::new();
        folder.write("run.toml", run_file);
        folder
    }

    /// A folder with this run file, and with the run of it in `runs`.
    pub(crate) fn trained(run_file: impl AsRef<[u8]>) -> Self {
        let folder = Self::with(run_file);
        folder.succeed("train run.toml");
        folder
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

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    /// Every line of a file as JSON.
    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        self.text(name).lines().map(json).collect()
    }

    /// The command of a line, which a shell without quotes cuts into arguments.
    pub(crate) fn command(&self, line: impl AsRef<str>) -> Command {
        self.command_of(line.as_ref().split_whitespace())
    }

    /// The command of these arguments, which may hold spaces.
    pub(crate) fn command_of<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs in a shell that limits the process before.
    #[cfg(unix)]
    pub(crate) fn run_after(&self, limit: &str, command: &Command) -> Output {
        Command::new("sh")
            .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.0.path())
            .output()
            .expect("running sh")
    }

    pub(crate) fn run(&self, line: impl AsRef<str>) -> Output {
        self.command(line).output().expect("running undertone")
    }

    /// Runs, expects success, returns standard output.
    pub(crate) fn succeed(&self, line: impl AsRef<str>) -> String {
        let line = line.as_ref();
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8(output.stdout).expect("UTF-8 output");
        // Problems that `verify` finds are on standard output.
        assert!(
            output.status.success(),
            "undertone {line} failed: {stderr}{stdout}"
        );
        stdout
    }

    /// Runs with `--json`, expects success, returns the document.
    pub(crate) fn json(&self, line: impl AsRef<str>) -> Value {
        json(&self.succeed(format!("{} --json", line.as_ref())))
    }

    /// Runs, expects failure without a panic, returns standard error.
    pub(crate) fn fail(&self, line: impl AsRef<str>) -> String {
        let line = line.as_ref();
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "undertone {line} succeeded");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }

    /// Runs, and expects an error that [`contains`] these parts.
    #[track_caller]
    pub(crate) fn refuse(&self, line: impl AsRef<str>, parts: &str) {
        contains(&self.fail(line), parts);
    }

    /// Runs, and expects an output that [`contains`] these parts.
    #[track_caller]
    pub(crate) fn show(&self, line: impl AsRef<str>, parts: &str) {
        contains(&self.succeed(line), parts);
    }

    /// Runs `verify`, which must find the run wrong; its output on one line, since tables wrap lines.
    pub(crate) fn disproved(&self, run: &str) -> String {
        let output = self.run(format!("verify {run}"));
        let shown = String::from_utf8_lossy(&output.stdout);
        let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success(), "{run} holds: {flat}");
        flat
    }

    /// Runs every line of a transcript that starts with `$`, and expects an error that [`contains`] the line below it.
    #[track_caller]
    pub(crate) fn refuses(&self, transcript: &str) {
        for (line, parts) in cases(transcript) {
            self.refuse(line, parts);
        }
    }
}

/// The lines of a transcript that start with `$`, each with the line below it.
pub(crate) fn cases(transcript: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = transcript.lines().map(str::trim).filter(|line| !line.is_empty());
    std::iter::from_fn(move || {
        let line = lines.next()?.strip_prefix('$').expect("a line of `$`").trim();
        Some((line, lines.next().expect("a line below")))
    })
}

pub(crate) fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The epsilon of a record of the guarantee in a run's summary, such as `observed`.
pub(crate) fn epsilon(summary: &Value, record: &str) -> f64 {
    number(&summary["privacy"][record]["epsilon"])
}

/// Asserts that a number is this one, up to a part of it.
#[track_caller]
pub(crate) fn close(got: &Value, want: f64, relative: f64) {
    let got = number(got);
    assert!((got - want).abs() <= relative * want, "got {got}, want {want}");
}

/// Asserts that a text contains every part of a list such as `one ... two`.
#[track_caller]
pub(crate) fn contains(text: &str, parts: &str) {
    for part in parts.split(" ... ") {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Starts the run of `run.toml`, which evaluates every round, and kills it after its third: nothing of the process runs any more.
pub(crate) fn train_until_killed(folder: &Folder, out: &str) {
    let mut child = folder
        .command(format!("train run.toml --out {out}"))
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

/// Trains a long run of this file on one thread, on two, and with a kill in the middle, and asserts that all leave the same bytes.
///
/// Checkpoints are written every second round, and the run is killed after its third or later: between checkpoints.
pub(crate) fn check_determinism(folder: &Folder, run_file: &str) {
    folder.write("run.toml", long(run_file));
    folder.succeed("train run.toml --out one --threads 1");
    folder.succeed("train run.toml --out two --threads 2");
    same_files(folder, "one", "two");
    train_until_killed(folder, "cut");
    assert!(!folder.path("cut/tiny/model.safetensors").exists());
    folder.succeed("train run.toml --out cut --resume --threads 1");
    same_files(folder, "one", "cut");
    folder.succeed("verify cut/tiny");
}

/// Asserts that two runs have left the same bytes: everything that does not hold times.
pub(crate) fn same_files(folder: &Folder, one: &str, two: &str) {
    for file in [
        "model.safetensors",
        "ledger.jsonl",
        "privacy.json",
        "mechanism.json",
    ] {
        let path = |out: &str| format!("{out}/tiny/{file}");
        let [one, two] = [path(one), path(two)];
        assert_eq!(folder.path(&one).exists(), folder.path(&two).exists(), "{file}");
        if folder.path(&one).exists() {
            assert!(folder.read(&one) == folder.read(&two), "{two} differs");
        }
    }
}
