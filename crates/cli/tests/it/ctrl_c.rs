//! Ctrl-C ends a training in order, and nothing that was trained is lost.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, PUBLIC, TINY, json};

/// A run of many short rounds, whose checkpoints the test does not live to see.
fn many_rounds() -> String {
    TINY.replace("rounds = 6", "rounds = 600")
        .replace("every = 2", "every = 100000")
}

fn start(folder: &Folder, line: &str) -> Child {
    folder
        .command(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting undertone")
}

fn ctrl_c(child: &Child) {
    let process = libc::pid_t::try_from(child.id()).expect("a process");
    // SAFETY: `kill` touches no memory, and the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
}

/// Waits until a file of the process has so many lines.
fn until(folder: &Folder, child: &mut Child, file: &str, lines: usize) {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.path(file)).unwrap_or_default();
        if text.lines().count() >= lines {
            return;
        }
        assert!(child.try_wait().expect("waiting").is_none(), "ended too early");
        assert!(started.elapsed() < Duration::from_secs(120), "no line of {file}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a command, presses Ctrl-C once a file has so many lines, and returns what the command said.
fn interrupted(folder: &Folder, line: &str, file: &str, lines: usize) -> Output {
    let mut child = start(folder, line);
    until(folder, &mut child, file, lines);
    ctrl_c(&child);
    child.wait_with_output().expect("waiting")
}

/// The last line of standard error of a command that Ctrl-C has ended, in two parts: the state, and the command that goes on.
fn last_words(output: &Output) -> (String, String) {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{error}");
    let last = error.lines().last().unwrap_or_default();
    let (state, command) = last.split_once(" with: undertone ").unwrap_or((last, ""));
    (state.to_owned(), command.to_owned())
}

#[test]
#[ignore = "slow"]
fn a_training_ends_after_its_round_and_goes_on_to_the_bytes_of_a_whole_one() {
    let folder = Folder::with(many_rounds());
    folder.succeed("train run.toml --out whole --threads 1");
    let line = "train run.toml --threads 1 --set user_update.max_examples=8";
    let output = interrupted(&folder, line, "runs/tiny/ledger.jsonl", 5);
    let (state, again) = last_words(&output);
    let rounds = folder.lines("runs/tiny/ledger.jsonl").len();
    assert_eq!(
        state,
        format!("stopped after round {rounds} of 600; {rounds} are kept. Go on")
    );
    assert_eq!(again, format!("{line} --resume"));

    // A second time, as JSON: the document is on standard error.
    let output = interrupted(
        &folder,
        &format!("{again} --json"),
        "runs/tiny/ledger.jsonl",
        rounds + 5,
    );
    assert_eq!(output.status.code(), Some(130));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = json(error.lines().last().unwrap_or_default());
    let said = said["error"].as_str().expect("a sentence");
    assert!(said.starts_with("stopped after round "), "{said}");

    let shown = folder.run(&again);
    let error = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{error}");
    let at = folder.lines("runs/tiny/ledger.jsonl").len();
    assert_eq!(at, 600, "{error}");
    assert!(error.contains(", resumed after "), "{error}");
    let [whole, torn] = ["whole", "runs"].map(|out| folder.read(&format!("{out}/tiny/model.safetensors")));
    assert!(whole == torn, "the model of the run that went on differs");
    folder.succeed("verify runs/tiny");
}

#[test]
#[ignore = "slow"]
fn a_pre_training_ends_after_its_step_and_goes_on_to_the_bytes_of_a_whole_one() {
    let folder = Folder::with(
        PUBLIC
            .replace("steps = 12", "steps = 600")
            .replace("every = 6", "every = 50"),
    );
    folder.succeed("pretrain run.toml --out whole --threads 1");
    let line = "pretrain run.toml --threads 1";
    let (state, again) = last_words(&interrupted(&folder, line, "runs/public/metrics.jsonl", 9));
    let steps = state
        .strip_prefix("stopped after step ")
        .and_then(|rest| rest.split_once(" of 600; "));
    let (steps, rest) = steps.unwrap_or_else(|| panic!("{state}"));
    assert_eq!(rest, format!("{steps} are kept. Go on"));
    assert_eq!(again, format!("{line} --resume"));
    folder.succeed(&again);
    let [whole, torn] = ["whole", "runs"].map(|out| folder.read(&format!("{out}/public/model.safetensors")));
    assert!(whole == torn, "the model of the training that went on differs");
    let [whole, torn] =
        ["whole", "runs"].map(|out| folder.lines(&format!("{out}/public/metrics.jsonl")).len());
    assert_eq!(whole, torn, "a step or an evaluation is missing, or there twice");
}

#[test]
#[ignore = "slow"]
fn training_in_a_sweep_ends_in_order_and_the_same_command_goes_on() {
    let folder = Folder::new();
    folder.write("tiny.toml", many_rounds());
    folder.write(
        "sweep.toml",
        "name = \"noise\"\nrun = \"tiny.toml\"\n[[axis]]\nname = \"clip\"\n\
         values = [{ name = \"tight\", set = [\"clip.norm=0.1\"] }, { name = \"wide\", set = [\"rounds=6\"] }]\n",
    );
    let line = "sweep sweep.toml --threads 1";
    let output = interrupted(&folder, line, "runs/noise/tight/ledger.jsonl", 5);
    let (state, again) = last_words(&output);
    assert!(
        state.starts_with("run 1 of 2 (tight): stopped after round ") && state.ends_with(" are kept. Go on"),
        "{state}"
    );
    assert_eq!(again, line);
    let shown = folder.run(&again);
    let error = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(
        shown.status.success() && error.contains(", resumed after "),
        "{error}"
    );
}

#[test]
#[ignore = "slow"]
fn a_second_ctrl_c_ends_a_training_at_once() {
    // Rounds of seconds.
    let slow = TINY
        .replace("hidden = 12", "hidden = 150")
        .replace("users_per_round = 20", "users_per_round = 200")
        .replace("max_examples = 8", "max_examples = 64");
    let folder = Folder::with(slow);
    let mut child = start(&folder, "train run.toml --threads 1");
    let mut error = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    until(&folder, &mut child, "runs/tiny/ledger.jsonl", 1);
    // The second round begins at once.
    std::thread::sleep(Duration::from_millis(300));
    ctrl_c(&child);
    while !line.starts_with("stopping after this round; ") {
        line.clear();
        assert!(error.read_line(&mut line).expect("reading") > 0, "ended in order");
    }
    ctrl_c(&child);
    let status = child.wait().expect("waiting");
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status}");
    let mut rest = String::new();
    error.read_to_string(&mut rest).expect("reading");
    assert_eq!(rest, "");
}
