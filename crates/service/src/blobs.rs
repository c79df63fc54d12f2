//! Whole blobs, read under a limit and compared with their digests.

use std::io::Read;

use undertone_protocol::{Digest32, digest_of, limits};
use undertone_store::Blobs;

use crate::error::{Result, ServiceError};

/// The bytes of a blob.
///
/// # Errors
/// From the blobs; [`ServiceError::Value`] for bytes that are longer than any blob of a task, or not those of the digest.
pub(crate) fn read(blobs: &dyn Blobs, digest: &Digest32) -> Result<Vec<u8>> {
    let reader = blobs.get(digest, 0)?;
    let wrong = |got: String| ServiceError::Value {
        key: format!("the blob {}", crate::identity::hex(digest)),
        expected: "the bytes of its digest".to_owned(),
        got,
    };
    if reader.length > limits::MAX_MODEL as u64 {
        return Err(wrong(format!("{} bytes", reader.length)));
    }
    let mut bytes = Vec::with_capacity(reader.length as usize);
    let mut limited = reader.bytes.take(reader.length);
    limited
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(error.to_string()))?;
    match digest_of(&bytes) == *digest {
        true => Ok(bytes),
        false => Err(wrong("other bytes".to_owned())),
    }
}
