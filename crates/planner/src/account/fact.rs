//! One named fact of a question.

use serde_json::Value;
use undertone_present::numbers::number;

/// One named fact of a question, for readers and for programs.
#[derive(Debug, Clone)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) shown: String,
    pub(super) value: Value,
}

impl Fact {
    pub(super) fn new(name: &'static str, shown: String, value: impl Into<Value>) -> Self {
        Self {
            name,
            shown,
            value: value.into(),
        }
    }

    /// A whole number.
    pub(super) fn count(name: &'static str, value: u64) -> Self {
        Self::new(name, value.to_string(), value)
    }

    /// A measure, which is shown with four digits.
    pub(super) fn measure(name: &'static str, value: f64) -> Self {
        Self::new(name, number(value), value)
    }
}
