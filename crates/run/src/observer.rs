//! The observer of a run, which is shown its events and can end it.

use undertone_coordinator::record::GuaranteeRecord;
use undertone_coordinator::source::Watch;

use crate::error::{Result, RunError};
use undertone_run_directory::metrics::{EvaluationRecord, RoundRecord, StartRecord};

/// Receives the events of a run, to show them, and can end it.
pub trait Observer: Send + Sync {
    /// `true` ends the training at the next user, round, batch of an evaluation or batch of rows. A round that it ends in is dropped
    /// before its release, and the last checkpoint stays. Between two rounds, a checkpoint of all rounds is written first. So an
    /// observer that answers `true` only between [`on_round`](Self::on_round) and the next [`on_round_start`](Self::on_round_start)
    /// loses no round. Called from any thread.
    fn stop(&self) -> bool {
        false
    }
    /// The corpus is being read: stage, amount done, total where it is known.
    fn on_corpus(&self, _stage: &str, _done: u64, _total: Option<u64>) {}
    /// Everything is ready; `planned` is the guarantee of the whole run, before the first round.
    fn on_start(&self, _start: &StartRecord, _planned: Option<&GuaranteeRecord>, _resumed_at: u64) {}
    /// A round starts with this many users, or with this many microbatches with example-level sampling.
    fn on_round_start(&self, _round: u64, _cohort: usize) {}
    /// A user (a microbatch) of the round is done. Called from several threads.
    fn on_user(&self) {}
    /// A round is done.
    fn on_round(&self, _round: &RoundRecord) {}
    /// The model was evaluated.
    fn on_evaluation(&self, _evaluation: &EvaluationRecord) {}
}

/// An observer that shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Hands a round's progress to the run's observer.
pub(crate) struct Watched<'a>(pub(crate) &'a dyn Observer);

impl Watch for Watched<'_> {
    fn contribution(&self) {
        self.0.on_user();
    }

    fn stop(&self) -> bool {
        self.0.stop()
    }
}

/// Ends the training where the observer asks for it.
pub(crate) fn proceed(observer: &dyn Observer) -> Result<()> {
    match observer.stop() {
        true => Err(RunError::Interrupted),
        false => Ok(()),
    }
}
