//! Canaries in the final model, for an attacker who saw none of the rounds before.
//!
//! A server that only adds ends at the sum of all releases, each times a factor of its round. That sum holds the noise of all rounds, and
//! a user's updates of few rounds. Correlated noise cancels in the sum, so the final model tells more of a user than under independent noise.

use undertone_accounting::NoiseMultiplier;
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_mechanisms::audit::Definition;

use undertone_run_directory::error::{DirectoryError, Result};

/// The rounds of the canaries, as the attacker knows them.
#[derive(Debug, Clone, Copy)]
pub enum Rounds<'a> {
    /// The rounds that each canary was drawn in.
    Known(&'a [Vec<usize>]),
    /// The coins of Poisson cohorts, which are secret.
    Secret(SecretCoins),
}

/// The part of a value that a canary adds if it is in.
#[derive(Debug, Clone, PartialEq)]
enum Signal {
    /// A number per canary, which its rounds give.
    Known(Vec<f64>),
    /// Mean and variance over the coins of Poisson cohorts.
    Secret { mean: f64, variance: f64 },
}

/// The values of the canaries in the final model, in units in which their noise has the standard deviation of a whitened value.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalModel {
    values: Vec<f64>,
    signal: Signal,
}

impl FinalModel {
    /// The final model of a server that adds each release times its factor.
    ///
    /// `whitened` has one row per round with the value of each of `canaries` canaries, in units of one contribution. `definition` is the
    /// matrix of correlated noise.
    ///
    /// # Errors
    /// [`DirectoryError`] for factors without a finite norm; from the matrix.
    pub fn new(
        factors: &[f64],
        definition: Option<&Definition>,
        rounds: Rounds<'_>,
        whitened: &[f64],
        canaries: usize,
    ) -> Result<Self> {
        let weights = match definition {
            Some(definition) => definition.solve_transposed(factors)?,
            None => factors.to_vec(),
        };
        let norm = weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt();
        if !(norm > 0.0 && norm.is_finite()) {
            let expected = "a server whose factors have a finite norm above 0";
            return Err(DirectoryError::value("server", expected, norm));
        }
        let mut values = vec![0.0; canaries];
        for (row, weight) in whitened.chunks(canaries.max(1)).zip(&weights) {
            for (sum, value) in values.iter_mut().zip(row) {
                *sum += weight / norm * value;
            }
        }
        let of_rounds = |rounds: &Vec<usize>| {
            let factors = rounds.iter().filter_map(|&round| factors.get(round));
            factors.sum::<f64>() / norm
        };
        let signal = match rounds {
            Rounds::Known(rounds) => Signal::Known(rounds.iter().map(of_rounds).collect()),
            Rounds::Secret(coins) => {
                let squares = factors.iter().map(|factor| factor * factor).sum::<f64>();
                Signal::Secret {
                    mean: coins.mean() * factors.iter().sum::<f64>() / norm,
                    variance: coins.variance() * squares / (norm * norm),
                }
            }
        };
        Ok(Self { values, signal })
    }

    /// Changes the unit of the values, so that their noise has the standard deviation `to` instead of `from`.
    #[must_use]
    pub fn in_units(mut self, from: f64, to: f64) -> Self {
        let factor = to / from;
        self.values.iter_mut().for_each(|value| *value *= factor);
        match &mut self.signal {
            Signal::Known(signals) => signals.iter_mut().for_each(|signal| *signal *= factor),
            Signal::Secret { mean, variance } => {
                *mean *= factor;
                *variance *= factor * factor;
            }
        }
        self
    }

    /// The score of each canary, in against out: the log likelihood ratio under known rounds. Under secret coins it is that of the normal
    /// distribution with the same mean and variance.
    #[must_use]
    pub fn scores(&self, noise_multiplier: NoiseMultiplier) -> Vec<f64> {
        let noise = noise_multiplier.get().powi(2);
        match &self.signal {
            Signal::Known(signals) => {
                let of = |(value, signal): (&f64, &f64)| signal * (value - 0.5 * signal) / noise;
                self.values.iter().zip(signals).map(of).collect()
            }
            &Signal::Secret { mean, variance } => {
                let spread = noise + variance;
                let of = |value: &f64| {
                    0.5 * (value * value / noise - (value - mean).powi(2) / spread - (spread / noise).ln())
                };
                self.values.iter().map(of).collect()
            }
        }
    }

