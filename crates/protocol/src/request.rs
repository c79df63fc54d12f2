//! Requests that a device signs.

use crate::digest::{Digest32, digest_of};
use crate::error::{ProtocolError, Result};
use crate::limits::MAX_SKEW;
use crate::signed::{Label, Signer, verify_proof};

/// The header that holds a [`RequestSignature`].
pub const SIGNATURE_HEADER: &str = "undertone-signature";

/// The signature of a request: over its time, method, path and the digest of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSignature {
    /// The clock of the device, in milliseconds since 1970.
    pub at_ms: u64,
    /// 64 bytes.
    pub signature: Vec<u8>,
}

fn signed_bytes(at_ms: u64, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = at_ms.to_le_bytes().to_vec();
    for part in [method.as_bytes(), path.as_bytes()] {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&digest_of(body));
    bytes
}

impl RequestSignature {
    /// Signs a request.
    #[must_use]
    pub fn new(key: &Signer, at_ms: u64, method: &str, path: &str, body: &[u8]) -> Self {
        Self {
            at_ms,
            signature: key.proof(Label::Request, &signed_bytes(at_ms, method, path, body)),
        }
    }

    /// Checks that the key signed this request, at a time near `now_ms`.
    ///
    /// # Errors
    /// [`ProtocolError::Expired`] more than [`MAX_SKEW`] away from `now_ms`; [`ProtocolError::Signature`].
    pub fn check(&self, key: &Digest32, now_ms: u64, method: &str, path: &str, body: &[u8]) -> Result<()> {
        let skew = MAX_SKEW.as_millis() as u64;
        if self.at_ms.abs_diff(now_ms) > skew {
            return Err(ProtocolError::Expired {
                name: Label::Request.name(),
                from: self.at_ms.saturating_sub(skew),
                to: self.at_ms.saturating_add(skew),
                now: now_ms,
            });
        }
        let signed = signed_bytes(self.at_ms, method, path, body);
        verify_proof(Label::Request, key, &signed, &self.signature)
    }

    /// The value of the header: the time, a dot, and the signature in hexadecimal digits.
    #[must_use]
    pub fn header(&self) -> String {
        let digits: String = self.signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}.{digits}", self.at_ms)
    }

    /// Reads the value of the header.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`].
    pub fn from_header(value: &str) -> Result<Self> {
        let read = || {
            let (at, digits) = value.split_once('.')?;
            if digits.len() != 128 || !digits.is_ascii() {
                return None;
            }
            let bytes = (0..64).map(|place| u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok());
            Some(Self {
                at_ms: at.parse().ok()?,
                signature: bytes.collect::<Option<_>>()?,
            })
        };
        read().ok_or_else(|| ProtocolError::Malformed {
            name: SIGNATURE_HEADER,
            reason: "a time, a dot and 128 hexadecimal digits were expected".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_request_is_signed() {
        let key = Signer::from_seed(&[9; 32]);
        let public = key.public();
        let now = 1_000_000;
        let made = RequestSignature::new(&key, now, "POST", "/v1/p/a/check-in", b"body");
        let read = RequestSignature::from_header(&made.header()).unwrap();
        assert_eq!(read, made);
        let check = |at, method, path, body: &[u8]| read.check(&public, at, method, path, body);
        check(now, "POST", "/v1/p/a/check-in", b"body").unwrap();
        check(now + 300_000, "POST", "/v1/p/a/check-in", b"body").unwrap();
        assert!(check(now + 300_001, "POST", "/v1/p/a/check-in", b"body").is_err());
        assert!(check(now, "GET", "/v1/p/a/check-in", b"body").is_err());
        assert!(check(now, "POST", "/v1/p/b/check-in", b"body").is_err());
        assert!(check(now, "POST", "/v1/p/a/check-in", b"other").is_err());
        let later = RequestSignature {
            at_ms: now + 1,
            ..read.clone()
        };
        assert!(
            later
                .check(&public, now, "POST", "/v1/p/a/check-in", b"body")
                .is_err()
        );
        for bad in [
            "",
            ".",
            "1",
            "1.00",
            &format!("x.{}", "0".repeat(128)),
            &format!("1.{}", "ä".repeat(64)),
        ] {
            assert!(RequestSignature::from_header(bad).is_err(), "{bad}");
        }
    }
}
