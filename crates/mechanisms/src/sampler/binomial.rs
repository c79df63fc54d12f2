//! The binomial distribution, exactly.

use super::inversion::{Inversion, Ladder};
use super::source::{self, WordSource};
use super::uniform::{NoiseKey, Purpose};
use crate::error::{Result, ensure};

/// Fair coins that are counted in random words rather than looked up.
const COUNTED: u64 = 256;

/// Trials of one table: the standard deviation is at most `2^12`.
const TABLE: u64 = 1 << 26;

/// Most trials.
const MAX_TRIALS: u64 = 1 << 40;

/// Largest denominator of a probability.
const MAX_DENOMINATOR: u64 = 1 << 31;

/// The number of successes in independent trials of a rational probability.
///
/// Fair coins up to 256 are ones in random words; other cases are table look-ups of up to `2^26` trials each, so a sample
/// of `2^30` trials takes sixteen of them.
///
/// # Guarantee
/// Exact, given ideal words from ChaCha20: no floating-point operation takes part, and a sample that the tables' 64 bits
/// leave open is decided with more of them.
///
/// # Source
/// For its use as noise: Agarwal, Suresh, Yu, Kumar, McMahan, "cpSGD", NeurIPS 2018 (\[cpSGD\]), section 4.
///
/// # Example
/// ```
/// use undertone_mechanisms::{Binomial, NoiseKey};
///
/// let binomial = Binomial::fair(10_000)?;
/// let mut counts = [0; 8];
/// binomial.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut counts)?;
/// assert!(counts.iter().all(|count| (4000..6000).contains(count)));
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Binomial {
    /// Successes without any trial: all trials, where success is certain.
    certain: u64,
    /// Fair coins to count.
    coins: u64,
    /// A table and how often to draw from it.
    tables: Vec<(Inversion<Trials>, u64)>,
}

impl Binomial {
    /// `trials` tosses of a fair coin.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for no trials or more than `2^40`.
    pub fn fair(trials: u64) -> Result<Self> {
        Self::new(trials, 1, 2)
    }

    /// `trials` trials that succeed with probability `numerator / denominator`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for no trials or more than `2^40`, for a denominator
    /// that is zero or more than `2^31`,
    /// and for a probability above one.
    pub fn new(trials: u64, numerator: u64, denominator: u64) -> Result<Self> {
        let holds = (1..=MAX_TRIALS).contains(&trials);
        ensure(holds, "trials", "from 1 to 2^40", trials as f64)?;
        let (holds, got) = ((1..=MAX_DENOMINATOR).contains(&denominator), denominator as f64);
        ensure(holds, "probability denominator", "from 1 to 2^31", got)?;
        let (name, expected) = ("probability numerator", "at most the denominator");
        ensure(numerator <= denominator, name, expected, numerator as f64)?;
        let mut binomial = Self {
            certain: 0,
            coins: 0,
            tables: Vec::new(),
        };
        if numerator == 0 {
            return Ok(binomial);
        }
        if numerator == denominator {
            binomial.certain = trials;
            return Ok(binomial);
        }
        if 2 * numerator == denominator && trials <= COUNTED {
            binomial.coins = trials;
            return Ok(binomial);
        }
        for (trials, times) in [(TABLE, trials / TABLE), (trials % TABLE, 1)] {
            if trials > 0 && times > 0 {
                let ladder = Trials {
                    trials,
                    success: numerator,
                    failure: denominator - numerator,
                };
                binomial.tables.push((Inversion::new(ladder), times));
            }
        }
        Ok(binomial)
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        source::fill(key, Purpose::Binomial, round, out, |source| self.sample(source))
    }

    /// Fills `out` with the samples of `round` from number `1024 block` on, at most 1024 of them, on this thread: for
    /// vectors whose noise is made where it is used.
    ///
    /// # Errors
    /// [`MechanismError::WrongDimension`](crate::MechanismError::WrongDimension) for more than 1024 samples; a round of
    /// `2^48` or more.
    pub fn fill_block(&self, key: &NoiseKey, round: u64, block: u64, out: &mut [i64]) -> Result<()> {
        source::fill_block(key, Purpose::Binomial, round, block, out, |source| {
            self.sample(source)
        })
    }

