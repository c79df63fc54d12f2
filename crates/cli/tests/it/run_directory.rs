//! Tests of the files that a finished run keeps, of their modes, and of run directories that an attacker prepared.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Folder, TINY, ftrl, long, over, train_until_killed};

/// Every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found
}

/// The run's cohorts are sampled, correlated over epochs, and refused before the last round.
#[test]
#[ignore = "slow"]
fn finished_runs_keep_no_participation_key_and_no_noise() {
    let folder = Folder::new();
    let blt = ftrl("kind = \"blt\"\nbuffers = 2");
    let early = blt.replace("sampling = \"shuffled_epochs\"", "sampling = \"fixed_size\"")
        + "\n[participation]\nmin_sep = 20\n";
    for (name, config, rounds) in [("sampled", TINY, 6), ("epochs", &blt, 30), ("early", &early, 12)] {
        folder.write("run.toml", config);
        let summary = folder.json(format!("train run.toml --out {name}"));
        assert_eq!(summary["rounds"], rounds, "{name}: {}", summary["stopped_early"]);
        let run = format!("{name}/tiny");
        assert!(!folder.path(&run).join("checkpoint").exists(), "{name}");
        for file in files(&folder.path(&run)) {
            let bytes = std::fs::read(&file).expect("reading");
            for secret in ["participation_key", "UNDRTONE"] {
                let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{secret} in {}", file.display());
            }
        }
        // Nothing that is done with a finished run needs them.
        for command in ["verify", "report", "eval", "personalize"] {
            folder.succeed(format!("{command} {run}"));
        }
        folder.succeed(format!("export {run} --layout undertone --out {name}-model"));
        folder.refuse(
            format!("train run.toml --out {name} --resume"),
            "is finished, so it has no checkpoint to resume from",
        );
        folder.succeed(format!("verify {run}"));
    }
}

/// A process that is killed after the manifest and before the checkpoint is gone leaves a finished run with its secrets; the
/// next attempt to resume it removes them.
#[test]
#[ignore = "slow"]
fn resuming_a_finished_run_removes_the_secrets_that_a_kill_has_left() {
    let folder = Folder::trained(TINY);
    std::fs::create_dir(folder.path("runs/tiny/checkpoint")).expect("a folder");
    folder.write("runs/tiny/checkpoint/state.safetensors", "left behind");
    folder.refuse("train run.toml --resume", "is finished");
    assert!(!folder.path("runs/tiny/checkpoint").exists());
}

/// A run that is killed right after it made its folder leaves an empty one, and its name is free. A folder that holds anything, but
/// no lock of ours, is somebody else's.
#[test]
fn an_empty_folder_is_taken_and_anybody_s_else_is_not() {
    let folder = Folder::with(TINY);
    std::fs::create_dir_all(folder.path("runs/tiny")).expect("a folder");
    folder.write("runs/tiny/config.toml", "");
    folder.refuse("train run.toml", "run directory runs/tiny already exists");
    std::fs::remove_file(folder.path("runs/tiny/config.toml")).expect("removing");
    folder.succeed("train run.toml");
    folder.refuse("train run.toml", "run directory runs/tiny already exists");
}

#[test]
#[ignore = "slow"]
fn an_infinite_perplexity_is_written_and_read_back() {
    let folder = Folder::new();
    let config = TINY
        .replace("rounds = 6", "rounds = 1")
        .replace("[checkpoint]", "[server]\nlearning_rate = 1e5\n\n[checkpoint]");
    folder.write("run.toml", config);
    let summary = folder.json("train run.toml");
    assert_eq!(summary["metrics"]["perplexity"], "inf");
    folder.succeed("verify runs/tiny");
    folder.succeed("personalize runs/tiny");
    let said = folder.succeed("report runs/tiny");
    let shown = said
        .lines()
        .any(|line| line.contains("perplexity") && line.contains("inf"));
    assert!(shown, "{said}");
    let page = folder.text("runs/tiny/report.html");
    assert!(page.contains(">inf<"), "the page does not show the perplexity");
}

