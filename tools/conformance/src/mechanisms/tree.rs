//! Binary trees: sensitivities, online and full decoders.

use anyhow::{Context, bail, ensure};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::{restart, tree};
use undertone_mechanisms::{Errors, Strategy, Tree, TreeFull, TreeLayout};

use super::schema;
use crate::case::Case;

/// The squared norm that a user reaches who takes part as early and as often as the schema allows.
fn earliest(rounds: u64, schema: &Participation) -> anyhow::Result<f64> {
    let schema = schema.effective(rounds)?.participation;
    let sets: Vec<u64> = (0..schema.max_participation())
        .map(|i| i * schema.gap().get())
        .collect();
    Ok(restart::squared_norm(&[rounds], &sets)?.get())
}

pub(super) fn tree_sensitivity(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, schema) = (case.whole("n")?, schema::of_inputs(case)?);
    let got = tree::squared_sensitivity(rounds, &schema)?
        .squared_sensitivity
        .get();
    case.close("sens_sq", got, tolerance)?;
    case.close("bruteforce", got, tolerance)?;
    case.close("pistar", earliest(rounds, &schema)?, tolerance)
}

pub(super) fn tree_agg(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let forest = case.text("forest")?;
    ensure!(
        forest == "complete dyadic nodes of [0,n)",
        "forest {forest} is unknown"
    );
    let (rounds, schema) = (case.size("n")?, schema::of_inputs(case)?);
    let online = schema::cost(&Strategy::Tree(Tree::new()), rounds, &schema)?;
    case.ensure(online.exact, || {
        "the sensitivity of the tree is not exact".to_owned()
    });
    case.close("sens_sq_exact_dp", online.losses.sensitivity.powi(2), tolerance)?;
    case.close(
        "sens_sq_pistar_lower_bound",
        earliest(rounds as u64, &schema)?,
        tolerance,
    )?;
    // Without any variance reduction, round t adds up one node for each set bit of t.
    let naive = Errors::from_variances((1..=rounds as u64).map(|t| f64::from(t.count_ones())));
    case.close("naive_MaxError", naive.max_error, tolerance)?;
    case.close("naive_RmsError", naive.rms_error, tolerance)?;
    let full = TreeFull::new(rounds, TreeLayout::CompleteNodes)?;
    let full = schema::cost(&Strategy::TreeFull(full), rounds, &schema)?;
    for (name, cost) in [("online", online), ("full", full)] {
        case.close(&format!("{name}_MaxError"), cost.errors.max_error, tolerance)?;
        case.close(&format!("{name}_RmsError"), cost.errors.rms_error, tolerance)?;
        case.close(&format!("{name}_MaxLoss"), cost.losses.max_loss, tolerance)?;
        case.close(&format!("{name}_RmsLoss"), cost.losses.rms_loss, tolerance)?;
    }
    Ok(())
}

/// A layout by its name: `complete_nodes`, or `forest12_levels` for trees of twelve levels one after another.
fn layout(name: &str) -> anyhow::Result<TreeLayout> {
    if name == "complete_nodes" {
        return Ok(TreeLayout::CompleteNodes);
    }
    let levels = name
        .strip_prefix("forest")
        .and_then(|rest| rest.strip_suffix("_levels"));
    let Some(levels) = levels else {
        bail!("layout {name} is unknown");
    };
    let levels: u32 = levels.parse().with_context(|| format!("layout {name}"))?;
    let leaves = levels
        .checked_sub(1)
        .and_then(|height| 1usize.checked_shl(height));
    Ok(TreeLayout::Trees {
        leaves: leaves.with_context(|| format!("layout {name}"))?,
    })
}

pub(super) fn tree_agg_full(case: &Case<'_>) -> anyhow::Result<()> {
    let tolerance = case.tolerance()?;
    let (rounds, schema) = (case.size("n")?, schema::of_inputs(case)?);
    let tree = TreeFull::new(rounds, layout(case.text("layout")?)?)?;
    let cost = schema::cost(&Strategy::TreeFull(tree), rounds, &schema)?;
    case.close("sens_pistar", earliest(rounds as u64, &schema)?.sqrt(), tolerance)?;
    schema::close(case, &cost, tolerance)
}
