//! Toeplitz matrices: the square root, banded ones, column-normalised ones.

use undertone_accounting::participation::Participation;
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{BandedToeplitz, NormalisedToeplitz, Strategy, toeplitz};

use super::{EVALUATED, schema};
use crate::case::{self, Case};

/// Leading entries that files list.
const SHOWN: usize = 16;

pub(super) fn fhu(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let coefficients = toeplitz::fhu(rounds);
    let shown = rounds.min(SHOWN);
    case.close_list("c_head", &coefficients[..shown], tolerance)?;
    case.close("c_last", coefficients[rounds - 1], tolerance)?;
    case.close_list("c_hat_head", &toeplitz::inverse(&coefficients, shown)?, tolerance)?;
    let strategy = Strategy::BandedToeplitz(BandedToeplitz::fhu(rounds)?);
    let cost = schema::cost(&strategy, rounds, &Participation::single())?;
    case.close("sens1", cost.losses.sensitivity, tolerance)?;
    schema::close(case, &cost, tolerance)
}

pub(super) fn band_fhu(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let strategy = BandedToeplitz::fhu(case.size("bands")?)?;
    let inverse = toeplitz::inverse(strategy.coefficients(), rounds.min(SHOWN))?;
    case.close_list("c_hat_head", &inverse, tolerance)?;
    let cost = schema::cost(
        &Strategy::BandedToeplitz(strategy),
        rounds,
        &schema::of_inputs(case)?,
    )?;
    schema::close(case, &cost, tolerance)
}

pub(super) fn band_toeplitz_optimised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, objective) = (case.size("n")?, schema::objective(case)?);
    let normalise = case.text("normalise")?;
    anyhow::ensure!(normalise == "l2=1", "normalise {normalise} is unknown");
    let single = Participation::single();
    // The file's matrix, evaluated.
    if let Some(found) = case.output("coefs") {
        let found = Strategy::BandedToeplitz(BandedToeplitz::new(case::list(found)?)?);
        let cost = schema::cost(&found, rounds, &single)?;
        case.close("sens1", cost.losses.sensitivity, EVALUATED)?;
        case.close("MaxLoss1", cost.losses.max_loss, EVALUATED)?;
        case.close("RmsLoss1", cost.losses.rms_loss, EVALUATED)?;
        schema::close(case, &cost, EVALUATED)?;
    }
    let problem = Problem::new(rounds, single).with_objective(objective);
    let (strategy, losses) = optimize::banded_toeplitz(&problem, case.size("bands")?)?;
    let norm = strategy.coefficients().iter().map(|c| c * c).sum::<f64>().sqrt();
    case.near("norm of the coefficients", norm, 1.0, 1e-12);
    case.at_most(&format!("{objective}1"), losses.get(objective), tolerance)
}

pub(super) fn band_toeplitz_column_normalised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let strategy = NormalisedToeplitz::new(rounds, case.numbers("coefs")?)?;
    let norms = strategy.column_norms();
    let shown = rounds.min(8);
    case.close_list("col_norms_head", &norms[..shown], tolerance)?;
    case.close_list("col_norms_tail", &norms[rounds - shown..], tolerance)?;
    let cost = schema::cost(
        &Strategy::NormalisedToeplitz(strategy),
        rounds,
        &Participation::single(),
    )?;
    case.close("sens1", cost.losses.sensitivity, tolerance)?;
    schema::close(case, &cost, tolerance)
}

pub(super) fn normalised_square_root(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let rounds = case.size("n")?;
    let strategy = NormalisedToeplitz::square_root(rounds)?;
    case.close("col_norm_first", strategy.column_norms()[0], tolerance)?;
    let cost = schema::cost(
        &Strategy::NormalisedToeplitz(strategy),
        rounds,
        &Participation::single(),
    )?;
    case.close("MaxLoss1", cost.losses.max_loss, tolerance)?;
    case.close("RmsLoss1", cost.losses.rms_loss, tolerance)?;
    // The paper's expansion: `ln(n) / pi` and a constant, up to a term that falls to 0 from above.
    for (name, constant, got) in [
        ("bound_max", 0.846, cost.losses.max_loss),
        ("bound_rms", 0.748, cost.losses.rms_loss),
    ] {
        let expansion = (rounds as f64).ln() / std::f64::consts::PI + constant;
        case.close(name, expansion, tolerance)?;
        case.ensure(expansion <= got && got <= expansion + 0.1, || {
            format!("{name}: expected {expansion:e} and up to 0.1 more, got {got:e}")
        });
    }
    Ok(())
}
