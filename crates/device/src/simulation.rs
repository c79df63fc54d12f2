//! Jobs of simulated devices: seeds and updates that are given, not drawn and trained.

use undertone_aggregation::{UserSeeds, Wiped};

use crate::job::{Job, JobError, SessionSeeds, Trained};

impl Job {
    /// The round of the job.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.terms.round
    }

    /// Replaces the seeds of the session by those of a simulated user, so that a simulation computes the same update.
    ///
    /// PRIVACY: the order of examples and the noise of the update follow from the seeds. A real device draws both anew.
    #[must_use]
    pub fn with_seeds(mut self, seeds: UserSeeds) -> Self {
        self.seeds = SessionSeeds(seeds);
        self
    }

    /// Takes an update that `fill` writes into zeros, instead of training. The update is clipped and encoded like a trained one.
    ///
    /// `fill` also gets the clip norm of the round. Neither the model nor the examples of the device are read.
    ///
    /// # Errors
    /// [`JobError`] where the update cannot be encoded.
    pub fn run_with(self, fill: impl FnOnce(&mut [f32], f64)) -> Result<Trained, JobError> {
        let mut update = Wiped::from(vec![0.0; self.prepared.layout.len()]);
        fill(&mut update, self.terms.clipping.bound().unwrap_or(0.0));
        let added = self
            .bound()
            .enforce(&mut update)
            .map_err(|error| JobError::Local(error.into()))?;
        let payload = self.encode(update)?;
        Ok(Trained {
            payload,
            below: self
                .terms
                .estimate
                .map(|estimate| added.report().norm <= estimate),
            examples: 0,
            cpu_ms: 0,
        })
    }
}