    /// The signal of each canary and its product with the value, under known rounds.
    #[must_use]
    pub fn matched(&self) -> Option<(&[f64], Vec<f64>)> {
        match &self.signal {
            Signal::Known(signals) => {
                let matched = signals.iter().zip(&self.values).map(|(a, b)| a * b);
                Some((signals, matched.collect()))
            }
            Signal::Secret { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::SamplingProbability;
    use undertone_mechanisms::{BandedToeplitz, Strategy};

    use super::*;

    /// A canary's value without noise is its signal. For a server with momentum, mpmath has computed the reference
    /// `sum_P a_t / |C^-T a|` with `a_t = (1 - momentum^(T - t)) / (1 - momentum)`.
    #[test]
    fn a_value_without_noise_is_the_signal_of_the_reference() {
        let (band, rounds, momentum) = (vec![1.0, 0.5, 0.25], 10, 0.9);
        let of_canary = vec![vec![0, 3, 6], vec![0]];
        let strategy = Strategy::BandedToeplitz(BandedToeplitz::new(band).unwrap());
        let definition = Definition::new(&strategy, rounds).unwrap();
        let factors: Vec<f64> = (0..rounds)
            .map(|round| (1.0 - f64::powi(momentum, (rounds - round) as i32)) / (1.0 - momentum))
            .collect();
        let mut releases = vec![0.0f32; 2 * rounds];
        for (canary, rounds) in of_canary.iter().enumerate() {
            rounds.iter().for_each(|round| releases[2 * round + canary] = 1.0);
        }
        let whitened = definition.whiten(&releases, 2).unwrap();
        let known = Rounds::Known(&of_canary);
        let last = FinalModel::new(&factors, Some(&definition), known, &whitened, 2).unwrap();
        let (signals, matched) = last.matched().unwrap();
        for (canary, want) in [1.750_105_444_829_037_6, 0.751_442_334_908_496_1]
            .into_iter()
            .enumerate()
        {
            let signal = signals[canary];
            assert!((signal - want).abs() < 1e-12 && (last.values[canary] - signal).abs() < 1e-6);
            assert!((matched[canary] - signal * signal).abs() < 1e-6 * signal);
        }
        let scores = last.scores(NoiseMultiplier::new(2.0).unwrap());
        assert!((scores[1] - 0.5 * signals[1].powi(2) / 4.0).abs() < 1e-6);
    }

    /// With equal factors and secret coins, the mean of a canary that is in is `q T` contributions over the root of `T`.
    #[test]
    fn secret_coins_leave_a_mean_and_a_variance() {
        let coins = SecretCoins::poisson(SamplingProbability::new(0.25).unwrap());
        let last = FinalModel::new(&[0.5; 16], None, Rounds::Secret(coins), &[1.0; 16], 1).unwrap();
        assert_eq!(last.values, [4.0]);
        assert_eq!(
            last.signal,
            Signal::Secret {
                mean: 1.0,
                variance: 0.1875
            }
        );
        let score = last.scores(NoiseMultiplier::new(1.0).unwrap())[0];
        assert!((score - 0.5 * (16.0 - 9.0 / 1.1875 - 1.1875f64.ln())).abs() < 1e-12);
        assert!(last.matched().is_none());
        assert!(FinalModel::new(&[0.0; 4], None, Rounds::Secret(coins), &[1.0; 4], 1).is_err());
        let other = last.clone().in_units(2.0, 1.0);
        let noise = NoiseMultiplier::new(0.5).unwrap();
        assert!((other.scores(noise)[0] - score).abs() < 1e-12);
    }
}
