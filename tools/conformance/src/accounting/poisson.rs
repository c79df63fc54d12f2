//! Poisson-sampled Gaussians by loss distributions: on stated grids, on finer ones, far into the tail.

use anyhow::{Context, bail};
use undertone_accounting::{Accountant, Adjacency, Event, Recipe};

use super::EXACT;
use super::reference::{Grid, below_extrapolated, between};
use super::renyi;
use crate::case::{self, Case};

/// Relative accuracy that tilted extrapolations had against the exact Gaussian.
const TILTED: f64 = 2e-6;

/// Relative distance between two upper bounds of one pair, on two lattices.
const OF_PAIRS: f64 = 3e-6;

/// `steps` rounds of the case's Poisson-sampled Gaussian.
fn composed(case: &Case<'_>, recipe: Recipe, adjacency: Adjacency) -> anyhow::Result<Accountant> {
    let event = renyi::poisson(case.number("q")?, case.number("noise_multiplier")?)?;
    let mut accountant = Accountant::under(recipe, adjacency);
    accountant.compose(&event, case.whole("steps")?)?;
    Ok(accountant)
}

fn grid(case: &Case<'_>, interval: f64) -> anyhow::Result<Grid> {
    let grid = Grid::new(interval, case.whole("steps")?);
    Ok(grid.of_poisson(case.number("q")?, case.number("noise_multiplier")?))
}

/// The relation in the peer's words.
pub(super) fn adjacency(name: &str) -> anyhow::Result<Adjacency> {
    Ok(match name {
        "add_remove" | "ADD_OR_REMOVE_ONE" => Adjacency::AddOrRemoveOne,
        "REPLACE_ONE" => Adjacency::ReplaceOne,
        "REPLACE_SPECIAL" => Adjacency::ZeroOut,
        other => bail!("neighbouring relation {other} is unknown"),
    })
}

pub(super) fn poisson_gaussian_pld(case: &Case<'_>) -> anyhow::Result<()> {
    let accountant = composed(case, Recipe::Pld, adjacency(case.text("neighboring")?)?)?;
    let (delta, grid) = (case.delta()?, grid(case, case.number("vdi")?)?);
    let got = accountant.guarantee(delta)?.epsilon.get();
    let reference = case.required("epsilon_pld")?;
    grid.epsilon(case, "epsilon_pld", &accountant, delta, reference)?;
    let lower = accountant.lower_bound(delta)?.get();
    case.ensure(lower <= got, || {
        format!("lower bound: expected at most {got:e}, got {lower:e}")
    });
    for (epsilon, reference) in case.outputs_at("delta_at_eps_")? {
        grid.delta(case, &accountant, epsilon, reference)?;
    }
    Ok(())
}

pub(super) fn poisson_gaussian_converged(case: &Case<'_>) -> anyhow::Result<()> {
    let delta = case.delta()?;
    let accountant = composed(case, Recipe::Pld, Adjacency::AddOrRemoveOne)?;
    let got = accountant.guarantee(delta)?.epsilon.get();
    let by_interval = case
        .output("epsilon_by_vdi")
        .and_then(|values| values.as_object())
        .context("no output `epsilon_by_vdi`")?;
    let mut finest = f64::INFINITY;
    for (interval, reference) in by_interval {
        let (interval, reference): (f64, f64) = (interval.parse()?, case::number(reference)?);
        grid(case, interval)?.epsilon(
            case,
            &format!("epsilon at interval {interval}"),
            &accountant,
            delta,
            reference,
        )?;
        finest = finest.min(interval);
    }
    let best = case.required("epsilon_best")?;
    match case.expected("epsilon_richardson")? {
        Some(extrapolated) => {
            let lowest = below_extrapolated(best, extrapolated);
            between(case, "epsilon_richardson", got, lowest, best);
        }
        None => grid(case, finest)?.epsilon(case, "epsilon_best", &accountant, delta, best)?,
    }
    Ok(())
}

pub(super) fn poisson_gaussian_prv(case: &Case<'_>) -> anyhow::Result<()> {
    let delta = case.delta()?;
    let accountant = composed(case, Recipe::Pld, Adjacency::AddOrRemoveOne)?;
    let got = accountant.guarantee(delta)?.epsilon.get();
    let (lower, upper) = (case.required("eps_lower")?, case.required("eps_upper")?);
    between(case, "eps_lower, eps_upper", got, lower, upper);
    if let Some(estimate) = case.expected("eps_estimate")? {
        // The middle of the interval, of which its own error is half the width.
        let error = 0.5 * (upper - lower);
        case.near("eps_estimate", got, estimate, error);
    }
    if let Some(reference) = case.expected("eps_pld")? {
        grid(case, 1e-4)?.epsilon(case, "eps_pld", &accountant, delta, reference)?;
    }
    Ok(())
}

pub(super) fn poisson_gaussian_small_delta(case: &Case<'_>) -> anyhow::Result<()> {
    let delta = case.delta()?;
    let epsilon = |recipe| -> anyhow::Result<f64> {
        let accountant = composed(case, recipe, Adjacency::AddOrRemoveOne)?;
        Ok(accountant.guarantee(delta)?.epsilon.get())
    };
    let got = epsilon(Recipe::Pld)?;
    let (coarse, extrapolated) = (
        case.required("epsilon_own_h")?,
        case.required("epsilon_own_extrapolated")?,
    );
    between(
        case,
        "epsilon_own_extrapolated",
        got,
        extrapolated * (1.0 - TILTED),
        coarse,
    );
    if let Some(exact) = case.expected("epsilon_exact")? {
        between(
            case,
            "epsilon_exact",
            got,
            exact * (1.0 - EXACT),
            exact * (1.0 + TILTED),
        );
        case.near(
            "epsilon_exact by the exact Gaussian",
            epsilon(Recipe::ExactGaussian)?,
            exact,
            EXACT * exact,
        );
    }
    // Infinite where the peer's FFT has lost the tail.
    let reference = case.required("epsilon_dp_accounting_pld")?;
    case.ensure(got <= reference, || {
        format!("epsilon_dp_accounting_pld: expected at most {reference:e}, got {got:e}")
    });
    let renyi = epsilon(Recipe::Rdp)?;
    case.close("epsilon_dp_accounting_rdp", renyi, EXACT)?;
    case.ensure(got <= renyi, || {
        format!("epsilon: expected at most {renyi:e} (RDP), got {got:e}")
    });
    Ok(())
}

pub(super) fn truncated_poisson(case: &Case<'_>) -> anyhow::Result<()> {
    let event = Event::TruncatedPoissonGaussian {
        population: case.whole("dataset_size")?,
        sampling_probability: case.probability("q")?,
        max_cohort_size: case.whole("truncated_batch_size")?,
        noise_multiplier: case.noise("noise_multiplier")?,
    };
    let mut accountant = Accountant::new(Recipe::Pld);
    accountant.compose(&event, case.whole("steps")?)?;
    let enough = accountant.guarantee(case.delta()?)?.epsilon.get();
    // The peer's pair is wider than ours; the same grid over our pair is the oracle.
    let (peer, pair) = (case.required("epsilon_pld")?, case.required("epsilon_pair")?);
    case.ensure(enough < peer, || {
        format!("epsilon: expected less than {peer:e}, got {enough:e}")
    });
    case.ensure((enough - pair).abs() <= pair * OF_PAIRS, || {
        format!("epsilon: expected {pair:e}, got {enough:e}")
    });
    Ok(())
}
