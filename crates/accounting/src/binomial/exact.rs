//! The exact divergence between `Bin(N, p)` and its translate, in one dimension.
//!
//! Nothing is enumerated that does not matter: the loss is monotone in the outcome, so a divergence is one
//! run of outcomes that ends where what is left is below one part in 10^18.

use super::probability::Binomial;
use super::success_probability;
use crate::discrete::{
    Descent, Outcomes, at_least_one, finite_epsilon, log_tail_mass, mass_rounded_up, outcome_count,
};
use crate::error::ensure;
use crate::{AccountingError, Delta, Epsilon};

/// More trials than this are refused: sums over tens of standard deviations would take seconds.
const MAX_TRIALS: u64 = 1 << 40;

/// Mass that may be left out of a sum, relative to the sum, in nats.
const NEGLIGIBLE: f64 = -42.0;

/// Binomial noise on one integer that a neighbour moves by `shift` units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShiftedBinomial {
    trials: u64,
    success_probability: f64,
    shift: u64,
}

impl ShiftedBinomial {
    /// Validates the parameters. `shift` is the sensitivity in units of the noise quantum (`Delta / s`,
    /// rounded up).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `trials` is not in `[1, 2^40]`, `success_probability` not in `(0,
    /// 1)`, or `shift` is 0.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Delta, binomial::exact::ShiftedBinomial};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mechanism = ShiftedBinomial::new(2000, 0.5, 1)?;
    /// let epsilon = mechanism.epsilon(Delta::new(1e-6)?)?;
    /// assert_eq!(format!("{epsilon:.4}"), "0.1683"); // Theorem 1 of [cpSGD] gives 0.6375
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(trials: u64, success_probability: f64, shift: u64) -> Result<Self, AccountingError> {
        at_least_one("trials", trials)?;
        at_least_one("shift", shift)?;
        self::success_probability(success_probability)?;
        let holds = trials <= MAX_TRIALS;
        ensure(holds, "trials", "at most 2^40 trials", trials as f64)?;
        Ok(Self {
            trials,
            success_probability,
            // Further apart than this, no outcome is shared either.
            shift: shift.min(trials + 1),
        })
    }

    /// Smallest delta at `epsilon`, the larger of the two directions; outcomes that only one neighbour can
    /// produce are counted.
    #[must_use]
    pub fn delta(&self, epsilon: Epsilon) -> f64 {
        self.log_delta(epsilon).exp()
    }

    /// `ln` of [`ShiftedBinomial::delta`]; stays finite far below the smallest `f64`.
    #[must_use]
    pub(crate) fn log_delta(&self, epsilon: Epsilon) -> f64 {
        let one_way = |binomial| log_hockey_stick(binomial, self.shift, epsilon.get());
        one_way(self.binomial()).max(one_way(self.binomial().mirrored()))
    }

    /// Smallest epsilon at `delta`, the larger of the two directions: the exact root.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] if outcomes that only one neighbour can produce have more
    /// probability than `delta`.
    pub fn epsilon(&self, delta: Delta) -> Result<Epsilon, AccountingError> {
        let one_way = |binomial| epsilon_one_way(binomial, self.shift, delta.get().ln());
        finite_epsilon(one_way(self.binomial()).max(one_way(self.binomial().mirrored())))
    }

