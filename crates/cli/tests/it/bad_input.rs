//! Bad input gets an error that names the file, line or key, the expected and the actual value, and leaves nothing behind.

use crate::support::{Folder, TINY, cases, contains, json, long, over, train_until_killed};

/// Runs a configuration and expects an error that contains these parts.
fn check(folder: &Folder, config: &str, parts: &str) {
    folder.write("run.toml", config);
    contains(&folder.fail("train run.toml"), parts);
    assert!(
        !folder.path("runs/tiny").exists(),
        "a run directory was left behind"
    );
}

fn with_source(source: &str) -> String {
    over(&format!(
        "{source}\nvocabulary = {{ kind = \"file\", path = \"vocab.txt\" }}"
    ))
}

const CSV: &str = "{ kind = \"csv\", path = \"text.csv\", user = \"who\", text = \"what\" }";
const PARQUET: &str = "{ kind = \"parquet\", path = \"text.parquet\", user = \"user_id\", text = \"text\" }";

#[test]
fn configuration_errors_name_the_key() {
    let folder = Folder::new();
    let unknown = TINY.replace("rounds = 6", "rounds = 6\nroundz = 7");
    check(&folder, &unknown, "run.toml ... roundz ... line 5");
    check(&folder, "name = ", "run.toml ... line 1");
    let transcript = "
        $ SET clip.normm=1.0
        run.toml: with `clip.normm = 1.0`: there is no key `clip.normm`; did you mean `clip.norm`
        $ SET rounds=abc
        run.toml: with `rounds = \"abc\"`: `rounds`: expected a whole number, got the text \"abc\"
        $ SET clip.norm=-1.0
        clip.norm ... above 0 ... -1
        $ SET clip.norm=nan
        clip.norm ... above 0 ... NaN
        $ SET privacy.delta=1.0
        privacy.delta ... (0, 1) ... 1
        $ SET privacy.delta=0
        privacy.delta
        $ SET privacy.noise_multiplier=-0.5
        privacy.noise_multiplier ... above 0 ... -0.5
        $ SET cohort={sampling='poisson',sampling_probability=1.5}
        cohort.sampling_probability ... (0, 1] ... 1.5
        $ SET clip={kind='none'}
        clip.kind ... private run
        $ SET estimator={kind='exact'}
        estimator.kind ... private run
        $ SET user_update.batch_size=0
        user_update.batch_size ... at least 1 ... 0
        $ SET name=a/b
        name ... folder name ... a/b
        $ SET rounds
        --set ... KEY=VALUE
        $ SET schedule=[{from_round=6,clip_norm=1.0}]
        schedule[0].from_round ... less than rounds = 6
        $ SET estimate={population=1000,users_per_round=100,rounds=0}
        estimate.rounds ... at least 1
        $ SET schedule=[{from_round=0,clip_norm=1.0}]
        schedule[0].from_round
        $ SET cohort.users_per_round=1000000
        cohort.users_per_round ... q <= 1 ... 1000000
        $ SET clip={kind='per_layer',norms=[1.0,2.0]}
        clip.norms ... 11 norms ... 2
        ";
    folder.write("run.toml", TINY);
    for (line, parts) in cases(&transcript.replace("SET", "train run.toml --set")) {
        contains(&folder.fail(line), parts);
        assert!(!folder.path("runs/tiny").exists(), "{line} left a run directory");
    }
    // A mistake of the file has the file's own line, whatever is set beside it.
    folder.write("run.toml", &unknown);
    let message = folder.fail("train run.toml --set seed=9 --set rounds=7");
    contains(&message, "run.toml: line 5, ... roundz");
}

#[test]
fn an_unreachable_target_is_refused() {
    let folder = Folder::new();
    // The conversion of 2016 gives at least ln(1/delta)/32 = 0.29, whatever the noise.
    let config = TINY.replace(
        "noise_multiplier = 1.0",
        "target_epsilon = 0.1\naccountant = \"moments2016\"",
    );
    check(&folder, &config, "0.1 ... epsilon");
}

