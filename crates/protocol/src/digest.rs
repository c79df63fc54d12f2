//! Digests.

use sha2::{Digest, Sha256};

use crate::error::{ProtocolError, Result};

/// A digest of SHA-256, or another name of 32 bytes.
pub type Digest32 = [u8; 32];

/// SHA-256 of bytes.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest32 {
    Sha256::digest(bytes).into()
}

pub(crate) fn digest32(name: &'static str, bytes: &[u8]) -> Result<Digest32> {
    bytes.try_into().map_err(|_| ProtocolError::Length {
        name,
        expected: 32,
        got: bytes.len(),
    })
}
