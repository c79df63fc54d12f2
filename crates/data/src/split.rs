//! The partitions of a corpus.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the three partitions of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Users (or rows) to train on.
    Train,
    /// Held out for choosing settings.
    Validation,
    /// Held out for the final number.
    Test,
}

impl Split {
    /// All partitions, in storage order.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

    /// Lower-case name, as in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The partition of a lower-case name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Split> {
        Split::ALL.into_iter().find(|split| split.name() == name)
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
