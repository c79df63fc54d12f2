//! Buffered linear Toeplitz matrices: a few exponentially decaying buffers instead of the whole history.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::production::ProductionBlt;
use undertone_accounting::sensitivity::toeplitz::Toeplitz;

use super::banded_toeplitz::certified;
use crate::blt::series::Buffers;
use crate::blt::{interlace, rational};
use crate::error::{Result, setting};
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::workload::Workload;

/// BLT(theta, omega): lower-triangular Toeplitz with `c_0 = 1` and `c_i = sum_j omega_j theta_j^(i - 1)`, for any number
/// of rounds.
///
/// Decays are kept as `1 - theta`: good parameters have a theta so near to 1 that it would lose its meaning.
///
/// # Guarantee
/// The sensitivity is exact where the coefficients never grow (all that optimisation finds), otherwise a proved bound.
///
/// # Source
/// \[BLT\] equation 2, Algorithms 3 and 5, Theorem 3.1.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::production::BLT_400;
/// use undertone_mechanisms::{Blt, Strategy, Workload};
///
/// let strategy = Strategy::Blt(Blt::production(&BLT_400)?);
/// let schema = Participation::at_least(Gap::new(400)?, 5)?;
/// let errors = strategy.errors(2000, &Workload::prefix_sum())?;
/// let losses = errors.losses(strategy.squared_sensitivity(2000, &schema)?.squared);
/// assert!((losses.max_loss - 9.4313).abs() < 5e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Blt {
    decay_complements: Vec<f64>,
    output_scales: Vec<f64>,
}

read_by!(from_complements(decay_complements, output_scales) of Blt { decay_complements: Vec<f64>, output_scales: Vec<f64> });

/// Parameters of the inverse of a [`Blt`]: itself of the same form, with negative scales.
#[derive(Debug, Clone, PartialEq)]
pub struct BltInverse {
    /// `theta_hat`, one for each buffer, interlaced with the decays. The last is negative if `sum omega / theta > 1`.
    pub decays: Vec<f64>,
    /// `omega_hat`, none positive.
    pub output_scales: Vec<f64>,
}

impl Blt {
    /// Creates the matrix from decays theta in `[0, 1]` and output scales omega.
    ///
    /// # Errors
    /// No buffers, different numbers, a decay outside its range, or a scale that is negative or not finite.
    pub fn new(theta: &[f64], omega: &[f64]) -> Result<Self> {
        Self::from_complements(theta.iter().map(|theta| 1.0 - theta).collect(), omega.to_vec())
    }

    /// Creates the matrix from `1 - theta` in `[0, 1]` and output scales.
    ///
    /// # Errors
    /// As [`Blt::new`].
    pub(crate) fn from_complements(decay_complements: Vec<f64>, output_scales: Vec<f64>) -> Result<Self> {
        let wrong = |name, expected, got| Err(setting(name, expected, got));
        if decay_complements.is_empty() {
            return wrong("number of buffers", "at least 1", 0.0);
        }
        if decay_complements.len() != output_scales.len() {
            let got = output_scales.len() as f64;
            return wrong("number of output scales", "the number of buffers", got);
        }
        if let Some(got) = decay_complements.iter().find(|r| !(0.0..=1.0).contains(*r)) {
            return wrong("buffer decay", "in [0, 1]", 1.0 - got);
        }
        if let Some(got) = output_scales.iter().find(|w| !(w.is_finite() && **w >= 0.0)) {
            return wrong("output scale", "a finite number >= 0", *got);
        }
        Ok(Self {
            decay_complements,
            output_scales,
        })
    }

    /// One of the production parameter sets.
    ///
    /// # Errors
    /// Parameters that are out of range.
    ///
    /// # Source
    /// \[BLT\] Appendix A; see [`undertone_accounting::sensitivity::production`].
    pub fn production(parameters: &ProductionBlt) -> Result<Self> {
        Self::new(&parameters.theta, &parameters.omega)
    }

    /// The rational approximation of `1 / sqrt(1 - x)`: good at any number of rounds, best at none. Its first decay is 1.
    ///
    /// # Errors
    /// No buffers, or so many that their parameters leave the range of numbers (above about 100).
    ///
    /// # Source
    /// Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy" (2024),
    /// Proposition 4.5.
    pub fn rational(buffers: usize) -> Result<Self> {
        if buffers == 0 {
            return Self::from_complements(Vec::new(), Vec::new());
        }
        let (complements, scales) = rational::square_root(buffers);
        Self::from_complements(complements, scales)
    }

