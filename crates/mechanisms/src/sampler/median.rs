//! The median of the users' sizes, privately.

use super::bernoulli::exponential;
use super::source::WordSource;
use super::uniform::{NoiseKey, Purpose};
use crate::error::{Result, ensure};

/// Epsilon is counted in steps of `2^-20`.
const EPSILON_STEPS: u64 = 1 << 20;
const MAX_EPSILON: f64 = 64.0;
/// Largest value that can be released.
const LARGEST: u64 = 1 << 20;

/// The exponential mechanism for the median of one whole number per user, over `1..=largest`.
///
/// A value `x` comes out with probability proportional to `b(x) exp(-epsilon D(x) / 2)`, where `D(x) = max(0, 2 #{s < x} - n,
/// 2 #{s > x} - n)` is twice the number of users by which `x` misses the median, and `b` gives every power of two up to the
/// next the same weight, spread evenly: sizes of users range over decades.
///
/// # Guarantee
/// `(epsilon, 0)`-differential privacy for adding or removing one user, whatever the users' numbers: one user changes each
/// of the three terms of `D` by at most one, so every weight changes by a factor of at most `exp(epsilon / 2)`, and so does
/// their sum. Numbers outside `1..=largest` count as the nearest one inside. The sample is exact, given ideal words from
/// ChaCha20: candidates are drawn and rejected with whole numbers only. The time it takes depends on the data, and is no
/// part of the release.
///
/// # Source
/// McSherry, Talwar, "Mechanism design via differential privacy" (FOCS 2007); the coins are those of Canonne, Kamath, Steinke
/// (2020), algorithm 1. \[UserDP\] section 6 sets `G_ELS` to a private median of the users' sizes.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, PrivateMedian};
///
/// let sizes: Vec<u64> = (0..10_000).map(|user| 1 + user % 40).collect();
/// let median = PrivateMedian::new(1.0, 1 << 16)?;
/// let released = median.release(&sizes, &NoiseKey::from_bytes([1; 32]), 0)?;
/// assert!((19..=22).contains(&released));
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateMedian {
    /// Epsilon in steps of `1 / EPSILON_STEPS`.
    steps: u64,
    largest: u64,
}

impl PrivateMedian {
    /// Creates a median with epsilon rounded down to a multiple of `2^-20`. `largest` has to be chosen without looking at the users.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) unless epsilon is from `2^-20` to 64 and `largest`
    /// from 1 to `2^20`.
    pub fn new(epsilon: f64, largest: u64) -> Result<Self> {
        let min = 1.0 / EPSILON_STEPS as f64;
        let holds = (min..=MAX_EPSILON).contains(&epsilon);
        ensure(holds, "epsilon of the median", "from 2^-20 to 64", epsilon)?;
        let holds = (1..=LARGEST).contains(&largest);
        ensure(holds, "largest median", "from 1 to 2^20", largest as f64)?;
        Ok(Self {
            // Exact: a multiplication by a power of two, then towards zero.
            steps: (epsilon * EPSILON_STEPS as f64) as u64,
            largest,
        })
    }

    /// The exact epsilon of one release, at most the requested one.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.steps as f64 / EPSILON_STEPS as f64
    }

    /// Maximum number of users, except with probability `beta`, by which the released value is off the middle, for any
    /// data.
    ///
    /// `P(D > t) <= exp(-epsilon t / 2) / b(m)` for the true median `m`, and `D` is twice the users.
    #[must_use]
    pub fn rank_error(&self, beta: f64) -> f64 {
        let bins = f64::from(self.bins());
        let rarest = (0..self.bins()).map(|bin| self.bin(bin).1).max().unwrap_or(1);
        (bins * rarest as f64 / beta).ln() / self.epsilon()
    }

    /// Draws the median of `values`, one per user. Every round of a key is a release of its own.
    ///
    /// # Guarantee
    /// That of the type. Releases add up: two cost twice [`epsilon`](Self::epsilon).
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn release(&self, values: &[u64], key: &NoiseKey, round: u64) -> Result<u64> {
        let mut sorted: Vec<u64> = values
            .iter()
            .map(|value| *value.clamp(&1, &self.largest))
            .collect();
        sorted.sort_unstable();
        let mut source = WordSource::new(&key.stream(Purpose::Median, round)?, 0);
        loop {
            let (first, length) = self.bin(source.below(u64::from(self.bins())) as u32);
            let value = first + source.below(length);
            // exp(-epsilon D / 2), epsilon being steps / EPSILON_STEPS.
            let numerator = u128::from(self.steps) * u128::from(distance(&sorted, value));
            if exponential(&mut source, numerator, 2 * u128::from(EPSILON_STEPS)) {
                return Ok(value);
            }
        }
    }

    /// Powers of two up to the largest value.
    fn bins(&self) -> u32 {
        self.largest.ilog2() + 1
    }

    /// First value and number of values of a bin.
    fn bin(&self, bin: u32) -> (u64, u64) {
        let first = 1u64 << bin;
        (first, first.min(self.largest + 1 - first))
    }
}

