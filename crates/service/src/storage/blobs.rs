//! Blobs, read under a limit and compared with their digests.

use std::io::Read;

use sha2::{Digest as _, Sha256};
use undertone_protocol::{Digest32, digest_of, limits};
use undertone_store::{BlobReader, Blobs};

use crate::error::{Result, ServiceError};

/// Bytes that are compared at a time.
const PIECE: usize = 64 << 10;

fn wrong(digest: &Digest32, got: String) -> ServiceError {
    ServiceError::Value {
        key: format!("the blob {}", crate::identity::hex(digest)),
        expected: "the bytes of its digest".to_owned(),
        got,
    }
}

fn open(blobs: &dyn Blobs, digest: &Digest32) -> Result<BlobReader> {
    let reader = blobs.get(digest, 0)?;
    match reader.length > limits::MAX_MODEL as u64 {
        true => Err(wrong(digest, format!("{} bytes", reader.length))),
        false => Ok(reader),
    }
}

/// The length of a blob whose bytes are those of its digest. It is compared piece by piece.
///
/// # Errors
/// The errors of [`read`].
pub(crate) fn check(blobs: &dyn Blobs, digest: &Digest32) -> Result<u64> {
    let reader = open(blobs, digest)?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
    let mut limited = reader.bytes.take(reader.length);
    loop {
        match limited.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => hash.update(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(wrong(digest, error.to_string())),
        }
    }
    match hash.finalize()[..] == digest[..] {
        true => Ok(reader.length),
        false => Err(wrong(digest, "other bytes".to_owned())),
    }
}

/// The bytes of a blob.
///
/// # Errors
/// From the blobs; [`ServiceError::Value`] for bytes that are longer than any blob of a task, or not those of the digest.
pub fn read(blobs: &dyn Blobs, digest: &Digest32) -> Result<Vec<u8>> {
    let reader = open(blobs, digest)?;
    let wrong = |got: String| wrong(digest, got);
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
