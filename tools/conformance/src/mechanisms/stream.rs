//! Rows of vectors times a BLT and its inverse.

use anyhow::{Context, ensure};
use undertone_mechanisms::{Blt, toeplitz};

use crate::case::{self, Case};

/// Rows of numbers, flat, and their dimension.
fn rows(value: &serde_json::Value) -> anyhow::Result<(Vec<f64>, usize)> {
    let rows: Vec<Vec<f64>> = value
        .as_array()
        .context("not a list of rows")?
        .iter()
        .map(case::list)
        .collect::<anyhow::Result<_>>()?;
    let dimension = rows.first().context("no rows")?.len();
    ensure!(
        rows.iter().all(|row| row.len() == dimension),
        "rows of different lengths"
    );
    Ok((rows.concat(), dimension))
}

fn compare(case: &Case<'_>, name: &str, got: &[f64]) -> anyhow::Result<()> {
    let want = case.output(name).with_context(|| format!("no output `{name}`"))?;
    let (want, _) = rows(want)?;
    // Sums of numbers of the size of 1, some of which cancel.
    let tolerance = case.tolerance()?;
    case.near_list(name, got, &want, |want| tolerance * want.abs().max(1.0));
    Ok(())
}

/// The Toeplitz matrix with this first column times the rows.
fn times(column: &[f64], x: &[f64], dimension: usize) -> Vec<f64> {
    let rounds = x.len() / dimension;
    let mut result = vec![0.0; x.len()];
    for place in 0..dimension {
        let series: Vec<f64> = x.iter().copied().skip(place).step_by(dimension).collect();
        let product = toeplitz::product(column, &series, rounds);
        for (row, value) in result.chunks_exact_mut(dimension).zip(product) {
            row[place] = value;
        }
    }
    result
}

pub(super) fn forward(case: &Case<'_>) -> anyhow::Result<()> {
    let blt = Blt::new(&case.numbers("theta")?, &case.numbers("omega")?)?;
    let (start, dimension) = rows(case.input("Zhat")?)?;
    let rounds = start.len() / dimension;
    let x = times(&blt.coefficients(rounds), &start, dimension);
    compare(case, "Z", &x)?;
    let back = times(&blt.inverse_coefficients(rounds), &x, dimension);
    case.near_list("Zhat and back", &back, &start, |want| 1e-12 * want.abs().max(1.0));
    Ok(())
}

pub(super) fn inverse(case: &Case<'_>) -> anyhow::Result<()> {
    let blt = Blt::new(&case.numbers("theta")?, &case.numbers("omega")?)?;
    let (x, dimension) = rows(case.input("Z")?)?;
    let inverse = blt.inverse_coefficients(x.len() / dimension);
    compare(case, "Zhat", &times(&inverse, &x, dimension))
}
