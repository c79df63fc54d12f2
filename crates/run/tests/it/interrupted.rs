//! Runs that their observer ends, configurations as values, and corpora that are open already.

use std::sync::atomic::{AtomicU64, Ordering};

use undertone_data::{Corpus, NoProgress};
use undertone_run::{Observer, RunError, RunFile, RunOptions, Silent, train};
use undertone_run_directory::config::Override;
use undertone_run_directory::metrics::RoundRecord;

use crate::support::{BASE, config, options};

/// Ends the run at the n-th time that it is asked.
struct EndsAt(AtomicU64);

impl Observer for EndsAt {
    fn stop(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(1))
        }) == Ok(0)
    }
}

#[test]
#[ignore = "slow"]
fn a_run_that_is_ended_anywhere_and_resumed_has_the_bytes_of_a_whole_one() {
    for changes in [
        vec!["checkpoint.every=2", "evaluation.every=3"],
        vec![
            "checkpoint.every=2",
            "user_update={algorithm='els',batch_size=4,group_size=3}",
            "cohort={sampling='poisson',examples_per_round=30}",
            "privacy.accountant=pld",
        ],
        vec![
            "checkpoint.every=2",
            "aggregation={sum='plain',encoding={kind='identity'},min_clients=2,max_clients=60}",
            "cohort.sampling=fixed_size",
        ],
    ] {
        let file = RunFile::new(config(&changes), ".");
        let whole = tempfile::tempdir().unwrap();
        train(&file, &options(whole.path()), &Silent).unwrap();
        let expected = std::fs::read(whole.path().join("test/model.safetensors")).unwrap();

        let torn = tempfile::tempdir().unwrap();
        let resume = RunOptions {
            resume: true,
            ..options(torn.path())
        };
        // The corpus is cached, so the first questions come from the rounds.
        Corpus::open(
            &file.config.data,
            ".".as_ref(),
            &torn.path().join(".corpora"),
            &NoProgress,
        )
        .unwrap();
        let mut ends = 0;
        for at in [1, 3, 20, 41, 60, 90, u64::MAX] {
            let options = if ends == 0 {
                options(torn.path())
            } else {
                resume.clone()
            };
            match train(&file, &options, &EndsAt(AtomicU64::new(at))) {
                Err(RunError::Interrupted) => ends += 1,
                Err(error) => panic!("{changes:?}, {at}: {error}"),
                Ok(_) => break,
            }
            assert!(torn.path().join("test/checkpoint").exists());
        }
        assert!(ends >= 3, "{changes:?}: only {ends} interruptions");
        let model = std::fs::read(torn.path().join("test/model.safetensors")).unwrap();
        assert!(
            model == expected,
            "{changes:?}: the model of the resumed run differs"
        );
    }
}

#[test]
fn an_interrupted_reading_leaves_no_run_behind() {
    let folder = tempfile::tempdir().unwrap();
    let data = "data={ source = { kind = \"jsonl\", path = \"posts.jsonl\" }, vocabulary = { kind = \"training_data\", size = 9 } }";
    std::fs::write(
        folder.path().join("posts.jsonl"),
        "{\"user_id\":\"a\",\"text\":\"two words\"}\n",
    )
    .unwrap();
    let file = RunFile::new(config(&[data]), folder.path());
    let out = folder.path().join("runs");
    let error = train(&file, &options(&out), &EndsAt(AtomicU64::new(0))).unwrap_err();
    assert_eq!(error.to_string(), "interrupted: the corpus was not opened");
    assert!(!out.join("test").exists());
}

/// Records the last round that was shown, and ends the run in the middle of the next one.
#[derive(Default)]
struct EndsInRound {
    users: AtomicU64,
    rounds: AtomicU64,
}

impl Observer for EndsInRound {
    fn stop(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) == 5 && self.users.load(Ordering::Relaxed) > 2
    }
    fn on_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }
    fn on_round(&self, _: &RoundRecord) {
        self.users.store(0, Ordering::Relaxed);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_round_that_is_ended_is_dropped_before_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let file = RunFile::new(config(&["checkpoint.every=2"]), ".");
    let observer = EndsInRound::default();
    let error = train(&file, &options(folder.path()), &observer).unwrap_err();
    assert!(matches!(error, RunError::Interrupted), "{error}");
    let run = folder.path().join("test");
    let ledger = std::fs::read_to_string(run.join("ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 5, "the sixth round has no line");
    // The head of the checkpoint is that of round 4, and no file holds the fifth release.
    assert!(!run.join("model.safetensors").exists());
    assert!(
        observer.users.load(Ordering::Relaxed) == 3,
        "the engine stops between users"
    );
}

#[test]
fn a_value_is_the_run_file_that_it_was_made_from() {
    let text: toml::Table = toml::from_str(BASE).unwrap();
    let value = serde_json::to_value(&text).unwrap();
    let file = RunFile::from_value(value.clone(), ".", &[]).unwrap();
    assert_eq!(file.config, config(&[]));
    assert_eq!(file.taken, ["user_update.algorithm = \"fedavg\""; 0]);
    let change = Override::from_value("clip.norm", serde_json::json!(0.7)).unwrap();
    let file = RunFile::from_value(value.clone(), ".", &[change]).unwrap();
    assert_eq!(file.config, config(&["clip.norm=0.7"]));
}

#[test]
fn values_that_are_no_run_file_are_refused_by_their_key() {
    let text: toml::Table = toml::from_str(BASE).unwrap();
    let value = serde_json::to_value(&text).unwrap();
    for (pointer, with, part) in [
        (
            "/clip/norm",
            serde_json::Value::Null,
            "`clip.norm`: expected a value",
        ),
        (
            "/seed",
            serde_json::json!(u64::MAX),
            "`seed`: expected at most 9223372036854775807, got 18446744073709551615",
        ),
        (
            "/clip/norm",
            serde_json::json!("wide"),
            "configuration: `clip.norm`: expected a number",
        ),
        (
            "/cohort",
            serde_json::json!({"sampling": "poisson", "users": 3}),
            "there is no key `cohort.users`; did you mean `cohort.users_per_round`?",
        ),
        (
            "/model",
            serde_json::json!([null]),
            "`model[0]`: expected a value",
        ),
        ("/privacy/delta", serde_json::json!(2.0), "`privacy.delta`"),
    ] {
        let mut wrong = value.clone();
        *wrong.pointer_mut(pointer).unwrap() = with;
        let error = RunFile::from_value(wrong, ".", &[]).unwrap_err().to_string();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{pointer}: {error}"
        );
    }
    let error = RunFile::from_value(serde_json::json!(3), ".", &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("expected a table, got a number"), "{error}");
    assert!(Override::from_value("clip..norm", serde_json::json!(1)).is_err());
    assert!(Override::from_value("clip.norm", serde_json::Value::Null).is_err());
}

#[test]
fn an_open_corpus_must_have_the_settings_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = RunFile::new(config(&["rounds=1"]), ".");
    let open = |changes: &[&str]| {
        Corpus::open(&config(changes).data, ".".as_ref(), folder.path(), &NoProgress).unwrap()
    };
    let other = open(&["data.source.users=61"]);
    let error = file.clone().with_corpus(other).unwrap_err().to_string();
    assert!(
        error.contains("`data`") && error.contains("users = 61"),
        "{error}"
    );
    let file = file.with_corpus(open(&[])).unwrap();
    train(&file, &options(folder.path()), &Silent).unwrap();
}
