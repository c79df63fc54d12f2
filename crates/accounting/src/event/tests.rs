use super::*;
use crate::{Delta, Epsilon, Rho};

/// One event of each kind. The compiler asks for a new kind in [`place`], which the test then misses here.
fn one_of_each() -> Vec<Event> {
    let noise_multiplier = NoiseMultiplier::new(1.0).unwrap();
    let sampling_probability = SamplingProbability::new(0.5).unwrap();
    let epsilon = Epsilon::new(1.0).unwrap();
    let laplace = Event::Laplace { scale: 1.0 };
    vec![
        Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        },
        Event::Gaussian { noise_multiplier },
        Event::FixedSizeGaussian {
            population: 10,
            cohort_size: 5,
            noise_multiplier,
        },
        Event::TruncatedPoissonGaussian {
            population: 10,
            sampling_probability,
            max_cohort_size: 5,
            noise_multiplier,
        },
        Event::MixtureOfGaussians {
            noise_multiplier,
            sensitivities: vec![0.0, 1.0],
            probabilities: vec![0.5, 0.5],
        },
        Event::ExampleLevelSampling {
            group_size: 2,
            sampling_probability,
            noise_multiplier,
        },
        Event::CorrelatedGaussian {
            sensitivity_squared: 2.0,
            noise_multiplier,
        },
        laplace.clone(),
        Event::DiscreteLaplace {
            parameter: 1.0,
            sensitivity: 1,
        },
        Event::DiscreteGaussian {
            sigma: 1.0,
            sensitivity: 1,
        },
        Event::RandomizedResponse {
            num_buckets: 2,
            noise_parameter: 0.5,
        },
        Event::Binomial {
            trials: 100,
            success_probability: 0.5,
            shift: 1,
        },
        Event::PoissonSampled {
            sampling_probability,
            event: Box::new(laplace.clone()),
        },
        Event::DistributedDiscreteGaussian {
            clip_norm: 1.0,
            granularity: 0.01,
            dimension: 10,
            conditional_beta: 0.0,
            local_stddev: 1.0,
            clients: 10,
        },
        Event::Skellam {
            clip_norm: 1.0,
            granularity: 0.01,
            dimension: 10,
            conditional_beta: 0.0,
            central_stddev: 1.0,
        },
        Event::ZeroConcentrated {
            rho: Rho::new(1.0).unwrap(),
            xi: 0.0,
        },
        Event::BoundedRange { epsilon },
        Event::ApproximateDp {
            epsilon,
            delta: Some(Delta::new(1e-6).unwrap()),
        },
        Event::RepeatAndSelect {
            event: Box::new(laplace),
            repetitions: Repetitions::Poisson { mean: 3.0 },
        },
        Event::NonPrivate,
    ]
}

/// The place of an event in [`one_of_each`].
fn place(event: &Event) -> usize {
    match event {
        Event::PoissonGaussian { .. } => 0,
        Event::Gaussian { .. } => 1,
        Event::FixedSizeGaussian { .. } => 2,
        Event::TruncatedPoissonGaussian { .. } => 3,
        Event::MixtureOfGaussians { .. } => 4,
        Event::ExampleLevelSampling { .. } => 5,
        Event::CorrelatedGaussian { .. } => 6,
        Event::Laplace { .. } => 7,
        Event::DiscreteLaplace { .. } => 8,
        Event::DiscreteGaussian { .. } => 9,
        Event::RandomizedResponse { .. } => 10,
        Event::Binomial { .. } => 11,
        Event::PoissonSampled { .. } => 12,
        Event::DistributedDiscreteGaussian { .. } => 13,
        Event::Skellam { .. } => 14,
        Event::ZeroConcentrated { .. } => 15,
        Event::BoundedRange { .. } => 16,
        Event::ApproximateDp { .. } => 17,
        Event::RepeatAndSelect { .. } => 18,
        Event::NonPrivate => 19,
    }
}

/// Two kinds with one number in their keys could be merged, and the second would cost what the first does.
#[test]
fn each_kind_of_event_has_its_place() {
    let all = one_of_each();
    let places: Vec<usize> = all.iter().map(place).collect();
    assert_eq!(places, (0..all.len()).collect::<Vec<_>>());
    let (mut numbers, mut kinds) = (Vec::new(), Vec::new());
    for event in &all {
        event
            .validate()
            .unwrap_or_else(|error| panic!("{}: {error}", event.kind()));
        let mut key = Vec::new();
        event.key(&mut key);
        numbers.push(key[0]);
        kinds.push(event.kind());
        if let Some(adjacency) = event.adjacency() {
            assert!(event.supports(adjacency), "{}", event.kind());
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), all.len());
}
