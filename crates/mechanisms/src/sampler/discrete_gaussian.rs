//! The discrete Gaussian distribution, exactly.

use super::bernoulli::exponential_of_square;
use super::laplace::DiscreteLaplace;
use super::source::{self, WordSource};
use super::uniform::{NoiseKey, Purpose};
use crate::error::{Result, ensure};

/// Largest numerator and denominator of a variance, in lowest terms: products of both then stay below `2^128`.
const LIMIT: u64 = 1 << 60;

/// Integers with probability proportional to `exp(-x^2 / (2 variance))`, for a rational variance.
///
/// # Guarantee
/// Exact, given ideal words from ChaCha20: decisions are made by comparing whole numbers, and no floating-point operation
/// takes part. Added to integers of L2 sensitivity `s` it gives `s^2 / (2 variance)`-concentrated differential privacy.
/// Time depends on the sample.
///
/// # Source
/// Canonne, Kamath, Steinke 2020, algorithm 3 and theorem 1.
///
/// # Example
/// ```
/// use undertone_mechanisms::{DiscreteGaussian, NoiseKey};
///
/// let gaussian = DiscreteGaussian::new(25, 4)?; // standard deviation 2.5
/// let mut noise = [0; 8];
/// gaussian.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut noise)?;
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscreteGaussian {
    /// The variance in lowest terms.
    numerator: u64,
    denominator: u64,
    /// Laplace samples of this whole scale are proposed: one more than the standard deviation's whole part.
    proposal: DiscreteLaplace,
    /// The scale of the proposals times the variance's denominator.
    step: u128,
    /// Denominator of the exponents.
    exponent: u128,
}

impl DiscreteGaussian {
    /// Variance `variance_numerator / variance_denominator`: the parameter, which the distribution's own variance is
    /// slightly below.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) unless both are positive and, in lowest terms, at
    /// most `2^60`.
    pub fn new(variance_numerator: u64, variance_denominator: u64) -> Result<Self> {
        let divisor = greatest_common_divisor(variance_numerator, variance_denominator).max(1);
        let (numerator, denominator) = (variance_numerator / divisor, variance_denominator / divisor);
        for (name, value) in [
            ("variance numerator", numerator),
            ("variance denominator", denominator),
        ] {
            let expected = "positive and, in lowest terms, at most 2^60";
            ensure((1..=LIMIT).contains(&value), name, expected, value as f64)?;
        }
        // floor(sqrt(a / b)) = floor(sqrt(floor(a / b))); t <= 2^30 + 1.
        let t = (numerator / denominator).isqrt() + 1;
        let step = u128::from(t) * u128::from(denominator);
        Ok(Self {
            numerator,
            denominator,
            proposal: DiscreteLaplace::new(t, 1)?,
            step,
            // b t^2 <= (sqrt(a) + sqrt(b))^2 <= 4 max(a, b) <= 2^62, so this is at most 2 2^60 2^62.
            exponent: 2 * u128::from(numerator) * step * u128::from(t),
        })
    }

    /// The variance parameter as a plain number.
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        source::fill(key, Purpose::DiscreteGaussian, round, out, |source| {
            self.sample(source)
        })
    }

    /// Fills `out` with the samples of `round` from number `1024 block` on, at most 1024 of them, on this thread: for
    /// vectors whose noise is made where it is used.
    ///
    /// # Errors
    /// [`MechanismError::WrongDimension`](crate::MechanismError::WrongDimension) for more than 1024 samples; a round of
    /// `2^48` or more.
    pub fn fill_block(&self, key: &NoiseKey, round: u64, block: u64, out: &mut [i64]) -> Result<()> {
        source::fill_block(key, Purpose::DiscreteGaussian, round, block, out, |source| {
            self.sample(source)
        })
    }

    /// One sample: a proposal `y` is kept with probability `exp(-(|y| - variance / t)^2 / (2 variance))`.
    fn sample(&self, source: &mut WordSource) -> i64 {
        loop {
            let y = self.proposal.sample(source);
            // With variance a / b the exponent is (|y| t b - a)^2 / (2 a b t^2). |y| < 2^63, and t b <= 2^61 as
            // (t b)^2 = b (b t^2) <= 2^60 2^62.
            let position = u128::from(y.unsigned_abs()) * self.step;
            let root = position.abs_diff(u128::from(self.numerator));
            if exponential_of_square(source, root, self.exponent) {
                return y;
            }
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{
        check_integers, check_integers_are_independent, check_standard_normal, drawn, scaled,
    };
    use super::*;
    use crate::testing::with_threads;

    fn samples(numerator: u64, denominator: u64, key: u8, round: u64, count: usize) -> Vec<i64> {
        let gaussian = DiscreteGaussian::new(numerator, denominator).unwrap();
        drawn(
            |key, round, out| gaussian.fill(key, round, out),
            (key, round),
            count,
        )
    }

    fn check(numerator: u64, denominator: u64) {
        let variance = numerator as f64 / denominator as f64;
        let reach = (12.0 * variance.sqrt()).ceil() as i64 + 3;
        let weight = |x: i64| (-(x as f64).powi(2) / (2.0 * variance)).exp();
        let total: f64 = (-reach..=reach).map(weight).sum();
        let x = samples(numerator, denominator, 1, 0, 100_000);
        check_integers(&x, -reach, reach, |x| weight(x) / total);
    }

    #[test]
    fn samples_follow_the_discrete_gaussian() {
        check(1, 1);
        check(1, 4);
        check(25, 4);
        check(1000, 7);
        // Products past 64 bits, and past 128 for one proposal in a few.
        check((1 << 59) + 1, 1 << 54);
        check(1 << 60, (1 << 53) + 1);
    }

    #[test]
    fn wide_variances_are_still_gaussian() {
        check_standard_normal(&scaled(&samples(1 << 60, 1, 2, 0, 1 << 16), 0, 2f64.powi(30)));
    }

    #[test]
    fn coordinates_rounds_and_keys_are_independent() {
        let gaussian = DiscreteGaussian::new(900, 1).unwrap();
        check_integers_are_independent(|key, round, out| gaussian.fill(key, round, out));
    }

    #[test]
    fn threads_do_not_matter_and_bad_variances_are_refused() {
        let run = |threads: usize| with_threads(threads, || samples(77, 3, 9, 2, 5000));
        assert_eq!(run(1), run(3));
        assert_eq!(run(2)[..1500], samples(77, 3, 9, 2, 1500));
        assert_eq!(samples(77, 3, 9, 2, 100), samples(770, 30, 9, 2, 100));
        for (numerator, denominator) in [(0, 1), (1, 0), (0, 0), ((1 << 60) + 1, 1), (1, u64::MAX)] {
            assert!(DiscreteGaussian::new(numerator, denominator).is_err());
        }
    }
}
