//! Correlated-noise mechanisms: trees, trees with restarts, BLT.

use anyhow::{Context, ensure};
use undertone_accounting::participation::{Gap, Participation, RoundsBetween};
use undertone_accounting::sensitivity::toeplitz::Toeplitz;
use undertone_accounting::sensitivity::{SquaredSensitivity, restart, tree};
use undertone_accounting::{Delta, zcdp};

use super::EXACT;
use crate::case::{self, Case};

/// Delta of the outputs whose name ends in `_at_1e10`.
const GBOARD_DELTA: f64 = 1e-10;

pub(super) fn tree_single(case: &Case<'_>) -> anyhow::Result<()> {
    let rounds = case.whole("total_steps")?;
    // MinS of the reference counts the rounds between two participations.
    let gap = RoundsBetween::new(case.whole("min_separation")?).gap();
    let schema = Participation::at_least(gap, case.whole("max_participation")?)?;
    let got = tree::squared_sensitivity(rounds, &schema)?;
    case.close("sensitivity_sq", got.squared_sensitivity.get(), EXACT)?;
    case.close("best_participations", got.best_participation as f64, 0.0)?;
    let bound = tree::squared_sensitivity_bound(rounds, &schema)?;
    case.ensure(bound >= got.squared_sensitivity, || {
        format!(
            "closed bound: expected at least {}, got {bound}",
            got.squared_sensitivity
        )
    });
    let rho = got.squared_sensitivity.rho(case.noise("noise_multiplier")?)?;
    case.close("zcdp", rho.get(), EXACT)?;
    let Some(want) = case.expected("epsilon_at_1e10")? else {
        return Ok(());
    };
    let epsilon = zcdp::epsilon_of_gaussians(rho, Delta::new(GBOARD_DELTA)?)?.get();
    case.near("epsilon_at_1e10", epsilon, want, EXACT * want);
    Ok(())
}

pub(super) fn tree_restart(case: &Case<'_>) -> anyhow::Result<()> {
    let trees = case.numbers("steps_list")?;
    let trees = trees
        .into_iter()
        .map(case::whole)
        .collect::<anyhow::Result<Vec<u64>>>()?;
    let noise = case.noise("noise_multiplier")?;
    let orders = case.numbers("orders")?;
    let curve = |name: &str, trees: &[u64]| -> anyhow::Result<()> {
        let want = case.output(name).with_context(|| format!("no output `{name}`"))?;
        let want = case::list(want)?;
        ensure!(want.len() == orders.len(), "{name}: as many values as orders");
        for (&order, want) in orders.iter().zip(want) {
            let got = restart::rdp_once_per_tree(trees, noise, order)?;
            case.near(&format!("{name} at order {order}"), got, want, EXACT * want);
        }
        Ok(())
    };
    curve("rdp_tfp_sum", &trees)?;
    // The single-epoch event: a user is in one of the trees only, at worst in the deepest.
    let deepest = trees.iter().copied().max().context("no trees")?;
    curve("rdp_dpaccounting_single_epoch", &[deepest])?;
    case.close(
        "zcdp_sum",
        restart::once_per_tree(&trees)?.rho(noise)?.get(),
        EXACT,
    )
}

pub(super) fn blt_multi_participation(case: &Case<'_>) -> anyhow::Result<()> {
    let rounds = usize::try_from(case.whole("rounds")?)?;
    let strategy = Toeplitz::buffered(&case.numbers("theta")?, &case.numbers("omega")?, rounds)?;
    let gap = Gap::new(case.whole("gap")?)?;
    let between = RoundsBetween::new(case.whole("min_sep")?);
    ensure!(
        between.gap() == gap,
        "{between} and {gap} are not the same separation"
    );
    let schema = Participation::at_least(gap, case.whole("max_part")?)?;
    let squared: SquaredSensitivity = strategy.squared_sensitivity(&schema)?;
    case.close("sensitivity_sq", squared.get(), EXACT)?;
    let rho = squared.rho(case.noise("sigma")?)?;
    case.close("zcdp", rho.get(), EXACT)?;
    let epsilon = zcdp::epsilon_of_gaussians(rho, case.delta()?)?;
    case.close("epsilon", epsilon.get(), EXACT)
}
