//! Calibration of a noise multiplier to a target.

use anyhow::bail;
use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe, calibrate};

use super::reference::Grid;
use super::renyi::poisson;
use crate::case::Case;

/// The peer searches to this absolute width.
const PEER_WIDTH: f64 = 1e-6;

pub(super) fn calibrate(case: &Case<'_>) -> anyhow::Result<()> {
    let recipe = match case.text("accountant")? {
        "RDP" => Recipe::Rdp,
        "PLD" => Recipe::Pld,
        other => bail!("accountant {other} is unknown"),
    };
    let (target, q, steps) = (
        (case.epsilon()?, case.delta()?),
        case.probability("q")?,
        case.whole("steps")?,
    );
    let got = calibrate::noise_multiplier(target, q, steps, recipe)?;
    let want = case.required("noise_multiplier")?;
    if recipe == Recipe::Pld {
        let grid = Grid::new(case.number("vdi")?, steps).of_poisson(q.get(), want);
        let with = |noise_multiplier| Event::PoissonGaussian {
            sampling_probability: q,
            noise_multiplier,
        };
        return by_loss_distribution(case, &with, got, want, grid);
    }
    case.near("noise_multiplier", got.get(), want, PEER_WIDTH);
    let mut accountant = Accountant::new(recipe);
    accountant.compose(&poisson(q.get(), got.get())?, steps)?;
    let reached = accountant.guarantee(target.1)?.epsilon;
    case.ensure(reached <= target.0, || {
        format!(
            "epsilon at the noise multiplier: expected at most {}, got {reached}",
            target.0
        )
    });
    Ok(())
}

/// A noise multiplier `got` against `want`, which somebody else's upper bound on `grid` needs.
///
/// Ours reaches the target and needs no more noise. That it does not need too little is checked where both are
/// known: at `want` our epsilon must not lie further below the target than the grid explains.
pub(super) fn by_loss_distribution(
    case: &Case<'_>,
    event: &dyn Fn(NoiseMultiplier) -> Event,
    got: NoiseMultiplier,
    want: f64,
    grid: Grid,
) -> anyhow::Result<()> {
    let (target, delta, steps) = (case.epsilon()?, case.delta()?, case.whole("steps")?);
    case.ensure(got.get() <= want + PEER_WIDTH, || {
        format!("noise multiplier: expected at most {want}, got {got}")
    });
    let epsilon = |noise: NoiseMultiplier| -> anyhow::Result<f64> {
        let mut accountant = Accountant::new(Recipe::Pld);
        accountant.compose(&event(noise), steps)?;
        Ok(accountant.guarantee(delta)?.epsilon.get())
    };
    let reached = epsilon(got)?;
    case.ensure(reached <= target.get(), || {
        format!("epsilon at the noise multiplier: expected at most {target}, got {reached}")
    });
    let there = epsilon(NoiseMultiplier::new(want)?)?;
    let lowest = target.get() - grid.slack(target.get(), delta.get());
    case.ensure(there >= lowest, || {
        format!("epsilon at noise multiplier {want}: expected at least {lowest}, got {there}")
    });
    Ok(())
}
