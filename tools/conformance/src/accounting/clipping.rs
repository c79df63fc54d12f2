//! The split of the noise under adaptive clipping.

use undertone_accounting::adaptive_clipping::{BitNoise, sum_noise_multiplier};

use super::EXACT;
use crate::case::Case;

pub(super) fn adaptive_clipping(case: &Case<'_>) -> anyhow::Result<()> {
    let bits = BitNoise::for_clients(case.whole("clients_per_round")?)?;
    let given = case.number("sigma_b")?;
    case.near("sigma_b", bits.get(), given, EXACT * given);
    let sum = sum_noise_multiplier(case.noise("z")?, bits)?;
    case.close("z_delta", sum.get(), EXACT)
}
