use super::*;
use crate::observer::Silent;
use std::path::Path;
use undertone_run_directory::config::parse_as;
use undertone_run_directory::files::names::MODEL_FILE;

const SMALL: &str = r#"
name = "public"
seed = 5
steps = 60
[data]
source = { kind = "synthetic", users = 60, words = 40 }
[model]
family = "cifg"
cells = 16
embedding = 8
projection = 8
tied = true
[training]
batch_size = 80
optimizer = { kind = "adam" }
learning_rate = 0.02
warm_up_steps = 5
decay = { last_fraction = 0.5, final_factor = 0.1 }
[evaluation]
every = 30
max_tokens = 500
[checkpoint]
every = 20
"#;

fn file(changes: &[&str]) -> PretrainFile {
    let changes: Vec<_> = changes.iter().map(|change| change.parse().unwrap()).collect();
    PretrainFile {
        config: parse_as(SMALL, Path::new("public.toml"), &changes).unwrap(),
        base: ".".into(),
    }
}

fn options(out: &Path, threads: usize, resume: bool) -> RunOptions {
    RunOptions {
        out: out.to_owned(),
        threads,
        resume,
    }
}

fn lines(out: &Path) -> Vec<MetricsLine> {
    let text = std::fs::read_to_string(out.join("public").join(METRICS_FILE)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn model(out: &Path) -> Vec<u8> {
    std::fs::read(out.join("public").join(MODEL_FILE)).unwrap()
}

#[test]
#[ignore = "slow"]
fn the_loss_falls_and_the_bytes_do_not_depend_on_threads() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let summary = pretrain(&file(&[]), &options(one.path(), 1, false), &Silent).unwrap();
    pretrain(&file(&[]), &options(two.path(), 2, false), &Silent).unwrap();
    assert_eq!(model(one.path()), model(two.path()));

    let losses: Vec<f64> = lines(one.path())
        .iter()
        .filter_map(|line| match line {
            MetricsLine::Round(round) => round.train_loss,
            _ => None,
        })
        .collect();
    assert_eq!(losses.len(), 60);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..5]), mean(&losses[55..]));
    // Untrained, all 43 ids are about equally likely: ln 43 = 3.76.
    assert!((first - 43f64.ln()).abs() < 0.3, "{first}");
    assert!(last < first - 0.3, "{first} {last}");
    assert!(summary.metrics.top1 > summary.unigram_accuracy.unwrap());

    assert!(!summary.privacy.private);
    assert_eq!(summary.privacy.warnings, [NOT_PRIVATE]);
    let page = std::fs::read_to_string(one.path().join("public/privacy.md")).unwrap();
    assert!(page.contains("NOT private"));
    assert!(!one.path().join("public/ledger.jsonl").exists());
}

#[test]
#[ignore = "slow"]
fn a_resumed_pre_training_ends_in_the_same_bytes() {
    let (whole, torn) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pretrain(&file(&[]), &options(whole.path(), 2, false), &Silent).unwrap();

    /// Stops in the middle of step 47, seven steps after a checkpoint.
    struct Stop;
    impl Observer for Stop {
        fn on_round_start(&self, round: u64, _cohort: usize) {
            assert!(round < 47, "stopped by the test");
        }
    }
    let stopped = std::panic::catch_unwind(|| pretrain(&file(&[]), &options(torn.path(), 1, false), &Stop));
    assert!(stopped.is_err());
    let checkpoint = Checkpoint::read(&torn.path().join("public"), 1 << 20).unwrap();
    assert_eq!(checkpoint.state.rounds, 40);
    pretrain(&file(&[]), &options(torn.path(), 1, true), &Silent).unwrap();
    assert_eq!(model(whole.path()), model(torn.path()));
    // Steps after the checkpoint were made again, not twice.
    assert_eq!(lines(whole.path()).len(), lines(torn.path()).len());

    let other = file(&["training.learning_rate=0.5"]);
    let error = pretrain(&other, &options(torn.path(), 1, true), &Silent).unwrap_err();
    assert!(error.to_string().contains("different configuration"), "{error}");
}

#[test]
#[ignore = "slow"]
fn training_goes_on_from_an_initial_model() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pretrain(&file(&[]), &options(first.path(), 2, false), &Silent).unwrap();
    let from = first.path().join("public").join(MODEL_FILE);
    let initial = format!("initial_model={}", from.display());
    let summary = pretrain(
        &file(&[&initial, "steps=1", "training.warm_up_steps=0"]),
        &options(second.path(), 1, false),
        &Silent,
    );
    assert!(summary.is_ok(), "{summary:?}");
    let loss_of = |line: &MetricsLine| match line {
        MetricsLine::Round(round) => round.train_loss,
        _ => None,
    };
    let lost = lines(second.path()).iter().find_map(loss_of).unwrap();
    let before = lines(first.path()).iter().find_map(loss_of).unwrap();
    assert!(lost < before - 0.3, "{lost} {before}");

    let third = tempfile::tempdir().unwrap();
    let other = file(&[&initial, "model.cells=17"]);
    let error = pretrain(&other, &options(third.path(), 1, false), &Silent).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("tensor `wx`: expected shape [8, 51], got [8, 48]"),
        "{error}"
    );
    // The failed start left no folder behind.
    assert!(!third.path().join("public").exists());
}

#[test]
fn a_rate_that_diverges_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let wild = file(&["training.learning_rate=1e30", "training.warm_up_steps=0"]);
    let error = pretrain(&wild, &options(folder.path(), 1, false), &Silent).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("training.learning_rate") || message.contains("the loss over"),
        "{message}"
    );
}

/// Each example comes once per epoch, in a different order each time, and in the same batch when asked again.
#[test]
fn epochs_are_shuffles_of_all_examples() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(&[]);
    let directory = RunDirectory::prepare(folder.path(), "order", false).unwrap();
    let corpus = directory
        .open_corpus(&file.config.data, &file.base, &Silent)
        .unwrap();
    let users = corpus.partition(Split::Train);
    let randomness = Randomness::seeded(1);
    let mut order = ExampleOrder::new(&users, 7).unwrap();
    let steps = users.num_examples().div_ceil(7) as u64;
    let mut epoch = |number: u64| -> Vec<&[u32]> {
        (number * steps..(number + 1) * steps)
            .flat_map(|step| order.batch(step, &randomness).examples)
            .collect()
    };
    let (first, second, again) = (epoch(0), epoch(1), epoch(0));
    assert_eq!(first, again);
    assert_ne!(first, second);
    let mut all: Vec<&[u32]> = users.users().flat_map(|user| user.examples()).collect();
    all.sort_unstable();
    for mut epoch in [first, second] {
        epoch.sort_unstable();
        assert_eq!(epoch, all);
    }
}
