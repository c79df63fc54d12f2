//! The public name of a run's text.

use sha2::{Digest, Sha256};
use undertone_data::{CorpusSpec, SourceSpec};

use crate::error::{Result, RunError};
use undertone_present::numbers::hex;

/// The name of a corpus's text: the SHA-256 of its source's table. Tables in memory have one name for all contents, because released
/// models bear the name. So two trainings on tables in memory count as trainings on the same text.
///
/// # Errors
/// Values that JSON cannot hold.
pub(crate) fn source_sha256(data: &CorpusSpec) -> Result<String> {
    let mut source = data.source.clone();
    if let SourceSpec::Memory(table) = &mut source {
        // PRIVACY: number and digest of the rows are exact functions of people's text.
        (table.rows, table.sha256) = (0, String::new());
    }
    let source = serde_json::to_vec(&source)
        .map_err(|error| RunError::value("data.source", "values that JSON can hold", error))?;
    let mut hash = Sha256::new();
    hash.update(b"undertone source\0");
    hash.update(source);
    Ok(hex(&hash.finalize()))
}
