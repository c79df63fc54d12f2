//! Coverage and false alarms of the estimators on simulated audits with Gaussian scores, under fixed keys.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use undertone_accounting::audit::gaussian::Shift;
use undertone_accounting::audit::planning::{PowerAnalysis, expected_correct};
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_accounting::audit::{Guesses, Significance, noise, one_run, one_run_fdp};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, SamplingProbability};

const DELTA: f64 = 1e-5;

/// Standard normal values by the method of Box and Muller.
struct Normals(ChaCha20Rng);

impl Normals {
    fn new(key: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(key))
    }

    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) * f64::exp2(-53.0)
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn coin(&mut self) -> bool {
        self.0.next_u64() & 1 == 1
    }
}

/// Scores of canaries in and out, `mu` apart.
fn scores(canaries: u64, mu: f64, normals: &mut Normals) -> Vec<(bool, f64)> {
    let score = |_| {
        let member = normals.coin();
        (member, normals.normal() + if member { mu } else { 0.0 })
    };
    (0..canaries).map(score).collect()
}

/// The guesses of an attacker who knows `mu`: the `guesses` scores farthest from the middle.
fn guess(scores: &[(bool, f64)], mu: f64, guesses: u64) -> Guesses {
    let mut order: Vec<(f64, bool)> = scores
        .iter()
        .map(|&(member, score)| ((score - 0.5 * mu).abs(), (score > 0.5 * mu) == member))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let right = order[..guesses as usize]
        .iter()
        .filter(|(_, right)| *right)
        .count();
    Guesses::new(scores.len() as u64, guesses, right as u64).unwrap()
}

