//! Releases: their noise, their arithmetic, their refusals. What resumes is in `resume_tests`.

use crate::testing::{at_least, says, with_threads};
use undertone_accounting::{Delta, Epsilon, Event, NoiseMultiplier};

use super::correlated::{CorrelatedGaussian, ReleaseShape};
use super::rounded::Rounded;
use super::{Mechanism, slack};
use crate::error::MechanismError;
use crate::recurrence::Recurrence;
use crate::release::{Denominator, RawAverage, RawSum};
use crate::sampler::uniform::NoiseKey;
use crate::strategy::Strategy;
use crate::strategy::banded::Banded;
use crate::strategy::banded_toeplitz::BandedToeplitz;
use crate::strategy::blt::Blt;
use crate::strategy::identity::IdentityMatrix;
use crate::strategy::inverse_toeplitz::InverseToeplitz;
use crate::strategy::tree::Tree;
use crate::strategy::tree_full::{TreeFull, TreeLayout};
use crate::stream::engine::History;
use crate::stream::program::RecurrenceProgram;
use crate::stream::reference::{SAMPLE_ROUNDS, check_covariance, matrix, samples};

pub(super) const BLOCK: usize = crate::sampler::fresh::BLOCK;

/// Grid steps of one standard deviation.
const STEPS: f64 = (1u64 << 34) as f64;

pub(super) fn key() -> NoiseKey {
    NoiseKey::from_bytes([3; 32])
}

fn rounded(recurrence: &Recurrence, rounds: usize, dim: usize, history: Option<History>) -> Option<Rounded> {
    let program = RecurrenceProgram::new(recurrence, rounds).unwrap();
    let bits = slack::bound(&program, rounds, STEPS).unwrap().fraction_bits;
    Rounded::new(program, rounds, dim, STEPS, bits, history).ok()
}

fn advance(rounded: &mut Rounded, round: usize, values: &mut [i64]) {
    rounded.advance(round, &key(), 0, values).unwrap();
}

fn noise(rounded: &mut Rounded, dim: usize, rounds: std::ops::Range<usize>) -> Vec<Vec<i64>> {
    rounds
        .map(|round| {
            let mut values = vec![0; dim];
            advance(rounded, round, &mut values);
            values
        })
        .collect()
}