    /// The pair `P = Bin(N, p)`, `Q = Bin(N, p) + shift` without tails of mass `e^log_tail` on each side, for
    /// composition and sampling.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `log_tail` is not a finite number < 0 or more than 2^22 outcomes
    /// would be kept.
    pub(crate) fn outcomes(&self, log_tail: f64) -> Result<Outcomes, AccountingError> {
        log_tail_mass(log_tail)?;
        let binomial = self.binomial();
        let low = binomial.lowest_kept(log_tail);
        let below_high = binomial.mirrored().lowest_kept(log_tail);
        let high = self.trials - below_high;
        // Two runs of integers, [low, high] and its translate, or one where they meet.
        let run = high - low + 1;
        let (step, count) = if self.shift < run {
            (0, run + self.shift)
        } else {
            (self.shift - run, 2 * run)
        };
        let count = outcome_count(count)?;
        let (mut log_p, mut log_q) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for index in 0..count as u64 {
            let x = low + index + if index >= run { step } else { 0 };
            let mass = |x: u64| {
                if x <= self.trials {
                    binomial.log_mass(x)
                } else {
                    f64::NEG_INFINITY
                }
            };
            // The loss is known more closely than either logarithm.
            let (p, loss) = (mass(x), binomial.loss(x, self.shift));
            log_p.push(p);
            log_q.push(match x.checked_sub(self.shift) {
                None => f64::NEG_INFINITY,
                Some(from) if p == f64::NEG_INFINITY => mass(from),
                Some(_) => p - loss,
            });
        }
        let tail = |binomial: Binomial, kept: u64| match kept.checked_sub(1) {
            None => 0.0,
            Some(below) => mass_rounded_up(binomial.log_lower_tail(below)),
        };
        let missing = tail(binomial, low) + tail(binomial.mirrored(), below_high);
        Ok(Outcomes {
            log_p,
            log_q,
            missing_p: missing,
            missing_q: missing,
        })
    }

    fn binomial(&self) -> Binomial {
        Binomial::new(self.trials, self.success_probability)
    }
}

