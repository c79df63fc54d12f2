//! A pair of distributions reduced to finitely many privacy losses.

use crate::special::LogSum;

/// Side of the true guarantee on which a discretisation errs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A pair that is easier to tell apart: what holds for it holds for the true one.
    Upper,
    /// A post-processing of the true pair: what fails for it fails for the true one.
    Lower,
}

/// One privacy loss `ln P/Q` with the logarithm of its mass under `P`; its mass under `Q` is `P e^{-loss}`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atom {
    pub(crate) loss: f64,
    pub(crate) log_p: f64,
}

/// A discrete pair `(P, Q)`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Atoms {
    pub(crate) atoms: Vec<Atom>,
    /// Mass of `P` where the loss is infinite, of `Q` where it is minus infinity.
    pub(crate) infinite_p: f64,
    pub(crate) infinite_q: f64,
}

impl Atoms {
    /// The pair `(Q, P)`.
    pub(crate) fn reversed(mut self) -> Self {
        for atom in &mut self.atoms {
            *atom = Atom {
                loss: -atom.loss,
                log_p: atom.log_p - atom.loss,
            };
        }
        std::mem::swap(&mut self.infinite_p, &mut self.infinite_q);
        self
    }

    /// Adds `weight` times another pair, as if it were announced which of them took place.
    pub(crate) fn append(&mut self, weight: f64, mut other: Self) {
        let shift = weight.ln();
        other.atoms.iter_mut().for_each(|atom| atom.log_p += shift);
        self.atoms.append(&mut other.atoms);
        self.infinite_p += weight * other.infinite_p;
        self.infinite_q += weight * other.infinite_q;
    }

    /// Adds the cell of outcomes whose losses lie in `[low, high]`, with mass `e^log_p` under `P`. `rise` in
    /// `[0, 1]` says where the cell lies between its ends: the mass under `Q` is
    /// `e^{log_p - low} (1 - rise (1 - e^{low - high}))`.
    pub(crate) fn push_cell(&mut self, bound: Bound, low: f64, high: f64, log_p: f64, rise: f64) {
        match bound {
            // Both masses of the cell on its two ends: the chord between two points of the hockey-stick curve
            // (connect the dots), which lies above it.
            Bound::Upper => {
                self.push(low, log_p + (-rise).ln_1p());
                self.push(high, log_p + rise.ln());
            }
            // One outcome for the whole cell.
            Bound::Lower => {
                let loss = low - (rise * (low - high).exp_m1()).ln_1p();
                self.push(loss, log_p);
            }
        }
    }

    pub(crate) fn push(&mut self, loss: f64, log_p: f64) {
        if log_p == f64::NEG_INFINITY {
            return;
        }
        if let Some(last) = self.atoms.last_mut()
            && last.loss == loss
        {
            let mut sum = LogSum::new();
            sum.add(last.log_p);
            sum.add(log_p);
            last.log_p = sum.get();
        } else {
            self.atoms.push(Atom { loss, log_p });
        }
    }

    /// The loss that weighs most.
    pub(crate) fn heaviest(&self, log_weight: impl Fn(&Atom) -> f64) -> Option<f64> {
        let weights = self.atoms.iter().map(|atom| (log_weight(atom), atom.loss));
        let heaviest = weights.max_by(|a, b| a.0.total_cmp(&b.0));
        heaviest
            .filter(|(weight, _)| *weight > f64::NEG_INFINITY)
            .map(|(_, loss)| loss)
    }

    /// The common distance of equally spaced losses with the first of them, where they are equally spaced.
    pub(crate) fn spacing(&self) -> Option<f64> {
        let mut losses: Vec<f64> = self.atoms.iter().map(|atom| atom.loss).collect();
        losses.sort_by(f64::total_cmp);
        let spread = losses.last()? - losses.first()?;
        losses.dedup_by(|a, b| (*a - *b).abs() <= 1e-12 * spread);
        let gap = losses
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .fold(f64::INFINITY, f64::min);
        let first = *losses.first()?;
        let even = losses.iter().all(|loss| {
            let steps = (loss - first) / gap;
            (steps - steps.round()).abs() < 1e-7
        });
        (gap.is_finite() && even).then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masses(atoms: &Atoms) -> (f64, f64) {
        let p = atoms.atoms.iter().map(|atom| atom.log_p.exp()).sum();
        let q = atoms
            .atoms
            .iter()
            .map(|atom| (atom.log_p - atom.loss).exp())
            .sum();
        (p, q)
    }

    #[test]
    fn cells_keep_both_masses() {
        for bound in [Bound::Upper, Bound::Lower] {
            let mut atoms = Atoms::default();
            atoms.push_cell(bound, -0.1, 0.3, 0.25f64.ln(), 0.7);
            let (p, q) = masses(&atoms);
            let want = 0.25 * 0.1f64.exp() * (1.0 - 0.7 * (1.0 - (-0.4f64).exp()));
            assert!(
                (p - 0.25).abs() < 1e-15 && (q - want).abs() < 1e-15,
                "{bound:?}: {p} {q}"
            );
            let (q, p) = masses(&atoms.reversed());
            assert!(
                (p - 0.25).abs() < 1e-15 && (q - want).abs() < 1e-15,
                "{bound:?}: {p} {q}"
            );
        }
    }

    #[test]
    fn spacing_of_even_and_uneven_losses() {
        let of = |losses: &[f64]| {
            let mut atoms = Atoms::default();
            losses.iter().for_each(|loss| atoms.push(*loss, 0.1f64.ln()));
            atoms.spacing()
        };
        assert_eq!(of(&[0.5, -0.5, 1.5]), Some(1.0));
        assert_eq!(of(&[0.5, -0.5, 1.4]), None);
        assert_eq!(of(&[0.5]), None);
    }
}
