//! Matrices with entries of their own in every round: optimal banded and dense ones.

use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{Banded, Strategy};

use super::schema;
use crate::case::{self, Case};

/// Both problems are convex: how far below the reference an honest optimum can be.
const CONVEX: f64 = 1e-6;

/// Entry `X_ij` of `C^T C`.
pub(super) fn gram(matrix: &Banded, rounds: usize, i: usize, j: usize) -> f64 {
    // Row t holds the last entries up to the diagonal.
    let entry = |t: usize, column: usize| {
        let row = matrix.row(t);
        (column + row.len()).checked_sub(t + 1).map_or(0.0, |at| row[at])
    };
    let last = (i.max(j) + matrix.bands()).min(rounds);
    (i.max(j)..last).map(|t| entry(t, i) * entry(t, j)).sum()
}

pub(super) fn band_mf_optimised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    // A loss this near to its minimum is that of a matrix within the root.
    let nearby = tolerance.sqrt();
    let (rounds, bands) = (case.size("n")?, case.size("bands")?);
    let objective = case.text("objective")?;
    anyhow::ensure!(
        objective == "RmsLoss, unit column norm",
        "objective {objective} is unknown"
    );
    let most = case::whole(case.required("k")?)?;
    let schema = Participation::at_least(Gap::new(bands as u64)?, most)?;
    let (matrix, losses) = optimize::banded(&Problem::new(rounds, schema), bands)?;

    let norms = (0..rounds).map(|j| gram(&matrix, rounds, j, j).sqrt());
    let worst = norms.fold(1.0, |worst: f64, norm| {
        if (norm - 1.0).abs() > (worst - 1.0).abs() {
            norm
        } else {
            worst
        }
    });
    case.close("column_norm", worst, 1e-9)?;
    if let Some(want) = case.output("X_first_rows") {
        let want = case::list(want)?;
        let got: Vec<f64> = (0..want.len()).map(|j| gram(&matrix, rounds, 0, j)).collect();
        case.near_list("X_first_rows", &got, &want, |_| nearby);
    }
    let cost = schema::cost(&Strategy::Banded(matrix), rounds, &schema)?;
    case.close("sens_k", cost.losses.sensitivity, 1e-9)?;
    case.near(
        "losses",
        losses.rms_loss,
        cost.losses.rms_loss,
        1e-12 * cost.losses.rms_loss,
    );
    let least = case.required("RmsError")?;
    case.ensure(cost.errors.rms_error >= least * (1.0 - CONVEX), || {
        format!(
            "RmsError: expected no less than {least:e}, got {:e}",
            cost.errors.rms_error
        )
    });
    for name in [
        "RmsError",
        "jax_privacy_dense_RmsError",
        "jax_privacy_banded_RmsError",
    ] {
        case.at_most(name, cost.errors.rms_error, tolerance)?;
    }
    case.at_most("RmsLoss_k", cost.losses.rms_loss, tolerance)?;
    // Not what was minimised.
    for name in [
        "MaxError",
        "jax_privacy_dense_MaxError",
        "jax_privacy_banded_MaxError",
    ] {
        case.close(name, cost.errors.max_error, nearby)?;
    }
    case.close("MaxLoss_k", cost.losses.max_loss, nearby)
}

pub(super) fn dense_mf_optimised(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, epochs) = (case.size("n")?, case.whole("epochs")?);
    let schema = case.text("schema")?;
    anyhow::ensure!(schema == "(k,b)-fixed-epoch-order", "schema {schema} is unknown");
    let schema = Participation::fixed_epochs(Gap::new(rounds as u64 / epochs)?, epochs)?;
    let (matrix, losses) = optimize::dense(&Problem::new(rounds, schema))?;
    let cost = schema::cost(&Strategy::Dense(matrix), rounds, &schema)?;
    case.near(
        "losses",
        losses.rms_loss,
        cost.losses.rms_loss,
        1e-12 * losses.rms_loss,
    );
    // Both are divided by their sensitivity.
    case.close("sens", cost.losses.sensitivity, 1e-6)?;
    case.at_most("RmsLoss", cost.losses.rms_loss, tolerance)?;
    case.close("MaxLoss", cost.losses.max_loss, tolerance.sqrt())
}
