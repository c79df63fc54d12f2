//! The contributions of a round, and the source that gathers them.

use core::time::Duration;

use undertone_aggregation::{BoundedSum, MicrobatchOutcome, ModularVec, UserOutcome};
use undertone_mechanisms::{ClientNoisedSum, NoiseKey};

use crate::cohorts::Cohort;
use crate::head::Opened;
use crate::participation::ParticipantId;
use crate::plan::LaneSum;
use crate::record::{AbandonedAttempt, Issuer, LedgerMode};

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
    /// Encoded updates, added up modulo a number. The head adds the noise before anything is read from them.
    Modular {
        /// The sum of the residues.
        residues: ModularVec,
        /// Number of users in it.
        included: u64,
        /// The key of the rotations that the users encoded with. No guarantee rests on it: it only serves to read the release.
        rotations: NoiseKey,
    },
    /// Encoded updates with the noise of the clients in them.
    WithClientNoise(ClientNoisedSum),
    /// No sum: fewer clients than the floor were left.
    Abandoned,
}

/// The users of a round, as the ledger names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Participants {
    /// Each user in the sum. A simulation names the users whom it lost on the way here, too. PRIVACY: each of them counts as a
    /// participant.
    pub names: Vec<ParticipantId>,
    /// With [`LedgerMode::DeviceLedger`] the number of users in the sum, whom nobody names.
    pub unnamed: Option<u64>,
    /// Users of a service who had joined and are not in the sum. PRIVACY: each of them counts as a participant.
    pub lost: Vec<ParticipantId>,
    /// The attempts at this round that made no release, first to last. PRIVACY: their users count as participants.
    pub attempts: Vec<AbandonedAttempt>,
    /// The issuer that vouched for these users; `None` in a simulation and where nobody vouches.
    pub issuer: Option<Issuer>,
    /// The kind of service; `None` in a simulation.
    pub mode: Option<LedgerMode>,
    /// Number of users in the sum, where users can fail on the way.
    pub survivors: Option<u64>,
    /// Number of examples whose gradients are in the sum, with example-level and user-level sampling.
    pub examples: Option<u64>,
    /// `true` if a device of another program made the sum, as the ledger says it. PRIVACY: it must not depend on who takes part.
    pub summed_on_gpu: bool,
}

/// The result of gathering a round.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct Gathered {
    /// The sum.
    pub sum: RoundSum,
    /// The users of the round.
    pub who: Participants,
    /// The contributions to the lane of an audit. Sources leave it empty, and the program that drives the run fills it. They are averaged
    /// and noised together with those of the users. No user contributes to a lane, and no canary to the model.
    pub lane: Option<LaneSum>,
    /// Exact statistics of the training. PRIVACY: they are for the operator of the training and no part of any release.
    pub diagnostics: Diagnostics,
}

/// Exact statistics of the training of a round, over users or over the microbatches of example-level sampling.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Diagnostics {
    /// Number of users, or of examples with example-level sampling.
    pub parts: usize,
    /// Sum of the weights.
    pub weight: f64,
    /// Number of examples that were read.
    pub examples: u64,
    /// Number of target tokens.
    pub tokens: u64,
    /// Sum of the training loss over those tokens.
    pub loss_sum: f64,
    /// Norms before clipping.
    pub norms: Vec<f64>,
    /// Number of clipped contributions.
    pub clipped: usize,
    /// Number of contributions that were not finite and counted as zero.
    pub discarded: usize,
    /// Times of the parts of the round.
    pub times: GatherTimes,
}

/// Wall-clock times of the parts of a round, until its sum was complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatherTimes {
    /// Time of all work of the users: local training, clipping, adding to the sum.
    pub users: Duration,
    /// Part of it spent on clipping, as the mean over the workers.
    pub clip: Duration,
    /// Part of it spent on bounding and adding to the sum, as the mean over the workers.
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

/// Follows a round while its sum is gathered. Sources call it from any thread.
pub trait Watch: Sync {
    /// One more contribution is in the sum.
    fn contribution(&self) {}

    /// Asks the source to give the round up. A source reads it between two contributions.
    fn stop(&self) -> bool {
        false
    }
}

/// A watch that sees nothing and never stops a round.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// A source of the contributions of a round: threads of this process, other processes, a simulation of secure aggregation. It
/// may block until they are there.
pub trait UpdateSource {
    /// The reason for which there is no sum.
    type Error;

    /// Gathers the sum of an opened round over a cohort. `watch` is told of each contribution.
    ///
    /// # Errors
    /// Whatever the source meets, and a round that `watch` stopped. Too few survivors are no error: the sum is then [`RoundSum::Abandoned`].
    fn gather(
        &mut self,
        opened: &Opened,
        cohort: &Cohort,
        parameters: &[f32],
        watch: &dyn Watch,
    ) -> Result<Gathered, Self::Error>;
}
