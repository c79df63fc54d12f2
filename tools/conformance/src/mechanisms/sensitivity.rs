//! Sums over participation sets and sensitivities of general matrices.

use anyhow::{Context, ensure};
use undertone_accounting::sensitivity::general::LowerTriangular;
use undertone_accounting::sensitivity::separated;

use super::schema;
use crate::case::{self, Case};

pub(super) fn vec_sens(case: &Case<'_>) -> anyhow::Result<()> {
    let schema = schema::of_inputs(case)?;
    let got = separated::vec_sens(&case.numbers("x")?, &schema)?;
    case.close("value", got, case.tolerance()?)
}

pub(super) fn general_sensitivity(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let schema = schema::of_inputs(case)?;
    let rows = case.input("C")?.as_array().context("C is not a list of rows")?;
    let rows = rows.iter().map(case::list).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(rows.iter().all(|row| row.len() == rows.len()), "C is not square");
    let matrix = LowerTriangular::new(rows.len(), &rows.concat())?;
    let exact = matrix.squared_sensitivity(&schema)?.sensitivity();
    case.close("exact_bruteforce", exact, tolerance)?;
    // Ours insists that the inner set holds the round of the outer one: tighter, and still no less than the truth.
    let bound = matrix.squared_sensitivity_bound(&schema)?.sensitivity();
    case.at_most("upper_bound", bound, tolerance)?;
    case.ensure(bound >= exact * (1.0 - 1e-12), || {
        format!("upper_bound: expected at least {exact:e}, got {bound:e}")
    });
    Ok(())
}
