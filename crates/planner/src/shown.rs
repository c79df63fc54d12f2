//! An answer in the two forms that a caller may show.

use anyhow::Context;
use serde::Serialize;

/// Hears what is being made, and `None` when it is finished.
pub type Progress<'a> = &'a dyn Fn(Option<&str>);

/// An answer, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// One JSON document.
    pub json: String,
    /// Tables and sentences.
    pub text: String,
}

impl Shown {
    pub(crate) fn new<T: Serialize>(document: &T, text: String) -> anyhow::Result<Self> {
        let json = serde_json::to_string_pretty(document).context("cannot write the result as JSON")?;
        Ok(Self { json, text })
    }
}
