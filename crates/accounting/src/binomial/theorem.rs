//! Theorem 1 of \[cpSGD\]: the binomial mechanism in any dimension.

use std::f64::consts::SQRT_2;

use super::success_probability;
use crate::discrete::{at_least_one, positive};
use crate::error::{ensure, unreachable};
use crate::{AccountingError, Delta, Epsilon};

/// Noise `(Bin(N, p) - N p) s` on every coordinate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BinomialNoise {
    dimension: u64,
    trials: u64,
    success_probability: f64,
    quantum: f64,
}

/// The largest change that a neighbour makes to the quantised vector, in the unit of the released values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivities {
    l1: f64,
    l2: f64,
    l_inf: f64,
}

/// The constants `b_p`, `c_p`, `d_p` of the theorem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Equation 16; for `p > 1/2` the larger of `b_p` and `b_(1-p)`, since failures are as good as successes.
    pub b: f64,
    /// Equation 11, exactly (`2.4749` at 1/2, which the paper rounds up to 5/2).
    pub c: f64,
    /// Equation 15.
    pub d: f64,
}

impl BinomialNoise {
    /// `dimension` coordinates (`d`), `trials` (`N`, of all clients together) of `success_probability` (`p`),
    /// in steps of `quantum` (`s`).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if a count is 0, `success_probability` not in `(0, 1)`, or `quantum` not
    /// a finite number > 0.
    pub fn new(
        dimension: u64,
        trials: u64,
        success_probability: f64,
        quantum: f64,
    ) -> Result<Self, AccountingError> {
        at_least_one("dimension", dimension)?;
        at_least_one("trials", trials)?;
        self::success_probability(success_probability)?;
        positive("quantum", quantum)?;
        Ok(Self {
            dimension,
            trials,
            success_probability,
            quantum,
        })
    }

    /// `N p (1 - p)`: the variance of one coordinate in units of `quantum^2`.
    #[must_use]
    pub(crate) fn variance(&self) -> f64 {
        let p = self.success_probability;
        self.trials as f64 * p * (1.0 - p)
    }

    /// Expected squared error of the released vector, `d s^2 N p (1 - p)`.
    #[must_use]
    pub fn mean_squared_error(&self) -> f64 {
        self.dimension as f64 * self.quantum * self.quantum * self.variance()
    }

    /// `b_p`, `c_p`, `d_p` at this success probability.
    #[must_use]
    pub fn constants(&self) -> Constants {
        let p = self.success_probability;
        let q = 1.0 - p;
        let squares = p * p + q * q;
        Constants {
            b: 2.0 / 3.0 * squares + (1.0 - 2.0 * p).abs(),
            c: SQRT_2 * (3.0 * (p * p * p + q * q * q) + 2.0 * squares),
            d: 4.0 / 3.0 * squares,
        }
    }

    /// The epsilon of one release at `delta`.
    ///
    /// # Guarantee
    /// Holds under the relation the sensitivities are stated for. In one dimension it lies up to 4 times above the
    /// exact value, most where epsilon is small; see [`ShiftedBinomial`](super::exact::ShiftedBinomial).
    ///
    /// # Errors
    /// [`AccountingError::BinomialVariance`] where the theorem does not apply: `N p (1 - p)` must be at least
    /// `max(23 ln(10 d / delta), 2 l_inf / s)`. [`AccountingError::OutOfRange`] if the result overflows.
    ///
    /// # Source
    /// \[cpSGD\] Theorem 1, equation 6.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Delta, binomial::theorem::{BinomialNoise, Sensitivities}};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let (one, delta) = (Sensitivities::new(1.0, 1.0, 1.0)?, Delta::new(1e-6)?);
    /// let epsilon = BinomialNoise::new(1, 2000, 0.5, 1.0)?.epsilon(&one, delta)?;
    /// assert_eq!(format!("{epsilon:.4}"), "0.6375");
    /// assert!(BinomialNoise::new(1, 1000, 0.5, 1.0)?.epsilon(&one, delta).is_err()); // too little variance
    /// # Ok(())
    /// # }
    /// ```
    pub fn epsilon(&self, sensitivities: &Sensitivities, delta: Delta) -> Result<Epsilon, AccountingError> {
        let Sensitivities { l1, l2, l_inf } = *sensitivities;
        let (d, s, variance) = (self.dimension as f64, self.quantum, self.variance());
        let log_over_delta = |numerator: f64| numerator.ln() - delta.get().ln();
        let (concentration, movement) = (23.0 * log_over_delta(10.0 * d), 2.0 * l_inf / s);
        // PRIVACY: below this variance the theorem says nothing.
        if variance < concentration.max(movement) {
            return Err(AccountingError::BinomialVariance {
                variance,
                concentration,
                movement,
            });
        }
        let Constants { b, c, d: d_p } = self.constants();
        let gaussian = l2 * (2.0 * log_over_delta(1.25)).sqrt() / (s * variance.sqrt());
        let drift =
            (l2 * c * log_over_delta(10.0).sqrt() + l1 * b) / (s * variance * (1.0 - delta.get() / 10.0));
        let largest = l_inf
            * (2.0 / 3.0 * log_over_delta(1.25) + d_p * log_over_delta(20.0 * d) * log_over_delta(10.0))
            / (s * variance);
        Epsilon::new(gaussian + drift + largest)
    }

