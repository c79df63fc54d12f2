//! Runs whose users are trained by the kernels of a GPU, here on their emulator.

use undertone_run::{RunFile, Silent};
use undertone_run_directory::files::names::{LEDGER_FILE, METRICS_FILE, MODEL_FILE};

use crate::support::{
    bytes, changed, check_refusals, config, cut_and_resumed, holds, ledger, options, parsed, train,
};

/// A machine that trains so many users at once.
fn emulator(users: usize) -> String {
    format!("engine={{kind='emulator',users={users},precision='f32'}}")
}

#[test]
#[ignore = "slow"]
fn a_run_has_the_same_bytes_at_any_number_of_users_at_once_and_after_a_resume() {
    for changes in [
        &["checkpoint.every=2"][..],
        &[
            "checkpoint.every=2",
            "model={family='cifg',cells=9,embedding=6,projection=5}",
            "cohort.sampling=shuffled_epochs",
            "privacy.mechanism={kind='blt',buffers=2}",
            "user_update.clip_every_step=false",
            "user_update.batching=stream",
            "user_update.unroll=4",
        ],
        &[
            "checkpoint.every=2",
            "model={family='stackoverflow',embed=6,hidden=9}",
            "clip={kind='adaptive',initial_norm=0.3,bit_noise_std=6.0}",
            "privacy.mechanism={kind='tree',restarts={first=4,every=4}}",
            "cohort.sampling=shuffled_epochs",
            "user_update.clip_every_step=false",
        ],
    ] {
        let with = |users| {
            let engine = emulator(users);
            let changes: Vec<&str> = changes.iter().copied().chain([&engine[..]]).collect();
            config(&changes)
        };
        let (_few, few) = train(&with(3), 1);
        let (_many, many) = train(&with(40), 2);
        assert_eq!(
            bytes(&few.run_dir, MODEL_FILE),
            bytes(&many.run_dir, MODEL_FILE),
            "{changes:?}"
        );
        holds(&few.run_dir);
        holds(&many.run_dir);
        let (_resumed, resumed) = cut_and_resumed(&RunFile::new(with(3), "."), 5);
        for file in [MODEL_FILE, LEDGER_FILE] {
            assert_eq!(
                bytes(&few.run_dir, file),
                bytes(&resumed.run_dir, file),
                "{changes:?} {file}"
            );
        }
        holds(&resumed.run_dir);
    }
}

#[test]
#[ignore = "slow"]
fn the_cohorts_and_the_guarantee_are_those_of_the_processor_and_the_model_is_near_it() {
    let (_on_gpu, on_gpu) = train(&config(&[&emulator(8)]), 1);
    let (_processor, processor) = train(&config(&[]), 1);
    let privacy =
        |epsilon: &undertone_run::Summary| epsilon.privacy.observed.clone().map(|record| record.epsilon);
    assert_eq!(privacy(&on_gpu), privacy(&processor));
    let cohorts = |summary: &undertone_run::Summary| -> Vec<u64> {
        ledger(&summary.run_dir).iter().map(|entry| entry.round).collect()
    };
    assert_eq!(cohorts(&on_gpu), cohorts(&processor));
    assert_eq!(on_gpu.tokens, processor.tokens);
    // The same noise in both, so that only the rounding of local training differs.
    assert!(
        (on_gpu.metrics.perplexity - processor.metrics.perplexity).abs()
            < 1e-3 * processor.metrics.perplexity
    );
    let norms = |summary: &undertone_run::Summary| {
        String::from_utf8(bytes(&summary.run_dir, METRICS_FILE))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(norms(&on_gpu), norms(&processor));
}

#[test]
#[ignore = "slow"]
fn verification_finds_a_changed_machine() {
    let (_folder, summary) = train(&config(&[&emulator(8)]), 1);
    changed(&summary.run_dir, "config.toml", "emulator", "gpu", "config.toml");
}

#[test]
fn what_a_gpu_does_not_train_is_refused_by_its_key() {
    let refusal = |changes: &[&str]| {
        parsed(changes)
            .and_then(|config| Ok(config.validate()?))
            .unwrap_err()
            .to_string()
    };
    check_refusals(
        &[],
        "
        engine={kind='emulator',users=0}
        engine.users ... expected from 1 to 65535, got 0
        engine={kind='emulator',precision='bf16'}
        engine.precision ... expected `f32`, got bf16
        engine={kind='emulator',precision='f16'}
        `engine.precision`: expected one of \"f32\", \"bf16\", got \"f16\"
        engine={kind='gpu'} user_update={algorithm='fedsgd',batch_size=4,learning_rate=0.5}
        user_update.algorithm ... `fedavg` on a GPU, got fedsgd
        engine={kind='emulator'} cohort.sampling=fixed_size aggregation={sum='plain',encoding={kind='identity'},min_clients=2,max_clients=60}
        `aggregation` cannot be combined with `engine.kind`; remove one of them
        engine={kind='quantum'}
        `engine.kind`: expected one of \"processor\", \"gpu\", \"emulator\", got \"quantum\"
        ",
        refusal,
    );
    if cfg!(not(feature = "cuda")) {
        let folder = tempfile::tempdir().unwrap();
        let file = RunFile::new(config(&["engine={kind='gpu'}"]), ".");
        let error = undertone_run::train(&file, &options(folder.path()), &Silent).unwrap_err();
        assert!(
            error.to_string().contains("built without the feature `cuda`"),
            "{error}"
        );
    }
}

/// Version 0.2.0 trained them on a GPU, so their run files are read.
#[test]
fn a_transformer_on_a_gpu_is_read_and_refused_where_training_starts() {
    for (model, family) in [
        (
            "model={family='transformer',layers=1,width=8,heads=2,context=32}",
            "transformer",
        ),
        (
            "model={family='llama',layers=1,width=8,heads=2,key_heads=1,inner=12,context=32}",
            "llama",
        ),
    ] {
        let config = config(&[model, "engine={kind='emulator',precision='bf16'}"]);
        config.validate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = RunFile::new(config, ".");
        let error = undertone_run::train(&file, &options(folder.path()), &Silent).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "configuration key `model.family`: expected `dplm`, `stackoverflow` or `cifg` beside the table `engine`: leave out \
                 `engine`, and the processor trains this family; or train it on a GPU from PyTorch, as docs/guide/from-pytorch.md \
                 shows, got {family}"
            )
        );
        let begun: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert!(begun.is_empty(), "{begun:?}");
    }
}
