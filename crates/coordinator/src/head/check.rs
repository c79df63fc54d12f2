//! The checks of a sum before any noise is drawn.

use undertone_aggregation::{BoundedSum, Estimator};
use undertone_mechanisms::{ClientNoisedSum, NoiseKey, RawAverage, RawResidues, RawSum};

use super::{Opened, RunHead};
use crate::chain::Chain;
use crate::error::{CoordinatorError, Result};
use crate::plan::LaneSum;
use crate::source::RoundSum;

/// A sum that has passed every check, ready for the noise.
pub(super) enum Checked {
    Raw(RawAverage, Option<RawSum>),
    Residues {
        residues: RawResidues,
        included: u64,
        rotations: NoiseKey,
        denominator: f64,
    },
    WithClientNoise(ClientNoisedSum, f64),
    Abandoned,
}

impl RunHead {
    /// Refuses a value that is not a sum of this round, before any noise is drawn.
    pub(super) fn check(&self, opened: &Opened, sum: RoundSum, lane: Option<LaneSum>) -> Result<Checked> {
        let place =
            |head: &str, chain: &Chain, round: u64| format!("round {round} after {} of {head}", chain.head());
        if (&opened.genesis, &opened.chain, opened.round) != (&self.genesis, &self.chain, self.round) {
            return Err(CoordinatorError::ForeignRound {
                expected: place(&self.genesis, &self.chain, self.round),
                got: place(&opened.genesis, &opened.chain, opened.round),
            });
        }
        let kind = |expected: &str, got: &str| {
            Err(CoordinatorError::ForeignSum {
                round: self.round,
                expected: expected.to_owned(),
                got: got.to_owned(),
            })
        };
        if lane.as_ref().map(LaneSum::bounds) != opened.lane {
            return kind(
                "a lane with the bounds of the round, where the run has a lane",
                "another lane, or none",
            );
        }
        let (updates, lane_bits) = lane.map_or((None, None), |lane| (Some(lane.updates), lane.bits));
        let beside = |sum: BoundedSum, lane: Option<BoundedSum>| -> Result<RawSum> {
            let sum = sum.into_raw()?;
            Ok(match lane {
                Some(lane) => sum.followed_by(lane.into_raw()?),
                None => sum,
            })
        };
        let whole = |sum: BoundedSum| -> Result<RawAverage> {
            let average = self.plan.estimator().apply(beside(sum, updates)?)?;
            // Values that leave as they are: the ledger has their digest.
            let leaves = self.task.model.is_external() && self.step_scale(opened).is_none();
            Ok(match leaves && opened.lane.is_none() {
                true => average.with_digest(),
                false => average,
            })
        };
        let (encoding, distributed) = (self.plan.encoding(), self.plan.client_noise().is_some());
        let estimator = self.plan.estimator();
        match sum {
            RoundSum::Users { .. } | RoundSum::Examples(_) if encoding.is_some() => {
                kind("a sum of encoded updates", "a sum of updates")
            }
            // PRIVACY: the plan of one unit says nothing of the other. A sum of examples bounds no user.
            RoundSum::Users { .. } if self.plan.kept_per_user().is_some() => {
                kind("a sum of gradients of examples", "a sum of updates of users")
            }
            RoundSum::Examples(_) if self.plan.kept_per_user().is_none() => {
                kind("a sum of updates of users", "a sum of gradients of examples")
            }
            RoundSum::Users { ref sum, .. } | RoundSum::Examples(ref sum) if sum.bound() != &opened.bound => {
                kind(
                    "a sum with the bound of the round",
                    "a sum with a different bound",
                )
            }
            RoundSum::Users { sum, bits } => {
                let bits = match (self.clip.is_some(), bits) {
                    (true, Some(bits)) => Some(beside(bits, lane_bits)?),
                    (false, None) => None,
                    (true, None) => return kind("a sum of bits for adaptive clipping", "none"),
                    (false, Some(_)) => {
                        return kind(
                            "users without a sum of bits, since no clip norm adapts",
                            "users with one",
                        );
                    }
                };
                Ok(Checked::Raw(whole(sum)?, bits))
            }
            RoundSum::Examples(sum) => Ok(Checked::Raw(whole(sum)?, None)),
            RoundSum::Modular { .. } if distributed => {
                kind("a sum with the noise of the clients", "a sum without noise")
            }
            RoundSum::Modular {
                residues,
                included,
                rotations,
            } => match (encoding, estimator) {
                // PRIVACY: the plan of an older ledger prices other noise, and never makes a round.
                (Some(encoding), Estimator::FixedDenominator { expected_weight })
                    if self.plan.noise_domain().is_some() =>
                {
                    let round = encoding.for_round(&rotations, self.round)?;
                    Ok(Checked::Residues {
                        residues: round.residues(residues, included)?,
                        included,
                        rotations,
                        denominator: *expected_weight,
                    })
                }
                _ => kind("a sum of updates", "a sum of encoded updates"),
            },
            RoundSum::WithClientNoise(_) | RoundSum::Abandoned if encoding.is_none() => {
                kind("a sum of updates", "a sum of encoded updates")
            }
            RoundSum::WithClientNoise(sum) => match estimator {
                Estimator::FixedDenominator { expected_weight } if distributed => {
                    Ok(Checked::WithClientNoise(sum, *expected_weight))
                }
                _ => kind(
                    "a sum for the noise of the server",
                    "a sum with the noise of the clients",
                ),
            },
            RoundSum::Abandoned => Ok(Checked::Abandoned),
        }
    }
}
