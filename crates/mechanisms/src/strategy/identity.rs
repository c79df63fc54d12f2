//! Independent noise: the strategy that does nothing.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::SquaredSensitivity;

use crate::error::{Result, ensure};
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::workload::Workload;

/// The identity matrix, for any number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IdentityMatrix;

impl IdentityMatrix {
    pub(super) fn name(&self) -> String {
        "independent".to_owned()
    }

    /// The squared sensitivity, which is one unit per participation.
    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let effective = participation.effective(rounds as u64)?;
        let max_par = effective.participation.max_participation();
        Ok(CertifiedSensitivity::exact(SquaredSensitivity::new(
            max_par as f64,
        )?))
    }

    /// Squared row norms of the workload itself: `A A^T` on the diagonal.
    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        if let Some(coefficients) = workload.coefficients(rounds) {
            let mut sum = 0.0;
            Ok(coefficients
                .into_iter()
                .map(|coefficient| {
                    sum += coefficient * coefficient;
                    sum
                })
                .collect())
        } else {
            let norm = |t| Ok(workload.row(t)?.iter().map(|entry| entry * entry).sum());
            (0..rounds).map(norm).collect()
        }
    }

    pub(super) fn recurrence(&self, _rounds: usize) -> Result<Recurrence> {
        Ok(Recurrence::Identity)
    }
}

/// Maximum number of rounds: vectors of one number per round stay below half a gigabyte for every description.
const MAX_ROUNDS: usize = 1 << 26;

/// Refuses a run of no rounds, and one that no memory holds.
pub(crate) fn positive(rounds: usize) -> Result<()> {
    let holds = (1..=MAX_ROUNDS).contains(&rounds);
    ensure(holds, "rounds", "at least 1, at most 2^26", rounds as f64)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_least;

    #[test]
    fn errors_are_those_of_the_workload() {
        let identity = crate::Strategy::Independent(IdentityMatrix);
        let errors = identity.errors(4, &Workload::prefix_sum()).unwrap();
        assert_eq!((errors.max_error, errors.rms_error), (2.0, 2.5f64.sqrt()));
        let momentum = Workload::momentum(0.5).unwrap();
        let rates = momentum.clone().with_learning_rates(vec![1.0; 4]).unwrap();
        let (scheduled, plain) = (
            identity.errors(4, &rates).unwrap(),
            identity.errors(4, &momentum).unwrap(),
        );
        assert!((scheduled.rms_error - plain.rms_error).abs() < 1e-15);
        assert!(identity.errors(0, &Workload::prefix_sum()).is_err());
    }

    #[test]
    fn a_hostile_number_of_rounds_is_refused_before_any_memory_is_asked_for() {
        for rounds in ["0", "1152921504606846976"] {
            let text = format!(
                r#"{{"kind": "normalised-blt", "rounds": {rounds},
                     "blt": {{"decay_complements": [0.1], "output_scales": [0.2]}}}}"#
            );
            let error = serde_json::from_str::<crate::Strategy>(&text)
                .unwrap_err()
                .to_string();
            assert!(error.contains("at most 2^26"), "{error}");
        }
        let forever = crate::Strategy::Independent(IdentityMatrix);
        assert!(
            forever
                .squared_sensitivity(1 << 60, &Participation::single())
                .is_err()
        );
    }

    #[test]
    fn every_participation_costs_one() {
        let schema = at_least(3, 9);
        let certified = IdentityMatrix.squared_sensitivity(10, &schema).unwrap();
        assert_eq!((certified.squared.get(), certified.exact), (4.0, true));
    }
}
