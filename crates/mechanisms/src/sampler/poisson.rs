//! The Poisson and Skellam distributions, exactly.

use super::inversion::{Inversion, Ladder};
use super::source::{self, WordSource};
use super::uniform::{NoiseKey, Purpose};
use crate::error::{Result, ensure};

/// Largest mean of one table: the standard deviation is at most `2^12`.
const TABLE: u64 = 1 << 24;

/// Largest mean.
const MAX_MEAN: u64 = 1 << 36;

/// Largest denominator of a mean.
const MAX_DENOMINATOR: u64 = 1 << 18;

/// Poisson samples of a rational mean.
///
/// Samples of means above `2^24` are sums of samples of smaller means.
///
/// # Guarantee
/// Exact, given ideal words from ChaCha20: no floating-point operation takes part, and a sample that the tables' 64 bits
/// leave open is decided with more of them.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, Poisson};
///
/// let poisson = Poisson::new(7, 2)?; // mean 3.5
/// let mut counts = [0; 8];
/// poisson.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut counts)?;
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Poisson {
    table: Inversion<Arrivals>,
    times: u64,
}

impl Poisson {
    /// Mean `numerator / denominator`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a mean of zero or above `2^36`, and for a
    /// denominator of zero or above `2^18`.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self> {
        let (holds, got) = ((1..=MAX_DENOMINATOR).contains(&denominator), denominator as f64);
        ensure(holds, "mean denominator", "from 1 to 2^18", got)?;
        // 2^36 2^18 does not overflow.
        let holds = (1..=MAX_MEAN * denominator).contains(&numerator);
        let expected = "positive and at most 2^36 times its denominator";
        ensure(holds, "mean numerator", expected, numerator as f64)?;
        let times = numerator.div_ceil(TABLE * denominator);
        let table = Inversion::new(Arrivals {
            numerator,
            denominator: denominator * times,
        });
        Ok(Self { table, times })
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        source::fill(key, Purpose::Poisson, round, out, |source| self.sample(source))
    }

    #[inline]
    fn sample(&self, source: &mut WordSource) -> i64 {
        (0..self.times).map(|_| self.table.sample(source) as i64).sum()
    }
}

/// Differences of two independent Poisson samples of equal means.
///
/// # Guarantee
/// Exact, as for [`Poisson`]. A sum of independent samples is a sample of the summed variances, which is what makes the
/// distribution suit noise that many devices add together.
///
/// # Source
/// Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially private federated learning", NeurIPS 2021.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, Skellam};
///
/// let skellam = Skellam::new(100, 1)?; // standard deviation 10
/// let mut noise = [0; 8];
/// skellam.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut noise)?;
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Skellam {
    half: Poisson,
}

impl Skellam {
    /// Variance `variance_numerator / variance_denominator`, half of it from each side.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a variance of zero or above `2^37`, and for a
    /// denominator of zero or above `2^17`.
    pub fn new(variance_numerator: u64, variance_denominator: u64) -> Result<Self> {
        let (holds, got) = (
            variance_denominator <= MAX_DENOMINATOR / 2,
            variance_denominator as f64,
        );
        ensure(holds, "variance denominator", "from 1 to 2^17", got)?;
        Poisson::new(variance_numerator, 2 * variance_denominator).map(|half| Self { half })
    }

    /// Fills `out` with the samples of `round` from number `1024 block` on, at most 1024 of them, on this thread: for
    /// vectors whose noise is made where it is used.
    ///
    /// # Errors
    /// [`MechanismError::WrongDimension`](crate::MechanismError::WrongDimension) for more than 1024 samples; a round of
    /// `2^48` or more.
    pub fn fill_block(&self, key: &NoiseKey, round: u64, block: u64, out: &mut [i64]) -> Result<()> {
        source::fill_block(key, Purpose::Skellam, round, block, out, |source| {
            self.half.sample(source) - self.half.sample(source)
        })
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        source::fill(key, Purpose::Skellam, round, out, |source| {
            self.half.sample(source) - self.half.sample(source)
        })
    }
}

