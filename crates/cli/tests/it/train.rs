//! The files of a run, and its guarantee, which is that of the rounds it made.

use serde_json::Value;

use crate::support::{Folder, TINY, close, contains, epsilon, json, long, number, train_until_killed};

fn train(folder: &Folder, config: &str, extra: &str) -> Value {
    folder.write("run.toml", config);
    folder.json(format!("train run.toml {extra}"))
}

#[test]
fn a_run_directory_has_all_its_files() {
    let folder = Folder::new();
    let summary = train(&folder, TINY, "");
    for file in [
        "config.toml",
        "metrics.jsonl",
        "ledger.jsonl",
        "privacy.json",
        "model.safetensors",
        "vocab.txt",
        "report.html",
    ] {
        assert!(!folder.read(&format!("runs/tiny/{file}")).is_empty(), "{file}");
    }
    assert_eq!(summary["rounds"], 6);
    assert_eq!(folder.text("runs/tiny/ledger.jsonl").lines().count(), 6);
    let privacy: Value = json(&folder.text("runs/tiny/privacy.json"));
    assert_eq!(privacy["observed"]["epsilon"], privacy["planned"]["epsilon"]);
    assert_eq!(privacy["observed"]["rounds"], 6);
    contains(&privacy["warnings"].to_string(), "seeded");
    folder.show("report runs/tiny", "planned ... add-or-remove one user");
    let evaluated: Value = folder.json("eval runs/tiny --split validation");
    assert!(number(&evaluated["top1"]) > 0.0);
}

