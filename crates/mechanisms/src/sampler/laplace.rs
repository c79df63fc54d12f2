//! The discrete Laplace distribution, exactly.

use super::bernoulli::{exponential, inverse_e};
use super::source::{self, WordSource};
use super::uniform::{NoiseKey, Purpose};
use crate::error::{Result, ensure};

/// Largest numerator and denominator of a scale.
const LIMIT: u64 = 1 << 48;

/// Integers with probability proportional to `exp(-|x| / scale)`, for a rational scale.
///
/// # Guarantee
/// Exact, given ideal words from ChaCha20: decisions are made by comparing whole numbers, and no floating-point operation
/// takes part. (Samples past `2^63` in magnitude would be drawn again; their probability is below `exp(-2^15)`.) Added to
/// integers of L1 sensitivity `s` it gives `(s / scale, 0)` differential privacy. Time depends on the sample.
///
/// # Source
/// Canonne, Kamath, Steinke 2020, algorithm 2.
///
/// # Example
/// ```
/// use undertone_mechanisms::{DiscreteLaplace, NoiseKey};
///
/// let laplace = DiscreteLaplace::new(5, 2)?; // scale 2.5
/// let mut noise = [0; 8];
/// laplace.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut noise)?;
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscreteLaplace {
    numerator: u64,
    denominator: u64,
}

impl DiscreteLaplace {
    /// Scale `numerator / denominator`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) unless both are from 1 to `2^48`.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self> {
        for (name, value) in [("scale numerator", numerator), ("scale denominator", denominator)] {
            ensure((1..=LIMIT).contains(&value), name, "from 1 to 2^48", value as f64)?;
        }
        Ok(Self {
            numerator,
            denominator,
        })
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        source::fill(key, Purpose::DiscreteLaplace, round, out, |source| {
            self.sample(source)
        })
    }

    /// One sample.
    #[inline]
    pub(super) fn sample(&self, source: &mut WordSource) -> i64 {
        let (t, s) = (self.numerator, self.denominator);
        loop {
            // A geometric number of parameter 1 - exp(-1 / t): its part below t, and how many whole t.
            let rest = source.below(t);
            if !exponential(source, u128::from(rest), u128::from(t)) {
                continue;
            }
            let mut whole = 0u64;
            while inverse_e(source) {
                whole += 1;
            }
            // Both factors are below 2^64. In steps of s it is a geometric number of parameter 1 - exp(-s / t).
            let geometric = u128::from(rest) + u128::from(t) * u128::from(whole);
            let magnitude = if s == 1 {
                geometric
            } else {
                geometric / u128::from(s)
            };
            let negative = source.half_word() >> 31 == 1;
            // Zero has one sign only, or it would be twice as likely.
            if negative && magnitude == 0 {
                continue;
            }
            if let Ok(magnitude) = i64::try_from(magnitude) {
                return if negative { -magnitude } else { magnitude };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{check_integers, check_integers_are_independent, drawn};
    use super::*;

    fn samples(numerator: u64, denominator: u64, key: u8, count: usize) -> Vec<i64> {
        let laplace = DiscreteLaplace::new(numerator, denominator).unwrap();
        drawn(|key, round, out| laplace.fill(key, round, out), (key, 0), count)
    }

    fn check(numerator: u64, denominator: u64) {
        let scale = numerator as f64 / denominator as f64;
        let reach = (40.0 * scale).ceil() as i64;
        let ratio = (-1.0 / scale).exp();
        let mass = |x: i64| (1.0 - ratio) / (1.0 + ratio) * (-(x.abs() as f64) / scale).exp();
        check_integers(&samples(numerator, denominator, 1, 100_000), -reach, reach, mass);
    }

    #[test]
    fn samples_follow_the_discrete_laplace() {
        check(1, 1);
        check(1, 3);
        check(5, 2);
        check(20, 1);
        check((1 << 40) + 1, 1 << 38);
    }

    #[test]
    fn coordinates_rounds_and_keys_are_independent() {
        let laplace = DiscreteLaplace::new(50, 1).unwrap();
        check_integers_are_independent(|key, round, out| laplace.fill(key, round, out));
    }

    #[test]
    fn large_scales_keep_the_mean_and_larger_are_refused() {
        let x = samples(1 << 48, 1, 3, 2000);
        let mean = x.iter().map(|&x| (x as f64).abs()).sum::<f64>() / 2000.0 / 2f64.powi(48);
        // |x| is exponential: 5.33 standard errors of 1 / sqrt(2000), 2e-7.
        assert!((mean - 1.0).abs() < 5.33 / 2000f64.sqrt(), "{mean}");
        for (numerator, denominator) in [(0, 1), (1, 0), (1 << 49, 1), (1, 1 << 49)] {
            assert!(DiscreteLaplace::new(numerator, denominator).is_err());
        }
    }
}