#[test]
#[ignore = "slow"]
fn a_copied_run_directory_opens_no_data_unasked() {
    let folder = Folder::new();
    let mut text = String::new();
    for user in 0..40 {
        for line in 0..4 {
            text += &format!("{{\"user\": \"u{user}\", \"text\": \"one two three {line}\"}}\n");
        }
    }
    folder.write("text.jsonl", text);
    let source = "{ kind = \"jsonl\", path = \"text.jsonl\", user = \"user\" }\n\
                  vocabulary = { kind = \"training_data\", size = 20 }";
    folder.write("run.toml", over(source));
    folder.succeed("train run.toml");
    // The run's own directory, also under another name.
    folder.succeed("eval runs/tiny");
    std::fs::rename(folder.path("runs/tiny"), folder.path("runs/moved")).expect("moving");
    folder.succeed("eval runs/moved");
    std::fs::create_dir(folder.path("runs/copied")).expect("a folder");
    for file in files(&folder.path("runs/moved")) {
        let name = file.file_name().expect("a name");
        std::fs::copy(&file, folder.path("runs/copied").join(name)).expect("copying");
    }
    for command in ["eval", "personalize"] {
        folder.refuse(
            format!("{command} runs/copied"),
            "runs/copied is a copy of a run directory ... --base FOLDER",
        );
        folder.succeed(format!("{command} runs/copied --base ."));
    }
    // Nothing else opens the data.
    folder.succeed("verify runs/copied");
}