    /// The smallest number of trials that reaches `epsilon` at `delta`, everything else as here.
    ///
    /// # Errors
    /// [`AccountingError::Unreachable`] if 2^62 trials are not enough.
    pub fn trials_for(
        &self,
        sensitivities: &Sensitivities,
        epsilon: Epsilon,
        delta: Delta,
    ) -> Result<u64, AccountingError> {
        let at = |trials: u64| Self { trials, ..*self }.epsilon(sensitivities, delta);
        let holds = |trials: u64| at(trials).is_ok_and(|reached| reached <= epsilon);
        let (mut low, mut high) = (0, 1);
        while !holds(high) {
            if high >= 1 << 62 {
                let best = at(high).map_or(f64::INFINITY, Epsilon::get);
                return Err(unreachable("trials", (epsilon, delta), best, high as f64));
            }
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if holds(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high)
    }
}

impl Sensitivities {
    /// Bounds in the three norms.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if one is not a finite number > 0.
    pub fn new(l1: f64, l2: f64, l_inf: f64) -> Result<Self, AccountingError> {
        Ok(Self {
            l1: positive("l1 sensitivity", l1)?,
            l2: positive("l2 sensitivity", l2)?,
            l_inf: positive("l_inf sensitivity", l_inf)?,
        })
    }

    /// Sensitivities of stochastic quantisation to `levels` (`k`) levels on `[-x_max, x_max]` of a vector of
    /// norm at most `norm_bound` (`D`), in units of the bin width `2 x_max / (k - 1)` (so `quantum = 1`).
    ///
    /// # Guarantee
    /// They hold under replace-one, except with probability `delta` over the rounding: add it to the delta of
    /// the release.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `dimension` is 0, `levels` < 2, or a bound is not a finite number >
    /// 0.
    ///
    /// # Source
    /// \[cpSGD\] equation 10.
    pub fn of_quantization(
        dimension: u64,
        levels: u64,
        norm_bound: f64,
        x_max: f64,
        delta: Delta,
    ) -> Result<Self, AccountingError> {
        at_least_one("dimension", dimension)?;
        ensure(levels >= 2, "levels", "an integer >= 2", levels as f64)?;
        let (norm_bound, x_max) = (positive("norm_bound", norm_bound)?, positive("x_max", x_max)?);
        let (root_d, k) = ((dimension as f64).sqrt(), levels as f64);
        let moved = norm_bound * (k - 1.0) / x_max;
        let log_two = 2f64.ln() - delta.get().ln();
        let deviation = (2.0 * root_d * log_two * moved).sqrt();
        let l1 = root_d * moved + deviation + 4.0 / 3.0 * log_two;
        let l2 = moved + (l1 + deviation).sqrt();
        Self::new(l1, l2, k + 1.0)
    }

    /// The L1 sensitivity.
    #[must_use]
    pub fn l1(&self) -> f64 {
        self.l1
    }