    /// One sample; at most `2^40`.
    #[inline]
    fn sample(&self, source: &mut WordSource) -> i64 {
        let mut sum = self.certain;
        let mut coins = self.coins;
        while coins >= 64 {
            sum += u64::from(source.word().count_ones());
            coins -= 64;
        }
        if coins > 0 {
            sum += u64::from((source.word() >> (64 - coins)).count_ones());
        }
        for (table, times) in &self.tables {
            for _ in 0..*times {
                sum += table.sample(source);
            }
        }
        sum as i64
    }
}

/// Trials whose successes and failures are as `success` to `failure`.
#[derive(Debug, Clone)]
struct Trials {
    trials: u64,
    success: u64,
    failure: u64,
}

impl Ladder for Trials {
    fn mode(&self) -> u64 {
        // floor((n + 1) p), which may be n + 1 only for p = 1.
        let product = u128::from(self.trials + 1) * u128::from(self.success);
        (product / u128::from(self.success + self.failure)) as u64
    }

    fn last(&self) -> Option<u64> {
        Some(self.trials)
    }

    fn ratio(&self, number: u64) -> (u64, u64) {
        // Both below 2^27 2^31.
        ((self.trials - number) * self.success, (number + 1) * self.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{
        check_integers, check_integers_are_independent, check_standard_normal, drawn, scaled,
    };
    use super::*;

    fn samples(binomial: &Binomial, key: u8, count: usize) -> Vec<i64> {
        drawn(|key, round, out| binomial.fill(key, round, out), (key, 0), count)
    }

    fn check(trials: u64, numerator: u64, denominator: u64) {
        let p = numerator as f64 / denominator as f64;
        let n = trials as f64;
        let log = |x: f64| if x > 0.0 { x.ln() } else { 0.0 };
        let spread = 10.0 * (n * p * (1.0 - p)).sqrt() + 10.0;
        let low = (n * p - spread).max(0.0) as i64;
        let high = (n * p + spread).min(n) as i64;
        // Weights from the mode outward by the ratio, in f64.
        let mode = ((n + 1.0) * p) as i64;
        let mut weights = vec![0.0; (high - low + 1) as usize];
        weights[(mode - low) as usize] = 1.0;
        for k in mode..high {
            weights[(k + 1 - low) as usize] =
                weights[(k - low) as usize] * (n - k as f64) * p / ((k + 1) as f64 * (1.0 - p));
        }
        for k in (low..mode).rev() {
            weights[(k - low) as usize] =
                weights[(k + 1 - low) as usize] * (k + 1) as f64 * (1.0 - p) / ((n - k as f64) * p);
        }
        let total: f64 = weights.iter().sum();
        assert!(log(total) > 0.0 || trials == 1);
        let binomial = Binomial::new(trials, numerator, denominator).unwrap();
        check_integers(&samples(&binomial, 1, 60_000), low, high, |k| {
            weights[(k - low) as usize] / total
        });
    }

    #[test]
    fn samples_follow_the_binomial_distribution() {
        for trials in [1, 5, 63, 64, 65, 255, 256, 257, 1000, 30_000] {
            check(trials, 1, 2);
        }
        check(1, 1, 3);
        check(40, 1, 20);
        check(10_000, 999, 1000);
        check(70_000, 1, 50_000);
        check((1 << 26) + 12_345, 1, 1 << 20);
    }

    #[test]
    fn coordinates_rounds_and_keys_are_independent() {
        // Counted and looked up.
        for trials in [100, 1 << 16] {
            let binomial = Binomial::fair(trials).unwrap();
            check_integers_are_independent(|key, round, out| binomial.fill(key, round, out));
        }
    }

    #[test]
    fn many_trials_are_normal_and_certain_ones_constant() {
        let many = Binomial::fair(1 << 30).unwrap();
        check_standard_normal(&scaled(&samples(&many, 3, 1 << 16), 1 << 29, 2f64.powi(14)));
        assert_eq!(samples(&Binomial::new(9, 0, 5).unwrap(), 1, 3), [0; 3]);
        assert_eq!(samples(&Binomial::new(9, 5, 5).unwrap(), 1, 3), [9; 3]);
        for (trials, numerator, denominator) in
            [(0, 1, 2), (1 << 41, 1, 2), (5, 3, 2), (5, 1, 0), (5, 1, 1 << 32)]
        {
            assert!(Binomial::new(trials, numerator, denominator).is_err());
        }
    }
}
