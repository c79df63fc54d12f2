//! Tests of the description of training in a model file, and of the guarantee of a run that starts from that model.

use serde_json::Value;

use crate::support::{Folder, TINY, contains, epsilon, json, number};

const FIRST: &str = "runs/first/model.safetensors";

/// Trains the tiny run under another name, with other changes of the run file.
fn train(folder: &Folder, name: &str, changes: &[&str]) -> Value {
    let sets: String = changes.iter().map(|change| format!(" --set {change}")).collect();
    folder.json(format!("train run.toml --set name={name}{sets}"))
}

/// Trains it from a model.
fn train_from(folder: &Folder, file: &str, name: &str, changes: &[&str]) -> Value {
    let initial = format!("initial_model={file}");
    train(folder, name, &[&[initial.as_str()], changes].concat())
}

fn unseeded() -> String {
    TINY.replace("seed = 3\n", "")
}

fn says(summary: &Value, words: &str) {
    let privacy = &summary["privacy"];
    let said = format!("{} {}", privacy["statements"], privacy["warnings"]);
    contains(&said, words);
}

/// The header of a model file.
fn header(folder: &Folder, file: &str) -> (Value, Vec<u8>) {
    let bytes = folder.read(file);
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    (header, bytes[8 + length..].to_vec())
}

fn description(folder: &Folder, file: &str) -> Value {
    let (header, _) = header(folder, file);
    json(
        header["__metadata__"]["undertone"]
            .as_str()
            .expect("a description"),
    )
}

#[test]
#[ignore = "slow"]
fn a_private_start_on_the_same_people_is_composed() {
    let folder = Folder::with(unseeded());
    let first = train(&folder, "first", &[]);
    let trained_on = description(&folder, FIRST)["trained_on"].clone();
    assert_eq!(trained_on[0]["kind"], "private", "{trained_on}");
    assert_eq!(
        trained_on[0]["guarantee"]["epsilon"],
        first["privacy"]["observed"]["epsilon"]
    );
    let second = train_from(&folder, FIRST, "second", &[]);
    let sum = epsilon(&first, "observed") + epsilon(&second, "observed");
    assert!(
        (epsilon(&second, "with_initial_model") - sum).abs() < 1e-12,
        "{second}"
    );
    assert!(
        (number(&second["privacy"]["with_initial_model"]["delta"]) - 2e-4).abs() < 1e-12,
        "{second}"
    );
    says(&second, "is not public");
    says(&second, "on the same source with a guarantee of its own");
    folder.succeed("verify runs/second");
    contains(
        &folder.text("runs/second/privacy.md"),
        "Observed, with its initial model",
    );
    // Everything before counts: a third run, also from an export.
    folder.succeed("export runs/second --layout undertone --out exported");
    for file in ["runs/second/model.safetensors", "exported/model.safetensors"] {
        let name = if file.starts_with("runs") {
            "third"
        } else {
            "fourth"
        };
        let third = train_from(&folder, file, name, &[]);
        let all = sum + epsilon(&third, "observed");
        assert!(
            (epsilon(&third, "with_initial_model") - all).abs() < 1e-12,
            "{third}"
        );
        folder.succeed(format!("verify runs/{name}"));
    }
    // A budget is for both together: one that all rounds alone would keep ends the run before its last.
    let budget = format!("privacy.max_epsilon={}", sum - 0.01);
    let limited = train_from(&folder, FIRST, "limited", &[&budget]);
    assert!(
        limited["rounds"].as_u64() < second["rounds"].as_u64(),
        "{limited}"
    );
    let why = limited["stopped_early"].as_str().expect("a reason");
    contains(why, "the training of its initial model");
    assert!(epsilon(&limited, "with_initial_model") < sum, "{limited}");
    folder.succeed("verify runs/limited");
    let none = format!("privacy.max_epsilon={}", epsilon(&first, "observed"));
    folder.refuse(
        format!("train run.toml --set name=none --set {none} --set initial_model={FIRST}"),
        "the training of its initial model",
    );
}

