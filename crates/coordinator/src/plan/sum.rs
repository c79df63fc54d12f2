//! The check that the exact sum of a round stays in its range. It is made before the first round, so that no text decides
//! if a run fails.

use undertone_aggregation::{SUM_LIMIT, UPDATE_LIMIT};

use super::PrivacyPlan;
use crate::error::{CoordinatorError, Result};
use crate::sampling::Sampling;
use crate::task::MAX_OVER_SELECTION;

/// A Poisson cohort larger than [`PrivacyPlan::max_per_round`] has a probability below `e^-200`.
const LOG_TAIL: f64 = 200.0;

impl PrivacyPlan {
    /// Max number of updates in a round's sum, of users or, with example-level sampling, of examples. Poisson cohorts could hold
    /// all users; for them it is a number that they exceed with a probability below `e^-200`.
    #[must_use]
    pub fn max_per_round(&self) -> f64 {
        let all = match self.kept_per_user {
            // PRIVACY: the file may give the number of examples, so that the true one could be larger.
            Some(group_size) => self.population.users as f64 * f64::from(group_size),
            None => self.population.users as f64,
        };
        match self.sampling {
            Sampling::FixedSize => self.users_per_round,
            Sampling::ShuffledEpochs => (all / self.cohorts_per_epoch().max(1) as f64).ceil(),
            Sampling::DeviceTimers => all,
            Sampling::CheckIn => (self.users_per_round * MAX_OVER_SELECTION).ceil(),
            Sampling::Poisson => {
                // Bernstein's inequality for independent coins.
                let (mean, tail) = (self.q * all, LOG_TAIL / 3.0);
                (mean + tail + (tail * tail + 2.0 * mean * LOG_TAIL).sqrt())
                    .ceil()
                    .min(all)
            }
        }
    }

    /// Refuses a private run in which updates could add up to more than the plain sum holds, over `processes` processes. Such a
    /// run would fail or not by the users' text. Encoded sums have their own check.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the clip norm.
    pub fn check_sum(&self, processes: usize) -> Result<()> {
        if self.private.is_none() || self.encoding.is_some() {
            return Ok(());
        }
        let (max, limit) = (self.max_per_round(), SUM_LIMIT / processes.max(1) as f64);
        let norms = self.phases.iter().filter_map(|phase| phase.clip_norm);
        let norm = norms.fold(0.0, f64::max);
        // A weight counts as an update of norm 1: both are added up on one grid.
        if norm < UPDATE_LIMIT && norm.max(1.0) * max < limit {
            return Ok(());
        }
        let largest = (limit / max).min(UPDATE_LIMIT);
        let expected = match largest > 1.0 {
            true => format!(
                "less than {largest:.1} in a private run: up to {max} updates of this norm must fit below {limit} in the \
                 sum of a round"
            ),
            false => format!("a private run of fewer than {limit} updates per round, not up to {max}"),
        };
        Err(CoordinatorError::value("clip.norm", expected, norm))
    }
}