/// Arrivals at a mean number of `numerator / denominator`.
#[derive(Debug, Clone)]
struct Arrivals {
    numerator: u64,
    denominator: u64,
}

impl Ladder for Arrivals {
    fn mode(&self) -> u64 {
        self.numerator / self.denominator
    }

    fn last(&self) -> Option<u64> {
        None
    }

    fn ratio(&self, number: u64) -> (u64, u64) {
        // The denominator is at most 2^18 2^12, the number below 2^25 wherever weights do not vanish.
        (self.numerator, self.denominator * (number + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{
        check_integers, check_integers_are_independent, check_standard_normal, drawn, scaled,
    };
    use super::*;

    fn poisson(numerator: u64, denominator: u64, key: u8, count: usize) -> Vec<i64> {
        let poisson = Poisson::new(numerator, denominator).unwrap();
        drawn(|key, round, out| poisson.fill(key, round, out), (key, 0), count)
    }

    /// Poisson probabilities from zero on, until they are negligible.
    fn masses(mean: f64) -> Vec<f64> {
        let mode = mean as usize;
        let count = (mean + 12.0 * mean.sqrt() + 30.0) as usize;
        let mut weights = vec![0.0; count];
        weights[mode] = 1.0;
        for k in mode + 1..count {
            weights[k] = weights[k - 1] * mean / k as f64;
        }
        for k in (0..mode).rev() {
            weights[k] = weights[k + 1] * (k + 1) as f64 / mean;
        }
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn samples_follow_the_poisson_distribution() {
        for (numerator, denominator) in [(1, 100), (1, 2), (1, 1), (7, 2), (50, 1), (100_001, 10)] {
            let mass = masses(numerator as f64 / denominator as f64);
            let x = poisson(numerator, denominator, 1, 60_000);
            check_integers(&x, 0, mass.len() as i64 - 1, |k| mass[k as usize]);
        }
    }

    #[test]
    fn samples_follow_the_skellam_distribution() {
        for (numerator, denominator) in [(1, 3), (2, 1), (41, 2), (2000, 1)] {
            let half = masses(0.5 * numerator as f64 / denominator as f64);
            let reach = half.len() as i64 - 1;
            let mass = |x: i64| -> f64 {
                let pairs = half
                    .iter()
                    .skip(x.max(0) as usize)
                    .zip(half.iter().skip((-x).max(0) as usize));
                pairs.map(|(a, b)| a * b).sum()
            };
            let skellam = Skellam::new(numerator, denominator).unwrap();
            let x = drawn(|key, round, out| skellam.fill(key, round, out), (1, 0), 60_000);
            check_integers(&x, -reach, reach, mass);
        }
    }

    #[test]
    fn samples_of_large_means_are_nearly_normal() {
        // 2^26 in four parts; skewness 2^-13 shows in the third moment by 0.03 of its standard error.
        check_standard_normal(&scaled(&poisson(1 << 26, 1, 2, 1 << 16), 1 << 26, 2f64.powi(13)));
    }

    #[test]
    fn coordinates_rounds_and_keys_are_independent() {
        let (skellam, poisson) = (Skellam::new(500, 1).unwrap(), Poisson::new(300, 1).unwrap());
        check_integers_are_independent(|key, round, out| skellam.fill(key, round, out));
        check_integers_are_independent(|key, round, out| poisson.fill(key, round, out));
    }

    #[test]
    fn means_and_variances_out_of_range_are_refused() {
        for (numerator, denominator) in [(0, 1), (1, 0), (1, 1 << 19), ((1 << 36) + 1, 1)] {
            assert!(Poisson::new(numerator, denominator).is_err());
            assert!(Skellam::new(2 * numerator, denominator).is_err());
        }
    }
}
