//! The update of a user and the release of a round, recomputed step by step.

use undertone_aggregation::{Clipping, NonFinite};
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::task::{EstimatorConfig, PrivacyConfig, TaskConfig};
use undertone_data::SpecialIds;
use undertone_local::{LocalError, LocalTask, batch};
use undertone_models::StateMode;

use crate::support::{Round, Start, config, norm};

/// One user's update in one batch and one epoch, so that the order of examples cannot matter.
fn single_step(changes: &[&str], clipping: &Clipping) -> (Vec<f32>, Vec<f32>) {
    let mut start = Start::new(config(changes));
    start.config.task.user_update.batch_size = Some(start.examples(0).len());
    let (_, update) = start
        .trained(&mut start.worker(), 0, &start.task(clipping))
        .expect("training");
    let gradient = start.gradient(&start.examples(0));
    (update, gradient.iter().map(|value| -0.5 * value).collect())
}

fn check_close(got: &[f32], expected: &[f32]) {
    let distance = norm(got.iter().zip(expected).map(|(a, b)| a - b));
    // Local parameters are f32 numbers around 0.3, so an update carries their rounding whatever its own size.
    let rounding = 0.3 * f64::from(f32::EPSILON) * (got.len() as f64).sqrt();
    let allowed = rounding + 2e-5 * norm(expected.iter().copied());
    assert!(distance <= allowed, "distance {distance}, allowed {allowed}");
}

#[test]
fn one_fedavg_step_is_a_gradient_step() {
    let (update, step) = single_step(&[], &Clipping::None);
    check_close(&update, &step);
}

#[test]
fn fedsgd_is_the_gradient_of_the_mean_over_all_tokens() {
    let (update, step) = single_step(&["user_update.algorithm=fedsgd"], &Clipping::None);
    check_close(&update, &step);
}

#[test]
fn a_clipped_update_is_the_scaled_one() {
    for algorithm in ["user_update.algorithm=fedavg", "user_update.algorithm=fedsgd"] {
        let (update, step) = single_step(&[algorithm], &Clipping::Flat { clip_norm: 0.01 });
        let scale = (0.01 / norm(step.iter().copied())) as f32;
        assert!(scale < 1.0);
        check_close(
            &update,
            &step.iter().map(|value| scale * value).collect::<Vec<_>>(),
        );
        assert!(norm(update) <= 0.01);
    }
}

/// Several local steps with a projection after each one, as Algorithm 1 has it; a projection at the end alone differs.
#[test]
fn fedavg_projects_after_every_step() {
    let mut start = Start::new(config(&["user_update.epochs=3"]));
    let users = start.world.users();
    // A user with one example has the same batches whatever the shuffle.
    let index = (0..users.num_users())
        .min_by_key(|&index| users.user(index).num_examples())
        .expect("a user");
    let clipping = Clipping::Flat { clip_norm: 0.1 };
    start.config.task.user_update.batch_size = Some(start.examples(index).len());
    let (_, update) = start
        .trained(&mut start.worker(), index, &start.task(&clipping))
        .expect("training");

    let (world, theta, examples) = (&start.world, &start.theta, start.examples(index));
    let all = batch::sentences(&examples, examples.len(), SpecialIds::WORDS.bos);
    let mut reference = world
        .model
        .worker(examples.len(), examples.len() * world.longest());
    let run = |projected: bool, reference: &mut dyn undertone_models::SequenceWorker| {
        let mut local = theta.clone();
        for _ in 0..3 {
            reference
                .sgd_step(&mut local, &all[0].batch(), 0.5, StateMode::Zero)
                .expect("a step");
            let length = norm(local.iter().zip(theta).map(|(a, b)| a - b));
            if projected && length > 0.1 {
                let scale = (0.1 / length) as f32;
                local
                    .iter_mut()
                    .zip(theta)
                    .for_each(|(a, b)| *a = b + scale * (*a - b));
            }
        }
        local.iter().zip(theta).map(|(a, b)| a - b).collect::<Vec<_>>()
    };
    let free = run(false, reference.as_mut());
    assert!(norm(free) > 0.1, "the clip norm is not reached");
    let expected = run(true, reference.as_mut());
    let distance = norm(update.iter().zip(&expected).map(|(a, b)| a - b));
    assert!(distance < 1e-4 * 0.1, "{distance}");
}

