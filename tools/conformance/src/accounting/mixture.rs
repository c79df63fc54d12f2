//! Mixtures of Gaussians: a user's examples are sampled one by one.

use anyhow::Context;
use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe, calibrate};

use super::reference::{Grid, below_extrapolated, between, delta_at};
use crate::case::{self, Case};

/// A delta of 1e-17 is the difference of two masses around a root that is known to 1e-12.
const INTEGRATED: f64 = 1e-8;

/// A step: `sum_i binom(K, p, i) N(i, sigma^2)` against `N(0, sigma^2)`.
fn event(case: &Case<'_>, noise_multiplier: NoiseMultiplier) -> anyhow::Result<Event> {
    Ok(Event::ExampleLevelSampling {
        group_size: u32::try_from(case.whole("K")?)?,
        sampling_probability: case.probability("p")?,
        noise_multiplier,
    })
}

fn composed(case: &Case<'_>) -> anyhow::Result<Accountant> {
    let mut accountant = Accountant::new(Recipe::Pld);
    accountant.compose(&event(case, case.noise("sigma")?)?, case.whole("steps")?)?;
    Ok(accountant)
}

pub(super) fn mog(case: &Case<'_>) -> anyhow::Result<()> {
    let accountant = composed(case)?;
    let delta = case.delta()?;
    let grid = Grid::new(case.number("vdi")?, case.whole("steps")?);
    let reference = case.required("epsilon_pld")?;
    grid.epsilon(case, "epsilon_pld", &accountant, delta, reference)?;
    for (epsilon, reference) in case.outputs_at("delta_at_eps_")? {
        grid.delta(case, &accountant, epsilon, reference)?;
    }
    Ok(())
}

pub(super) fn mog_independent(case: &Case<'_>) -> anyhow::Result<()> {
    let accountant = composed(case)?;
    let delta = case.delta()?;
    let got = accountant.guarantee(delta)?.epsilon.get();
    let (finest, extrapolated) = (case.required("epsilon")?, case.required("epsilon_richardson")?);
    between(
        case,
        "epsilon_richardson",
        got,
        below_extrapolated(finest, extrapolated),
        finest,
    );
    let by_interval = case
        .output("epsilon_by_h")
        .and_then(|values| values.as_object())
        .context("no output `epsilon_by_h`")?;
    for (interval, reference) in by_interval {
        let reference = case::number(reference)?;
        between(
            case,
            &format!("epsilon at interval {interval}"),
            got,
            0.0,
            reference,
        );
    }
    // The guarantee is the worse of the two directions.
    let (remove, add) = (case.required("epsilon_remove")?, case.required("epsilon_add")?);
    case.near("epsilon_remove, epsilon_add", finest, remove.max(add), 0.0);
    if let Some(reference) = case.expected("epsilon_dp_accounting")? {
        let grid = Grid::new(case.required("dp_accounting_vdi")?, case.whole("steps")?);
        grid.epsilon(case, "epsilon_dp_accounting", &accountant, delta, reference)?;
    }
    Ok(())
}

pub(super) fn mog_one_step_exact(case: &Case<'_>) -> anyhow::Result<()> {
    anyhow::ensure!(case.whole("steps")? == 1, "one step");
    let got = delta_at(&composed(case)?, case.number("epsilon")?)?;
    let (delta, remove, add) = (
        case.required("delta")?,
        case.required("delta_remove")?,
        case.required("delta_add")?,
    );
    case.near("delta", got, delta, INTEGRATED * delta);
    case.near("delta_remove, delta_add", delta, remove.max(add), 0.0);
    Ok(())
}

pub(super) fn calibrate_mog(case: &Case<'_>) -> anyhow::Result<()> {
    let (target, steps) = ((case.epsilon()?, case.delta()?), case.whole("steps")?);
    let (size, p) = (u32::try_from(case.whole("K")?)?, case.probability("p")?);
    let with = |noise_multiplier| Event::ExampleLevelSampling {
        group_size: size,
        sampling_probability: p,
        noise_multiplier,
    };
    let got = calibrate::noise_multiplier_of(target, steps, Recipe::Pld, with)?;
    super::calibration::by_loss_distribution(
        case,
        &with,
        got,
        case.required("sigma")?,
        Grid::new(case.number("vdi")?, steps),
    )
}
