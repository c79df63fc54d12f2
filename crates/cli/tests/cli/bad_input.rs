//! Bad input gets an error that names the file, line or key, the expected and the actual value, and leaves nothing behind.

use crate::support::{Folder, TINY, train_until_killed};

/// Runs a configuration and expects an error that contains every one of the words.
fn check(folder: &Folder, config: &str, extra: &[&str], words: &[&str]) {
    folder.write("run.toml", config);
    let mut arguments = vec!["train", "run.toml"];
    arguments.extend(extra);
    let message = folder.fail(&arguments);
    for word in words {
        assert!(message.contains(word), "expected {word:?} in: {message}");
    }
    assert!(
        !folder.path("runs/tiny").exists(),
        "a run directory was left behind"
    );
}

fn check_set(change: &str, words: &[&str]) {
    let folder = Folder::new();
    check(&folder, TINY, &["--set", change], words);
    assert!(
        !folder.path("runs/tiny").exists(),
        "{change} left a run directory"
    );
}

fn with_source(source: &str) -> String {
    TINY.replace(
        "source = { kind = \"synthetic\", users = 300, words = 60 }",
        &format!("source = {source}\nvocabulary = {{ kind = \"file\", path = \"vocab.txt\" }}"),
    )
}

const CSV: &str = "{ kind = \"csv\", path = \"text.csv\", user = \"who\", text = \"what\" }";
const PARQUET: &str = "{ kind = \"parquet\", path = \"text.parquet\", user = \"user_id\", text = \"text\" }";

#[test]
fn configuration_errors_name_the_key() {
    let folder = Folder::new();
    check(
        &folder,
        &TINY.replace("rounds = 6", "rounds = 6\nroundz = 7"),
        &[],
        &["run.toml", "roundz", "line 5"],
    );
    check(&folder, "name = ", &[], &["run.toml", "line 1"]);
    check_set("clip.normm=1.0", &["normm"]);
    check_set("clip.norm=-1.0", &["clip.norm", "above 0", "-1"]);
    check_set("clip.norm=nan", &["clip.norm", "above 0", "NaN"]);
    check_set("privacy.delta=1.0", &["privacy.delta", "(0, 1)", "1"]);
    check_set("privacy.delta=0", &["privacy.delta"]);
    check_set(
        "privacy.noise_multiplier=-0.5",
        &["privacy.noise_multiplier", "above 0", "-0.5"],
    );
    check_set(
        "cohort={sampling='poisson',sampling_probability=1.5}",
        &["cohort.sampling_probability", "(0, 1]", "1.5"],
    );
    check_set("clip={kind='none'}", &["clip.kind", "private run"]);
    check_set("estimator={kind='exact'}", &["estimator.kind", "private run"]);
    check_set(
        "user_update.batch_size=0",
        &["user_update.batch_size", "at least 1", "0"],
    );
    check_set("name=a/b", &["name", "folder name", "a/b"]);
    check_set("rounds", &["--set", "KEY=VALUE"]);
    check_set(
        "schedule=[{from_round=6,clip_norm=1.0}]",
        &["schedule[0].from_round", "less than rounds = 6"],
    );
    check_set(
        "estimate={population=1000,users_per_round=100,rounds=0}",
        &["estimate.rounds", "at least 1"],
    );
    check_set(
        "schedule=[{from_round=0,clip_norm=1.0}]",
        &["schedule[0].from_round"],
    );
}

#[test]
fn a_cohort_larger_than_the_population_is_refused() {
    let folder = Folder::new();
    check(
        &folder,
        TINY,
        &["--set", "cohort.users_per_round=1000000"],
        &["cohort.users_per_round", "q <= 1", "1000000"],
    );
}

#[test]
fn an_unreachable_target_is_refused() {
    let folder = Folder::new();
    // The conversion of 2016 gives at least ln(1/delta)/32 = 0.29, whatever the noise.
    let config = TINY.replace(
        "noise_multiplier = 1.0",
        "target_epsilon = 0.1\naccountant = \"moments2016\"",
    );
    check(&folder, &config, &[], &["0.1", "epsilon"]);
}

#[test]
fn a_wrong_number_of_layer_norms_is_refused() {
    let folder = Folder::new();
    check(
        &folder,
        TINY,
        &["--set", "clip={kind='per_layer',norms=[1.0,2.0]}"],
        &["clip.norms", "11 norms", "2"],
    );
}

