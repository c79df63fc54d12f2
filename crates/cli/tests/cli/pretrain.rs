//! Pre-training from the command line: its files, its warning, and what it refuses.

use serde_json::Value;

use crate::support::Folder;

const PUBLIC: &str = r#"
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

#[test]
fn it_leaves_a_run_directory_and_says_that_it_is_not_private() {
    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    let output = folder.run(&["pretrain", "public.toml", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("NOT private"), "{stderr}");
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
    let report = folder.succeed(&["report", "runs/public"]);
    assert!(report.contains("NOT private"), "{report}");
    let evaluated = folder.succeed(&["eval", "runs/public", "--split", "validation", "--json"]);
    let evaluated: Value = serde_json::from_str(&evaluated).expect("JSON output");
    assert_eq!(evaluated["top1"], summary["metrics"]["top1"]);
}

#[test]
fn bad_files_are_refused_by_key() {
    let folder = Folder::new();
    folder.write("public.toml", PUBLIC);
    for (set, message) in [
        (
            "training.batch_size=0",
            "`training.batch_size`: expected at least 1, got 0",
        ),
        ("model.tied=true", ""),
        ("model.cells=0", "`cells` must be at least 1, got 0"),
        ("model.hidden=8", "unknown field `hidden`"),
        ("privacy.noise_multiplier=1.0", "unknown field `privacy`"),
        ("initial_model=nowhere.safetensors", "nowhere.safetensors"),
    ] {
        if message.is_empty() {
            folder.succeed(&["pretrain", "public.toml", "--out", "tied", "--set", set]);
            continue;
        }
        let stderr = folder.fail(&["pretrain", "public.toml", "--out", "bad", "--set", set]);
        assert!(stderr.contains(message), "{set}: {stderr}");
    }
    let stderr = folder.fail(&["pretrain", "public.toml", "--resume", "--out", "none"]);
    assert!(stderr.contains("no checkpoint to resume"), "{stderr}");
}
