//! BLT with columns scaled to norm one: late rounds, whose columns the end of the run cuts short, get less noise.

use serde::{Deserialize, Serialize};
use undertone_accounting::AccountingError;
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::normalised::NormalisedToeplitz;

use super::blt::Blt;
use super::identity::positive;
use crate::error::{MechanismError, Result, ensure};
use crate::loss::{Certified, Errors};
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
    rounds: usize,
    blt: Blt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    rounds: usize,
    blt: Blt,
}

impl TryFrom<Unchecked> for NormalisedBlt {
    type Error = MechanismError;

    fn try_from(value: Unchecked) -> Result<Self> {
        Self::new(value.blt, value.rounds)
    }
}

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

    fn check(&self, rounds: usize) -> Result<()> {
        positive(rounds)?;
        let expected = "at most the number of rounds that the matrix was made for";
        ensure(rounds <= self.rounds, "rounds", expected, rounds as f64)?;
        Ok(())
    }

    pub(super) fn name(&self) -> String {
        format!("normalised BLT({})", self.blt.buffers())
    }

    pub(super) fn rounds(&self) -> Option<usize> {
        Some(self.rounds)
    }

    pub(super) fn kept_vectors(&self, _rounds: usize) -> usize {
        self.blt.buffers()
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<Certified> {
        self.check(rounds)?;
        let matrix = self.matrix()?;
        match matrix.squared_sensitivity(rounds, participation) {
            Ok(squared) => Ok(Certified::exact(squared)),
            Err(AccountingError::NoExactSensitivity { .. }) => Ok(Certified::upper_bound(
                matrix.squared_sensitivity_bound(rounds, participation)?,
            )),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn errors(&self, rounds: usize, workload: &Workload) -> Result<Errors> {
        self.check(rounds)?;
        let variances = self
            .blt
            .series()
            .variances(&self.column_norms()?, workload, rounds)?;
        Ok(Errors::from_variances(variances))
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        self.check(rounds)?;
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
    use proptest::prelude::*;
    use undertone_accounting::participation::{Gap, Spacing};

    use super::*;

    fn close(got: f64, want: f64, tolerance: f64) {
        assert!((got / want - 1.0).abs() <= tolerance, "{got} {want}");
    }

    fn check(theta: &[f64], omega: &[f64], want: [f64; 4]) {
        let strategy = NormalisedBlt::new(Blt::new(theta, omega).unwrap(), 2052).unwrap();
        let schema = Participation::at_least(Gap::new(342).unwrap(), 6).unwrap();
        let certified = strategy.squared_sensitivity(2052, &schema).unwrap();
        let errors = strategy.errors(2052, &Workload::prefix_sum()).unwrap();
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

    /// By an independent implementation with dense matrices.
    #[test]
    fn reference_values() {
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
    fn rounds_beyond_the_matrix_are_refused() {
        let blt = Blt::new(&[0.9], &[0.2]).unwrap();
        assert!(NormalisedBlt::new(blt.clone(), 0).is_err());
        let strategy = NormalisedBlt::new(blt, 8).unwrap();
        assert!(strategy.recurrence(9).is_err() && strategy.recurrence(0).is_err());
        assert!(strategy.errors(9, &Workload::prefix_sum()).is_err());
        assert!(strategy.squared_sensitivity(9, &Participation::single()).is_err());
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

    fn schema() -> impl Strategy<Value = Participation> {
        (1u64..7, 1u64..7, any::<bool>()).prop_map(|(gap, max_par, at_least)| {
            let gap = Gap::new(gap).unwrap();
            if at_least {
                Participation::at_least(gap, max_par).unwrap()
            } else {
                Participation::fixed_epochs(gap, max_par).unwrap()
            }
        })
    }

    /// The largest `|| C u ||^2` over all sets, by the matrix.
    fn maximum(column: &[f64], norms: &[f64], rounds: usize, schema: &Participation) -> f64 {
        let (gap, max_par) = (schema.gap().get() as usize, schema.max_participation());
        let mut largest = 0.0f64;
        for mask in 0u32..1 << rounds {
            let set: Vec<usize> = (0..rounds).filter(|round| mask >> round & 1 == 1).collect();
            let admitted = set.len() as u64 <= max_par
                && set.windows(2).all(|pair| match schema.spacing() {
                    Spacing::AtLeast => pair[1] - pair[0] >= gap,
                    Spacing::Exactly => pair[1] - pair[0] == gap,
                });
            if admitted {
                let row = |i: usize| -> f64 {
                    set.iter()
                        .filter(|&&j| j <= i)
                        .map(|&j| column[i - j] / norms[j])
                        .sum()
                };
                largest = largest.max((0..rounds).map(|i| row(i) * row(i)).sum());
            }
        }
        largest
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(120))]

        #[test]
        fn sensitivity_over_all_sets(
            buffers in prop::collection::vec((0.0..=1.0f64, 0.0..1.0f64), 1..4),
            total in 0.0..1.4f64,
            rounds in 1usize..=14,
            stop in 0usize..3,
            schema in schema(),
        ) {
            let (theta, omega): (Vec<f64>, Vec<f64>) = buffers.into_iter().unzip();
            let sum: f64 = omega.iter().sum::<f64>().max(1e-3);
            let omega: Vec<f64> = omega.iter().map(|omega| total * omega / sum).collect();
            let blt = Blt::new(&theta, &omega).unwrap();
            let column = blt.coefficients(rounds);
            let check = |certified: Certified, want: f64| {
                let got = certified.squared.get();
                prop_assert!(got >= want * (1.0 - 1e-12), "{} {}", got, want);
                prop_assert!(!certified.exact || got <= want * (1.0 + 1e-9), "{} {}", got, want);
                Ok(())
            };
            check(
                blt.squared_sensitivity(rounds, &schema).unwrap(),
                maximum(&column, &vec![1.0; rounds], rounds, &schema),
            )?;
            let strategy = NormalisedBlt::new(blt.clone(), rounds).unwrap();
            let norms = strategy.column_norms().unwrap();
            let some = rounds.saturating_sub(stop).max(1);
            let certified = strategy.squared_sensitivity(some, &schema).unwrap();
            check(certified, maximum(&column, &norms, some, &schema))?;
            // Inverse decays that are non-negative make the coefficients log-convex, the whole run then exact.
            prop_assert!(certified.exact || some < rounds || blt.pillutla_score() > 1.0);
        }

        #[test]
        fn errors_as_by_the_recurrence(theta in 0.0..=1.0f64, omega in 0.0..1.0f64, rounds in 1usize..12) {
            let strategy = NormalisedBlt::new(Blt::new(&[theta, 0.3], &[omega, 0.1]).unwrap(), rounds).unwrap();
            let norms = strategy.column_norms().unwrap();
            let inverse = strategy.blt.inverse_coefficients(rounds);
            let row = |t: usize| -> f64 {
                let entry = |s: usize| -> f64 { (s..=t).map(|i| norms[i] * inverse[i - s]).sum() };
                (0..=t).map(|s| entry(s).powi(2)).sum()
            };
            let want = Errors::from_variances((0..rounds).map(row));
            let got = strategy.errors(rounds, &Workload::prefix_sum()).unwrap();
            prop_assert!((got.max_error / want.max_error - 1.0).abs() < 1e-12);
            prop_assert!((got.rms_error / want.rms_error - 1.0).abs() < 1e-12);
        }
    }
}