    /// The L2 sensitivity.
    #[must_use]
    pub fn l2(&self) -> f64 {
        self.l2
    }

    /// The largest change of one coordinate.
    #[must_use]
    pub fn l_inf(&self) -> f64 {
        self.l_inf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binomial::exact::ShiftedBinomial;
    use proptest::prelude::*;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-9 * want, "{got} != {want}");
    }

    fn delta(value: f64) -> Delta {
        Delta::new(value).unwrap()
    }

    /// The formula evaluated independently in Python, constants exact.
    #[test]
    fn epsilons_match_an_independent_evaluation() {
        let check = |(d, trials, p, s), (l1, l2, l_inf), at, want: f64, mse: f64| {
            let noise = BinomialNoise::new(d, trials, p, s).unwrap();
            let sensitivities = Sensitivities::new(l1, l2, l_inf).unwrap();
            close(noise.epsilon(&sensitivities, delta(at)).unwrap().get(), want);
            close(noise.mean_squared_error(), mse);
        };
        check(
            (1, 2000, 0.5, 1.0),
            (1.0, 1.0, 1.0),
            1e-6,
            0.637_513_410_643_578,
            500.0,
        );
        check(
            (1, 10_000, 0.5, 0.1),
            (1.0, 1.0, 1.0),
            1e-6,
            1.860_848_020_681_838,
            25.0,
        );
        check(
            (1000, 10_000_000, 0.5, 1e-3),
            (3.0, 1.0, 0.1),
            1e-8,
            3.883_058_209_627_309,
            2500.0,
        );
        check(
            (10, 100_000, 0.25, 0.05),
            (3.0, 1.0, 0.6),
            1e-7,
            1.071_899_471_337_007_8,
            468.75,
        );
        check(
            (1 << 20, 1_000_000_000, 0.5, 1e-4),
            (100.0, 1.0, 0.01),
            1e-9,
            4.095_591_767_856_536,
            2_621_440.0,
        );
    }

    #[test]
    fn constants_of_the_theorem_have_known_values() {
        let at = |p| BinomialNoise::new(1, 1, p, 1.0).unwrap().constants();
        let half = at(0.5);
        close(half.b, 1.0 / 3.0);
        close(half.c, 2.474_873_734_152_916_3);
        close(half.d, 2.0 / 3.0);
        close(at(0.25).b, 0.916_666_666_666_666_5);
        close(at(0.75).b, at(0.25).b);
        close(at(0.25).c, 3.623_922_253_581_057);
    }

    #[test]
    fn the_condition_is_enforced_and_named() {
        let one = Sensitivities::new(1.0, 1.0, 1.0).unwrap();
        let noise = BinomialNoise::new(1, 1000, 0.5, 1.0).unwrap();
        let error = noise.epsilon(&one, delta(1e-6)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "binomial mechanism: Theorem 1 needs N p (1 - p) >= max(23 ln(10 d / delta), 2 l_inf / s), got 250 \
             < max(370.7, 2)"
        );
        let wide = Sensitivities::new(1.0, 1.0, 1e6).unwrap();
        assert!(
            BinomialNoise::new(1, 10_000, 0.5, 1.0)
                .unwrap()
                .epsilon(&wide, delta(1e-6))
                .is_err()
        );
    }

    #[test]
    fn one_trial_less_misses_the_target() {
        let one = Sensitivities::new(1.0, 1.0, 1.0).unwrap();
        let noise = |trials| BinomialNoise::new(4, trials, 0.3, 0.5).unwrap();
        let target = Epsilon::new(0.7).unwrap();
        let trials = noise(1).trials_for(&one, target, delta(1e-7)).unwrap();
        assert!(noise(trials).epsilon(&one, delta(1e-7)).unwrap() <= target);
        assert!(noise(trials - 1).epsilon(&one, delta(1e-7)).unwrap() > target);
        let never = Epsilon::new(1e-12).unwrap();
        assert!(noise(1).trials_for(&one, never, delta(1e-7)).is_err());
    }

