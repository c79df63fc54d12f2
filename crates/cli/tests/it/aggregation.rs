//! Runs whose updates meet in sums modulo a number: encodings, secure aggregation, drop-outs, abandoned rounds.

use serde_json::Value;

use crate::support::{Folder, cases, contains, ftrl, number};

/// Correlated noise over 249 users in 12 cohorts.
fn plain() -> String {
    ftrl("kind = \"blt\"\nbuffers = 2").replace("rounds = 30", "rounds = 14")
}

/// Noise as in [`plain`], with an `[aggregation]` table.
fn run_file(aggregation: &str) -> String {
    format!("{}\n[aggregation]\n{aggregation}\n", plain())
}

/// Noise of the users' own: no mechanism.
fn shares(encoding: &str, noise: &str) -> String {
    run_file(&format!(
        "sum = \"secagg\"\nmin_clients = 15\nencoding = {encoding}"
    ))
    .replace("[privacy.mechanism]\nkind = \"blt\"\nbuffers = 2\n", "")
    .replace("noise_multiplier = 4.0\n", noise)
}

fn train(folder: &Folder, text: &str, out: &str) -> Value {
    folder.write("run.toml", text);
    let summary = folder.json(format!("train run.toml --out {out}"));
    folder.succeed(format!("verify {out}/tiny"));
    summary
}

fn model(folder: &Folder, out: &str) -> Vec<u8> {
    folder.read(&format!("{out}/tiny/model.safetensors"))
}

fn ledger(folder: &Folder, out: &str) -> Vec<Value> {
    folder.lines(&format!("{out}/tiny/ledger.jsonl"))
}

fn epsilon(summary: &Value) -> f64 {
    number(&summary["privacy"]["observed"]["epsilon"])
}

#[test]
#[ignore = "slow"]
fn fixed_point_under_a_secure_sum_is_the_plain_sum_bit_for_bit() {
    let folder = Folder::new();
    train(&folder, &plain(), "none");
    for sum in ["plain", "secagg"] {
        train(
            &folder,
            &run_file(&format!("sum = \"{sum}\"\nmin_clients = 15")),
            sum,
        );
        assert!(model(&folder, sum) == model(&folder, "none"), "{sum}");
    }
    // And with users who fail, both sums hold the same ones.
    let failing = "min_clients = 5\ndropout = { before_keys = 0.05, before_shares = 0.05, before_upload = 0.1, before_unmask = 0.1 }";
    for sum in ["plain", "secagg"] {
        train(
            &folder,
            &run_file(&format!("sum = \"{sum}\"\n{failing}")),
            &format!("{sum}-failing"),
        );
    }
    assert!(model(&folder, "plain-failing") == model(&folder, "secagg-failing"));
    assert!(model(&folder, "plain-failing") != model(&folder, "none"));
    let survivors: Vec<u64> = ledger(&folder, "secagg-failing")
        .iter()
        .map(|line| line["survivors"].as_u64().expect("a number"))
        .collect();
    assert!(survivors.iter().any(|&survivors| survivors < 20), "{survivors:?}");
}