/// Every recurrence, with its history kept and made again where that is possible.
fn each(mut test: impl FnMut(&str, &Recurrence, Option<History>)) {
    for (name, recurrence) in samples() {
        for history in [None, Some(History::Keep), Some(History::Remake)] {
            if rounded(&recurrence, 1, 1, history).is_some() {
                test(name, &recurrence, history);
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn noise_is_that_of_the_matrix_up_to_rounding() {
    let dim = 30;
    let identity = RecurrenceProgram::new(&Recurrence::Identity, 2 * SAMPLE_ROUNDS).unwrap();
    let mut identity = Rounded::new(identity, 2 * SAMPLE_ROUNDS, dim, STEPS, 0, None).unwrap();
    let z = noise(&mut identity, dim, 0..2 * SAMPLE_ROUNDS);
    each(|name, recurrence, history| {
        let mut rounded = rounded(recurrence, SAMPLE_ROUNDS, dim, history).unwrap();
        let noise = noise(&mut rounded, dim, 0..SAMPLE_ROUNDS);
        for (t, (weights, noise)) in matrix(recurrence, SAMPLE_ROUNDS).iter().zip(&noise).enumerate() {
            for c in 0..dim {
                let exact: f64 = weights
                    .iter()
                    .zip(&z)
                    .map(|(weight, z)| weight * z[c] as f64)
                    .sum();
                let error = (noise[c] as f64 - exact).abs();
                assert!(error < 12.0, "{name}, {history:?}, round {t}: {error} steps");
            }
        }
    });
}

#[test]
fn averages_pass_through_exactly() {
    each(|name, recurrence, history| {
        let dim = 50;
        let mut plain = rounded(recurrence, 20, dim, history).unwrap();
        let mut moved = rounded(recurrence, 20, dim, history).unwrap();
        for (round, plain) in noise(&mut plain, dim, 0..20).into_iter().enumerate() {
            let average = |c: usize| (c as i64 - 20) * (1 << 50) + round as i64;
            let mut values: Vec<i64> = (0..dim).map(average).collect();
            advance(&mut moved, round, &mut values);
            let rest: Vec<i64> = values
                .iter()
                .enumerate()
                .map(|(c, value)| value - average(c))
                .collect();
            assert_eq!(rest, plain, "{name}, {history:?}");
        }
    });
}

#[test]
#[ignore = "slow"]
fn integers_do_not_depend_on_threads_or_memory() {
    for (name, recurrence) in samples() {
        let dim = 2 * BLOCK + 99;
        let run = |threads: usize, history| {
            let mut rounded = rounded(&recurrence, 18, dim, history)?;
            Some(with_threads(threads, || noise(&mut rounded, dim, 0..18)))
        };
        let one = run(1, None);
        assert!(one == run(2, None) && one == run(3, None), "{name}");
        assert!(one == run(2, Some(History::Keep)), "{name}");
        if let remade @ Some(_) = run(1, Some(History::Remake)) {
            assert!(one == remade, "{name}");
        }
    }
}

#[test]
fn covariance_over_rounds_is_that_of_the_matrix() {
    let (rounds, dim) = (8, 40_000);
    for (name, recurrence) in samples() {
        let mut rounded = rounded(&recurrence, rounds, dim, None).unwrap();
        let standard = |row: Vec<i64>| row.into_iter().map(|steps| steps as f64 / STEPS).collect();
        let noise = noise(&mut rounded, dim, 0..rounds);
        let noise: Vec<Vec<f64>> = noise.into_iter().map(standard).collect();
        check_covariance(name, &recurrence, &noise);
    }
}

pub(super) fn mechanism(strategy: Strategy, rounds: usize) -> Mechanism {
    let schema = at_least(8, 3);
    Mechanism::new(strategy, rounds, schema, NoiseMultiplier::new(4.0).unwrap()).unwrap()
}

pub(super) fn strategies() -> Vec<Strategy> {
    let rows = (0..24)
        .flat_map(|t: usize| if t == 0 { vec![0.8] } else { vec![0.6, 0.8] })
        .collect();
    vec![
        Strategy::Independent(IdentityMatrix),
        Strategy::Tree(Tree::new()),
        Strategy::Tree(Tree::with_restarts(8, 8).unwrap()),
        Strategy::TreeFull(TreeFull::new(24, TreeLayout::CompleteNodes).unwrap()),
        Strategy::Blt(Blt::new(&[0.99, 0.7], &[0.1, 0.3]).unwrap()),
        Strategy::BandedToeplitz(BandedToeplitz::fhu(6).unwrap()),
        Strategy::Banded(Banded::new(24, 2, rows).unwrap()),
        Strategy::InverseToeplitz(InverseToeplitz::square_root(4).unwrap()),
    ]
}

pub(super) fn shape(dim: usize) -> ReleaseShape {
    ReleaseShape {
        dim,
        clip_norm: 0.01,
        denominator: Denominator::Fixed(100.0),
        history: None,
    }
}

pub(super) fn releases(strategy: Strategy, dim: usize) -> CorrelatedGaussian {
    CorrelatedGaussian::new(mechanism(strategy, 24), shape(dim), key()).unwrap()
}

pub(super) fn average(dim: usize, denominator: f64) -> RawAverage {
    RawSum::new(vec![1 << 40; dim], 0)
        .average(Denominator::Fixed(denominator))
        .unwrap()
}

pub(super) fn values(releases: &mut CorrelatedGaussian, rounds: std::ops::Range<u64>) -> Vec<Vec<f32>> {
    let dim = releases.shape.dim;
    rounds
        .map(|round| {
            releases
                .privatize(round, average(dim, 100.0))
                .unwrap()
                .into_values()
        })
        .collect()
}

#[test]
fn rounds_come_once_and_in_order() {
    let mut releases = releases(Strategy::Tree(Tree::new()), 3);
    let check = |releases: &mut CorrelatedGaussian, round, average, expected: MechanismError| {
        assert_eq!(releases.privatize(round, average).unwrap_err(), expected);
    };
    let wrong = |expected, got| MechanismError::WrongRound { expected, got };
    check(&mut releases, 1, average(3, 100.0), wrong(0, 1));
    let first = values(&mut releases, 0..1);
    check(&mut releases, 0, average(3, 100.0), wrong(1, 0));
    let wrong_dimension = MechanismError::WrongDimension { expected: 3, got: 4 };
    check(&mut releases, 1, average(4, 100.0), wrong_dimension);
    let observed = RawSum::new(vec![0; 3], 1 << 40)
        .average(Denominator::ObservedWeight)
        .unwrap();
    check(&mut releases, 1, observed, MechanismError::UnboundedSensitivity);
    for other in [
        average(3, 99.0),
        RawSum::new(vec![0; 3], 1 << 40)
            .average(Denominator::FlooredWeight(100.0))
            .unwrap(),
    ] {
        let error = releases.privatize(1, other).unwrap_err();
        assert!(matches!(error, MechanismError::WrongGrid { .. }), "{error}");
    }
    // Nothing of that touched the noise.
    let rest = values(&mut releases, 1..24);
    let mut undisturbed = self::releases(Strategy::Tree(Tree::new()), 3);
    assert_eq!([first, rest].concat(), values(&mut undisturbed, 0..24));
    let finished = MechanismError::NoMoreRounds { rounds: 24 };
    check(&mut releases, 24, average(3, 100.0), finished);
}

/// The success of a round never depends on a value: a sum at the end of the range is released as the end of the range.
#[test]
fn an_overflow_saturates_and_the_run_goes_on() {
    for value in [i64::MAX, i64::MIN] {
        let mut releases = releases(Strategy::Blt(Blt::new(&[0.9], &[0.3]).unwrap()), 64);
        let sum = RawSum::new(vec![value; 64], 0)
            .average(Denominator::Fixed(100.0))
            .unwrap();
        let released = releases.privatize(0, sum).unwrap();
        let end = (value as f64 * f64::exp2(-40.0) / 100.0) as f32;
        let at_the_end = released.values().iter().filter(|&&value| value == end).count();
        assert!(at_the_end > 10, "{at_the_end}");
        releases.privatize(1, average(64, 100.0)).unwrap();
    }
}

#[test]
fn shapes_are_checked() {
    let (fixed, floored) = (Denominator::Fixed, Denominator::FlooredWeight);
    for (clip_norm, denominator, expected) in [
        (0.01, fixed(100.0), "ok"),
        (0.01, floored(9.0), "ok"),
        (0.01, Denominator::ObservedWeight, "no bound on its sensitivity"),
        (0.01, fixed(0.0), "denominator must be positive"),
        (0.01, floored(f64::NAN), "denominator must be positive"),
        (-0.01, fixed(1.0), "clip_norm must be positive"),
        (f64::NAN, fixed(1.0), "clip_norm must be positive"),
        (1e-11, fixed(1.0), "too small for the fixed-point grid"),
        (1e4, fixed(1.0), "too large for the fixed-point grid"),
    ] {
        let shape = ReleaseShape {
            clip_norm,
            denominator,
            ..shape(5)
        };
        let tree = mechanism(Strategy::Tree(Tree::new()), 24);
        says(CorrelatedGaussian::new(tree, shape, key()), expected);
    }
    let remake = ReleaseShape {
        history: Some(History::Remake),
        ..shape(5)
    };
    let blt = mechanism(Strategy::Blt(Blt::new(&[0.9], &[0.3]).unwrap()), 24);
    let error = CorrelatedGaussian::new(blt, remake, key()).unwrap_err();
    assert_eq!(error, MechanismError::HistoryNotRemade);
}

fn squared(event: &Event) -> f64 {
    match event {
        Event::CorrelatedGaussian {
            sensitivity_squared, ..
        } => *sensitivity_squared,
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_count_what_rounding_adds() {
    for strategy in strategies() {
        let exact = matches!(&strategy, Strategy::Independent(_) | Strategy::Tree(_));
        let name = strategy.name();
        let small = releases(strategy.clone(), 100);
        assert_eq!(small.rounding_slack() == 0.0, exact, "{name}");
        let ideal = squared(&small.mechanism().event()).sqrt();
        let added = |releases: &CorrelatedGaussian| squared(&releases.event()).sqrt() / ideal - 1.0;
        assert!(
            added(&small) >= slack::MARGIN && added(&small) < 1e-7,
            "{name}: {}",
            added(&small)
        );
        // The slack is a norm over coordinates: a hundred times as many have ten times of it.
        let large = releases(strategy.clone(), 10_000);
        let ratio = large.rounding_slack() / small.rounding_slack();
        assert!(exact || (ratio - 10.0).abs() < 1e-9, "{name}: {ratio}");
        let floored = ReleaseShape {
            denominator: Denominator::FlooredWeight(100.0),
            ..shape(10_000)
        };
        let floored = CorrelatedGaussian::new(mechanism(strategy, 24), floored, key()).unwrap();
        let truncation = 100.0 * 0.5f64.powi(40) / 0.01;
        assert!(added(&floored) > truncation, "{name}: {}", added(&floored));
        assert!(floored.rounding_slack() <= 200.0 * large.rounding_slack());
    }
}

#[test]
fn slack_is_small_at_full_size() {
    // A phone model over 2000 rounds: what the roundings add to the sensitivity is some parts in a million at most.
    let blt = Strategy::Blt(Blt::new(&[0.999_999, 0.99, 0.9, 0.5], &[0.03, 0.06, 0.12, 0.25]).unwrap());
    let program = RecurrenceProgram::new(&blt.recurrence(2000).unwrap(), 2000).unwrap();
    let clip_steps = (1u64 << 40) as f64;
    for noise_multiplier in [0.5, 7.0, 100.0] {
        let slack = slack::bound(&program, 2000, noise_multiplier * clip_steps).unwrap();
        let relative = (6.4e6 * slack.squared_per_coordinate).sqrt() / clip_steps;
        assert!(
            relative < 1e-6 + 2e-8 * noise_multiplier,
            "{noise_multiplier}: {relative}"
        );
    }
}

#[test]
fn guarantees_count_the_sampler() {
    let releases = releases(Strategy::Tree(Tree::new()), 1000);
    let delta = Delta::new(1e-9).unwrap();
    let ideal = releases.mechanism().guarantee(delta).unwrap();
    let real = releases.guarantee(delta).unwrap();
    assert!(real.epsilon >= ideal.epsilon && real.epsilon.get() < ideal.epsilon.get() * (1.0 + 1e-6));
    assert_eq!(real.delta, delta);
    let none = Epsilon::new(0.0).unwrap();
    assert!(releases.sampler_delta(none) > 0.0 && releases.sampler_delta(none) < 1e-18);
    let tiny = Delta::new(1e-300).unwrap();
    let error = releases.guarantee(tiny).unwrap_err();
    assert!(
        matches!(error, MechanismError::SamplerExceedsDelta { .. }),
        "{error}"
    );
}