    /// Equation 10 by hand: d = 4, D = X_max, k = 3, delta = 2 / e.
    #[test]
    fn quantization_has_the_sensitivities_of_equation_10() {
        let got = Sensitivities::of_quantization(4, 3, 1.0, 1.0, delta(2.0 / std::f64::consts::E)).unwrap();
        let deviation = 8f64.sqrt();
        let l1 = 4.0 + deviation + 4.0 / 3.0;
        close(got.l1(), l1);
        close(got.l2(), 2.0 + (l1 + deviation).sqrt());
        close(got.l_inf(), 4.0);
    }

    #[test]
    fn noise_and_sensitivities_out_of_range_are_refused() {
        assert!(BinomialNoise::new(0, 1, 0.5, 1.0).is_err());
        assert!(BinomialNoise::new(1, 0, 0.5, 1.0).is_err());
        for p in [0.0, 1.0, f64::NAN] {
            assert!(BinomialNoise::new(1, 1, p, 1.0).is_err());
        }
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(BinomialNoise::new(1, 1, 0.5, value).is_err());
            assert!(Sensitivities::new(value, 1.0, 1.0).is_err());
            assert!(Sensitivities::new(1.0, value, 1.0).is_err());
            assert!(Sensitivities::new(1.0, 1.0, value).is_err());
            assert!(Sensitivities::of_quantization(4, 3, value, 1.0, delta(0.1)).is_err());
            assert!(Sensitivities::of_quantization(4, 3, 1.0, value, delta(0.1)).is_err());
        }
        assert!(Sensitivities::of_quantization(4, 1, 1.0, 1.0, delta(0.1)).is_err());
        assert!(Sensitivities::of_quantization(0, 4, 1.0, 1.0, delta(0.1)).is_err());
    }

    proptest! {
        #[test]
        fn the_theorem_is_never_below_the_exact_value(
            trials in 2000u64..200_000, p in 0.2f64..0.8, shift in 1u64..20, log10_delta in -9.0f64..-3.0,
        ) {
            let (moved, delta) = (shift as f64, delta(10f64.powf(log10_delta)));
            let sensitivities = Sensitivities::new(moved, moved, moved).unwrap();
            let noise = BinomialNoise::new(1, trials, p, 1.0).unwrap();
            if let Ok(bound) = noise.epsilon(&sensitivities, delta) {
                let exact = ShiftedBinomial::new(trials, p, shift).unwrap().epsilon(delta).unwrap();
                prop_assert!(exact <= bound, "{exact} > {bound}");
            }
        }

        #[test]
        fn epsilon_is_monotone_in_all_but_the_probability(
            trials in 100_000u64..10_000_000, p in 0.2f64..0.8, l1 in 1.0f64..5.0, l2 in 0.5f64..1.0,
            l_inf in 0.1f64..0.5, factor in 1.01f64..1.5, d in 1u64..1000,
        ) {
            let epsilon = |d, trials, s, l1, l2, l_inf, at| {
                let sensitivities = Sensitivities::new(l1, l2, l_inf).unwrap();
                let noise = BinomialNoise::new(d, trials, p, s).unwrap();
                noise.epsilon(&sensitivities, delta(at)).unwrap()
            };
            let base = epsilon(d, trials, 0.1, l1, l2, l_inf, 1e-6);
            prop_assert!(epsilon(d + 1, trials, 0.1, l1, l2, l_inf, 1e-6) > base);
            prop_assert!(epsilon(d, trials + trials / 10, 0.1, l1, l2, l_inf, 1e-6) < base);
            prop_assert!(epsilon(d, trials, 0.1 * factor, l1, l2, l_inf, 1e-6) < base);
            prop_assert!(epsilon(d, trials, 0.1, l1 * factor, l2, l_inf, 1e-6) > base);
            prop_assert!(epsilon(d, trials, 0.1, l1, l2 * factor, l_inf, 1e-6) > base);
            prop_assert!(epsilon(d, trials, 0.1, l1, l2, l_inf * factor, 1e-6) > base);
            prop_assert!(epsilon(d, trials, 0.1, l1, l2, l_inf, 1e-6 * factor) < base);
        }
    }
}