#[test]
#[ignore = "slow"]
fn the_start_is_public_only_where_its_file_allows_it() {
    let folder = Folder::with(unseeded());
    train(&folder, "first", &[]);
    // People who may be the same, or not.
    let others = "data.source={kind=\"synthetic\",users=301,words=60}";
    let other = train_from(&folder, FIRST, "other", &[others]);
    says(&other, "add it if people are the same");
    says(&other, "is not public");
    assert!(other["privacy"].get("with_initial_model").is_none(), "{other}");
    // A guarantee under another relation.
    let fixed = train_from(&folder, FIRST, "fixed", &["cohort.sampling=fixed_size"]);
    says(&fixed, "under another relation, add-or-remove one user");
    assert!(fixed["privacy"].get("with_initial_model").is_none(), "{fixed}");
    // Pre-training, on other text and on these people's.
    let public = TINY
        .replace("rounds = 6", "steps = 3")
        .split("[cohort]")
        .next()
        .map(|text| text.to_owned() + "[training]\nbatch_size = 8\nlearning_rate = 0.1\n")
        .expect("a run file");
    folder.write(
        "other.toml",
        public
            .replace("users = 300", "users = 80")
            .replace("tiny", "other-text"),
    );
    folder.write("same.toml", public.replace("tiny", "same-text"));
    folder.succeed("pretrain other.toml");
    folder.succeed("pretrain same.toml");
    let trained_on = description(&folder, "runs/other-text/model.safetensors")["trained_on"].clone();
    assert_eq!(trained_on[0]["kind"], "not_private", "{trained_on}");
    let from_public = train_from(&folder, "runs/other-text/model.safetensors", "from-public", &[]);
    says(
        &from_public,
        "trained without privacy, on another source. It is declared public by the run file",
    );
    assert_eq!(
        from_public["privacy"]["warnings"],
        Value::Array(vec![]),
        "{from_public}"
    );
    let from_same = train_from(&folder, "runs/same-text/model.safetensors", "from-same", &[]);
    says(&from_same, "on the same source without privacy");
    says(&from_same, "is not public");
    let line = "train run.toml --set name=none --set privacy.max_epsilon=100";
    folder.refuse(
        format!("{line} --set initial_model=runs/same-text/model.safetensors"),
        "privacy.max_epsilon ... without privacy",
    );
    // A file that does not say what it was trained on, as those of other programs.
    let (mut fields, tensors) = header(&folder, FIRST);
    fields.as_object_mut().expect("a header").remove("__metadata__");
    let mut text = fields.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    folder.write(
        "plain.safetensors",
        [&(text.len() as u64).to_le_bytes()[..], &text, &tensors].concat(),
    );
    let plain = train_from(&folder, "plain.safetensors", "plain", &[]);
    says(
        &plain,
        "does not say what it was trained on. It is declared public by the run file.",
    );
    for name in ["other", "fixed", "from-public", "from-same", "plain"] {
        folder.succeed(format!("verify runs/{name}"));
    }
    // Which is recomputed from what the file said when the run began.
    let record = folder.read("runs/plain/initial_model.json");
    folder.write(
        "runs/plain/initial_model.json",
        folder.read("runs/from-public/initial_model.json"),
    );
    folder.fail("verify runs/plain");
    folder.write("runs/plain/initial_model.json", record);
    folder.succeed("verify runs/plain");
}

/// Models of seeded runs are for study: what starts from them says so.
#[test]
#[ignore = "slow"]
fn a_seeded_start_is_for_study_only() {
    let folder = Folder::with(TINY);
    train(&folder, "first", &[]);
    folder.write("run.toml", unseeded());
    let second = train_from(&folder, FIRST, "second", &[]);
    says(
        &second,
        "comes from a seeded run: its guarantee is for study only",
    );
    folder.succeed("verify runs/second");
}