/// Bounds of each estimator over `audits` audits: any mechanism, f-DP, Gaussian limit.
fn bounds(claim: f64, canaries: u64, audits: u64) -> [Vec<f64>; 3] {
    let delta = Delta::new(DELTA).unwrap();
    let (mu, r_any, r_fdp) = match claim > 0.0 {
        true => {
            let plan = PowerAnalysis::new(
                canaries,
                Epsilon::new(claim).unwrap(),
                delta,
                Significance::REPORTED,
            )
            .unwrap();
            (plan.mu, plan.any.guesses, plan.fdp.guesses)
        }
        false => (0.0, canaries / 10, canaries / 5),
    };
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    for audit in 0..audits {
        let mut normals = Normals::new(1000 * audit + claim as u64);
        let scores = scores(canaries, mu, &mut normals);
        let of = |member| -> Vec<f64> {
            let chosen = scores.iter().filter(|(is, _)| *is == member);
            chosen.map(|(_, score)| *score).collect()
        };
        let any = one_run::epsilon(&guess(&scores, mu, r_any), Significance::REPORTED, DELTA).unwrap();
        let fdp_guesses = guess(&scores, mu, r_fdp);
        let fdp = one_run_fdp::epsilon_if_gaussian(&fdp_guesses, Significance::REPORTED, delta).unwrap();
        let (members, others) = (of(true), of(false));
        let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
        let shift = Shift {
            estimate: mean(&members) - mean(&others),
            standard_error: (1.0 / members.len() as f64 + 1.0 / others.len() as f64).sqrt(),
        };
        let limit = one_run_fdp::epsilon_of_mu(shift.lower(Significance::REPORTED), delta).unwrap();
        for (bounds, bound) in found.iter_mut().zip([any, fdp, limit]) {
            bounds.push(bound.get());
        }
    }
    found
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Each bound may exceed the truth in 5 % of audits. More than 20 of 200 have a probability of 0.0012 at that rate, so the twelve
/// checks alarm falsely with a probability below 0.015 over keys; the keys are fixed.
#[test]
#[ignore = "slow"]
fn bounds_exceed_the_truth_in_at_most_20_of_200_audits() {
    for claim in [0.0, 1.0, 4.0, 8.0] {
        for (estimator, bounds) in bounds(claim, 300, 200).iter().enumerate() {
            let above = bounds.iter().filter(|bound| **bound > claim).count();
            assert!(
                above <= 20,
                "estimator {estimator} at epsilon {claim}: {above} of 200"
            );
        }
    }
}

/// Acceptance 6 of the audit design: medians of 20 audits with 1,000 canaries, as fractions of the claim.
#[test]
fn medians_of_1000_canaries_reach_the_stated_fractions_of_the_claim() {
    for (claim, fractions) in [
        (1.0, [0.12, 0.2, 0.4]),
        (4.0, [0.3, 0.45, 0.75]),
        (8.0, [0.28, 0.5, 0.85]),
    ] {
        for (bounds, fraction) in bounds(claim, 1000, 20).iter().zip(fractions) {
            let reached = median(bounds);
            assert!(
                reached >= fraction * claim,
                "{claim}: {reached} is below {fraction}"
            );
        }
    }
}

/// The plan's expected bounds against medians of 101 simulated audits of another program, for 1,000 canaries. A median of that many
/// audits lies within about 10 % of the expected bound; the second number of a pair is the absolute margin.
#[test]
#[ignore = "slow"]
fn a_plan_expects_what_simulated_audits_show() {
    let delta = Delta::new(DELTA).unwrap();
    for (claim, any, fdp, gaussian) in [
        (1.0, 0.24, 0.35, 0.60),
        (2.0, 0.7, 1.0, 1.6),
        (4.0, 1.6, 2.2, 3.5),
        (8.0, 2.8, 4.6, 7.4),
    ] {
        let plan =
            PowerAnalysis::new(1000, Epsilon::new(claim).unwrap(), delta, Significance::REPORTED).unwrap();
        for (got, want) in [
            (plan.any.epsilon, any),
            (plan.fdp.epsilon, fdp),
            (plan.gaussian, gaussian),
        ] {
            assert!(
                (got - want).abs() <= 0.12 * want + 0.1,
                "epsilon {claim}: {got}, simulated {want}"
            );
        }
        assert!(plan.any.most >= plan.any.epsilon && plan.any.guesses >= plan.any.correct);
    }
    // The smallest error in the noise, as a closed form of the power of a normal test.
    for (epsilon, ratio) in [(1.0, 0.59), (2.0, 0.73), (4.0, 0.83), (8.0, 0.90)] {
        let plan = PowerAnalysis::new(
            1000,
            Epsilon::new(epsilon).unwrap(),
            delta,
            Significance::REPORTED,
        )
        .unwrap();
        assert!(
            (plan.smallest_ratio - ratio).abs() < 0.006,
            "{}",
            plan.smallest_ratio
        );
    }
    let most = Guesses::new(1000, 1000, 1000).unwrap();
    let cap = one_run::epsilon(&most, Significance::REPORTED, DELTA)
        .unwrap()
        .get();
    assert!((cap - 5.78).abs() < 0.005, "{cap}");
}

#[test]
fn expected_guesses_follow_the_normal_law() {
    // Without a signal every guess is a coin; with all canaries guessed the rate is Phi(mu / 2).
    assert_eq!(expected_correct(1000, 100, 0.0), 50);
    assert_eq!(expected_correct(100_000, 100_000, 2.0), 84_134);
}

/// Whitened values of canaries with secret coins, in and out, with steps of `a` and noise of `s`.
fn sampled_values(
    (q, examples): (f64, u32),
    (a, s): (f64, f64),
    count: usize,
    normals: &mut Normals,
) -> [Vec<f64>; 2] {
    let mut values = [Vec::new(), Vec::new()];
    for _ in 0..count {
        let inside = (0..examples).filter(|_| normals.uniform() < q).count();
        values[0].push(a * inside as f64 + s * normals.normal());
        values[1].push(s * normals.normal());
    }
    values
}

fn coins((q, examples): (f64, u32)) -> SecretCoins {
    let examples = std::num::NonZeroU32::new(examples).unwrap();
    SecretCoins::of_examples(SamplingProbability::new(q).unwrap(), examples)
}

/// The profile likelihood against its coverage: 200 audits at a true step of 1 / s, each above it with probability 0.05 at most. More than
/// 20 have probability 0.0012.
#[test]
#[ignore = "slow"]
fn the_profile_limit_covers_the_true_step() {
    for (law, s) in [((0.05, 1), 0.8), ((0.05, 1), 2.0), ((0.04, 6), 1.5)] {
        let (mut above, mut estimates) = (0, Vec::new());
        for audit in 0..200 {
            let mut normals = Normals::new(9_000 + audit);
            let [members, others] = sampled_values(law, (1.0, s), 1500, &mut normals);
            let step = coins(law)
                .step(&members, &others, Significance::REPORTED)
                .unwrap();
            assert!(step.lower <= step.estimate + 1e-3);
            assert!((step.noise / s - 1.0).abs() < 0.1, "{step:?}");
            above += usize::from(step.lower > 1.0 / s);
            estimates.push(step.estimate);
        }
        assert!(above <= 20, "{law:?}, s = {s}: {above} of 200");
        let middle = median(&estimates) * s;
        assert!((middle - 1.0).abs() < 0.15, "{law:?}, s = {s}: {middle}");
    }
}

/// Half of the noise raises the step to twice the stated one, and the limit follows.
#[test]
#[ignore = "slow"]
fn the_profile_limit_finds_half_the_noise() {
    for law in [(0.05, 1), (0.02, 4)] {
        let (coins, z) = (coins(law), 1.0);
        let mut normals = Normals::new(77);
        let [members, others] = sampled_values(law, (1.0, 0.5 * z), 20_000, &mut normals);
        let step = coins.step(&members, &others, Significance::REPORTED).unwrap();
        assert!(step.lower > 1.5 / z, "{law:?}: {step:?}");
        let delta = Delta::new(DELTA).unwrap();
        let shown = coins.epsilon(step.lower, 100, delta).unwrap().get();
        let claim = coins.epsilon(1.0 / z, 100, delta).unwrap().get();
        assert!(shown > claim, "{law:?}: {shown} {claim}");
    }
}

/// A scorer that sums the likelihood ratio over rounds tells in from out better than the sum of the values does.
#[test]
fn the_score_is_a_likelihood_ratio() {
    let z = NoiseMultiplier::new(0.5).unwrap();
    // The expected exponential under "out" is one: the ratio of two densities. Its variance is `sum w_b w_c e^(bc / z^2) - 1`, which is
    // q^2 (e^(1/z^2) - 1) = 0.0054 for one contribution. Five sigmas of the mean are the tolerance.
    for law in [(0.01, 1), (0.005, 2)] {
        let mut normals = Normals::new(5);
        let count = 400_000;
        let score = |y| coins(law).log_likelihood_ratio(z, [y]).exp();
        let mean = (0..count).map(|_| score(0.5 * normals.normal())).sum::<f64>() / f64::from(count);
        let (q, n) = law;
        let mass =
            |b: u32| [1.0, f64::from(n), 1.0][b as usize] * q.powi(b as i32) * (1.0 - q).powi((n - b) as i32);
        let masses = (0..=n).flat_map(|b| (0..=n).map(move |c| (b, c)));
        let square: f64 = masses
            .map(|(b, c)| mass(b) * mass(c) * (4.0 * f64::from(b * c)).exp())
            .sum();
        let tolerance = 5.0 * ((square - 1.0) / f64::from(count)).sqrt();
        assert!((mean - 1.0).abs() < tolerance, "{law:?}: {mean} {tolerance}");
    }
}

/// The score of several contributions against the densities themselves, also where an exponential would overflow.
#[test]
fn the_score_of_several_examples_is_that_of_the_densities() {
    let coins = coins((0.3, 3));
    for (z, y) in [(0.8, 1.7), (0.8, -2.0), (0.05, 2.1), (0.01, 3.0)] {
        let masses = [0.343f64, 0.441, 0.189, 0.027];
        let logs = (0..4).map(|b| {
            let b = f64::from(b);
            masses[b as usize].ln() - (y - b).powi(2) / (2.0 * z * z)
        });
        let logs: Vec<f64> = logs.collect();
        let largest = logs.iter().copied().fold(f64::MIN, f64::max);
        let inside = largest + logs.iter().map(|log| (log - largest).exp()).sum::<f64>().ln();
        let expected = inside + y * y / (2.0 * z * z);
        let got = coins.log_likelihood_ratio(NoiseMultiplier::new(z).unwrap(), [y]);
        assert!(
            (got - expected).abs() < 1e-9 * expected.abs().max(1.0),
            "{z} {y}: {got} {expected}"
        );
    }
}

/// 1,000 sets of clean noise: no test alarms at 1e-6, which has a probability below 0.007 in all over keys. With 2 % less noise the
/// variance test reports at 0.001 in more than 98 % of 200 sets of 51,200 values.
#[test]
#[ignore = "slow"]
fn noise_tests_are_quiet_on_clean_noise_and_find_two_percent() {
    for set in 0..1000 {
        let mut normals = Normals::new(40_000 + set);
        let values: Vec<f64> = (0..2_000).map(|_| normals.normal()).collect();
        let squares: Vec<f64> = values
            .chunks(100)
            .map(|row| row.iter().map(|y| y * y).sum::<f64>() / 100.0)
            .collect();
        let sizes: Vec<f64> = (0..20).map(|round| f64::from(round % 7)).collect();
        let tests = [
            noise::variance(&values).unwrap(),
            noise::shape(&values).unwrap(),
            noise::largest(&values).unwrap(),
            noise::lag(&values, 1).unwrap(),
            noise::mean(&values).unwrap(),
            noise::cohort(&squares, &sizes, 100).unwrap().unwrap(),
        ];
        for (index, test) in tests.iter().enumerate() {
            assert!(test.p > 1e-6, "set {set}, test {index}: {test:?}");
        }
    }
    let mut found = 0;
    for set in 0..200 {
        let mut normals = Normals::new(80_000 + set);
        let values: Vec<f64> = (0..51_200).map(|_| 0.98 * normals.normal()).collect();
        found += usize::from(noise::variance(&values).unwrap().p < 0.001);
    }
    assert!(found >= 196, "{found} of 200");
}

#[test]
fn noise_scaled_by_the_cohort_is_found() {
    let mut normals = Normals::new(3);
    let sizes: Vec<f64> = (0..200).map(|round| f64::from(20 + round % 21)).collect();
    let squares: Vec<f64> = sizes
        .iter()
        .map(|size| {
            (0..256)
                .map(|_| (size / 30.0 * normals.normal()).powi(2))
                .sum::<f64>()
                / 256.0
        })
        .collect();
    let found = noise::cohort(&squares, &sizes, 256).unwrap().unwrap();
    assert!(found.p < 1e-12, "{found:?}");
    // Cohorts of one size say nothing.
    assert_eq!(noise::cohort(&squares, &[5.0; 200], 256).unwrap(), None);
}

/// Holm's correction against its definition on a textbook example.
#[test]
fn holm_corrects_step_by_step() {
    let adjusted = noise::holm(&[0.01, 0.04, 0.03, 0.005]);
    for (got, want) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!((got - want).abs() < 1e-15, "{adjusted:?}");
    }
}

#[test]
fn bad_input_is_named() {
    let named = |error: undertone_accounting::AccountingError| error.to_string();
    assert!(named(Guesses::new(10, 11, 0).unwrap_err()).starts_with("guesses: expected"));
    assert!(named(Guesses::new(10, 5, 6).unwrap_err()).starts_with("correct: expected"));
    assert!(named(Significance::new(0.0).unwrap_err()).starts_with("significance: expected"));
    assert!(named(noise::variance(&[]).unwrap_err()).starts_with("whitened values: expected"));
    assert!(named(noise::variance(&[f64::NAN]).unwrap_err()).starts_with("whitened value: expected"));
    let guesses = Guesses::new(10, 5, 5).unwrap();
    assert!(named(one_run::p_value(&guesses, f64::NAN, 0.0).unwrap_err()).starts_with("epsilon: expected"));
    assert!(
        named(one_run::epsilon(&guesses, Significance::REPORTED, 1.0).unwrap_err())
            .starts_with("delta: expected")
    );
}
