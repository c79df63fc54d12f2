//! The stages of a session, for the display of a host.

/// The stage of a session. Stages come in this order; a session can end at each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// The device reads the board, and gets keys for secure sums where its stock runs low.
    Board,
    /// The device offers itself to a task.
    CheckIn,
    /// The device loads the plan, the vocabulary and the model.
    Loading,
    /// The device trains on its texts, or measures the model on them.
    Training,
    /// The device waits for its place in a sum, and exchanges keys with the other devices of a secure sum.
    Joining,
    /// The device sends its update.
    Sending,
    /// The device waits for the end of the round.
    Waiting,
    /// The session is over.
    Over,
}

impl Stage {
    /// A name for logs and for other programs, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::CheckIn => "check_in",
            Self::Loading => "loading",
            Self::Training => "training",
            Self::Joining => "joining",
            Self::Sending => "sending",
            Self::Waiting => "waiting",
            Self::Over => "over",
        }
    }
}
