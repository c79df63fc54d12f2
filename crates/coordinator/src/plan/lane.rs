//! The lane of an audit: coordinates behind those of the model, to which no user contributes.

use std::sync::Arc;

use undertone_aggregation::{Bound, BoundedSum, Clipping, Estimator, NonFinite, ParamLayout};

use super::{Basis, PrivacyPlan, RoundPlan};
use crate::error::{CoordinatorError, Result};

/// The size of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneSize {
    /// Number of canaries. Each has one coordinate, or one in each group of clipping by layers.
    pub canaries: usize,
    /// Number of coordinates without any contribution.
    pub probes: usize,
}

/// The lane of a plan.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The canaries' coordinates in each group, and the probes behind them in the last one.
    layout: Arc<ParamLayout>,
    /// Layout of the bits with adaptive clipping, one for each coordinate of the lane.
    bits: Option<Arc<ParamLayout>>,
}

/// The bounds on each contribution to the lane of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneBounds {
    /// The bound on the update of a canary: the clip norms that a user has.
    pub updates: Bound,
    /// With adaptive clipping, the bound on the bit of a canary, less one half.
    pub bits: Option<Bound>,
}

/// The contributions to the lane of a round.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct LaneSum {
    /// The sum of the updates of canaries.
    pub updates: BoundedSum,
    /// With adaptive clipping, the sum of their bits, each less one half.
    pub bits: Option<BoundedSum>,
}

impl LaneSum {
    /// A sum without contributions.
    #[must_use]
    pub fn new(bounds: &LaneBounds) -> Self {
        Self {
            updates: BoundedSum::new(bounds.updates.clone()),
            bits: bounds.bits.clone().map(BoundedSum::new),
        }
    }

    /// The bounds that the sum enforces.
    #[must_use]
    pub(crate) fn bounds(&self) -> LaneBounds {
        LaneBounds {
            updates: self.updates.bound().clone(),
            bits: self.bits.as_ref().map(|bits| bits.bound().clone()),
        }
    }
}

impl PrivacyPlan {
    /// Releases so many coordinates more in each round, behind those of the model. They are summed, averaged and noised as the
    /// coordinates of the model are. With adaptive clipping, as many bits stand behind the users' bit. Without coordinates the plan stays as it is.
    ///
    /// # Guarantee
    /// The plan keeps its guarantee. The values of a lane follow from invented contributions alone, and their noise is independent of the
    /// noise of the model. So a released lane tells nothing about users.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigCombination`] for a run that encodes its updates; [`CoordinatorError::ConfigConflict`] for one that is not
    /// private, or divides by a weight of its users.
    pub fn with_lane(mut self, size: LaneSize) -> Result<Self> {
        let LaneSize { canaries, probes } = size;
        if canaries + probes == 0 {
            return Ok(self);
        }
        // Probes stand in no file that leaves them at their default.
        let key = if canaries > 0 { "audit.lane" } else { "audit" };
        let refuse = |reason: &str| Err(CoordinatorError::left_out(key, reason));
        if !self.is_private() {
            return refuse("the run has no [privacy], so there is no noise to test");
        }
        if self.encoding.is_some() {
            let remedy = "remove one of them, or lane and probes alone (`audit.noise_probe = 0`)";
            return Err(CoordinatorError::conflict(key, "aggregation", remedy));
        }
        if !matches!(self.estimator, Estimator::FixedDenominator { .. }) {
            // PRIVACY: the lane would be divided by the users' weight, and tell of it.
            return refuse("the average is divided by a weight that depends on the users");
        }
        let groups = match self.round(0).clipping {
            Clipping::PerLayer { clip_norms } if canaries > 0 => clip_norms.len(),
            _ => 1,
        };
        let columns = |group: usize| canaries + if group + 1 == groups { probes } else { 0 };
        let tensors = (0..groups).map(|group| (format!("audit.lane.{group}"), vec![columns(group)]));
        let layout = ParamLayout::with_tensor_groups(tensors.collect())?;
        let mut bits = None;
        if let Some(private) = &mut self.private
            && let Basis::Participation(bounded) = &mut private.basis
        {
            if bounded.is_adaptive() {
                let parts = vec![("audit.bits".to_owned(), vec![canaries + probes])];
                bits = Some(Arc::new(ParamLayout::with_tensor_groups(parts)?));
            }
            bounded.extend(layout.len(), bits.as_ref().map_or(0, |bits| bits.len()));
        }
        self.lane = Some(Lane {
            layout: Arc::new(layout),
            bits,
        });
        Ok(self)
    }

