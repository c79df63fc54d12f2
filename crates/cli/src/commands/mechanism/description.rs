//! Files of mechanisms and strategies: written whole or not at all, read with an error that says what they are not.

use std::path::Path;

use anyhow::Context;
use undertone_mechanisms::{Described, Mechanism, Strategy};
use undertone_run_directory::files::{MAX_GIVEN, read_given, write_atomic};

/// Writes the mechanism, or the strategy where there is no noise yet.
pub(super) fn write(file: &Path, strategy: &Strategy, mechanism: Option<&Mechanism>) -> anyhow::Result<()> {
    let text = match mechanism {
        Some(mechanism) => serde_json::to_vec(mechanism),
        None => serde_json::to_vec(strategy),
    };
    let mut text = text.context("cannot write the mechanism as JSON")?;
    text.push(b'\n');
    write_atomic(file, &text).context("--out")
}

/// Reads what [`write()`] wrote, or a matrix as people write it down.
pub(super) fn read(file: &Path) -> anyhow::Result<Described> {
    let bytes = read_given(file, MAX_GIVEN)?;
    Described::read(&bytes).with_context(|| file.display().to_string())
}
