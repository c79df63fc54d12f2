//! The largest noise of a single round.

use super::Mechanism;
use crate::error::Result;
use crate::sampler::uniform::NoiseKey;
use crate::strategy::Strategy;
use crate::stream::engine::StreamOptions;
use crate::stream::{NoiseStream, StreamShape};
use crate::workload::Workload;

impl Mechanism {
    /// The largest standard deviation of the noise of one round, for standard deviation 1 in every entry of `Z`: the largest norm of
    /// a row of `C^-1`. Costs about as much as the noise of a run over as many coordinates as there are rounds.
    ///
    /// # Errors
    /// Not enough memory.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{NoiseMultiplier, participation::Participation};
    /// use undertone_mechanisms::{Mechanism, Strategy, Tree};
    ///
    /// let noise = NoiseMultiplier::new(3.0)?;
    /// let tree = Mechanism::new(Strategy::Tree(Tree::new()), 4, Participation::single(), noise)?;
    /// assert!(tree.largest_row()? > 1.0);
    /// # Ok::<(), undertone_mechanisms::MechanismError>(())
    /// ```
    pub fn largest_row(&self) -> Result<f64> {
        match self.strategy() {
            Strategy::Tree(_) => self.largest_of_tree(),
            strategy => {
                let rounds = self.rounds();
                let shape = StreamShape { rounds, dim: rounds };
                // No key draws anything: every coordinate gets the noise of one round.
                let key = NoiseKey::from_bytes([0; 32]);
                let recurrence = strategy.recurrence(rounds)?;
                let mut stream = NoiseStream::new(&recurrence, shape, 1.0, key, StreamOptions::default())?;
                let (mut row, mut largest) = (vec![0.0; rounds], 0.0f64);
                for round in 0..rounds {
                    row.fill(0.0);
                    row[round] = 1.0;
                    stream.correlate(&mut row)?;
                    let squared = row.iter().map(|&entry| f64::from(entry).powi(2)).sum();
                    largest = largest.max(squared);
                }
                Ok(largest.sqrt())
            }
        }
    }

    /// A tree takes the most off in the rounds in which all of its nodes give way to one: after `2^k` rounds.
    fn largest_of_tree(&self) -> Result<f64> {
        let mut largest = 1.0f64;
        let mut rounds = 1;
        while rounds <= self.rounds() {
            let mut only_this = vec![0.0; self.rounds()];
            only_this[rounds - 1] = 1.0;
            let workload = Workload::prefix_sum().with_learning_rates(only_this)?;
            largest = largest.max(self.errors(&workload)?.max_error);
            rounds *= 2;
        }
        Ok(largest)
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::NoiseMultiplier;
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::{Blt, Tree};

    fn of(strategy: Strategy, rounds: usize) -> Mechanism {
        let noise = NoiseMultiplier::new(1.0).unwrap();
        Mechanism::new(strategy, rounds, Participation::single(), noise).unwrap()
    }

    /// The search looks at some rounds of a tree; this test looks at all of them.
    #[test]
    fn no_round_of_a_tree_has_more_noise() {
        let mechanism = of(Strategy::Tree(Tree::new()), 70);
        let largest = mechanism.largest_row().unwrap();
        let mut all = 0.0f64;
        for round in 0..70 {
            let mut only_this = vec![0.0; 70];
            only_this[round] = 1.0;
            let workload = Workload::prefix_sum().with_learning_rates(only_this).unwrap();
            all = all.max(mechanism.errors(&workload).unwrap().max_error);
        }
        assert_eq!(largest, all);
        let long = of(Strategy::Tree(Tree::new()), 2048).largest_row().unwrap();
        assert!((2.0..2.6).contains(&long), "{long}");
    }

    /// Independent noise has no more than its own; of one buffer the rows of the inverse are known.
    #[test]
    fn the_largest_row_matches_known_inverses() {
        assert_eq!(
            of(Strategy::Independent(crate::IdentityMatrix), 9)
                .largest_row()
                .unwrap(),
            1.0
        );
        let (decay, scale) = (0.9f64, 0.3f64);
        let blt = Blt::new(&[decay], &[scale]).unwrap();
        // C = 1 + sum_i scale decay^(i-1) L^i, so C^-1 = 1 - scale sum_i (decay - scale)^(i-1) L^i.
        let inverse = (0..49).map(|i| scale * (decay - scale).powi(i));
        let expected = (1.0 + inverse.map(|entry| entry * entry).sum::<f64>()).sqrt();
        let found = of(Strategy::Blt(blt), 50).largest_row().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    }
}