#[test]
#[ignore = "slow"]
fn absurd_sizes_are_a_sentence_and_no_abort() {
    let folder = Folder::trained(TINY);
    let honest = folder.text("runs/tiny/config.toml");
    for (change, expected) in [
        (
            "embed = 400000000",
            "`embed` must be at most 65536, got 400000000",
        ),
        ("embed = 60000", "expected"),
    ] {
        folder.write("runs/tiny/config.toml", honest.replace("embed = 8", change));
        for command in [
            "eval runs/tiny",
            "export runs/tiny --layout undertone --out exported",
        ] {
            let output = folder.run(command);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{change}: {said}");
            assert!(
                said.contains(expected) && said.lines().count() <= 3,
                "{change}: {said}"
            );
        }
        assert_eq!(folder.run("verify runs/tiny").status.code(), Some(1), "{change}");
    }
    let layers = "family = \"transformer\"\nlayers = 500000000\nwidth = 8\nheads = 2\n";
    let config = TINY.replace("family = \"dplm\"\nembed = 8\nhidden = 12\n", layers);
    folder.write("deep.toml", config.replace("\"tiny\"", "\"deep\""));
    folder.refuse("train deep.toml", "`layers` must be at most 1000, got 500000000");
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::Command;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().expect("a file").mode() & 0o777
    }

    /// Checks the modes in a killed run, which still has its checkpoint, and in a finished one.
    #[test]
    #[ignore = "slow"]
    fn checkpoints_are_their_owner_s_alone_and_the_umask_decides_on_the_rest() {
        let folder = Folder::with(long(&ftrl("kind = \"blt\"\nbuffers = 2")));
        train_until_killed(&folder, "cut");
        let run = folder.path("cut/tiny");
        assert_eq!(mode(&run.join("checkpoint")), 0o700);
        let secrets = files(&run.join("checkpoint"));
        assert!(secrets.len() > 1, "no state of noise");
        for file in secrets {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        folder.write("run.toml", TINY);
        for (umask, expected) in [("022", 0o644), ("077", 0o600), ("027", 0o640)] {
            let command = folder.command(format!("train run.toml --out {umask}"));
            assert!(
                folder
                    .run_after(&format!("umask {umask}"), &command)
                    .status
                    .success()
            );
            for file in files(&folder.path(umask).join("tiny")) {
                assert_eq!(mode(&file), expected, "umask {umask}, {}", file.display());
            }
        }
    }

    /// Resuming opens the lock, cuts the ledger and the metrics, and writes a checkpoint: each of them may be a link.
    #[test]
    #[ignore = "slow"]
    fn resuming_changes_nothing_behind_a_link() {
        let folder = Folder::with(long(TINY));
        train_until_killed(&folder, "runs");
        let at = |name: &str| folder.path("runs/tiny").join(name);
        for name in [
            ".lock",
            "ledger.jsonl",
            "metrics.jsonl",
            "checkpoint",
            "checkpoint/state.safetensors",
        ] {
            let precious = folder.path("precious");
            std::fs::rename(at(name), &precious).expect("moving");
            if name == ".lock" {
                folder.write("precious", "precious");
            }
            let contents = || match precious.is_dir() {
                true => files(&precious)
                    .iter()
                    .map(|file| std::fs::read(file).expect("reading"))
                    .collect(),
                false => vec![std::fs::read(&precious).expect("reading")],
            };
            let before = contents();
            symlink(&precious, at(name)).expect("a link");
            let said = folder.fail("train run.toml --resume");
            assert!(
                said.contains(name) && said.contains("got a symbolic link"),
                "{name}: {said}"
            );
            assert_eq!(contents(), before, "{name}");
            std::fs::remove_file(at(name)).expect("removing");
            std::fs::rename(&precious, at(name)).expect("moving");
        }
        folder.succeed("train run.toml --resume");
    }

    #[test]
    #[ignore = "slow"]
    fn a_report_is_not_written_through_a_link() {
        let folder = Folder::trained(TINY);
        std::fs::create_dir(folder.path("elsewhere")).expect("a folder");
        std::fs::remove_dir_all(folder.path("runs/tiny/plots")).expect("removing");
        symlink(folder.path("elsewhere"), folder.path("runs/tiny/plots")).expect("a link");
        folder.refuse(
            "report runs/tiny",
            "plots: expected a folder ... got a symbolic link",
        );
        assert!(files(&folder.path("elsewhere")).is_empty());
    }

    #[test]
    #[ignore = "slow"]
    fn devices_and_pipes_in_a_run_directory_hang_nothing() {
        let folder = Folder::trained(TINY);
        for name in [
            "config.toml",
            "ledger.jsonl",
            "metrics.jsonl",
            "privacy.json",
            "manifest.json",
            "vocab.txt",
            "model.safetensors",
        ] {
            let path = folder.path("runs/tiny").join(name);
            let honest = std::fs::read(&path).expect("reading");
            for kind in ["pipe", "link to a device"] {
                std::fs::remove_file(&path).expect("removing");
                match kind {
                    "pipe" => assert!(
                        Command::new("mkfifo")
                            .arg(&path)
                            .status()
                            .expect("mkfifo")
                            .success()
                    ),
                    _ => symlink("/dev/zero", &path).expect("a link"),
                }
                for command in ["verify", "report", "eval"] {
                    let started = Instant::now();
                    let output = folder.run(format!("{command} runs/tiny"));
                    assert!(
                        started.elapsed() < Duration::from_secs(10),
                        "{command}, {name}, {kind}"
                    );
                    let read = command == "verify"
                        || (command == "report"
                            && ["config.toml", "metrics.jsonl", "privacy.json"].contains(&name))
                        || (command == "eval"
                            && ["config.toml", "privacy.json", "vocab.txt", "model.safetensors"]
                                .contains(&name));
                    assert_eq!(
                        output.status.code(),
                        Some(i32::from(read)),
                        "{command}, {name}, {kind}"
                    );
                }
            }
            std::fs::remove_file(&path).expect("removing");
            std::fs::write(&path, honest).expect("writing");
        }
        folder.succeed("verify runs/tiny");
    }
}
