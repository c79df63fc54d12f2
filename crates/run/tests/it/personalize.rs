//! Personalisation against one gradient step by hand.

use undertone_data::{EosTargets, Partition, SpecialIds, Split};
use undertone_local::batch;
use undertone_models::{SequenceWorker, StateMode};
use undertone_run::Silent;
use undertone_run::personalize::{PersonalizeOptions, personalize};
use undertone_run_directory::config::EvaluationSplit;

use crate::support::{World, config, train};

/// Mean loss over all targets, EOS among them.
fn loss(worker: &mut dyn SequenceWorker, parameters: &[f32], examples: &[&[u32]]) -> f64 {
    let (mut total, mut targets) = (0.0, 0);
    for example in examples {
        let packed = batch::sentences(&[example], 1, SpecialIds::WORDS.bos);
        let batch = packed[0].batch();
        worker
            .evaluate(
                parameters,
                &batch,
                StateMode::Zero,
                &mut |row, logits, normaliser| {
                    total += f64::from(normaliser) - f64::from(logits[batch.targets[row] as usize]);
                    targets += 1;
                },
            )
            .expect("a loss");
    }
    total / f64::from(targets)
}

#[test]
#[ignore = "slow"]
fn one_epoch_in_one_batch_is_one_gradient_step() {
    let config = config(&["rounds=2", "evaluation.max_tokens=200"]);
    let (_out, summary) = train(&config, 1);
    let options = PersonalizeOptions {
        split: EvaluationSplit::Test,
        max_users: None,
        epochs: 1,
        batch_size: 1000,
        learning_rate: 0.5,
        eos: EosTargets::Included,
        threads: 2,
    };
    let done = personalize(&summary.run_dir, None, &options, &Silent).expect("personalised");

    let world = World::new(&config);
    let start = world.parameters(&summary.run_dir);
    let users: Partition<'_> = world.corpus.partition(Split::Test);
    let max = users.users().map(|user| user.num_examples()).max().unwrap_or(0);
    let longest = undertone_run::longest_example(&users);
    let mut worker = world.model.worker(max, max * longest);
    let mut expected = Vec::new();
    for user in users.users().filter(|user| user.num_examples() > 1) {
        let own: Vec<&[u32]> = user.examples().collect();
        let (past, rest) = own.split_at(own.len() / 2);
        let mut gradient = vec![0.0; start.len()];
        worker
            .gradient(
                &start,
                &batch::sentences(past, past.len(), SpecialIds::WORDS.bos)[0].batch(),
                &mut gradient,
            )
            .expect("a gradient");
        let mut moved: Vec<f32> = start.iter().zip(&gradient).map(|(p, g)| p - 0.5 * g).collect();
        world.model.constrain(&mut moved);
        expected.push((
            loss(worker.as_mut(), &start, rest),
            loss(worker.as_mut(), &moved, rest),
        ));
    }
    assert!(expected.len() > 1);
    assert_eq!((done.users, done.diverged), (expected.len(), 0));
    assert_eq!(done.users + done.too_small, users.num_users());
    let mean = |of: fn(&(f64, f64)) -> f64| expected.iter().map(of).sum::<f64>() / expected.len() as f64;
    assert!((done.loss.before - mean(|pair| pair.0)).abs() < 1e-5);
    assert!((done.loss.after - mean(|pair| pair.1)).abs() < 1e-5);
    assert!(done.loss.after != done.loss.before);
    let better = expected.iter().filter(|pair| pair.1 < pair.0).count() as f64 / expected.len() as f64;
    assert!((done.loss.improved - better).abs() < 1e-12);
    let mut deltas: Vec<f64> = expected.iter().map(|pair| pair.1 - pair.0).collect();
    deltas.sort_by(f64::total_cmp);
    for (got, want) in done.loss_deltas.iter().zip(&deltas) {
        assert!((got - want).abs() < 1e-4, "{got} {want}");
    }
}
