//! From a target to a noise multiplier.

use anyhow::bail;
use undertone_accounting::{Accountant, Recipe, calibrate};

use super::case::Case;
use super::renyi::poisson;

/// The peer searches to this absolute width.
const PEER_WIDTH: f64 = 1e-6;

pub(super) fn calibrate(case: &Case<'_>) -> anyhow::Result<()> {
    let recipe = match case.text("accountant")? {
        "RDP" => Recipe::Rdp,
        other => bail!("accountant {other} is unknown"),
    };
    let (target, q, steps) = (
        (case.epsilon()?, case.delta()?),
        case.probability("q")?,
        case.whole("steps")?,
    );
    let got = calibrate::noise_multiplier(target, q, steps, recipe)?.get();
    let want = case.required("noise_multiplier")?;
    case.near("noise_multiplier", got, want, PEER_WIDTH);
    let mut accountant = Accountant::new(recipe);
    accountant.compose(&poisson(q.get(), got)?, steps)?;
    let reached = accountant.guarantee(target.1)?.epsilon;
    case.ensure(reached <= target.0, || {
        format!(
            "epsilon at the noise multiplier: expected at most {}, got {reached}",
            target.0
        )
    });
    Ok(())
}
