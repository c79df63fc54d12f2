//! A round between its opening and its close, as values.

use undertone_accounting::participation::Participation;
use undertone_aggregation::Bound;
use undertone_mechanisms::NoisedAverage;

use super::RunHead;
use crate::chain::Chain;
use crate::error::CoordinatorError;
use crate::plan::{LaneBounds, RoundPlan};
use crate::record::LedgerEntry;

/// A round that a head has opened: its plan, the bound on each contribution, and the place in the ledger that it follows.
///
/// Only [`RunHead::open`] makes one:
/// ```compile_fail,E0451
/// use undertone_coordinator::head::Opened;
/// fn later(opened: Opened) -> Opened {
///     Opened { round: 3, ..opened }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Opened {
    pub(super) genesis: String,
    pub(super) chain: Chain,
    pub(super) round: u64,
    pub(super) plan: RoundPlan,
    pub(super) bound: Bound,
    pub(super) lane: Option<LaneBounds>,
    pub(super) estimate: Option<f64>,
    pub(super) widened: Option<Participation>,
}

impl Opened {
    /// The index of the round, from 0.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The plan of the round: clip norm, sensitivity and noise.
    #[must_use]
    pub fn plan(&self) -> &RoundPlan {
        &self.plan
    }

    /// The bound on each contribution. A sum must have been made with this bound, or [`RunHead::close`] refuses it.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// The bounds on each contribution to the lane of an audit; `None` in a run without one.
    #[must_use]
    pub fn lane(&self) -> Option<&LaneBounds> {
        self.lane.as_ref()
    }

    /// The norm that the bit of a user compares with, where clipping is adaptive.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        self.estimate
    }

    /// Returns true if this is the next round of the head.
    pub(super) fn is_of(&self, head: &RunHead) -> bool {
        (&self.genesis, &self.chain, self.round) == (&head.genesis, &head.chain, head.round)
    }
}

/// A closed round.
#[derive(Debug)]
pub struct Next {
    /// The head of the round after this one.
    pub head: RunHead,
    /// The line of the ledger, without its line feed. It has to be durable before anything of the round leaves the process.
    pub line: Vec<u8>,
    /// The line of the ledger as a value.
    pub entry: LedgerEntry,
    /// The released average; `None` for an abandoned round.
    pub average: Option<NoisedAverage>,
    /// The released values of the lane of an audit, with its bits behind them; `None` in a run without one.
    pub lane: Option<Vec<f32>>,
    /// `true` if the step would have left a parameter that is not finite. The parameters are then those of the round before, and
    /// the round is spent all the same, since its noise was drawn.
    pub quarantined: bool,
    /// The L2 norm of the released average; 0 for an abandoned round.
    pub release_norm: f64,
}

/// The reason for which a round was not closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// No noise was drawn, and the sum is gone. The same round can be opened again.
    #[error("{why}")]
    Refused {
        /// The head as it was.
        head: Box<RunHead>,
        /// The reason.
        why: CoordinatorError,
    },
    /// The head is gone with the noise that it may have drawn: load the stored one.
    #[error(transparent)]
    Lost {
        /// The reason.
        #[from]
        why: CoordinatorError,
    },
}

impl CloseError {
    /// A refusal that gives the head back.
    pub(super) fn refused(head: RunHead, why: CoordinatorError) -> Self {
        Self::Refused {
            head: Box::new(head),
            why,
        }
    }

    /// The reason, without the head.
    #[must_use]
    pub fn why(self) -> CoordinatorError {
        match self {
            Self::Refused { why, .. } | Self::Lost { why } => why,
        }
    }
}

/// A step of [`RunHead::close`] that has just ended, for callers that measure time; this crate reads no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Averaging and noise.
    Noise,
    /// The server optimizer.
    Server,
    /// The line of the ledger, and what the round cost.
    Entry,
}
