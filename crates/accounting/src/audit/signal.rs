//! The strength of a canary under noise that is correlated by a lower triangular Toeplitz matrix `C`, and norms of differences under it.

use crate::AccountingError;
use crate::error::{ensure, out_of_range};

/// A lower triangular Toeplitz matrix over `rounds` rounds, by its first column; coefficients that are missing are zero.
#[derive(Debug, Clone, Copy)]
pub struct Toeplitz<'a> {
    /// The first column; the first entry is not zero.
    pub coefficients: &'a [f64],
    /// The number of rounds, `T`.
    pub rounds: usize,
}

impl Toeplitz<'_> {
    fn at(&self, lag: usize) -> f64 {
        self.coefficients.get(lag).copied().unwrap_or(0.0)
    }

    /// `C x` for the indicator of the rounds of a user.
    fn of_rounds(&self, participates: &[usize]) -> Vec<f64> {
        let mut sum = vec![0.0; self.rounds];
        for &first in participates {
            for (round, value) in sum.iter_mut().enumerate().skip(first) {
                *value += self.at(round - first);
            }
        }
        sum
    }

    /// `C^-T a`.
    fn solve_transposed(&self, a: &[f64]) -> Vec<f64> {
        let mut x = a.to_vec();
        for row in (0..self.rounds).rev() {
            let known: f64 = (row + 1..self.rounds)
                .map(|later| self.at(later - row) * x[later])
                .sum();
            x[row] = (a[row] - known) / self.at(0);
        }
        x
    }

    fn check(&self, participates: &[usize]) -> Result<(), AccountingError> {
        let first = self.at(0);
        ensure(
            first != 0.0 && first.is_finite(),
            "toeplitz[0]",
            "a finite number other than 0",
            first,
        )?;
        match participates.iter().find(|&&round| round >= self.rounds) {
            None => Ok(()),
            Some(&round) => Err(out_of_range(
                "participates",
                "rounds below `rounds`",
                round as f64,
            )),
        }
    }

    /// The distance `|C 1_P| / z` between a canary's releases in and out, in standard deviations, for all iterates.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for a round outside the run, or a first coefficient of 0.
    pub fn mu_all_iterates(
        &self,
        participates: &[usize],
        noise_multiplier: f64,
    ) -> Result<f64, AccountingError> {
        self.check(participates)?;
        Ok(norm(&self.of_rounds(participates)) / noise_multiplier)
    }

    /// The distance in the final model alone, of a linear server with this momentum.
    ///
    /// # Errors
    /// The errors of [`mu_all_iterates`](Self::mu_all_iterates), and one for a momentum outside `[0, 1)`.
    pub fn mu_final(
        &self,
        participates: &[usize],
        noise_multiplier: f64,
        momentum: f64,
    ) -> Result<f64, AccountingError> {
        self.check(participates)?;
        let holds = (0.0..1.0).contains(&momentum);
        ensure(holds, "server_momentum", "a number in [0, 1)", momentum)?;
        let weight = |round: usize| (1.0 - momentum.powf((self.rounds - round) as f64)) / (1.0 - momentum);
        let weights: Vec<f64> = (0..self.rounds).map(weight).collect();
        let signal: f64 = participates.iter().map(|&round| weights[round]).sum();
        Ok(signal / (noise_multiplier * norm(&self.solve_transposed(&weights))))
    }

    /// The Frobenius norm of `C D` for one difference vector per round of `participates`, by the Gram matrix of the differences.
    ///
    /// # Errors
    /// The errors of [`mu_all_iterates`](Self::mu_all_iterates). [`AccountingError::Size`] comes for vectors of different lengths, or for another
    /// number of vectors than rounds.
    pub fn norm_of(&self, participates: &[usize], differences: &[Vec<f64>]) -> Result<f64, AccountingError> {
        self.check(participates)?;
        let length = differences.first().map_or(0, Vec::len);
        let odd = differences.iter().map(Vec::len).find(|&len| len != length);
        if odd.is_some() || differences.len() != participates.len() {
            return Err(AccountingError::Size {
                quantity: "differences",
                expected: format!("{} vectors of equal length", participates.len()),
                got: odd.unwrap_or(differences.len()) as u64,
            });
        }
        let columns: Vec<Vec<f64>> = participates
            .iter()
            .map(|&round| self.of_rounds(&[round]))
            .collect();
        let mut total = 0.0;
        for (i, a) in differences.iter().enumerate() {
            for (j, b) in differences.iter().enumerate() {
                total += dot(&columns[i], &columns[j]) * dot(a, b);
            }
        }
        Ok(total.max(0.0).sqrt())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}
