//! The choice whether the end of a text counts as a target.

use serde::{Deserialize, Serialize};

/// The targets that count in an accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EosTargets {
    /// Words and EOS.
    Included,
    /// Words only.
    Excluded,
}
