//! What the training of a round was like, whatever it was made of.

use undertone_local::{MicrobatchOutcome, UserOutcome};

/// Users of a round, or the microbatches of example-level sampling, together.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Users; with example-level sampling examples.
    pub(super) parts: usize,
    pub(super) weight: f64,
    pub(super) examples: u64,
    pub(super) tokens: u64,
    pub(super) loss_sum: f64,
    pub(super) norms: Vec<f64>,
    pub(super) clipped: usize,
    pub(super) discarded: usize,
}

impl FromIterator<UserOutcome> for Work {
    fn from_iter<I: IntoIterator<Item = UserOutcome>>(outcomes: I) -> Self {
        let mut work = Self::default();
        for outcome in outcomes {
            work.parts += 1;
            work.weight += outcome.weight;
            work.examples += outcome.examples as u64;
            work.tokens += outcome.tokens;
            work.loss_sum += outcome.loss_sum;
            work.norms.push(outcome.norm);
            work.clipped += usize::from(outcome.clipped);
            work.discarded += usize::from(outcome.discarded);
        }
        work
    }
}

impl FromIterator<MicrobatchOutcome> for Work {
    fn from_iter<I: IntoIterator<Item = MicrobatchOutcome>>(outcomes: I) -> Self {
        let mut work = Self::default();
        for outcome in outcomes {
            work.parts += outcome.examples;
            work.weight += outcome.examples as f64;
            work.examples += outcome.examples as u64;
            work.tokens += outcome.tokens;
            work.loss_sum += outcome.loss_sum;
            work.norms.extend(outcome.norms);
            work.clipped += outcome.clipped;
            work.discarded += outcome.discarded;
        }
        work
    }
}
