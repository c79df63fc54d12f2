//! The lane of an audit: coordinates behind those of the model, to which no user contributes.

use std::sync::Arc;

use undertone_aggregation::{Bound, Clipping, Estimator, NonFinite, ParamLayout};

use super::{Basis, PrivacyPlan, RoundPlan};
use crate::error::{CoordinatorError, Result};

impl PrivacyPlan {
    /// Releases so many coordinates more in each round, behind those of the model. They are summed, averaged and noised as the
    /// coordinates of the model are. Without columns the plan stays as it is.
    ///
    /// # Guarantee
    /// The plan keeps its guarantee. The values of a lane follow from invented contributions alone, and their noise is independent of the
    /// noise of the model. So a released lane tells nothing about users.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for a run that may not have a lane: one that is not private, encodes its updates, divides by a
    /// weight of its users, or changes its clip norm by what it finds.
    pub fn with_lane(mut self, columns: usize) -> Result<Self> {
        if columns == 0 {
            return Ok(self);
        }
        let refuse = |key: &str, expected: &str, got: &str| Err(CoordinatorError::value(key, expected, got));
        if !self.is_private() {
            return refuse(
                "audit",
                "no lane and no probes in a run without [privacy]",
                "some",
            );
        }
        if self.encoding.is_some() {
            return refuse("audit", "no lane and no probes beside [aggregation]", "some");
        }
        if !matches!(self.estimator, Estimator::FixedDenominator { .. }) {
            // PRIVACY: the lane would be divided by the users' weight, and tell of it.
            return refuse(
                "audit",
                "no lane and no probes where the average is divided by a weight that depends on the users",
                "some",
            );
        }
        if let Some(private) = &mut self.private
            && let Basis::Participation(bounded) = &mut private.basis
        {
            if bounded.is_adaptive() {
                return refuse("audit", "no lane and no probes beside adaptive clipping", "some");
            }
            bounded.extend(columns);
        }
        let layout = ParamLayout::with_tensor_groups(vec![("audit.lane".to_owned(), vec![columns])])?;
        self.lane = Some(Arc::new(layout));
        Ok(self)
    }

    /// Number of coordinates of the lane; 0 without one.
    #[must_use]
    pub fn lane_columns(&self) -> usize {
        self.lane.as_ref().map_or(0, |lane| lane.len())
    }

    /// The bound on each contribution to the lane in a round of this plan: the whole norm that a user has.
    pub(crate) fn lane_bound(&self, round: &RoundPlan, non_finite: NonFinite) -> Option<Bound> {
        let clip_norm = round.clipping.bound()?;
        let layout = self.lane.clone()?;
        Some(Bound::new(layout, Clipping::Flat { clip_norm }, non_finite))
    }
}
