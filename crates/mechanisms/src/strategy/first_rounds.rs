//! Sensitivity and errors of the first rounds of a triangular matrix, for strategies that are given entry by entry.

use undertone_accounting::AccountingError;
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::general::LowerTriangular;

use super::identity::positive;
use super::tree_full::within;
use crate::error::Result;
use crate::iterates;
use crate::loss::{Certified, Errors};
use crate::triangular::Triangular;
use crate::workload::Workload;

/// Refuses no rounds, and more than the matrix has.
pub(super) fn check(matrix: &Triangular, rounds: usize) -> Result<()> {
    positive(rounds)?;
    within(rounds, matrix.rounds())
}

/// Exact where a method is known or an evenly spaced set attains the bound, otherwise the bound.
pub(super) fn squared_sensitivity(
    matrix: &Triangular,
    rounds: usize,
    participation: &Participation,
) -> Result<Certified> {
    check(matrix, rounds)?;
    let matrix = LowerTriangular::from_columns(matrix.columns(rounds))?;
    match matrix.squared_sensitivity(participation) {
        Ok(squared) => return Ok(Certified::exact(squared)),
        Err(AccountingError::NoExactSensitivity { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let squared = matrix.squared_sensitivity_bound(participation)?;
    let reached = matrix.squared_sensitivity_reached(participation)?;
    Ok(Certified {
        squared,
        // The sums run in different orders.
        exact: reached.get() >= squared.get() * (1.0 - 1e-12),
    })
}

/// By the rows of the inverse.
pub(super) fn errors(matrix: &Triangular, rounds: usize, workload: &Workload) -> Result<Errors> {
    check(matrix, rounds)?;
    Ok(Errors::from_variances(iterates::of_triangular(
        matrix, rounds, workload,
    )?))
}