/// A run file without tables of one sensible value takes that value, shows it, and makes the run of the file that names it.
#[test]
#[ignore = "slow"]
fn what_a_run_file_leaves_out_is_taken_and_shown() {
    let folder = Folder::new();
    train(&folder, TINY, "--out full");
    let short = TINY
        .replace("[clip]\nkind = \"flat\"\nnorm = 1.0\n", "")
        .replace("sampling = \"poisson\"\n", "")
        .replace("algorithm = \"fedavg\"\n", "");
    folder.write("run.toml", short);
    let output = folder.run("train run.toml --out short");
    let shown = String::from_utf8(output.stderr).expect("UTF-8");
    for line in [
        "default: clip = { kind = \"flat\", norm = 1.0 }",
        "default: cohort.sampling = \"poisson\"",
        "default: user_update.algorithm = \"fedavg\"",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    for file in ["config.toml", "ledger.jsonl", "model.safetensors"] {
        let of = |out: &str| folder.read(&format!("{out}/tiny/{file}"));
        assert!(of("full") == of("short"), "{file}");
    }
    // Without privacy nothing is clipped.
    let open = TINY.split("[clip]").next().expect("a run file").to_owned();
    train(&folder, &open, "--out open");
    let config = String::from_utf8(folder.read("open/tiny/config.toml")).expect("UTF-8");
    assert!(config.contains("[clip]\nkind = \"none\""), "{config}");
}

#[test]
#[ignore = "slow"]
fn a_target_epsilon_is_met_and_not_wasted() {
    let folder = Folder::new();
    let config = TINY.replace("noise_multiplier = 1.0", "target_epsilon = 3.0");
    let summary = train(&folder, &config, "");
    let epsilon = epsilon(&summary, "observed");
    assert!((2.99..=3.0).contains(&epsilon), "{epsilon}");
}

#[test]
#[ignore = "slow"]
fn the_budget_stops_the_run_before_the_round_that_would_exceed_it() {
    let folder = Folder::new();
    let full = train(&folder, TINY, "--out full");
    let budget = 0.9 * epsilon(&full, "planned");
    let set = format!("--out stopped --set privacy.max_epsilon={budget}");
    let stopped = train(&folder, TINY, &set);
    let rounds = number(&stopped["rounds"]);
    assert!((1.0..6.0).contains(&rounds), "{rounds}");
    assert!(epsilon(&stopped, "observed") <= budget);
    contains(&stopped["stopped_early"].to_string(), "above the budget");
    folder.refuse(
        "train run.toml --out none --set privacy.max_epsilon=0.001",
        "round 0 would raise epsilon to",
    );
}

#[test]
#[ignore = "slow"]
fn schedules_change_clip_and_noise_and_are_accounted_as_they_are() {
    let folder = Folder::new();
    let schedule = "\n[[schedule]]\nfrom_round = 2\nclip_norm = 0.5\n[[schedule]]\nfrom_round = 4\nnoise_multiplier = 2.0\n";
    let same = train(&folder, TINY, "--out plain");
    let summary = train(&folder, &format!("{TINY}{schedule}"), "--out scheduled");
    let rounds = folder.lines("scheduled/tiny/ledger.jsonl");
    for (round, key, expected) in [
        (0, "sensitivity", 1.0 / 20.0),
        (2, "sensitivity", 0.5 / 20.0),
        (3, "noise_multiplier", 1.0),
        (4, "noise_multiplier", 2.0),
    ] {
        close(&rounds[round][key], expected, 1e-9);
    }
    assert!(epsilon(&summary, "observed") < epsilon(&same, "observed"));
}

#[test]
#[ignore = "slow"]
fn estimates_are_labelled_and_are_not_the_guarantee() {
    let folder = Folder::new();
    let config = format!("{TINY}\n[estimate]\npopulation = 1000000\nusers_per_round = 5000\n");
    let summary = train(&folder, &config, "");
    let privacy = &summary["privacy"];
    assert!(epsilon(&summary, "estimate") < 2.0, "{privacy}");
    // So little noise for the people who are here that nothing can be said of them.
    assert!(privacy["observed"].is_null(), "{privacy}");
    contains(
        &privacy["warnings"].to_string(),
        "not a guarantee for the people in this run",
    );
}

/// Every algorithm, batching, estimator, clipping, sampling and optimizer runs and accounts for itself.
#[test]
#[ignore = "slow"]
fn every_choice_of_the_run_file_works() {
    let folder = Folder::new();
    for (name, changes) in [
        ("stream", "user_update.batching=stream user_update.unroll=5"),
        ("fedsgd", "user_update.algorithm=fedsgd user_update.batch_size=16"),
        (
            "weights",
            "user_update.weight_cap=10 estimator={kind='fixed_denominator',expected_weight=12}",
        ),
        ("epochs", "user_update.epochs=2"),
        (
            "clipped",
            "estimator={kind='clipped_denominator',min_weight=200.0}",
        ),
        ("layers", "clip={kind='per_layer',norm=1.0}"),
        (
            "norms",
            "clip={kind='per_layer',norms=[1.0,0.5,0.5,0.5,0.5,0.1,0.1,0.1,0.1,0.5,0.1]}",
        ),
        ("fixed", "cohort.sampling=fixed_size"),
        (
            "adam",
            "server.optimizer={kind='adam'} server.learning_rate=0.01 \
             server.decay={last_fraction=0.5,final_factor=0.1}",
        ),
        ("moments", "privacy.accountant=moments2016"),
        (
            "everybody",
            "cohort={sampling='poisson',sampling_probability=1.0} rounds=2",
        ),
        (
            "stackoverflow",
            "model={family='stackoverflow',embed=8,hidden=12}",
        ),
        ("eos", "evaluation.eos=included evaluation.split=test"),
    ] {
        let sets = changes.replace(' ', " --set ");
        let summary = train(
            &folder,
            TINY,
            &format!("--set rounds=3 --out {name} --set {sets}"),
        );
        let epsilon = epsilon(&summary, "observed");
        assert!(epsilon > 0.0 && epsilon.is_finite(), "{name}: {summary}");
        let adjacency = summary["privacy"]["observed"]["adjacency"]
            .as_str()
            .expect("an adjacency");
        assert_eq!(
            adjacency.starts_with("replace"),
            name == "fixed",
            "{name}: {adjacency}"
        );
    }
}

#[test]
fn a_run_without_noise_promises_nothing() {
    let folder = Folder::new();
    let config = TINY.replace(
        "[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-4\n",
        "[estimator]\nkind = \"exact\"\n",
    );
    let summary = train(&folder, &config, "");
    assert_eq!(summary["privacy"]["private"], false);
    assert!(summary["privacy"]["observed"].is_null());
    contains(&summary["privacy"]["warnings"].to_string(), "no guarantee");
}

/// The run without privacy stands beside the private one, and its figures in the last row of that one.
#[test]
fn the_same_run_without_privacy_is_a_ceiling_and_never_a_release() {
    let folder = Folder::with(TINY);
    let row = "the same without privacy ... not trained yet ... undertone train run.toml --without-privacy, about 1 minute";
    folder.show("train run.toml", row);
    let output = folder.run("train run.toml --without-privacy --json");
    let ceiling: Value = json(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(ceiling["privacy"]["private"], false, "{ceiling}");
    assert_eq!(
        ceiling["story"]["without_privacy"]["top1"],
        ceiling["metrics"]["top1"]
    );
    let shown = folder.run("train run.toml --without-privacy --out again");
    contains(
        &String::from_utf8_lossy(&shown.stderr),
        "no guarantee: a ceiling to compare with, never a release",
    );
    folder.succeed("verify runs/tiny-without-privacy");
    folder.refuse(
        "publish runs/tiny-without-privacy published",
        "expected a run that adds noise, got one without a guarantee",
    );
    // The private run is drawn again, now that there is a last row.
    folder.succeed("report runs/tiny");
    let page = folder.text("runs/tiny/report.html");
    let percent = format!("{:.2} %", 100.0 * number(&ceiling["metrics"]["top1"]));
    contains(
        &page,
        &format!(
            "the same without privacy</th><td>{percent} ... the last row one of a model without privacy"
        ),
    );
    let refused = "train run.toml --without-privacy --resume";
    folder.refuse(refused, "tiny-without-privacy");
}

#[test]
#[ignore = "slow"]
fn a_run_without_privacy_takes_settings_and_goes_on_after_a_kill() {
    let folder = Folder::with(long(TINY));
    let flags = "--without-privacy --set server.learning_rate=0.5";
    train_until_killed(&folder, &format!("cut {flags}"));
    folder.succeed(format!("train run.toml --out cut --resume {flags}"));
    folder.succeed(format!("train run.toml --out whole {flags}"));
    let model = |out: &str| folder.read(&format!("{out}/tiny-without-privacy/model.safetensors"));
    assert!(model("cut") == model("whole"));
    contains(
        &folder.text("whole/tiny-without-privacy/config.toml"),
        "learning_rate = 0.5",
    );
}
