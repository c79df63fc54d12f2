//! Pre-training from the command line: its files, its warning, and what it refuses.

use serde_json::Value;

use crate::support::{Folder, PUBLIC, TINY, contains, train_until_killed};

#[test]
fn it_leaves_a_run_directory_and_says_that_it_is_not_private() {
    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    let output = folder.run("pretrain public.toml --json");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    contains(&stderr, "NOT private");
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON output");
    assert_eq!(summary["rounds"], 12);
    assert_eq!(summary["privacy"]["private"], false);
    for file in [
        "config.toml",
        "metrics.jsonl",
        "privacy.json",
        "model.safetensors",
        "vocab.txt",
        "report.html",
    ] {
        assert!(!folder.read(&format!("runs/public/{file}")).is_empty(), "{file}");
    }
    folder.show("report runs/public", "NOT private");
    let evaluated = folder.json("eval runs/public --split validation");
    assert_eq!(evaluated["top1"], summary["metrics"]["top1"]);
}

#[test]
fn bad_files_are_refused_by_key() {
    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    folder.succeed("pretrain public.toml --out tied --set model.tied=true");
    let transcript = "
        $ SET training.batch_size=0
        `training.batch_size`: expected at least 1, got 0
        $ SET model.cells=0
        `cells` must be at least 1, got 0
        $ SET model.hidden=8
        unknown field `hidden`
        $ SET privacy.noise_multiplier=1.0
        unknown field `privacy`
        $ SET initial_model=nowhere.safetensors
        nowhere.safetensors
        ";
    folder.refuses(&transcript.replace("SET", "pretrain public.toml --out bad --set"));
    folder.refuse(
        "pretrain public.toml --resume --out none",
        "no checkpoint to resume",
    );
}

/// The run evaluates the public model before its first round, and does not repeat this when it is resumed.
#[test]
#[ignore = "slow"]
fn a_run_evaluates_the_model_that_it_starts_from_once() {
    let folder = Folder::new();
    folder.write(
        "public.toml",
        PUBLIC.replace(
            "family = \"cifg\"\ncells = 12\nembedding = 8\nprojection = 8",
            "family = \"dplm\"\nembed = 8\nhidden = 12",
        ),
    );
    folder.succeed("pretrain public.toml");
    let text = TINY.replace(
        "rounds = 6",
        "rounds = 6\ninitial_model = \"runs/public/model.safetensors\"",
    );
    folder.write("run.toml", text);
    let summary = folder.json("train run.toml --out whole");
    let first = |out: &str| -> Vec<Value> {
        let mut lines = folder.lines(&format!("{out}/tiny/metrics.jsonl"));
        lines.retain(|line| line["kind"] == "evaluation" && line["round"] == 0);
        lines
    };
    let initial = first("whole");
    assert_eq!(initial.len(), 1);
    assert_eq!(initial[0]["metrics"], summary["initial"]);
    assert_eq!(initial[0]["metrics"]["targets"], summary["metrics"]["targets"]);
    assert_ne!(summary["initial"]["top1"], summary["metrics"]["top1"]);
    let shown = folder.run("train run.toml --out shown");
    let (said, table) = (
        String::from_utf8_lossy(&shown.stderr).into_owned(),
        String::from_utf8_lossy(&shown.stdout).into_owned(),
    );
    contains(&said, "round     0");
    contains(&table, "start ... private ... not trained yet");
    let page = folder.text("shown/tiny/report.html");
    assert!(
        page.contains("<th scope=\"row\">start</th>"),
        "no initial model in report.html"
    );
    folder.succeed("verify whole/tiny");
    // A run that was killed and goes on.
    folder.write(
        "run.toml",
        folder
            .text("run.toml")
            .replace("every = 2\nmax", "every = 1\nmax"),
    );
    train_until_killed(&folder, "killed");
    let resumed = folder.json("train run.toml --out killed --resume");
    assert_eq!(first("killed").len(), 1);
    assert_eq!(resumed["initial"], summary["initial"]);
    // Without a start there is nothing to compare with.
    folder.write("run.toml", TINY);
    let alone = folder.json("train run.toml --out alone");
    assert!(alone["initial"].is_null() && first("alone").is_empty());
}

/// On the terminal before the first round, and in the summary.
#[test]
#[ignore = "slow"]
fn a_hopeless_run_says_so_before_it_starts() {
    let folder = Folder::new();
    folder.write(
        "run.toml",
        TINY.replace("noise_multiplier = 1.0", "target_epsilon = 0.5"),
    );
    let output = folder.run("train run.toml");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (warned, started) = (said.find("The noise will drown"), said.find("round     2"));
    assert!(warned.is_some() && warned < started, "{said}");
    let summary = folder.json("train run.toml --out json");
    let warning = summary["warning"].as_str().expect("a warning");
    contains(warning, "users per round");
}
