//! The public name of a run's text.

use sha2::{Digest, Sha256};
use undertone_data::CorpusSpec;

use crate::error::{Result, RunError};
use undertone_present::numbers::hex;

/// The name of a corpus's text: the SHA-256 of its source's table.
///
/// # Errors
/// Values that JSON cannot hold.
pub fn source_sha256(data: &CorpusSpec) -> Result<String> {
    let source = serde_json::to_vec(&data.source)
        .map_err(|error| RunError::value("data.source", "values that JSON can hold", error))?;
    let mut hash = Sha256::new();
    hash.update(b"undertone source\0");
    hash.update(source);
    Ok(hex(&hash.finalize()))
}