#[test]
fn missing_and_empty_files_are_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    folder.refuse("train nowhere.toml", "nowhere.toml");
    check(&folder, &with_source(CSV), "text.csv");
    folder.write("text.csv", "");
    check(&folder, &with_source(CSV), "text.csv");
    folder.write("text.csv", "who,what\n");
    check(&folder, &with_source(CSV), "text.csv");
    folder.write("text.parquet", "");
    check(&folder, &with_source(PARQUET), "text.parquet");
}

#[test]
fn missing_columns_and_truncated_files_are_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    folder.write("text.csv", "who,words\nann,a b c\n");
    check(&folder, &with_source(CSV), "text.csv ... what");
    folder.write(
        "text.jsonl",
        "{\"user_id\": \"ann\", \"text\": \"a b\"}\n{\"user_id\": \"bob\", \"te\n",
    );
    let jsonl = "{ kind = \"jsonl\", path = \"text.jsonl\", user = \"user_id\", text = \"text\" }";
    check(&folder, &with_source(jsonl), "text.jsonl ... 2");
    folder.write("text.jsonl", "{\"user_id\": \"ann\", \"text\": 7}\n");
    check(&folder, &with_source(jsonl), "text.jsonl ... text");
    folder.write("text.parquet", "PAR1 and then nothing");
    check(&folder, &with_source(PARQUET), "text.parquet");
}

#[test]
fn users_without_text_and_repeated_words_are_refused() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    folder.write("text.csv", "who,what\nann,\nbob,!!\n");
    check(&folder, &with_source(CSV), "text.csv");
    folder.write("text.csv", "who,what\nann,a b a b\n");
    folder.write("vocab.txt", "a\nb\na\n");
    check(&folder, &with_source(CSV), "vocab.txt ... \"a\" ... 3");
}

#[test]
fn an_unset_variable_is_named() {
    let folder = Folder::new();
    folder.write("vocab.txt", "a\nb\n");
    let source = CSV.replace("text.csv", "$UNDERTONE_TEST_UNSET/text.csv");
    check(&folder, &with_source(&source), "UNDERTONE_TEST_UNSET");
}

#[test]
#[ignore = "slow"]
fn an_existing_run_is_kept() {
    let folder = Folder::trained(TINY);
    let before = folder.read("runs/tiny/model.safetensors");
    folder.refuse("train run.toml", "runs/tiny ... --resume");
    assert_eq!(before, folder.read("runs/tiny/model.safetensors"));
}

#[test]
#[ignore = "slow"]
fn a_checkpoint_of_another_run_is_refused() {
    let folder = Folder::with(long(TINY));
    train_until_killed(&folder, "runs");
    folder.refuses(
        "
        $ train run.toml --resume --set model.hidden=16
        different model ... expected dplm
        $ train run.toml --resume --set clip.norm=2.0
        different configuration
        $ train run.toml --resume --set name=other
        no checkpoint to resume in runs/other
        ",
    );
    let file = folder.path("runs/tiny/checkpoint/state.safetensors");
    let whole = std::fs::read(&file).expect("reading the checkpoint");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("cutting the checkpoint");
    folder.refuse("train run.toml --resume", "state.safetensors is damaged");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_named() {
    let folder = Folder::with(TINY);
    folder.write("file", "");
    folder.refuse("train run.toml --out file/runs", "file/runs");
    // Nobody can write here, not even the superuser.
    #[cfg(target_os = "linux")]
    {
        folder.refuse("train run.toml --out /proc/undertone", "/proc/undertone");
    }
}

#[test]
fn errors_are_json_where_asked_for() {
    let folder = Folder::new();
    let message = folder.fail("train nowhere.toml --json");
    let error = json(&message);
    contains(error["error"].as_str().expect("a message"), "nowhere.toml");
}