#[test]
fn missing_and_empty_files_are_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    assert!(folder.fail(&["train", "nowhere.toml"]).contains("nowhere.toml"));
    check(&folder, &with_source(CSV), &[], &["text.csv"]);
    folder.write("text.csv", "");
    check(&folder, &with_source(CSV), &[], &["text.csv"]);
    folder.write("text.csv", "who,what\n");
    check(&folder, &with_source(CSV), &[], &["text.csv"]);
    folder.write("text.parquet", "");
    check(&folder, &with_source(PARQUET), &[], &["text.parquet"]);
}

#[test]
fn missing_columns_and_truncated_files_are_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    folder.write("text.csv", "who,words\nann,a b c\n");
    check(&folder, &with_source(CSV), &[], &["text.csv", "what"]);
    folder.write(
        "text.jsonl",
        "{\"user_id\": \"ann\", \"text\": \"a b\"}\n{\"user_id\": \"bob\", \"te\n",
    );
    let jsonl = "{ kind = \"jsonl\", path = \"text.jsonl\", user = \"user_id\", text = \"text\" }";
    check(&folder, &with_source(jsonl), &[], &["text.jsonl", "2"]);
    folder.write("text.jsonl", "{\"user_id\": \"ann\", \"text\": 7}\n");
    check(&folder, &with_source(jsonl), &[], &["text.jsonl", "text"]);
    folder.write("text.parquet", "PAR1 and then nothing");
    check(&folder, &with_source(PARQUET), &[], &["text.parquet"]);
}

#[test]
fn users_without_text_and_repeated_words_are_refused() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    folder.write("text.csv", "who,what\nann,\nbob,!!\n");
    check(&folder, &with_source(CSV), &[], &["text.csv"]);
    folder.write("text.csv", "who,what\nann,a b a b\n");
    folder.write("vocab.txt", "a\nb\na\n");
    check(&folder, &with_source(CSV), &[], &["vocab.txt", "\"a\"", "3"]);
}

#[test]
fn an_unset_variable_is_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    let source = CSV.replace("text.csv", "$UNDERTONE_TEST_UNSET/text.csv");
    check(&folder, &with_source(&source), &[], &["UNDERTONE_TEST_UNSET"]);
}

#[test]
fn an_existing_run_is_kept() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    folder.succeed(&["train", "run.toml"]);
    let before = folder.read("runs/tiny/model.safetensors");
    let message = folder.fail(&["train", "run.toml"]);
    assert!(
        message.contains("runs/tiny") && message.contains("--resume"),
        "{message}"
    );
    assert_eq!(before, folder.read("runs/tiny/model.safetensors"));
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = Folder::new();
    let unfinished = TINY
        .replace("every = 2\nmax_tokens", "every = 1\nmax_tokens")
        .replace("rounds = 6", "rounds = 40");
    folder.write("run.toml", unfinished);
    train_until_killed(&folder, "runs");
    let resume = |changes: &[&str]| {
        let mut arguments = vec!["train", "run.toml", "--resume"];
        arguments.extend(changes);
        folder.fail(&arguments)
    };
    let model = resume(&["--set", "model.hidden=16"]);
    assert!(
        model.contains("different model") && model.contains("expected dplm"),
        "{model}"
    );
    let config = resume(&["--set", "clip.norm=2.0"]);
    assert!(config.contains("different configuration"), "{config}");
    let nothing = resume(&["--set", "name=other"]);
    assert!(
        nothing.contains("no checkpoint to resume in runs/other"),
        "{nothing}"
    );
    let file = folder.path("runs/tiny/checkpoint/state.safetensors");
    let whole = std::fs::read(&file).expect("reading the checkpoint");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("cutting the checkpoint");
    let damaged = resume(&[]);
    assert!(damaged.contains("state.safetensors is damaged"), "{damaged}");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    folder.write("run.toml", TINY);
    folder.write("file", "");
    let message = folder.fail(&["train", "run.toml", "--out", "file/runs"]);
    assert!(message.contains("file/runs"), "{message}");
    // Nobody can write here, not even the superuser.
    #[cfg(target_os = "linux")]
    {
        let message = folder.fail(&["train", "run.toml", "--out", "/proc/undertone"]);
        assert!(message.contains("/proc/undertone"), "{message}");
    }
}

#[test]
fn errors_are_json_where_asked_for() {
    let folder = Folder::new();
    let message = folder.fail(&["train", "nowhere.toml", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&message).expect("JSON");
    assert!(
        error["error"]
            .as_str()
            .expect("a message")
            .contains("nowhere.toml")
    );
}
