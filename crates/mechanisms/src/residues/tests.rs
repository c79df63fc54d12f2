//! Noise modulo a number, by enumeration: why the memory of a mechanism stays unreduced, and why noise comes before lifting.
//!
//! One coordinate, modulus `Q`, exact joint probabilities of what leaves in two rounds. Fresh draws are rounded Gaussians of standard
//! deviation 6, cut at 9 of them (which leaves out less than 3e-19); the noise is `n1 = k1` and `n2 = k2 - round(w k1)` with
//! `w = 0.5`, so that `C = [[1, 0], [w, 1]]`. The others choose their second residue by the first release.

use std::collections::BTreeMap;

use undertone_accounting::{Delta, Epsilon, Event, NoiseMultiplier};

use crate::{
    CorrelatedGaussian, Denominator, IndependentGaussian, Mechanism, NoiseKey, RawResidues, ReleaseShape,
    Strategy, Tree,
};

const SIGMA: f64 = 6.0;
const REACH: i64 = 54;
const W: f64 = 0.5;

/// The probability of each pair of releases.
type Law = BTreeMap<(i64, i64), f64>;

/// The probability of each rounded Gaussian.
fn draws() -> Vec<(i64, f64)> {
    let cumulative = |x: f64| 0.5 * libm::erfc(-x / (SIGMA * 2f64.sqrt()));
    let weight = |k: i64| {
        // By the tail that is small, so that no digits are lost.
        let k = k.unsigned_abs() as f64;
        cumulative(0.5 - k) - cumulative(-0.5 - k)
    };
    (-REACH..=REACH).map(|k| (k, weight(k))).collect()
}

/// The law of what leaves, for two honest integers.
fn law(releases: impl Fn(i64, i64) -> (i64, i64)) -> Law {
    let draws = draws();
    let mut law = Law::new();
    for &(k1, p1) in &draws {
        for &(k2, p2) in &draws {
            *law.entry(releases(k1, k2)).or_default() += p1 * p2;
        }
    }
    law
}

/// The larger hockey-stick divergence of two laws.
fn delta(one: &Law, other: &Law, epsilon: f64) -> f64 {
    let above = |p: &Law, q: &Law| -> f64 {
        p.iter()
            .map(|(key, p)| (p - epsilon.exp() * q.get(key).copied().unwrap_or(0.0)).max(0.0))
            .sum()
    };
    above(one, other).max(above(other, one))
}

/// Delta of the Gaussian mechanism at the sensitivity of two inputs, with 1 for the roundings.
fn bound(x: (f64, f64), epsilon: f64) -> f64 {
    let moved = (x.0.powi(2) + (W * x.0 + x.1).powi(2)).sqrt() + 1.0;
    let mu = moved / SIGMA;
    let phi = |x: f64| 0.5 * libm::erfc(-x / 2f64.sqrt());
    phi(mu / 2.0 - epsilon / mu) - epsilon.exp() * phi(-mu / 2.0 - epsilon / mu)
}

fn centred(value: i64, q: i64) -> i64 {
    (value + q / 2).rem_euclid(q) - q / 2
}

/// Two rounds with noise modulo `q`, whose memory is the first row after `memory`.
fn modular(x: (i64, i64), q: i64, memory: impl Fn(i64) -> i64) -> Law {
    law(|k1, k2| {
        let y1 = (x.0 + k1).rem_euclid(q);
        let n2 = k2 - (W * memory(k1) as f64).round_ties_even() as i64;
        (y1, (x.1 + 7 * y1 + 3 + n2).rem_euclid(q))
    })
}

#[test]
fn a_reduced_memory_breaks_the_guarantee_and_an_unreduced_one_keeps_it() {
    let epsilon = 2.0;
    let bound = bound((1.0, 0.0), epsilon);
    assert!((1.1e-9..1.3e-9).contains(&bound), "{bound:e}");
    for (q, least, most) in [(48, 4.3e-5, 4.5e-5), (64, 1.1e-7, 1.3e-7)] {
        let unreduced = |x| modular(x, q, |n| n);
        let reduced = |x| modular(x, q, |n| centred(n, q));
        let kept = delta(&unreduced((1, 0)), &unreduced((0, 0)), epsilon);
        assert!(kept <= bound, "{q}: {kept:e} above {bound:e}");
        let broken = delta(&reduced((1, 0)), &reduced((0, 0)), epsilon);
        assert!((least..most).contains(&broken), "{q}: {broken:e}");
    }
}

/// The others always send a residue next to half the modulus. A server that lifts before it adds the noise then shows who took part.
#[test]
fn noise_after_lifting_breaks_the_guarantee_and_noise_before_keeps_it() {
    let (q, others) = (128, 128 / 2 - 1);
    let noise = |k1: i64, k2: i64| (k1, k2 - (W * k1 as f64).round_ties_even() as i64);
    let after = |x: (i64, i64)| {
        law(|k1, k2| {
            let (n1, n2) = noise(k1, k2);
            (centred(x.0 + others, q) + n1, centred(x.1 + others, q) + n2)
        })
    };
    let before = |x: (i64, i64)| {
        law(|k1, k2| {
            let (n1, n2) = noise(k1, k2);
            (centred(x.0 + others + n1, q), centred(x.1 + others + n2, q))
        })
    };
    for (epsilon, stated, kept) in [(1.0, 0.27, 0.20), (2.0, 0.10, 0.057), (4.0, 0.0041, 0.00085)] {
        let bound = bound((4.0, 4.0), epsilon);
        assert!((bound / stated - 1.0f64).abs() < 0.05, "{bound}");
        assert!(delta(&after((4, 4)), &after((0, 0)), epsilon) > 0.99);
        let found = delta(&before((4, 4)), &before((0, 0)), epsilon);
        assert!((found / kept - 1.0f64).abs() < 0.05 && found < bound, "{found}");
    }
}

