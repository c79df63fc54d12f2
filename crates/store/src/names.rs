//! The names of states, in databases and in messages.

use undertone_accounting::participation::Spacing;
use undertone_protocol::{TaskKind, TaskState};

use crate::{AbandonReason, AttemptState, Departure, SessionState};

/// A value that a database holds by its name.
pub(crate) trait Named: Sized + Copy {
    /// The kind of value, for messages.
    const WHAT: &'static str;

    fn name(self) -> &'static str;

    fn from_name(name: &str) -> Option<Self>;
}

macro_rules! named {
    ($type:ty, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl Named for $type {
            const WHAT: &'static str = $what;

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

named!(
    TaskState,
    "the state of a task",
    Unspecified = "unspecified",
    Draft = "draft",
    Active = "active",
    Paused = "paused",
    Completed = "completed",
    Halted = "halted",
);
named!(
    TaskKind,
    "the kind of a task",
    Unspecified = "unspecified",
    Train = "train",
    Evaluate = "evaluate",
);
named!(
    Spacing,
    "the spacing of a schema",
    AtLeast = "at_least",
    Exactly = "exactly",
);
named!(
    AttemptState,
    "the state of an attempt",
    Selecting = "selecting",
    Reporting = "reporting",
    Releasing = "releasing",
    Committed = "committed",
    Abandoned = "abandoned",
);
named!(
    AbandonReason,
    "the reason of an attempt",
    Few = "few",
    Deadline = "deadline",
    Crash = "crash",
    Fence = "fence",
    Store = "store",
    Network = "network",
    Duplicate = "duplicate",
    Protocol = "protocol",
    Operator = "operator",
);
named!(
    Departure,
    "the departure of a subject",
    Withdrawn = "withdrawn",
    Left = "left",
    Revoked = "revoked",
);
named!(
    SessionState,
    "the state of a session",
    Assigned = "assigned",
    Ready = "ready",
    Reported = "reported",
    LostBeforeReady = "lost_before_ready",
    Lost = "lost",
    Included = "included",
);
