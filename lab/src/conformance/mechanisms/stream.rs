//! The recursions of a BLT over rounds of vectors, both ways.

use anyhow::{Context, ensure};
use undertone_mechanisms::Blt;

use crate::conformance::case::{self, Case};

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

pub(super) fn forward(case: &Case<'_>) -> anyhow::Result<()> {
    let blt = Blt::new(&case.numbers("theta")?, &case.numbers("omega")?)?;
    let (mut x, dimension) = rows(case.input("Zhat")?)?;
    let start = x.clone();
    blt.multiply(&mut x, dimension)?;
    compare(case, "Z", &x)?;
    blt.solve(&mut x, dimension)?;
    case.near_list("Zhat and back", &x, &start, |want| 1e-12 * want.abs().max(1.0));
    Ok(())
}

pub(super) fn inverse(case: &Case<'_>) -> anyhow::Result<()> {
    let blt = Blt::new(&case.numbers("theta")?, &case.numbers("omega")?)?;
    let (mut x, dimension) = rows(case.input("Z")?)?;
    blt.solve(&mut x, dimension)?;
    compare(case, "Zhat", &x)
}
