//! BLT with columns scaled to norm one: late rounds, whose columns the end of the run cuts short, get less noise.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::normalised::NormalisedToeplitz;

use super::blt::Blt;
use super::identity::positive;
use super::normalised_toeplitz::normalised_certified;
use crate::error::Result;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::workload::Workload;

/// The matrix `C = T D^-1` for a fixed number of rounds: `T` a BLT, `D` the norms of its columns. The noise is
/// `C^-1 = D T^-1`: that of the BLT times one number per round, with the same buffers.
///
/// # Guarantee
/// The sensitivity over all rounds is exact for every schema: as early as possible is the worst case
/// ([`NormalisedToeplitz::squared_sensitivity`]), which holds for every BLT whose inverse decays are non-negative and is
/// checked on the coefficients. Over fewer rounds, and where the check fails, it is a proved bound.
///
/// # Source
/// Own.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::{Blt, NormalisedBlt, Strategy, Workload};
///
/// let blt = Blt::new(&[0.9937254056561524, 0.7889499650960767], &[0.141086426173556, 0.32590300080917545])?;
/// let strategy = Strategy::NormalisedBlt(NormalisedBlt::new(blt, 2052)?);
/// let schema = Participation::at_least(Gap::new(342)?, 6)?;
/// let certified = strategy.squared_sensitivity(2052, &schema)?;
/// let losses = strategy.errors(2052, &Workload::prefix_sum())?.losses(certified.squared);
/// assert!(certified.exact && (losses.rms_loss - 9.144942359388619).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct NormalisedBlt {
    pub(super) rounds: usize,
    blt: Blt,
}

read_by!(new(blt, rounds) of NormalisedBlt { rounds: usize, blt: Blt });

impl NormalisedBlt {
    /// The BLT normalised over so many rounds.
    ///
    /// # Errors
    /// No rounds, or squared coefficients that overflow.
    pub fn new(blt: Blt, rounds: usize) -> Result<Self> {
        positive(rounds)?;
        let normalised = Self { rounds, blt };
        normalised.matrix()?;
        Ok(normalised)
    }

    /// The BLT whose columns are normalised.
    #[must_use]
    pub fn blt(&self) -> &Blt {
        &self.blt
    }

    /// The diagonal of `D`: norms of the columns of `T`, one per round. They fall.
    ///
    /// # Errors
    /// None for a value that was constructed.
    pub fn column_norms(&self) -> Result<Vec<f64>> {
        Ok(self.matrix()?.column_norms())
    }

    fn matrix(&self) -> Result<NormalisedToeplitz> {
        Ok(NormalisedToeplitz::new(self.blt.coefficients(self.rounds))?)
    }

    pub(super) fn name(&self) -> String {
        format!("normalised BLT({})", self.blt.buffers())
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        normalised_certified(self.blt.coefficients(self.rounds), rounds, participation)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        self.blt
            .series()
            .variances(&self.column_norms()?, workload, rounds)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let mut scale = self.column_norms()?;
        scale.truncate(rounds);
        Ok(Recurrence::Buffers {
            decay_complement: self.blt.decay_complements().to_vec(),
            output: self.blt.output_scales().to_vec(),
            scale,
        })
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::testing::{at_least, close};

    fn check(theta: &[f64], omega: &[f64], want: [f64; 4]) {
        let strategy = NormalisedBlt::new(Blt::new(theta, omega).unwrap(), 2052).unwrap();
        let schema = at_least(342, 6);
        let certified = strategy.squared_sensitivity(2052, &schema).unwrap();
        let variances = strategy.variances(2052, &Workload::prefix_sum()).unwrap();
        let errors = crate::Errors::from_variances(variances);
        assert!(certified.exact);
        close(certified.squared.sensitivity(), want[0], 1e-10);
        close(errors.max_error, want[1], 1e-10);
        close(errors.rms_error, want[2], 1e-10);
        close(errors.losses(certified.squared).max_loss, want[3], 1e-10);
        let once = strategy
            .squared_sensitivity(2052, &Participation::single())
            .unwrap();
        assert!(once.exact);
        close(once.squared.get(), 1.0, 1e-12);
    }

    /// The expected numbers come from an independent implementation with dense matrices.
    #[test]
    fn sensitivity_and_errors_match_dense_matrices() {
        check(
            &[
                0.9986213916671374,
                0.9850630555611266,
                0.9053907728427061,
                0.5289727448007506,
            ],
            &[
                0.04728953229108102,
                0.0747293911054319,
                0.16372904122773235,
                0.21295738492360552,
            ],
            [
                3.1334780606684722,
                3.3805089023920267,
                3.2230471548124053,
                10.592750479539873,
            ],
        );
        check(
            &[
                0.9939007882664715,
                0.8610874318475372,
                0.4049274561845635,
                0.09450193689352404,
            ],
            &[
                0.13652558980367513,
                0.20983818183073807,
                0.15596129113555862,
                0.000364367155913441,
            ],
            [
                2.6053171939856807,
                4.0674374528350095,
                3.5059542713353746,
                10.596964731332372,
            ],
        );
    }

    #[test]
    fn zero_rounds_are_refused_even_in_json() {
        let blt = Blt::new(&[0.9], &[0.2]).unwrap();
        assert!(NormalisedBlt::new(blt.clone(), 0).is_err());
        let strategy = NormalisedBlt::new(blt, 8).unwrap();
        let json = serde_json::to_string(&crate::Strategy::NormalisedBlt(strategy.clone())).unwrap();
        assert!(
            json.starts_with(r#"{"kind":"normalised-blt","rounds":8,"blt":{"#),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<crate::Strategy>(&json).unwrap(),
            crate::Strategy::NormalisedBlt(strategy)
        );
        assert!(
            serde_json::from_str::<NormalisedBlt>(&json.replace("\"rounds\":8", "\"rounds\":0")).is_err()
        );
    }
}