/// Rounding to a grid of 1/1000 adds noise of a hundredth of the mechanism's: accuracy is the plain run's but for a little,
/// epsilon is the same, and the noise has grown with the sensitivity.
#[test]
#[ignore = "slow"]
fn rotated_rounding_ends_where_the_plain_run_ends_at_the_inflated_sensitivity() {
    let folder = Folder::new();
    let plain_text = plain();
    let plain = train(&folder, &plain_text, "plain");
    let text =
        "sum = \"secagg\"\nmin_clients = 15\nencoding = { kind = \"rotated_rounding\", scale = 1000.0 }";
    let rounded = train(&folder, &run_file(text), "rounded");
    assert!((epsilon(&plain) / epsilon(&rounded) - 1.0).abs() < 1e-6);
    let first = |out: &str, what: &str| number(&ledger(&folder, out)[0][what]);
    for what in ["sensitivity", "noise_std"] {
        let inflation = first("rounded", what) / first("plain", what);
        // C_inflated of [Gboard] for C = 1, s = 1000 and the padded dimension.
        let d = number(&folder.lines("rounded/tiny/metrics.jsonl")[0]["parameters"])
            .log2()
            .ceil()
            .exp2();
        let root = (2.0f64 * 0.5).sqrt();
        let squared = 1.0 + d / (4.0 * 1e6) + root * (1.0 / 1000.0 + d.sqrt() / (2.0 * 1e6));
        assert!(
            (inflation / squared.sqrt() - 1.0).abs() < 1e-6,
            "{what}: {inflation}"
        );
    }
    // Noise in rotated coordinates is other noise, so that only runs with little of it end at the same place.
    let loss = |text: &str, out: &str| {
        let quiet = text.replace("noise_multiplier = 4.0", "noise_multiplier = 0.2");
        let summary = train(&folder, &quiet, out);
        number(&summary["metrics"]["perplexity"]).ln()
    };
    let losses = (
        loss(&plain_text, "plain-quiet"),
        loss(&run_file(text), "rounded-quiet"),
    );
    assert!((losses.0 - losses.1).abs() < 0.02, "{losses:?}");
    assert!(model(&folder, "plain") != model(&folder, "rounded"));
    let page = folder.text("rounded/tiny/privacy.md");
    contains(&page, "rotated_rounding ... secure aggregation");
}

#[test]
#[ignore = "slow"]
fn noise_in_shares_trains_and_verifies() {
    let folder = Folder::new();
    for (out, encoding, noise) in [
        (
            "gaussian",
            "{ kind = \"discrete_gaussian\", scale = 200.0 }",
            "noise_multiplier = 4.0\n",
        ),
        (
            "skellam",
            "{ kind = \"skellam\", scale = 200.0 }",
            "noise_multiplier = 4.0\n",
        ),
        (
            "binomial",
            "{ kind = \"binomial\", levels = 64, trials = 4000 }",
            "",
        ),
    ] {
        let summary = train(&folder, &shares(encoding, noise), out);
        let privacy = &summary["privacy"];
        let epsilon = |name: &str| number(&privacy[name]["epsilon"]);
        // 14 rounds, some users twice: nothing is gained by looking.
        assert_eq!(epsilon("planned"), epsilon("observed"), "{out}");
        assert_eq!(epsilon("planned"), epsilon("worst_case"), "{out}");
        assert!(epsilon("planned").is_finite() && epsilon("planned") > 0.0);
        assert_eq!(privacy["observed"]["adjacency"], "zero out one user", "{out}");
        if out != "binomial" {
            // At most the Gaussian of the same size, twice, and a little more for grid and shares.
            assert!(epsilon("planned") > 1.0 && epsilon("planned") < 2.5, "{privacy}");
        }
        let line = &ledger(&folder, out)[0];
        assert!(line["survivors"].as_u64() == line["cohort_size"].as_u64() && line["noise_key"].is_string());
    }
}

#[test]
#[ignore = "slow"]
fn below_the_floor_nothing_is_released_but_participation_counts() {
    let folder = Folder::new();
    let text = |sum: &str, drop: f64| {
        run_file(&format!(
            "sum = \"{sum}\"\nmin_clients = 17\ndropout = {{ before_upload = {drop} }}"
        ))
    };
    let whole = train(&folder, &text("plain", 0.0), "whole");
    let failing = train(&folder, &text("plain", 0.2), "failing");
    train(&folder, &text("secagg", 0.2), "secure");
    assert!(model(&folder, "failing") == model(&folder, "secure"));
    let lines = ledger(&folder, "failing");
    let abandoned = lines.iter().filter(|line| line["abandoned"] == true).count();
    assert!(abandoned > 0 && abandoned < lines.len(), "{abandoned}");
    for (index, line) in lines.iter().enumerate() {
        let survivors = line["survivors"].as_u64().expect("a number");
        assert_eq!(line["abandoned"] == true, survivors < 17, "{line}");
        if index > 0 && survivors < 17 {
            assert_eq!(line["parameters_sha256"], lines[index - 1]["parameters_sha256"]);
        }
        assert!(line["participants"].as_array().expect("a list").len() >= 20);
    }
    // Nothing was saved by abandoning.
    assert_eq!(epsilon(&whole), epsilon(&failing));
    // Nor can a ledger say otherwise: a claimed release below the floor is found.
    let forged = folder
        .text("failing/tiny/ledger.jsonl")
        .replace("\"abandoned\":true,", "");
    folder.write("failing/tiny/ledger.jsonl", forged);
    folder.fail("verify failing/tiny");
}

