//! The sums of a round as differences. PRIVACY: copies of sums stay in this module and `adversary`, and none of them has a reader.

use undertone_aggregation::{BoundedSum, Encoding, ModularVec};
use undertone_coordinator::source::RoundSum;
use undertone_mechanisms::audit::Difference;
use undertone_mechanisms::{NoiseKey, RawResidues, RawSum};

use crate::error::Result;

/// Copies of the sums of a round.
pub(super) enum Copied {
    /// Values in fixed point and, with adaptive clipping, bits.
    Fixed(RawSum, Option<RawSum>),
    /// Residues of encoded updates.
    Residues(RawResidues),
    /// Nothing to compare: no sum, or one that the clients' noise is in already. R2 compares its releases.
    Nothing,
}

/// Differences of two sums of a round.
pub(super) struct Differences {
    pub(super) values: Difference,
    pub(super) bits: Option<Difference>,
}

/// The copies of a sum.
pub(super) fn copied(sum: &mut RoundSum, encoding: Option<&Encoding>, round: u64) -> Result<Copied> {
    Ok(match (sum, encoding) {
        (RoundSum::Users { sum, bits }, _) => Copied::Fixed(raw(sum)?, bits.as_mut().map(raw).transpose()?),
        (RoundSum::Examples(sum), _) => Copied::Fixed(raw(sum)?, None),
        (
            RoundSum::Modular {
                residues,
                included,
                rotations,
            },
            Some(encoding),
        ) => Copied::Residues(residues_of(residues, *included, rotations, encoding, round)?),
        _ => Copied::Nothing,
    })
}

fn residues_of(
    sum: &ModularVec,
    included: u64,
    rotations: &NoiseKey,
    encoding: &Encoding,
    round: u64,
) -> Result<RawResidues> {
    let mut copy = ModularVec::zeros(sum.modulus(), sum.len());
    copy.add(sum)?;
    Ok(encoding.for_round(rotations, round)?.residues(copy, included)?)
}

/// A copy of a sum in fixed point.
pub(super) fn raw(sum: &mut BoundedSum) -> Result<RawSum> {
    let mut all = steps(sum)?;
    // The weight comes first, then the values in order.
    let values = all.split_off(1);
    Ok(RawSum::new(values, all[0]))
}

/// The weight and the values of a sum, in steps.
pub(super) fn steps(sum: &mut BoundedSum) -> Result<Vec<i64>> {
    let mut all: Vec<i64> = Vec::new();
    sum.combine(1, |values| {
        all.extend_from_slice(values);
        Ok::<(), crate::error::RunError>(())
    })?;
    Ok(all)
}

/// The difference of two sums of one kind; `None` where there is nothing to compare.
pub(super) fn difference(one: Copied, other: Copied) -> Result<Option<Differences>> {
    Ok(match (one, other) {
        (Copied::Fixed(a, a_bits), Copied::Fixed(b, b_bits)) => Some(Differences {
            values: Difference::between(a, b)?,
            bits: match (a_bits, b_bits) {
                (Some(a), Some(b)) => Some(Difference::between(a, b)?),
                _ => None,
            },
        }),
        (Copied::Residues(a), Copied::Residues(b)) => Some(Differences {
            values: Difference::between_residues(a, b)?,
            bits: None,
        }),
        _ => None,
    })
}
