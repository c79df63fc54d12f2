//! Tests of the description of training in a model file, and of the guarantee of a run that starts from that model.

use serde_json::Value;

use crate::support::{Folder, TINY, json};

/// Trains the tiny run under another name, from a model where one is given, with other changes of the run file.
fn train(folder: &Folder, name: &str, initial: Option<&str>, changes: &[&str]) -> Value {
    let name = format!("name={name}");
    let initial = initial.map(|file| format!("initial_model={file}"));
    let mut arguments = vec!["train", "run.toml", "--json", "--set", &name];
    let more = initial.as_deref().into_iter().chain(changes.iter().copied());
    arguments.extend(more.flat_map(|change| ["--set", change]));
    json(&folder.succeed(&arguments))
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("run.toml", TINY.replace("seed = 3\n", ""));
    folder
}

fn figure(summary: &Value, record: &str, what: &str) -> f64 {
    summary["privacy"][record][what].as_f64().unwrap_or(f64::NAN)
}

fn says(summary: &Value, words: &str) {
    let privacy = &summary["privacy"];
    let said = format!("{} {}", privacy["statements"], privacy["warnings"]);
    assert!(said.contains(words), "{words:?} is not in {said}");
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
fn a_private_start_on_the_same_people_is_composed() {
    let folder = folder();
    let first = train(&folder, "first", None, &[]);
    let trained_on = description(&folder, "runs/first/model.safetensors")["trained_on"].clone();
    assert_eq!(trained_on[0]["kind"], "private", "{trained_on}");
    assert_eq!(
        trained_on[0]["guarantee"]["epsilon"],
        first["privacy"]["observed"]["epsilon"]
    );
    let second = train(&folder, "second", Some("runs/first/model.safetensors"), &[]);
    let sum = figure(&first, "observed", "epsilon") + figure(&second, "observed", "epsilon");
    assert!(
        (figure(&second, "with_initial_model", "epsilon") - sum).abs() < 1e-12,
        "{second}"
    );
    assert!(
        (figure(&second, "with_initial_model", "delta") - 2e-4).abs() < 1e-12,
        "{second}"
    );
    says(&second, "is not public");
    says(&second, "on the same source with a guarantee of its own");
    folder.succeed(&["verify", "runs/second"]);
    let page = String::from_utf8(folder.read("runs/second/privacy.md")).expect("text");
    assert!(page.contains("Observed, with its initial model"), "{page}");
    // Everything before counts: a third run, also from an export.
    folder.succeed(&[
        "export",
        "runs/second",
        "--layout",
        "undertone",
        "--out",
        "exported",
    ]);
    for file in ["runs/second/model.safetensors", "exported/model.safetensors"] {
        let name = if file.starts_with("runs") {
            "third"
        } else {
            "fourth"
        };
        let third = train(&folder, name, Some(file), &[]);
        let all = sum + figure(&third, "observed", "epsilon");
        assert!(
            (figure(&third, "with_initial_model", "epsilon") - all).abs() < 1e-12,
            "{third}"
        );
        folder.succeed(&["verify", &format!("runs/{name}")]);
    }
    // A budget is for both together: one that all rounds alone would keep ends the run before its last.
    let budget = format!("privacy.max_epsilon={}", sum - 0.01);
    let limited = train(
        &folder,
        "limited",
        Some("runs/first/model.safetensors"),
        &[&budget],
    );
    assert!(
        limited["rounds"].as_u64() < second["rounds"].as_u64(),
        "{limited}"
    );
    let why = limited["stopped_early"].as_str().expect("a reason");
    assert!(why.contains("the training of its initial model"), "{why}");
    assert!(
        figure(&limited, "with_initial_model", "epsilon") < sum,
        "{limited}"
    );
    folder.succeed(&["verify", "runs/limited"]);
    let none = format!("privacy.max_epsilon={}", figure(&first, "observed", "epsilon"));
    let arguments = ["train", "run.toml", "--set", "name=none", "--set", &none];
    let initial = ["--set", "initial_model=runs/first/model.safetensors"];
    let refused = folder.fail(&[&arguments[..], &initial].concat());
    assert!(refused.contains("the training of its initial model"), "{refused}");
}

#[test]
fn the_start_is_public_only_where_its_file_allows_it() {
    let folder = folder();
    train(&folder, "first", None, &[]);
    // People who may be the same, or not.
    let others = "data.source={kind=\"synthetic\",users=301,words=60}";
    let other = train(&folder, "other", Some("runs/first/model.safetensors"), &[others]);
    says(&other, "add it if people are the same");
    says(&other, "is not public");
    assert!(other["privacy"].get("with_initial_model").is_none(), "{other}");
    // A guarantee under another relation.
    let fixed = train(
        &folder,
        "fixed",
        Some("runs/first/model.safetensors"),
        &["cohort.sampling=fixed_size"],
    );
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
    folder.succeed(&["pretrain", "other.toml"]);
    folder.succeed(&["pretrain", "same.toml"]);
    let trained_on = description(&folder, "runs/other-text/model.safetensors")["trained_on"].clone();
    assert_eq!(trained_on[0]["kind"], "not_private", "{trained_on}");
    let from_public = train(
        &folder,
        "from-public",
        Some("runs/other-text/model.safetensors"),
        &[],
    );
    says(
        &from_public,
        "trained without privacy, on another source. It is taken as public",
    );
    assert_eq!(
        from_public["privacy"]["warnings"],
        Value::Array(vec![]),
        "{from_public}"
    );
    let from_same = train(
        &folder,
        "from-same",
        Some("runs/same-text/model.safetensors"),
        &[],
    );
    says(&from_same, "on the same source without privacy");
    says(&from_same, "is not public");
    let arguments = [
        "train",
        "run.toml",
        "--set",
        "name=none",
        "--set",
        "privacy.max_epsilon=100",
    ];
    let initial = ["--set", "initial_model=runs/same-text/model.safetensors"];
    let refused = folder.fail(&[&arguments[..], &initial].concat());
    assert!(
        refused.contains("privacy.max_epsilon") && refused.contains("without privacy"),
        "{refused}"
    );
    // A file that does not say what it was trained on, as those of other programs.
    let (mut fields, tensors) = header(&folder, "runs/first/model.safetensors");
    fields.as_object_mut().expect("a header").remove("__metadata__");
    let mut text = fields.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    folder.write(
        "plain.safetensors",
        [&(text.len() as u64).to_le_bytes()[..], &text, &tensors].concat(),
    );
    let plain = train(&folder, "plain", Some("plain.safetensors"), &[]);
    says(
        &plain,
        "does not say what it was trained on. It is taken as public on the word of",
    );
    for name in ["other", "fixed", "from-public", "from-same", "plain"] {
        folder.succeed(&["verify", &format!("runs/{name}")]);
    }
    // Which is recomputed from what the file said when the run began.
    let record = folder.read("runs/plain/initial_model.json");
    folder.write(
        "runs/plain/initial_model.json",
        folder.read("runs/from-public/initial_model.json"),
    );
    folder.fail(&["verify", "runs/plain"]);
    folder.write("runs/plain/initial_model.json", record);
    folder.succeed(&["verify", "runs/plain"]);
}

/// Models of seeded runs are for study: what starts from them says so.
#[test]
fn a_seeded_start_is_for_study_only() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    train(&folder, "first", None, &[]);
    folder.write("run.toml", TINY.replace("seed = 3\n", ""));
    let second = train(&folder, "second", Some("runs/first/model.safetensors"), &[]);
    says(
        &second,
        "comes from a seeded run: its guarantee is for study only",
    );
    folder.succeed(&["verify", "runs/second"]);
}
