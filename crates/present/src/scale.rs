//! The scale of an axis of a picture.

use serde::Serialize;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Distances are in proportion to the values.
    Linear,
    /// Distances are in proportion to the logarithms of the values, which are all positive.
    Logarithmic,
}