/// `ln` of the divergence of `Bin` from `Bin + shift` at `epsilon`. The other direction is the same with
/// failures for successes.
fn log_hockey_stick(binomial: Binomial, shift: u64, epsilon: f64) -> f64 {
    // The last outcome that counts: the loss falls as x rises.
    let (mut low, mut high) = ((shift - 1).min(binomial.trials()), binomial.trials());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if binomial.loss(middle, shift) > epsilon {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let anchor = binomial.log_mass(low.min(binomial.mode()));
    let mut sum = 0.0;
    let follow = |mass: f64, x| mass * binomial.ratio_below(x + 1);
    for (x, mass) in masses(binomial, anchor, (0..=low).rev(), follow) {
        let gain = -(epsilon - binomial.loss(x, shift)).exp_m1();
        sum += mass * gain;
        let falling = binomial.ratio_below(x);
        if falling < 1.0 && mass * falling < (1.0 - falling) * NEGLIGIBLE.exp() * sum {
            break;
        }
    }
    (anchor + sum.ln()).min(0.0)
}

/// Smallest epsilon with the divergence of `Bin` from `Bin + shift` at most `e^log_delta`.
fn epsilon_one_way(binomial: Binomial, shift: u64, log_delta: f64) -> f64 {
    let start = binomial.lowest_kept(log_delta + NEGLIGIBLE);
    // PRIVACY: the tail that is not walked counts in full, as if its loss were infinite.
    let unwalked = match start.checked_sub(1) {
        None => 0.0,
        Some(below) => (binomial.log_lower_tail(below) - log_delta).exp(),
    };
    let mut descent = Descent::new(unwalked);
    let follow = |mass: f64, x| mass / binomial.ratio_below(x);
    for (x, mass) in masses(binomial, log_delta, start..=binomial.trials(), follow) {
        if let Some(epsilon) = descent.push(binomial.loss(x, shift), mass) {
            return epsilon;
        }
    }
    descent.finish()
}

/// Distance between two masses that are computed afresh. The masses between them follow by ratios: the error stays below 10^-13.
const BETWEEN_ANCHORS: usize = 256;

/// `(x, P(x) e^-log_unit)` for each of `outcomes`, which are neighbours; `follow` makes the mass of one from that of the one before.
fn masses(
    binomial: Binomial,
    log_unit: f64,
    outcomes: impl Iterator<Item = u64>,
    follow: impl Fn(f64, u64) -> f64,
) -> impl Iterator<Item = (u64, f64)> {
    let mut mass = 0.0;
    outcomes.enumerate().map(move |(place, x)| {
        mass = if place % BETWEEN_ANCHORS == 0 {
            (binomial.log_mass(x) - log_unit).exp()
        } else {
            follow(mass, x)
        };
        (x, mass)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epsilon(trials: u64, p: f64, shift: u64, delta: f64) -> Result<f64, AccountingError> {
        let mechanism = ShiftedBinomial::new(trials, p, shift)?;
        Ok(mechanism.epsilon(Delta::new(delta).unwrap())?.get())
    }

    fn delta(trials: u64, p: f64, shift: u64, epsilon: f64) -> f64 {
        let mechanism = ShiftedBinomial::new(trials, p, shift).unwrap();
        mechanism.delta(Epsilon::new(epsilon).unwrap())
    }

    fn close(got: f64, want: f64, relative: f64) {
        assert!((got - want).abs() <= relative * want.abs(), "{got} != {want}");
    }

    /// Sums over the exact probability mass function (scipy), both directions.
    #[test]
    fn epsilons_and_deltas_match_sums_over_outcomes() {
        let check = |trials, p, shift, at, want: f64, half: f64, one: f64| {
            close(epsilon(trials, p, shift, at).unwrap(), want, 1e-8);
            close(delta(trials, p, shift, 0.5), half, 1e-8);
            close(delta(trials, p, shift, 1.0), one, 1e-8);
        };
        check(
            100,
            0.5,
            1,
            1e-5,
            0.752_737_848_746_517_6,
            0.000_569_856_324_813_254,
            8.002_551_059_523_373e-8,
        );
        check(
            1000,
            0.5,
            1,
            1e-6,
            0.244_142_500_820_297_26,
            3.488_505_855_356_147e-17,
            1.245_718_671_320_431_5e-52,
        );
        check(
            2000,
            0.5,
            1,
            1e-6,
            0.168_253_358_679_362_2,
            8.965_043_176_194_778e-31,
            2.861_536_534_456_707e-101,
        );
        check(
            10_000,
            0.5,
            10,
            1e-6,
            0.834_500_418_036_224_8,
            0.000_512_987_289_162_281_7,
            1.783_983_393_682_275_7e-8,
        );
        check(
            4000,
            0.25,
            1,
            1e-6,
            0.138_709_279_468_795_3,
            1.994_132_172_792_975_8e-38,
            4.743_048_004_389_066e-114,
        );
        assert!(epsilon(30, 0.5, 1, 1e-12).is_err());
        close(delta(30, 0.5, 1, 0.5), 0.018_849_194_042_279_527, 1e-8);
    }

    /// Sums by mpmath at 30 to 40 digits.
    #[test]
    fn deltas_of_many_trials_equal_values_of_mpmath() {
        close(delta(1_000_000, 0.5, 500, 4.0), 4.712_542_725_223_06e-5, 1e-11);
        close(delta(1_000_000, 0.3, 100, 1.0), 1.706_200_243_438_132e-7, 1e-11);
        close(
            delta(100_000_000, 0.5, 1000, 0.5),
            5.125_361_270_637_804e-4,
            1e-11,
        );
    }

    #[test]
    #[ignore = "slow"]
    fn binomial_tends_to_gaussian() {
        let sigma = (1e8f64 * 0.25).sqrt();
        for at in [1e-3, 1e-9, 1e-15] {
            let noise = crate::NoiseMultiplier::new(sigma / 5000.0).unwrap();
            let want = crate::gaussian::epsilon(noise, Delta::new(at).unwrap())
                .unwrap()
                .get();
            close(epsilon(100_000_000, 0.5, 5000, at).unwrap(), want, 1e-3);
        }
        assert!(epsilon(1 << 40, 0.5, 1 << 20, 1e-30).unwrap() > 1.0);
    }

    #[test]
    fn delta_is_exact_for_one_trial_and_disjoint_outcomes() {
        // One trial: P = (1 - p, p) on {0, 1}, Q on {1, 2}: 1 - p of P is impossible under Q, p of Q under P.
        close(delta(1, 0.5, 1, 0.0), 0.5, 1e-15);
        close(delta(1, 0.3, 1, 0.0), 0.7, 1e-15);
        close(delta(1, 0.9, 1, 3.0), 0.9, 1e-15);
        for shift in [6, 1000, u64::MAX] {
            close(delta(5, 0.5, shift, 2.0), 1.0, 1e-15);
            assert!(epsilon(5, 0.5, shift, 0.9).is_err());
            let outcomes = ShiftedBinomial::new(5, 0.5, shift)
                .unwrap()
                .outcomes(-40.0)
                .unwrap();
            close(outcomes.hockey_stick(2.0), 1.0, 1e-14);
        }
        assert_eq!(epsilon(1000, 0.5, 1, 0.5).unwrap(), 0.0);
    }

    /// T releases enumerated outcome by outcome; the oracle enumerates the same losses by itself.
    #[test]
    fn composed_releases_match_an_enumeration() {
        let check = |trials, count, epsilon: f64, want: f64| {
            let one = ShiftedBinomial::new(trials, 0.5, 1)
                .unwrap()
                .outcomes(-700.0)
                .unwrap();
            assert_eq!(one.missing_p, 0.0);
            let mut all = one.clone();
            for _ in 1..count {
                let sums = |a: &[f64], b: &[f64]| -> Vec<f64> {
                    a.iter().flat_map(|x| b.iter().map(move |y| x + y)).collect()
                };
                all.log_p = sums(&all.log_p, &one.log_p);
                all.log_q = sums(&all.log_q, &one.log_q);
            }
            close(all.hockey_stick(epsilon), want, 1e-8);
            close(all.reversed().hockey_stick(epsilon), want, 1e-8);
        };
        check(10, 3, 1.0, 0.161_146_321_348_791_48);
        check(20, 2, 0.5, 0.096_836_429_708_010_76);
        check(40, 2, 1.0, 0.003_455_123_464_299_622_7);
    }

    #[test]
    fn extreme_probabilities_leave_delta_accurate() {
        for p in [1e-300, 1e-20, 1.0 - 1e-16] {
            let got = delta(1000, p, 1, 1.0);
            assert!(got > 0.999 && got <= 1.0, "{p}: {got}");
        }
        close(delta(1_000_000, 1e-6, 1, 50.0), (-1.0f64).exp(), 1e-5);
    }

    #[test]
    fn trials_probabilities_and_shifts_out_of_range_are_refused() {
        for p in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(ShiftedBinomial::new(10, p, 1).is_err(), "{p}");
        }
        assert!(ShiftedBinomial::new(0, 0.5, 1).is_err());
        assert!(ShiftedBinomial::new(10, 0.5, 0).is_err());
        assert!(ShiftedBinomial::new(u64::MAX, 0.5, 1).is_err());
        assert!(
            ShiftedBinomial::new(10, 0.5, 1)
                .unwrap()
                .outcomes(f64::NAN)
                .is_err()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn walks_agree_with_all_outcomes(
            trials in 1u64..3000, p in 0.02f64..0.98, shift in 1u64..100, epsilon in 0.0f64..6.0,
        ) {
            let mechanism = ShiftedBinomial::new(trials, p, shift).unwrap();
            let outcomes = mechanism.outcomes(-90.0).unwrap();
            let at = Epsilon::new(epsilon).unwrap();
            let (delta, want) = (mechanism.delta(at), outcomes.delta(at));
            prop_assert!((delta - want).abs() <= 1e-9 * want + 1e-30, "{delta} {want}");
            if (1e-25..0.999).contains(&delta) {
                let target = Delta::new(delta).unwrap();
                match (mechanism.epsilon(target), outcomes.epsilon(target)) {
                    (Ok(root), Ok(other)) => {
                        prop_assert!((root.get() - other.get()).abs() < 1e-7);
                        let back = mechanism.delta(root);
                        prop_assert!((back - delta).abs() <= 1e-8 * delta, "{back} {delta}");
                    }
                    // Where delta is mass of infinite loss alone, rounding decides.
                    (walk, all) => prop_assert!(
                        walk.is_err() || all.is_err() && delta < mechanism.delta(Epsilon::new(700.0).unwrap()) * 1.000_001
                    ),
                }
            }
        }

        #[test]
        fn delta_rises_with_shift_falls_with_epsilon_and_trials(
            trials in 10u64..5000, p in 0.05f64..0.95, shift in 1u64..10, epsilon in 0.0f64..3.0,
        ) {
            let base = delta(trials, p, shift, epsilon);
            prop_assert!(delta(trials, p, shift + 1, epsilon) >= base * (1.0 - 1e-12));
            prop_assert!(delta(trials, p, shift, epsilon + 0.1) <= base * (1.0 + 1e-12));
            // More trials are a post-processing away from fewer.
            prop_assert!(delta(trials + 7, p, shift, epsilon) <= base * (1.0 + 1e-12));
        }
    }
}
