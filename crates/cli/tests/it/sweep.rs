//! `undertone sweep`.

use crate::support::{Folder, PUBLIC, TINY, contains, number};

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
        table.contains("keyboard top-1, known words") && !table.contains("not finished"),
        "{table}"
    );
    let page = folder.text("runs/noise/comparison.md");
    contains(&page, "| clip-1 | much | 2 | ... ](accuracy-clip-0.1.svg)");
    assert!(folder.path("runs/noise/accuracy-clip-1.svg").exists());
    let losses = folder.text("runs/noise/loss.svg");
    contains(&losses, "little ... much");
}

/// Two models that are equal differ by nothing on any user, although nothing seeds their runs.
#[test]
#[ignore = "slow"]
fn an_unseeded_sweep_of_two_equal_models_shows_no_difference() {
    let folder = Folder::new();
    let cifg = "family = \"cifg\"\ncells = 12\nembedding = 8\nprojection = 8\n";
    assert!(PUBLIC.contains(cifg) && TINY.contains("seed = 3\n"));
    let dplm = "family = \"dplm\"\nembed = 8\nhidden = 12\n";
    folder.write("public.toml", PUBLIC.replace(cifg, dplm));
    folder.succeed("pretrain public.toml");
    folder.write("tiny.toml", TINY.replace("seed = 3\n", ""));
    let axis = "[[axis]]\nname = \"rate\"\nvalues = [{ name = \"one\" }, { name = \"two\", set = [\"user_update.learning_rate=2\"] }]";
    let sweep = format!(
        "name = \"equal\"\nrun = \"tiny.toml\"\nset = [\"rounds=2\", \"clip.norm=1e-8\", \"evaluation.every=1\", \
         \"initial_model='runs/public/model.safetensors'\"]\n{axis}\n"
    );
    folder.write("sweep.toml", sweep);
    let said = folder.json("sweep sweep.toml");
    assert!(said["without_users"].is_null(), "{said}");
    let row = &said["rows"][1];
    for difference in [&row["difference"], &row["loss_difference"]] {
        assert!(number(&difference["mean"]).abs() < 1e-6, "{row}");
        assert!(number(&difference["standard_error"]) < 1e-6, "{row}");
    }
    assert_eq!(said["rows"][0]["top1"], row["top1"]);
    assert!(number(&row["top1"]["standard_error"]) > 0.0, "{row}");
    let table = folder.succeed("sweep sweep.toml --compare-only");
    contains(&table, "+0.00 ± 0.00 ... +0.0000 ± 0.0000");
    // The curve goes to the last round, on the sample of all evaluations.
    let rounds: Vec<&serde_json::Value> = (row["curve"].as_array().expect("a curve").iter())
        .map(|point| &point[0])
        .collect();
    assert_eq!(rounds, [0, 1, 2]);
    // Without the corpus the runs' own figures stand, and the table says so.
    let path = folder.path("runs/equal/two/vocab.txt");
    let words = std::fs::read_to_string(&path).expect("words");
    std::fs::write(&path, words.replacen('\n', "x\n", 1)).expect("writing");
    let table = folder.succeed("sweep sweep.toml --compare-only");
    contains(
        &table,
        "Standard errors say nothing of the held-out users ... two: ",
    );
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
