//! Column norms of a BLT over a run, the sensitivity of its column-normalised form, and gradients of both.

use super::interlaced::{Interlaced, Places};

/// Norms of the columns and what they come from.
pub(super) struct Columns {
    coefficients: Vec<f64>,
    norms: Vec<f64>,
}

impl Columns {
    /// Computes the norms from the residues of the chain from place 1.
    pub(super) fn new(chain: &Interlaced, residues: &Places, rounds: usize) -> Self {
        let d = chain.buffers;
        let place = |j: usize| 2 * j + 1;
        let complements: Vec<f64> = (0..d).map(|j| chain.complement(place(j))).collect();
        let mut terms: Vec<f64> = (0..d)
            .map(|j| residues[place(j)] * (-chain.logs[place(j)]).exp())
            .collect();
        let mut coefficients = vec![1.0f64];
        coefficients.extend((1..rounds).map(|_| {
            let coefficient: f64 = terms.iter().sum();
            for (term, complement) in terms.iter_mut().zip(&complements) {
                *term -= *term * complement;
            }
            coefficient
        }));
        let mut sum = 0.0;
        let mut norms: Vec<f64> = coefficients
            .iter()
            .map(|coefficient: &f64| {
                sum += coefficient * coefficient;
                sum.sqrt()
            })
            .collect();
        norms.reverse();
        Self { coefficients, norms }
    }

    pub(super) fn norms(&self) -> &[f64] {
        &self.norms
    }

    /// Logarithm of the sensitivity for `max_par` participations from round 0 on, `gap` apart, the worst set of a
    /// column-normalised BLT. Adds the gradient, and what `by_norm` holds of the error, to `by_residue` and `by_log`.
    pub(super) fn sensitivity(
        &self,
        chain: &Interlaced,
        residues: &Places,
        (gap, max_par): (usize, usize),
        mut by_norm: Vec<f64>,
        by_residue: &mut Places,
        by_log: &mut Places,
    ) -> f64 {
        let (c, rounds) = (&self.coefficients, self.coefficients.len());
        let starts = || (0..rounds).step_by(gap).take(max_par);
        let mut column = vec![0.0; rounds];
        for start in starts() {
            let scale = self.norms[start].recip();
            for (entry, coefficient) in column[start..].iter_mut().zip(c) {
                *entry += scale * coefficient;
            }
        }
        let total: f64 = column.iter().map(|entry| entry * entry).sum();
        let mut by_coefficient = vec![0.0; rounds];
        for start in starts() {
            let scale = (self.norms[start] * total).recip();
            let mut product = 0.0;
            for ((by, entry), coefficient) in by_coefficient.iter_mut().zip(&column[start..]).zip(c) {
                *by += scale * entry;
                product += entry * coefficient;
            }
            by_norm[start] -= product * scale / self.norms[start];
        }
        let mut by_square = 0.0;
        for i in (0..rounds).rev() {
            // The norm over the first i + 1 coefficients belongs to column rounds - 1 - i.
            let column = rounds - 1 - i;
            by_square += 0.5 * by_norm[column] / self.norms[column];
            by_coefficient[i] += 2.0 * c[i] * by_square;
        }
        for j in 0..chain.buffers {
            let place = 2 * j + 1;
            let log = chain.logs[place];
            let (complement, mut power) = (chain.complement(place), 1.0);
            let (mut by_scale, mut by_power) = (0.0, 0.0);
            for (i, by) in by_coefficient.iter().enumerate().skip(1) {
                by_scale += by * power;
                by_power += by * power * (i - 1) as f64;
                power -= power * complement;
            }
            let scale = residues[place] * (-log).exp();
            by_residue[place] += scale * by_scale;
            by_log[place] -= scale * (by_scale + by_power);
        }
        0.5 * total.ln()
    }
}
