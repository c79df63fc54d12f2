//! An audit at the level of the mechanism: canaries and noise probes through the coordinator of a run, without users or model.

use undertone_accounting::audit::Significance;
use undertone_audit::canaries::{self, CONFIRMATION};
use undertone_coordinator::random::Randomness;
use undertone_run::Result;

use super::lane::{self, LaneInputs, Size};
use super::noise::NoiseTests;
use super::record::{Audit, Bound, MECHANISM};

/// An audit of the mechanism of a run.
#[derive(Debug, Clone, Copy)]
pub struct MechanismAudit<'a> {
    /// The run.
    pub inputs: LaneInputs<'a>,
    /// The numbers of canaries and probes.
    pub size: Size,
    /// SHA-256 of the configuration.
    pub config_sha256: &'a str,
    /// `false` to test the noise alone.
    pub canaries: bool,
}

impl MechanismAudit<'_> {
    /// Runs the audit. `fresh` gives the randomness of one pass; a confirmation takes a second one.
    ///
    /// # Errors
    /// [`RunError`](undertone_run::RunError) naming the setting that an audit refuses; from the coordinator and the estimators.
    pub fn run(&self, fresh: &mut dyn FnMut() -> Result<Randomness>) -> Result<Audit> {
        let lane = lane::run(&self.inputs, &self.size, &fresh()?)?;
        let (claim, number) = (lane.claim.clone(), lane.coins.len() as u64);
        let mut audit = Audit::new(&self.inputs.task.name, self.config_sha256);
        audit.noise = Some(NoiseTests::of(
            &lane.probes,
            self.size.probes,
            &lane.cohort_sizes,
        )?);
        audit.control = self.size.control;
        if self.canaries {
            let mut fixed = canaries::plan(self.config_sha256, number, self.size.probes, &claim)?;
            fixed.directions = self.size.directions;
            audit.plan_sha256 = Some(fixed.sha256()?);
            audit.canaries = canaries::bounds(MECHANISM, &lane, &fixed, Significance::REPORTED)?;
            let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > claim.epsilon;
            if audit.canaries.iter().any(exceeds) {
                let again = lane::run(&self.inputs, &self.size, &fresh()?)?;
                let significance = Significance::new(CONFIRMATION)?;
                let mut confirmation = canaries::bounds(MECHANISM, &again, &fixed, significance)?;
                confirmation.retain(|bound| bound.headline);
                audit.canaries.extend(confirmation);
            }
            audit.plan = Some(fixed);
        }
        audit.claim = Some(claim);
        Ok(audit.finish())
    }
}
