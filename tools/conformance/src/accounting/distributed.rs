//! Noise in shares: distributed discrete Gaussian and Skellam.

use anyhow::ensure;
use undertone_accounting::AccountingError;
use undertone_accounting::distributed::{
    DistributedDiscreteGaussian, DistributedSkellam, RoundedSensitivity,
};
use undertone_accounting::rdp::conversion;

use super::EXACT;
use crate::case::Case;

pub(super) fn distributed_discrete_gaussian(case: &Case<'_>) -> anyhow::Result<()> {
    let rounded = rounded(case, case.number("gamma")?)?;
    let sum =
        DistributedDiscreteGaussian::new(rounded, case.number("local_stddev")?, case.whole("num_clients")?)?;
    case.close("tau", sum.tau(), EXACT)?;
    composed(case, |order| sum.rdp(order))
}

pub(super) fn skellam(case: &Case<'_>) -> anyhow::Result<()> {
    let rounded = rounded(case, 1.0 / case.number("scale")?)?;
    let sum = DistributedSkellam::new(rounded, case.number("central_stddev")?)?;
    composed(case, |order| sum.rdp(order))
}

fn rounded(case: &Case<'_>, granularity: f64) -> anyhow::Result<RoundedSensitivity> {
    let rounded = RoundedSensitivity::new(
        case.number("l2_sens")?,
        granularity,
        case.whole("dim")?,
        case.number("beta")?,
    )?;
    case.close("l2_rounded", rounded.l2(), EXACT)?;
    case.close("l1_rounded", rounded.l1(), EXACT)?;
    Ok(rounded)
}

/// `steps` sums over the reference's orders, 2 to 128 and 256.
fn composed(case: &Case<'_>, rdp: impl Fn(f64) -> Result<f64, AccountingError>) -> anyhow::Result<()> {
    let q = case.number("q")?;
    ensure!(
        q == 1.0,
        "noise in shares is not amplified by sampling, got q = {q}"
    );
    let steps = case.whole("steps")? as f64;
    let orders: Vec<f64> = (2..=128).chain([256]).map(f64::from).collect();
    let mut divergences = Vec::with_capacity(orders.len());
    for &order in &orders {
        divergences.push(steps * rdp(order)?);
    }
    case.close("rdp_order_8", divergences[6], EXACT)?;
    let (epsilon, best) = conversion::epsilon(&orders, &divergences, case.delta()?.get().ln());
    case.close("epsilon", epsilon, EXACT)?;
    case.close("order", orders[best], 0.0)
}
