//! The demands of example-level sampling on the other tables of a run file.

use undertone_settings::Algorithm;

use super::{AccountantName, ClipConfig, TaskConfig};
use crate::error::check::{exclude, require};
use crate::error::{CoordinatorError, Result};
use crate::sampling::Sampling;

impl TaskConfig {
    /// Checks that the other tables fit example-level sampling.
    pub(super) fn validate_els(&self) -> Result<()> {
        if self.user_update.algorithm != Algorithm::Els {
            return Ok(());
        }
        // PRIVACY: without the coins of a Poisson sample all examples of a user can meet in one round.
        let sampling = self.cohort.sampling;
        let expected = "`poisson` with els: its guarantee is that of a Poisson sample of examples; in shuffled batches all of a \
                        user's examples can meet in one round (`uls` samples users by any scheme)";
        require(
            sampling == Sampling::Poisson,
            "cohort.sampling",
            expected,
            sampling.name(),
        )?;
        let flat = matches!(self.clip, ClipConfig::None | ClipConfig::Flat { .. });
        let expected = "`flat` with els, which clips single examples";
        require(flat, "clip.kind", expected, self.clip.kind())?;
        let (fixed, kind) = (self.estimator.is_fixed(), self.estimator.kind());
        require(fixed, "estimator.kind", "`fixed_denominator` with els", kind)?;
        let reason = "els has no update of a user (`uls` as user_update.algorithm has one)";
        exclude(self.aggregation.is_some(), "aggregation", reason)?;
        exclude(self.participation.is_some(), "participation", reason)?;
        let reason = "with els, the guarantee of a larger run depends on the examples of its users";
        exclude(self.estimate.is_some(), "estimate", reason)?;
        let Some(privacy) = &self.privacy else {
            return Ok(());
        };
        let reason =
            "with els, no schema bounds how often the examples of a user take part (`uls` has such a schema)";
        exclude(privacy.mechanism.is_some(), "privacy.mechanism", reason)?;
        if let Some(accountant @ (AccountantName::Rdp | AccountantName::Moments2016)) = privacy.accountant {
            let expected = "`pld` with els: the guarantee of a user is that of mixtures of Gaussians, of which only loss \
                            distributions are known";
            return Err(CoordinatorError::value(
                "privacy.accountant",
                expected,
                accountant.name(),
            ));
        }
        Ok(())
    }
}