    /// Number of buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.output_scales.len()
    }

    /// `1 - theta`, one for each buffer.
    #[must_use]
    pub fn decay_complements(&self) -> &[f64] {
        &self.decay_complements
    }

    /// `theta`, one for each buffer; to print, not to compute with.
    #[must_use]
    pub fn decays(&self) -> Vec<f64> {
        self.decay_complements.iter().map(|r| 1.0 - r).collect()
    }

    /// `omega`, one for each buffer.
    #[must_use]
    pub fn output_scales(&self) -> &[f64] {
        &self.output_scales
    }

    /// `sum_j omega_j / theta_j`. At most 1 means that all inverse decays are non-negative; infinite if a decay is 0.
    #[must_use]
    pub fn pillutla_score(&self) -> f64 {
        let terms = self.output_scales.iter().zip(&self.decay_complements);
        terms
            .filter(|(omega, _)| **omega > 0.0)
            .map(|(omega, r)| omega / (1.0 - r))
            .sum()
    }

    /// Parameters of the inverse matrix, in the order of the decays from the largest down.
    ///
    /// A buffer without output, and all but one of several with the same decay, cancel: their inverse decay is the decay
    /// itself, their scale 0.
    #[must_use]
    pub fn inverse(&self) -> BltInverse {
        let mut buffers: Vec<(f64, f64)> = self
            .decay_complements
            .iter()
            .copied()
            .zip(self.output_scales.iter().copied())
            .collect();
        buffers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut poles, mut weights, mut idle): (Vec<f64>, Vec<f64>, Vec<f64>) = Default::default();
        for (complement, output) in buffers {
            if poles.last() == Some(&complement) {
                idle.push(complement);
                *weights.last_mut().unwrap_or(&mut 0.0) += output;
            } else if output == 0.0 {
                idle.push(complement);
            } else {
                poles.push(complement);
                weights.push(output);
            }
        }
        let distances = interlace::roots(&poles, &weights);
        // `theta_hat_i - theta_j`: from the distance to the own pole, which may be far below the poles' precision.
        let scale = |i: usize| {
            let others = (0..poles.len()).filter(|&j| j != i);
            others.fold(-distances[i], |product, j| {
                let to_pole = (poles[i] - poles[j]) + distances[i];
                let to_root = (poles[i] - poles[j]) + (distances[i] - distances[j]);
                product * (to_pole / to_root)
            })
        };
        let mut inverse: Vec<(f64, f64)> = (0..poles.len())
            .map(|i| (1.0 - (poles[i] + distances[i]), scale(i)))
            .chain(idle.into_iter().map(|complement| (1.0 - complement, 0.0)))
            .collect();
        inverse.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (decays, output_scales) = inverse.into_iter().unzip();
        BltInverse {
            decays,
            output_scales,
        }
    }

    pub(crate) fn series(&self) -> Buffers<'_> {
        Buffers {
            complements: &self.decay_complements,
            outputs: &self.output_scales,
        }
    }

    /// First column of the matrix, one number per round.
    #[must_use]
    pub fn coefficients(&self, rounds: usize) -> Vec<f64> {
        self.series().coefficients(rounds)
    }

    /// First column of the inverse, one number per round.
    #[must_use]
    pub fn inverse_coefficients(&self, rounds: usize) -> Vec<f64> {
        self.series().inverse_coefficients(rounds)
    }

    pub(super) fn name(&self) -> String {
        format!("BLT({})", self.buffers())
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        certified(&Toeplitz::new(self.coefficients(rounds))?, participation)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        self.series().variances(&[], workload, rounds)
    }

    pub(super) fn recurrence(&self, _rounds: usize) -> Result<Recurrence> {
        Ok(Recurrence::Buffers {
            decay_complement: self.decay_complements.clone(),
            output: self.output_scales.clone(),
            scale: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::sensitivity::production::{BLT_100, BLT_400, all};

    use super::*;
    use crate::blt::pair;
    use crate::testing::{at_least, close};

    fn check_losses(blt: &Blt, (rounds, gap, max_par): (usize, u64, u64), want: [f64; 3]) {
        let schema = at_least(gap, max_par);
        let certified = blt.squared_sensitivity(rounds, &schema).unwrap();
        let variances = blt.variances(rounds, &Workload::prefix_sum()).unwrap();
        let errors = crate::Errors::from_variances(variances);
        let losses = errors.losses(certified.squared);
        assert!(certified.exact);
        close(losses.sensitivity, want[0], 1e-12);
        close(losses.max_loss, want[1], 1e-12);
        close(losses.rms_loss, want[2], 1e-12);
    }

    /// The expected numbers come from 60-digit arithmetic.
    #[test]
    fn losses_of_production_sets_match_sixty_digits() {
        let blt = Blt::production(&BLT_100).unwrap();
        check_losses(
            &blt,
            (2000, 400, 5),
            [4.283752993215743, 10.504116032047019, 8.498084642966106],
        );
        check_losses(
            &blt,
            (2000, 100, 20),
            [11.033736255791146, 27.0556323115237, 21.888662763323513],
        );
    }

    fn check_inverse(blt: &Blt, decays: &[f64], score: f64) {
        let inverse = blt.inverse();
        for (got, want) in inverse.decays.iter().zip(decays) {
            close(*got, *want, 1e-13);
        }
        if score > 0.0 {
            close(blt.pillutla_score(), score, 1e-14);
        }
        // The inverse's series by its own parameters, as by the recursion.
        let series = blt.inverse_coefficients(200);
        for (i, want) in series.iter().enumerate().skip(1) {
            let terms = inverse.decays.iter().zip(&inverse.output_scales);
            let got: f64 = terms.map(|(decay, scale)| scale * decay.powi(i as i32 - 1)).sum();
            assert!((got - want).abs() < 1e-14, "{i}: {got} {want}");
        }
    }

    /// The expected numbers come from 60-digit arithmetic.
    #[test]
    fn inverses_of_production_sets_match_sixty_digits() {
        check_inverse(
            &Blt::production(&BLT_100).unwrap(),
            &[
                0.9063582476301159,
                0.46050265001632806,
                0.1677619998180503,
                0.017642795140428474,
            ],
            0.9396775309115676,
        );
        let third = Blt::production(&BLT_100).unwrap().inverse().output_scales[2];
        // Two decays 3e-11 apart leave five digits of the gap, hence of the scale between them.
        close(third, -3.879623957775543e-21, 1e-4);
        for parameters in all() {
            check_inverse(&Blt::production(parameters).unwrap(), &[], 0.0);
        }
    }

    #[test]
    fn equal_decays_and_idle_buffers_cancel() {
        let blt = Blt::new(&[0.5, 0.9, 0.5, 0.7], &[0.2, 0.1, 0.1, 0.0]).unwrap();
        let plain = Blt::new(&[0.9, 0.5], &[0.1, 0.3]).unwrap().inverse();
        let inverse = blt.inverse();
        assert_eq!(inverse.decays.len(), 4);
        check_inverse(&blt, &[plain.decays[0], 0.7, 0.5, plain.decays[1]], 0.0);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for (theta, omega) in [
            (vec![], vec![]),
            (vec![0.5], vec![]),
            (vec![1.5], vec![0.1]),
            (vec![f64::NAN], vec![0.1]),
            (vec![0.5], vec![-0.1]),
            (vec![0.5], vec![f64::INFINITY]),
        ] {
            assert!(Blt::new(&theta, &omega).is_err(), "{theta:?} {omega:?}");
        }
        assert!(Blt::rational(0).is_err());
        // Decays that do not interlace give a negative scale.
        let (omega, _) = pair::output_scales(&[0.5], &[0.6]).unwrap();
        assert!(Blt::new(&[0.5], &omega).is_err());
        let blt = crate::Strategy::Blt(Blt::new(&[0.9], &[0.3]).unwrap());
        assert!(blt.errors(0, &Workload::prefix_sum()).is_err() && blt.recurrence(0).is_err());
        let json = r#"{"decay_complements": [0.5], "output_scales": [-1.0]}"#;
        assert!(serde_json::from_str::<Blt>(json).is_err());
    }

    #[test]
    fn growing_coefficients_get_a_bound() {
        let steep = Blt::new(&[0.5, 0.5], &[0.8, 0.4]).unwrap();
        let schema = at_least(2, 2);
        let certified = steep.squared_sensitivity(4, &schema).unwrap();
        assert!(!certified.exact);
        // The majorant is (1.2, 1.2, 0.6, 0.3), its worst rounds 0 and 2; the matrix itself has 1 + 1.44 + 1.6^2 + 1.5^2.
        close(
            certified.squared.get(),
            1.44 + 1.44 + 1.8 * 1.8 + 1.5 * 1.5,
            1e-14,
        );
    }

    #[test]
    fn json_keeps_every_bit() {
        let blt = Blt::production(&BLT_400).unwrap();
        let json = serde_json::to_string(&crate::Strategy::Blt(blt.clone())).unwrap();
        assert!(
            json.starts_with(r#"{"kind":"blt","decay_complements":["#),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<crate::Strategy>(&json).unwrap(),
            crate::Strategy::Blt(blt)
        );
    }
}
