//! The demands of example-level sampling on the other tables of a run file.

use undertone_local::Algorithm;

use super::{AccountantName, ClipConfig, TaskConfig};
use crate::error::{CoordinatorError, Result};
use crate::sampling::Sampling;

impl TaskConfig {
    /// Checks that the other tables fit example-level sampling.
    pub(super) fn validate_els(&self) -> Result<()> {
        if self.user_update.algorithm != Algorithm::Els {
            return Ok(());
        }
        let refuse = |key: &str, expected: &str, got: &str| Err(CoordinatorError::value(key, expected, got));
        // PRIVACY: without the coins of a Poisson sample all examples of a user can meet in one round.
        if self.cohort.sampling != Sampling::Poisson {
            let expected = "`poisson` with els: its guarantee is that of a Poisson sample of examples; in shuffled batches all \
                            of a user's examples can meet in one round (`uls` samples users by any scheme)";
            return refuse("cohort.sampling", expected, self.cohort.sampling.name());
        }
        if !matches!(self.clip, ClipConfig::None | ClipConfig::Flat { .. }) {
            return refuse(
                "clip.kind",
                "`flat` with els, which clips single examples",
                self.clip.kind(),
            );
        }
        if !self.estimator.is_fixed() {
            return refuse(
                "estimator.kind",
                "`fixed_denominator` with els",
                self.estimator.kind(),
            );
        }
        let sums_of_users = "`uls` as user_update.algorithm: els has no update of a user";
        if self.aggregation.is_some() {
            return refuse("aggregation", sums_of_users, "els");
        }
        if self.participation.is_some() {
            return refuse("participation", sums_of_users, "els");
        }
        if self.estimate.is_some() {
            let reason = "with els, the guarantee of a larger run depends on the examples of its users";
            return Err(CoordinatorError::conflict("estimate", reason));
        }
        let Some(privacy) = &self.privacy else {
            return Ok(());
        };
        if privacy.mechanism.is_some() {
            let reason = "with els, no schema bounds how often the examples of a user take part (`uls` has such a schema)";
            return Err(CoordinatorError::conflict("privacy.mechanism", reason));
        }
        if let Some(accountant @ (AccountantName::Rdp | AccountantName::Moments2016)) = privacy.accountant {
            let expected = "`pld` with els: the guarantee of a user is that of mixtures of Gaussians, of which only loss \
                            distributions are known";
            return refuse("privacy.accountant", expected, accountant.name());
        }
        Ok(())
    }
}
