//! `undertone sweep`.

use crate::support::{Folder, TINY, contains, number};

const SWEEP: &str = r#"
name = "noise"
run = "tiny.toml"
seeds = [1, 2]
set = ["rounds=4"]

[[axis]]
name = "clip"
values = [{ name = "clip-0.1", set = ["clip.norm=0.1"] }, { name = "clip-1" }]

[[axis]]
name = "noise"
values = [
    { name = "little", set = ["privacy.noise_multiplier=0.5"] },
    { name = "much", set = ["privacy.noise_multiplier=50"] },
]
"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("tiny.toml", TINY);
    folder.write("sweep.toml", SWEEP);
    folder
}

#[test]
#[ignore = "slow"]
fn a_sweep_starts_again_what_was_killed_before_its_first_checkpoint() {
    let folder = folder();
    // As a run leaves it that was killed while it took its directory.
    std::fs::create_dir_all(folder.path("runs/noise/clip-1-much-seed-2")).expect("a folder");
    folder.write("runs/noise/clip-1-much-seed-2/.lock", "");
    let said = folder.json("sweep sweep.toml");
    assert_eq!(said["finished"], 8);
}

#[test]
#[ignore = "slow"]
fn a_sweep_makes_all_runs_once_and_compares_them() {
    let folder = folder();
    let first = folder.json("sweep sweep.toml");
    assert_eq!((&first["trials"], &first["finished"]), (&8.into(), &8.into()));
    let rows = first["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[1]["values"], serde_json::json!(["clip-0.1", "much"]));
    assert_eq!(rows[1]["seeds"], serde_json::json!([1, 2]));

    // A row is the mean of its runs, a difference is taken seed by seed.
    let last = |name: &str, metric: &str| {
        let metrics = folder.lines(&format!("runs/noise/{name}/metrics.jsonl"));
        number(&metrics[metrics.len() - 1]["metrics"][metric])
    };
    let accuracy = |name: &str| last(name, "in_vocab_top1");
    let loss = |name: &str| last(name, "perplexity").ln();
    let [a, b] = ["clip-1-much-seed-1", "clip-1-much-seed-2"].map(accuracy);
    let [c, d] = ["clip-1-little-seed-1", "clip-1-little-seed-2"].map(accuracy);
    let wide = &rows[3];
    let close = |value: &serde_json::Value, expected: f64| {
        let value = value.as_f64().expect("a number");
        assert!((value - expected).abs() < 1e-12, "{value} {expected}");
    };
    close(&wide["in_vocab_top1"]["mean"], (a + b) / 2.0);
    close(&wide["difference"]["mean"], (a - c + b - d) / 2.0);
    let [a, b] = ["clip-1-much-seed-1", "clip-1-much-seed-2"].map(loss);
    let [c, d] = ["clip-1-little-seed-1", "clip-1-little-seed-2"].map(loss);
    close(&wide["loss"]["mean"], (a + b) / 2.0);
    close(&wide["loss_difference"]["mean"], (a - c + b - d) / 2.0);
    assert!(
        rows[2]["difference"].is_null(),
        "the first value of the last axis is the base"
    );
    let epsilon = |row: usize| rows[row]["guarantee"]["epsilon"].as_f64().expect("a number");
    assert!(epsilon(3) < epsilon(2) && epsilon(0) == epsilon(2));

    // Again: nothing is trained a second time.
    let model = "runs/noise/clip-0.1-much-seed-2/model.safetensors";
    let made = std::fs::metadata(folder.path(model))
        .and_then(|data| data.modified())
        .expect("a model");
    assert_eq!(folder.json("sweep sweep.toml"), first);
    let now = std::fs::metadata(folder.path(model))
        .and_then(|data| data.modified())
        .expect("a model");
    assert_eq!(made, now);

    // What is left of a sweep is made up.
    std::fs::remove_dir_all(folder.path("runs/noise/clip-1-little-seed-2")).expect("removing a run");
    folder.show("sweep sweep.toml --compare-only", "1 of 8 runs have not finished");
    let table = folder.succeed("sweep sweep.toml");
    assert!(
        table.contains("top-1 in vocabulary") && !table.contains("not finished"),
        "{table}"
    );
    let page = folder.text("runs/noise/comparison.md");
    contains(&page, "| clip-1 | much | 2 | ... ](accuracy-clip-0.1.svg)");
    assert!(folder.path("runs/noise/accuracy-clip-1.svg").exists());
    let losses = folder.text("runs/noise/loss.svg");
    contains(&losses, "little ... much");
}

#[test]
#[ignore = "slow"]
fn a_sweep_refuses_what_is_not_its_own() {
    let folder = folder();
    folder.succeed("sweep sweep.toml --json");
    folder.refuse(
        "sweep sweep.toml --set user_update.learning_rate=0.5",
        "different configuration ... clip-0.1-little-seed-1",
    );
    folder.write("sweep.toml", SWEEP.replace("clip.norm=0.1", "clip.size=0.1"));
    folder.refuse("sweep sweep.toml", "tiny.toml ... size");
    folder.refuse("sweep none.toml", "none.toml");
}