#[test]
#[ignore = "slow"]
fn any_number_of_threads_makes_the_same_sums() {
    let folder = Folder::new();
    let text = run_file(
        "sum = \"secagg\"\nmin_clients = 17\nencoding = { kind = \"rotated_rounding\", scale = 1000.0 }\ndropout = { before_upload = 0.1 }",
    );
    train(&folder, &text, "one");
    folder.write("run.toml", &text);
    folder.succeed("train run.toml --out two --threads 1");
    assert!(model(&folder, "one") == model(&folder, "two"));
}

#[test]
#[ignore = "slow"]
fn bad_settings_name_their_key() {
    let folder = Folder::new();
    let check = |text: String, expected: &str| {
        folder.write("run.toml", &text);
        let message = folder.fail("train run.toml");
        assert!(message.contains(expected), "{expected} is not in {message}");
        assert!(!folder.path("runs/tiny").exists(), "{expected}");
    };
    let plain = run_file("min_clients = 15");
    let table = r#"
        $ min_clients = 1
        `aggregation.min_clients`: expected at least 2, got 1
        $ min_clients = 40
        `aggregation.min_clients`: expected at most the 21 users
        $ min_clients = 15; max_clients = 20
        `aggregation.max_clients`: expected at least the 21 users
        $ min_clients = 15; sum = "magic"
        magic
        $ min_clients = 15; encoding = { kind = "base64" }
        base64
        $ min_clients = 15; encoding = { kind = "rotated_rounding", scale = 0.0 }
        `aggregation.encoding.scale`
        $ min_clients = 15; dropout = { before_upload = 1.5 }
        `aggregation.dropout.before_upload`
        $ min_clients = 15; dropout = { before_upload = 0.6, before_keys = 0.6 }
        `aggregation.dropout`: expected shares of at most 1 together
        $ min_clients = 15; graph = { drop_out_rate = 0.1, corrupt_rate = 0.1 }
        `aggregation.graph`: expected `sum = "secagg"` beside it
        $ sum = "secagg"; min_clients = 15; graph = { drop_out_rate = 1.5, corrupt_rate = 0.1 }
        `aggregation.graph`: expected rates in [0, 1)
        $ sum = "secagg"; min_clients = 15; graph = { drop_out_rate = 0.5, corrupt_rate = 0.5 }
        `aggregation.graph`: expected rates that allow a graph of 15 users
        $ min_clients = 15; encoding = { kind = "skellam", scale = 200.0 }
        `privacy.mechanism` must be left out: the noise that users add
        "#;
    for (aggregation, expected) in cases(table) {
        check(run_file(&aggregation.replace("; ", "\n")), expected);
    }
    check(
        plain.replace("kind = \"flat\"\nnorm = 1.0", "kind = \"none\""),
        "clip.kind",
    );
    check(
        format!("{plain}\n[estimator]\nkind = \"clipped_denominator\"\nmin_weight = 100.0\n"),
        "`estimator.kind`: expected `fixed_denominator` with [aggregation]",
    );
    let poisson = plain
        .replace("shuffled_epochs", "poisson")
        .replace("[privacy.mechanism]\nkind = \"blt\"\nbuffers = 2\n", "");
    check(poisson, "`cohort.sampling`: expected `fixed_size`");
    let skellam = "{ kind = \"skellam\", scale = 200.0 }";
    check(
        shares(skellam, "target_epsilon = 4.0\n"),
        "`privacy.target_epsilon`: expected `noise_multiplier`",
    );
    check(shares(skellam, ""), "`privacy.noise_multiplier`");
    check(
        shares("{ kind = \"binomial\", levels = 1, trials = 4000 }", ""),
        "`aggregation.encoding.levels`: expected at least 2",
    );
    // Too little noise for Theorem 1.
    check(
        shares("{ kind = \"binomial\", levels = 64, trials = 1 }", ""),
        "Theorem 1 needs N p (1 - p)",
    );
}
