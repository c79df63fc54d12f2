//! Matrices with a banded Toeplitz inverse, their columns scaled to norm one.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;

use super::identity::positive;
use super::inverse_toeplitz::InverseToeplitz;
use super::normalised_toeplitz::normalised_certified;
use super::tree_full::within;
use crate::error::{MechanismError, Result};
use crate::iterates;
use crate::loss::{Certified, Errors};
use crate::recurrence::Recurrence;
use crate::toeplitz;
use crate::workload::Workload;

/// `C = T D^-1` over a fixed number of rounds: `T` the matrix of an [`InverseToeplitz`], `D` the norms of its columns.
/// `C^-1 = D T^-1` is banded like `T^-1`; one more factor a round.
///
/// # Guarantee
/// As [`NormalisedToeplitz`](crate::NormalisedToeplitz).
///
/// # Source
/// "DP-lambda-CGD" (2026), the column-normalised form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct NormalisedInverseToeplitz {
    rounds: usize,
    inverse: InverseToeplitz,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    rounds: usize,
    inverse: InverseToeplitz,
}

impl TryFrom<Unchecked> for NormalisedInverseToeplitz {
    type Error = MechanismError;

    fn try_from(value: Unchecked) -> Result<Self> {
        Self::new(value.rounds, value.inverse)
    }
}

impl NormalisedInverseToeplitz {
    /// Normalises over `rounds` rounds.
    ///
    /// # Errors
    /// No rounds, or a matrix that overflows within them.
    pub fn new(rounds: usize, inverse: InverseToeplitz) -> Result<Self> {
        positive(rounds)?;
        inverse.strategy_coefficients(rounds)?;
        Ok(Self { rounds, inverse })
    }

    /// First column of `T^-1`, up to its last band.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        self.inverse.coefficients()
    }

    /// The diagonal of `D`: norms of the columns of `T`, one a round.
    ///
    /// # Errors
    /// None that construction did not see.
    pub fn column_norms(&self) -> Result<Vec<f64>> {
        let coefficients = self.inverse.strategy_coefficients(self.rounds)?;
        Ok(toeplitz::column_norms(&coefficients, self.rounds))
    }

    fn check(&self, rounds: usize) -> Result<()> {
        positive(rounds)?;
        within(rounds, self.rounds)
    }

    pub(super) fn name(&self) -> String {
        format!("normalised {}", self.inverse.name())
    }

    pub(super) fn rounds(&self) -> Option<usize> {
        Some(self.rounds)
    }

    pub(super) fn kept_vectors(&self, rounds: usize) -> usize {
        self.inverse.kept_vectors(rounds)
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<Certified> {
        self.check(rounds)?;
        let coefficients = self.inverse.strategy_coefficients(self.rounds)?;
        normalised_certified(coefficients, rounds, participation)
    }

    pub(super) fn errors(&self, rounds: usize, workload: &Workload) -> Result<Errors> {
        self.check(rounds)?;
        Ok(Errors::from_variances(iterates::of_toeplitz(
            self.coefficients(),
            &self.column_norms()?,
            rounds,
            workload,
        )?))
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        self.check(rounds)?;
        let mut scale = self.column_norms()?;
        scale.truncate(rounds);
        Ok(Recurrence::Taps {
            coefficients: self.coefficients().to_vec(),
            scale,
        })
    }
}