/// `D`: zero at a median of the sorted values.
fn distance(sorted: &[u64], value: u64) -> u64 {
    let n = sorted.len() as u64;
    let below = sorted.partition_point(|other| *other < value) as u64;
    let above = n - sorted.partition_point(|other| *other <= value) as u64;
    (2 * below.max(above)).saturating_sub(n)
}

#[cfg(test)]
mod tests {
    use super::super::statistics::check_counts;
    use super::*;

    /// Probabilities of `1..=largest`, from the definition.
    fn probabilities(median: &PrivateMedian, values: &[u64]) -> Vec<f64> {
        let n = values.len() as f64;
        let weight = |x: u64| -> f64 {
            let clamped = |s: &&u64| (**s).clamp(1, median.largest);
            let below = values.iter().filter(|s| clamped(s) < x).count() as f64;
            let above = values.iter().filter(|s| clamped(s) > x).count() as f64;
            let d = (2.0 * below - n).max(2.0 * above - n).max(0.0);
            let (_, length) = median.bin(x.ilog2());
            (-0.5 * median.epsilon() * d).exp() / length as f64
        };
        let weights: Vec<f64> = (1..=median.largest).map(weight).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn samples_follow_the_definition() {
        for (epsilon, values) in [
            (0.3, vec![1, 2, 2, 3, 5, 8, 13, 900]),
            (1.0, vec![7, 7, 7, 7]),
            (0.5, vec![]),
            (2.0, vec![1, 20]),
        ] {
            let median = PrivateMedian::new(epsilon, 21).unwrap();
            let key = NoiseKey::from_bytes([9; 32]);
            let mut counts = vec![0u64; 21];
            for round in 0..60_000 {
                counts[median.release(&values, &key, round).unwrap() as usize - 1] += 1;
            }
            check_counts(&counts, &probabilities(&median, &values));
        }
    }

    /// The guarantee itself, over neighbours of every small data set of values up to 6.
    #[test]
    fn no_probability_changes_by_more_than_epsilon() {
        let mut tightest = 0.0f64;
        for epsilon in [0.1, 1.0, 3.0] {
            let median = PrivateMedian::new(epsilon, 6).unwrap();
            for code in 0..7u64.pow(5) {
                // Digit 0 stands for nobody.
                let values: Vec<u64> = (0..5).map(|place| code / 7u64.pow(place) % 7).collect();
                let values: Vec<u64> = values.into_iter().filter(|value| *value > 0).collect();
                if !values.is_sorted() {
                    continue;
                }
                let before = probabilities(&median, &values);
                for added in 1..=6 {
                    let mut more = values.clone();
                    more.push(added);
                    for (a, b) in before.iter().zip(probabilities(&median, &more)) {
                        let loss = (a / b).ln().abs() / median.epsilon();
                        assert!(loss <= 1.0 + 1e-9, "{values:?} and {added}: {loss}");
                        tightest = tightest.max(loss);
                    }
                }
            }
        }
        assert!(tightest > 0.8, "the bound is hardly used: {tightest}");
    }

    #[test]
    fn the_median_misses_by_few_users() {
        let values: Vec<u64> = (0..4000).map(|user| 1 + (user * user) % 977).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let median = PrivateMedian::new(0.5, 1 << 16).unwrap();
        let allowed = median.rank_error(1e-6);
        assert!(allowed < 80.0, "{allowed}");
        for round in 0..200 {
            let value = median
                .release(&values, &NoiseKey::from_bytes([2; 32]), round)
                .unwrap();
            assert!(distance(&sorted, value) as f64 / 2.0 <= allowed, "{value}");
        }
    }

    #[test]
    fn settings_are_checked() {
        for (epsilon, largest) in [(0.0, 9), (f64::NAN, 9), (65.0, 9), (1.0, 0), (1.0, (1 << 20) + 1)] {
            assert!(
                PrivateMedian::new(epsilon, largest).is_err(),
                "{epsilon} {largest}"
            );
        }
        // Rounded down, and said so.
        let third = PrivateMedian::new(1.0 / 3.0, 9).unwrap().epsilon();
        assert!(third <= 1.0 / 3.0 && third > 1.0 / 3.0 - 1e-6);
        let one = PrivateMedian::new(1.0, 1).unwrap();
        assert_eq!(
            one.release(&[5, 6], &NoiseKey::from_bytes([1; 32]), 0).unwrap(),
            1
        );
    }
}
