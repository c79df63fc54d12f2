//! The checks of a sum before any noise is drawn.

use undertone_aggregation::{BoundedSum, Estimator, ModularVec};
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

/// The sum of the users' contributions, and that of the lane behind it.
struct Contributions {
    users: BoundedSum,
    lane: Option<BoundedSum>,
}

impl Contributions {
    /// Both as one sum, for the noise.
    fn into_raw(self) -> Result<RawSum> {
        let users = self.users.into_raw()?;
        Ok(match self.lane {
            Some(lane) => users.followed_by(lane.into_raw()?),
            None => users,
        })
    }

    /// The average of both. Values that `leave` as they are get a digest, which is what the ledger has of them.
    fn average(self, estimator: &Estimator, leave: bool) -> Result<RawAverage> {
        let digested = leave && self.lane.is_none();
        let average = estimator.apply(self.into_raw()?)?;
        Ok(match digested {
            true => average.with_digest(),
            false => average,
        })
    }
}

/// The place of a round, in words.
fn place(genesis: &str, chain: &Chain, round: u64) -> String {
    format!("round {round} after {} of {genesis}", chain.head())
}

impl RunHead {
    /// Refuses a value that is not a sum of this round, before any noise is drawn.
    pub(super) fn check(&self, opened: &Opened, sum: RoundSum, lane: Option<LaneSum>) -> Result<Checked> {
        if !opened.is_of(self) {
            return Err(CoordinatorError::ForeignRound {
                expected: place(&self.genesis, &self.chain, self.round),
                got: place(&opened.genesis, &opened.chain, opened.round),
            });
        }
        if lane.as_ref().map(LaneSum::bounds) != opened.lane {
            return Err(self.foreign(
                "a lane with the bounds of the round, where the run has a lane",
                "another lane, or none",
            ));
        }
        match sum {
            RoundSum::Users { sum, bits } => {
                self.check_plain(opened, &sum, false)?;
                self.of_users(opened, sum, bits, lane)
            }
            RoundSum::Examples(users) => {
                self.check_plain(opened, &users, true)?;
                let lane = lane.map(|lane| lane.updates);
                let average = self.average(opened, Contributions { users, lane })?;
                Ok(Checked::Raw(average, None))
            }
            RoundSum::Modular {
                residues,
                included,
                rotations,
            } => self.of_residues(residues, included, rotations),
            RoundSum::WithClientNoise(_) | RoundSum::Abandoned if self.plan.encoding().is_none() => {
                Err(self.foreign("a sum of updates", "a sum of encoded updates"))
            }
            RoundSum::WithClientNoise(sum) => match self.plan.estimator() {
                Estimator::FixedDenominator { expected_weight } if self.plan.client_noise().is_some() => {
                    Ok(Checked::WithClientNoise(sum, *expected_weight))
                }
                _ => Err(self.foreign(
                    "a sum for the noise of the server",
                    "a sum with the noise of the clients",
                )),
            },
            RoundSum::Abandoned => Ok(Checked::Abandoned),
        }
    }

    fn foreign(&self, expected: &str, got: &str) -> CoordinatorError {
        CoordinatorError::foreign_sum(self.round, expected, got)
    }

    /// Refuses a sum of updates or of gradients where the task asks for another kind, and one with another bound.
    fn check_plain(&self, opened: &Opened, sum: &BoundedSum, of_examples: bool) -> Result<()> {
        let (expected, got) = match (self.plan.kept_per_user().is_some(), of_examples) {
            _ if self.plan.encoding().is_some() => ("a sum of encoded updates", "a sum of updates"),
            // PRIVACY: the plan of one unit says nothing of the other. A sum of examples bounds no user.
            (true, false) => ("a sum of gradients of examples", "a sum of updates of users"),
            (false, true) => ("a sum of updates of users", "a sum of gradients of examples"),
            _ if sum.bound() != &opened.bound => (
                "a sum with the bound of the round",
                "a sum with a different bound",
            ),
            _ => return Ok(()),
        };
        Err(self.foreign(expected, got))
    }

    fn of_users(
        &self,
        opened: &Opened,
        users: BoundedSum,
        bits: Option<BoundedSum>,
        lane: Option<LaneSum>,
    ) -> Result<Checked> {
        let (lane, lane_bits) = lane.map_or((None, None), |lane| (Some(lane.updates), lane.bits));
        let bits = match (self.clip.is_some(), bits) {
            (true, Some(users)) => {
                let lane = lane_bits;
                Some(Contributions { users, lane }.into_raw()?)
            }
            (false, None) => None,
            (true, None) => return Err(self.foreign("a sum of bits for adaptive clipping", "none")),
            (false, Some(_)) => {
                return Err(self.foreign(
                    "users without a sum of bits, since no clip norm adapts",
                    "users with one",
                ));
            }
        };
        let average = self.average(opened, Contributions { users, lane })?;
        Ok(Checked::Raw(average, bits))
    }

    fn average(&self, opened: &Opened, sum: Contributions) -> Result<RawAverage> {
        let leave = self.task.model.is_external() && self.step_scale(opened).is_none();
        sum.average(self.plan.estimator(), leave)
    }

    fn of_residues(&self, residues: ModularVec, included: u64, rotations: NoiseKey) -> Result<Checked> {
        if self.plan.client_noise().is_some() {
            return Err(self.foreign("a sum with the noise of the clients", "a sum without noise"));
        }
        match (self.plan.encoding(), self.plan.estimator()) {
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
            _ => Err(self.foreign("a sum of updates", "a sum of encoded updates")),
        }
    }
}
