//! The matrices of a block, by name.

use serde::{Deserialize, Serialize};

/// A matrix of every block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BlockMatrix {
    /// Queries, keys and values together, side by side.
    Qkv,
    /// The output of attention.
    O,
    /// The input matrix of the feed-forward layer, with a gate the gate and the value side by side.
    Up,
    /// The output matrix of the feed-forward layer.
    Down,
}

impl BlockMatrix {
    /// All matrices, in the order of a block.
    pub const ALL: [Self; 4] = [Self::Qkv, Self::O, Self::Up, Self::Down];

    pub(super) fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }

    /// Name of the matrix in run files and layouts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qkv => "qkv",
            Self::O => "o",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}