fn mechanism(dim: usize, clip_norm: f64) -> CorrelatedGaussian {
    mechanism_over(dim, clip_norm, Denominator::WHOLE_STEPS)
}

fn mechanism_over(dim: usize, clip_norm: f64, denominator: Denominator) -> CorrelatedGaussian {
    let noise = NoiseMultiplier::new(2.0).unwrap();
    let schema = undertone_accounting::participation::Participation::single();
    let mechanism = Mechanism::new(Strategy::Tree(Tree::new()), 8, schema, noise).unwrap();
    let shape = ReleaseShape {
        dim,
        clip_norm,
        denominator,
        history: None,
    };
    CorrelatedGaussian::new(mechanism, shape, NoiseKey::from_bytes([5; 32])).unwrap()
}

/// With fixed noise, an honest change moves the release by exactly that change, whatever the others send: also a residue next to half
/// the modulus, where lifting first would move it by the whole modulus.
#[test]
fn an_honest_change_moves_the_release_by_itself_whatever_the_others_send() {
    const Q: u64 = (1 << 40) + 15;
    let change = [3u64, 0, Q - 5, 1];
    let add = |a: u64, b: u64| (a + b) % Q;
    for attack in [0, 1, Q / 2 - 1, Q / 2, Q / 2 + 1, Q - 1] {
        let honest = [7u64, Q / 2 - 2, 11, Q - 1];
        let sums = |change: &[u64; 4]| -> Vec<u64> {
            (0..4).map(|i| add(add(honest[i], change[i]), attack)).collect()
        };
        let (mut with, mut without) = (mechanism(4, 1e6), mechanism(4, 1e6));
        for round in 0..4 {
            let raw = |values| RawResidues::new(values, Q).unwrap();
            let one = with.privatize_residues(round, raw(sums(&change))).unwrap();
            let other = without.privatize_residues(round, raw(sums(&[0; 4]))).unwrap();
            let pairs = one.values().iter().zip(other.values());
            for ((one, other), change) in pairs.zip(change) {
                assert_eq!(*one, add(*other, change), "{attack}");
            }
            assert!(one.values() != sums(&change));
        }
        let independent = IndependentGaussian::new(1e6, NoiseKey::from_bytes([6; 32])).unwrap();
        let release = |values| {
            let raw = RawResidues::new(values, Q).unwrap();
            independent.privatize_residues(0, raw).unwrap()
        };
        let (one, other) = (release(sums(&change)), release(sums(&[0; 4])));
        let pairs = one.values().iter().zip(other.values());
        for ((one, other), change) in pairs.zip(change) {
            assert_eq!(*one, add(*other, change));
        }
    }
}

/// The noise of residues is the noise of averages on whole steps: reduced, and nothing else.
#[test]
fn residues_carry_the_noise_of_averages_in_whole_steps() {
    let q = 1u64 << 60;
    let (mut whole, mut modular) = (mechanism(1000, 1e6), mechanism(1000, 1e6));
    for round in 0..5 {
        let average = crate::RawSum::new(vec![0; 1000], 0)
            .average(Denominator::WHOLE_STEPS)
            .unwrap();
        let noise = whole.privatize(round, average).unwrap();
        let residues = modular
            .privatize_residues(round, RawResidues::new(vec![0; 1000], q).unwrap())
            .unwrap();
        assert_eq!(residues.noise_std(), 2e6);
        for (noise, &residue) in noise.values().iter().zip(residues.values()) {
            let lifted = if residue > q / 2 {
                residue as i64 - q as i64
            } else {
                residue as i64
            };
            assert_eq!(lifted as f32, *noise);
        }
    }
    let event = whole.event();
    assert!(matches!(event, Event::CorrelatedGaussian { .. }));
    let (epsilon, delta) = (Epsilon::new(1.0).unwrap(), Delta::new(1e-6).unwrap());
    assert!(whole.sampler_delta(epsilon) < delta.get());
}

#[test]
fn values_that_are_no_residues_and_grids_that_are_not_whole_are_refused() {
    assert!(RawResidues::new(vec![16], 16).is_err());
    assert!(RawResidues::new(vec![0], 1).is_err());
    assert!(RawResidues::new(vec![0], (1 << 62) + 1).is_err());
    let raw = |dim: usize| RawResidues::new(vec![0; dim], 16).unwrap();
    assert!(mechanism(4, 1e6).privatize_residues(0, raw(5)).is_err());
    assert!(mechanism(4, 1e6).privatize_residues(1, raw(4)).is_err());
    let mut averages = mechanism_over(4, 0.01, Denominator::Fixed(100.0));
    let error = averages.privatize_residues(0, raw(4)).unwrap_err().to_string();
    assert!(error.contains("in steps of"), "{error}");
}