/// The released average is `sum w_k D_k` over the estimator's denominator, and noise of the planned size comes on top.
#[test]
fn a_round_releases_the_weighted_average() {
    let start = Start::new(config(&[
        "user_update.weight_cap=30.0",
        "estimator={kind='fixed_denominator',expected_weight=5.0}",
    ]));
    let (world, layout, users) = (&start.world, start.world.model.layout(), start.world.users());
    let clipping = Clipping::Flat { clip_norm: 0.3 };
    let cohort = [3, 8, 20, 31];
    let mut worker = start.worker();

    let mut sum = vec![0.0; layout.len()];
    let mut total = 0.0;
    for index in cohort {
        let (outcome, update) = start
            .trained(&mut worker, index, &start.task(&clipping))
            .expect("training");
        let expected = (users.user(index).num_examples() as f64 / 30.0).min(1.0);
        assert!((outcome.weight - expected).abs() < 1e-8);
        total += outcome.weight;
        sum.iter_mut()
            .zip(update)
            .for_each(|(sum, value)| *sum += outcome.weight * f64::from(value));
    }
    let released = |estimator: &EstimatorConfig, noise_std: f64| {
        let mut config = start.config.task.clone();
        config.estimator = *estimator;
        config.privacy = None;
        let round = |task: &TaskConfig| {
            let round = Round {
                world,
                task,
                theta: &start.theta,
                total_weight: 1000.0,
            };
            let (released, work) = round.released(&round.cohort(&cohort, None), 2);
            assert_eq!(work.parts, cohort.len());
            released
        };
        if noise_std == 0.0 {
            return round(&config);
        }
        // The noise multiplier of this noise, by the sensitivity that the plan states.
        let privacy = |z: f64| PrivacyConfig {
            noise_multiplier: Some(z),
            target_epsilon: None,
            delta: Some(1e-5),
            max_epsilon: None,
            accountant: None,
            mechanism: None,
        };
        config.privacy = Some(privacy(1.0));
        let population = Population {
            users: 60,
            total_weight: 1000.0,
        };
        let plan = PrivacyPlan::new(&config, None, layout, population).expect("a plan");
        config.privacy = Some(privacy(noise_std / plan.round(0).noise_std));
        round(&config)
    };
    let clipped = |min_weight| EstimatorConfig::ClippedDenominator { min_weight };
    let fixed = EstimatorConfig::FixedDenominator {
        expected_weight: Some(5.0),
    };
    // Of 60 users 12 are expected: a fifth of the lower bound on the population's weight is the floor of a round.
    for (estimator, denominator) in [
        (fixed, 5.0),
        (clipped(2.5), total.max(0.5)),
        (clipped(250.0), 50.0),
        (EstimatorConfig::Exact, total),
    ] {
        let expected: Vec<f32> = sum.iter().map(|value| (value / denominator) as f32).collect();
        check_close(&released(&estimator, 0.0), &expected);
        if estimator != EstimatorConfig::Exact {
            let noise = norm(
                released(&estimator, 0.25)
                    .iter()
                    .zip(&expected)
                    .map(|(a, b)| a - b),
            );
            // Chi-square with d degrees: the norm is 0.25 sqrt(d) within 5 deviations of 0.25 / sqrt(2) (rate 6e-7).
            let mean = 0.25 * (layout.len() as f64).sqrt();
            assert!(
                (noise - mean).abs() < 5.0 * 0.25 / 2f64.sqrt(),
                "{noise} against {mean}"
            );
        }
    }
}

/// One user's text cannot make a private run fail: a training that runs away contributes nothing.
#[test]
fn runaway_training_is_a_zero_update_or_an_error() {
    let start = Start::new(config(&[
        "user_update.learning_rate=1e30",
        "user_update.epochs=4",
    ]));
    let mut worker = start.worker();
    let clipping = Clipping::Flat { clip_norm: 1e29 };
    let mut train = |non_finite| {
        let task = LocalTask {
            non_finite,
            ..start.task(&clipping)
        };
        let (outcome, update) = start.trained(&mut worker, 0, &task)?;
        Ok::<_, LocalError>((outcome.discarded, norm(update)))
    };
    assert!(train(NonFinite::Refuse).is_err());
    assert_eq!(train(NonFinite::Zero).expect("a zero update"), (true, 0.0));
}
