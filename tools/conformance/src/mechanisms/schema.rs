//! Participation schemas and evaluations that many families share.

use anyhow::Context;
use serde_json::Value;
use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::{Errors, Losses, Objective, Strategy, Workload};

use crate::case::{self, Case};

/// A gap and a number of participations, `null` for as many as fit.
pub(super) fn at_least(gap: u64, most: &Value) -> anyhow::Result<Participation> {
    let most = if most.is_null() {
        u64::MAX
    } else {
        case::whole(case::number(most)?)?
    };
    Ok(Participation::at_least(Gap::new(gap)?, most)?)
}

/// The schema of the inputs `min_sep` and `max_par`.
pub(super) fn of_inputs(case: &Case<'_>) -> anyhow::Result<Participation> {
    at_least(case.whole("min_sep")?, case.input("max_par")?)
}

/// The objective of the input `error`.
pub(super) fn objective(case: &Case<'_>) -> anyhow::Result<Objective> {
    match case.text("error")? {
        "max" => Ok(Objective::MaxLoss),
        "mean" => Ok(Objective::RmsLoss),
        other => anyhow::bail!("error {other} is neither max nor mean"),
    }
}

/// Name of the output that an objective minimises.
pub(super) fn loss_name(objective: Objective) -> &'static str {
    match objective {
        Objective::MaxLoss => "MaxLoss",
        Objective::RmsLoss => "RmsLoss",
    }
}

/// The cost of a strategy on prefix sums.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Noise in the iterates.
    pub(super) errors: Errors,
    /// Times the sensitivity.
    pub(super) losses: Losses,
    /// True if the sensitivity is attained.
    pub(super) exact: bool,
}

pub(super) fn cost(strategy: &Strategy, rounds: usize, schema: &Participation) -> anyhow::Result<Cost> {
    let errors = strategy.errors(rounds, &Workload::prefix_sum())?;
    let certified = strategy.squared_sensitivity(rounds, schema)?;
    Ok(Cost {
        errors,
        losses: errors.losses(certified.squared),
        exact: certified.exact,
    })
}

/// The outputs `sens`, `MaxError`, `RmsError`, `MaxLoss` and `RmsLoss`, as far as the case has them.
pub(super) fn close(case: &Case<'_>, cost: &Cost, tolerance: f64) -> anyhow::Result<()> {
    case.close("sens", cost.losses.sensitivity, tolerance)?;
    case.close("MaxError", cost.errors.max_error, tolerance)?;
    case.close("RmsError", cost.errors.rms_error, tolerance)?;
    case.close("MaxLoss", cost.losses.max_loss, tolerance)?;
    case.close("RmsLoss", cost.losses.rms_loss, tolerance)
}

/// The numbers of a nested output, as `close` has them.
pub(super) fn close_nested(
    case: &Case<'_>,
    what: &str,
    want: &Value,
    cost: &Cost,
    tolerance: f64,
) -> anyhow::Result<()> {
    for (name, want) in want
        .as_object()
        .with_context(|| format!("{what} is not an object"))?
    {
        let got = match name.as_str() {
            "sens" => cost.losses.sensitivity,
            "MaxError" => cost.errors.max_error,
            "RmsError" => cost.errors.rms_error,
            "MaxLoss" => cost.losses.max_loss,
            "RmsLoss" => cost.losses.rms_loss,
            _ => anyhow::bail!("{what}.{name} is not known"),
        };
        let want = case::number(want)?;
        case.near(&format!("{what}.{name}"), got, want, tolerance * want.abs());
    }
    Ok(())
}