    /// Number of coordinates of the lane behind those of the model; 0 without one.
    #[must_use]
    pub(crate) fn lane_columns(&self) -> usize {
        self.lane.as_ref().map_or(0, |lane| lane.layout.len())
    }

    /// Number of bits of the lane behind the users' bit; 0 without adaptive clipping.
    #[must_use]
    pub(crate) fn lane_bits(&self) -> usize {
        let bits = self.lane.as_ref().and_then(|lane| lane.bits.as_ref());
        bits.map_or(0, |bits| bits.len())
    }

    /// The bounds on each contribution to the lane in a round of this plan: those of a user.
    pub(crate) fn lane_bounds(&self, round: &RoundPlan, non_finite: NonFinite) -> Option<LaneBounds> {
        let lane = self.lane.as_ref()?;
        let half = Clipping::Flat { clip_norm: 0.5 };
        let clipping = match &round.clipping {
            // Nobody contributes to probes.
            Clipping::PerLayer { clip_norms } if clip_norms.len() != lane.layout.groups().len() => {
                Clipping::Flat {
                    clip_norm: round.clipping.bound()?,
                }
            }
            clipping => clipping.clone(),
        };
        Some(LaneBounds {
            updates: Bound::new(lane.layout.clone(), clipping, non_finite),
            bits: (lane.bits.clone()).map(|bits| Bound::new(bits, half, NonFinite::Refuse)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Population;
    use crate::task::TaskConfig;

    /// The refusal of a lane of so many canaries in a task with these tables.
    fn refusal(canaries: usize, more: &str) -> String {
        let task: TaskConfig = toml::from_str(&format!(
            "name = \"lane\"\nrounds = 8\nmodel = {{ family = \"dplm\", embed = 4, hidden = 6 }}\ncohort = {{ sampling = \"fixed_size\", \
             users_per_round = 4 }}\nuser_update = {{ algorithm = \"fedavg\", batch_size = 4, learning_rate = 0.5 }}\nclip = {{ kind = \
             \"flat\", norm = 0.5 }}\n{more}"
        ))
        .unwrap();
        let layout = task.model.clone().build(10).unwrap().layout().clone();
        let population = Population {
            users: 40,
            total_weight: 40.0,
        };
        let plan = PrivacyPlan::new(&task, None, &layout, population).unwrap();
        let size = LaneSize { canaries, probes: 4 };
        plan.with_lane(size).unwrap_err().to_string()
    }

    #[test]
    fn a_run_without_room_for_a_lane_is_refused_by_the_key_that_its_file_has() {
        for (canaries, key) in [(2, "`audit.lane`"), (0, "`audit`")] {
            let private =
                "privacy = { noise_multiplier = 1.0 }\nestimator = { kind = \"fixed_denominator\" }\n";
            let encoded = format!("{private}aggregation = {{ min_clients = 2 }}");
            assert_eq!(
                refusal(canaries, &encoded),
                format!(
                    "{key} cannot be combined with `aggregation`; remove one of them, or lane and probes alone (`audit.noise_probe = 0`)"
                )
            );
            let open = refusal(canaries, "");
            assert!(
                open.contains(key) && open.contains("must be left out: the run has no [privacy]"),
                "{open}"
            );
        }
    }
}
