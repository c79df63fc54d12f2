//! The contributions of a round, and whatever gathers them.

use core::time::Duration;

use undertone_aggregation::BoundedSum;
use undertone_local::{MicrobatchOutcome, UserOutcome};
use undertone_mechanisms::{ClientNoisedSum, RawSum};

use crate::cohorts::Cohort;
use crate::head::Opened;
use crate::participation::ParticipantId;

/// The sum of a round.
///
/// A sum cannot be printed:
/// ```compile_fail,E0277
/// fn show(sum: &undertone_coordinator::source::RoundSum) {
///     println!("{sum:?}");
/// }
/// ```
/// or serialised:
/// ```compile_fail,E0277
/// fn text(sum: &undertone_coordinator::source::RoundSum) {
///     serde_json::to_string(sum);
/// }
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub enum RoundSum {
    /// Updates of users, each bounded as it was added; with adaptive clipping the sum of the users' bits less one half.
    Users {
        /// The sum of the updates.
        sum: BoundedSum,
        /// The sum of the bits.
        bits: Option<BoundedSum>,
    },
    /// Gradients of examples, added one by one or in microbatches.
    Examples(BoundedSum),
    /// Encoded updates, lifted from their residues.
    Lifted(RawSum),
    /// Encoded updates with the noise of the clients in them.
    WithClientNoise(ClientNoisedSum),
    /// Nothing: fewer clients than the floor were left.
    Abandoned,
}

/// The users of a round, as the ledger names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participants {
    /// Every user whose text the round may have read, ascending, those included who were lost on the way. PRIVACY: each of
    /// them counts as a participant.
    pub names: Vec<ParticipantId>,
    /// How many of them the sum holds, where users can fail on the way.
    pub survivors: Option<u64>,
    /// Example-level and user-level sampling: the number of examples whose gradients the sum was made of.
    pub examples: Option<u64>,
}

/// What a source gives back for a round.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct Gathered {
    /// The sum.
    pub sum: RoundSum,
    /// The users of the round.
    pub who: Participants,
    /// Exact statistics of the training. PRIVACY: they are for the people who run it and no part of any release.
    pub diagnostics: Diagnostics,
}

/// Exact statistics of the training of a round, over users or over the microbatches of example-level sampling.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Diagnostics {
    /// Users; with example-level sampling examples.
    pub parts: usize,
    /// Sum of the weights.
    pub weight: f64,
    /// Examples that were read.
    pub examples: u64,
    /// Target tokens.
    pub tokens: u64,
    /// Sum of the training loss over those tokens.
    pub loss_sum: f64,
    /// Norms before clipping.
    pub norms: Vec<f64>,
    /// How many were clipped.
    pub clipped: usize,
    /// How many were not finite and counted as zero.
    pub discarded: usize,
    /// Where the time of the round went.
    pub times: GatherTimes,
}

/// Where the time of a round went before its sum was complete, by the clock on the wall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatherTimes {
    /// All work of the users: local training, clipping, adding to the sum.
    pub users: Duration,
    /// Of that, clipping: the mean over the workers.
    pub clip: Duration,
    /// Of that, bounding and adding to the sum: the mean over the workers.
    pub sum: Duration,
}

impl FromIterator<UserOutcome> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = UserOutcome>>(outcomes: I) -> Self {
        let mut all = Self::default();
        for outcome in outcomes {
            all.parts += 1;
            all.weight += outcome.weight;
            all.examples += outcome.examples as u64;
            all.tokens += outcome.tokens;
            all.loss_sum += outcome.loss_sum;
            all.norms.push(outcome.norm);
            all.clipped += usize::from(outcome.clipped);
            all.discarded += usize::from(outcome.discarded);
        }
        all
    }
}

impl FromIterator<MicrobatchOutcome> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = MicrobatchOutcome>>(outcomes: I) -> Self {
        let mut all = Self::default();
        for outcome in outcomes {
            all.parts += outcome.examples;
            all.weight += outcome.examples as f64;
            all.examples += outcome.examples as u64;
            all.tokens += outcome.tokens;
            all.loss_sum += outcome.loss_sum;
            all.norms.extend(outcome.norms);
            all.clipped += outcome.clipped;
            all.discarded += outcome.discarded;
        }
        all
    }
}

/// Gathers the contributions of a round, and may block until they are there: threads of this process, other processes, a
/// simulation of secure aggregation.
pub trait UpdateSource {
    /// Why no sum came.
    type Error;

    /// The sum of an opened round over a cohort. `on_contribution` is called once for every contribution, from any thread.
    ///
    /// # Errors
    /// Whatever the source meets. Too few survivors are no error: the sum is then [`RoundSum::Abandoned`].
    fn gather(
        &mut self,
        opened: &Opened,
        cohort: &Cohort,
        parameters: &[f32],
        on_contribution: &(dyn Fn() + Sync),
    ) -> Result<Gathered, Self::Error>;
}
