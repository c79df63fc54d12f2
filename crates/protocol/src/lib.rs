#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Board`], [`TaskCard`], [`Plan`] | what a service offers, and the signed plan of a task |
//! | [`Enrol`], [`Certificate`], [`SessionKeys`] | the identities of devices |
//! | [`CheckIn`], [`CheckInReply`], [`Assignment`], [`Next`] | a session, from its check-in on |
//! | [`Problem`], [`RetryWindow`] | refusals, and when a device comes back |
//! | [`Signed`], [`Signer`], [`TrustedKeys`], [`Label`] | signed values |
//! | [`RequestSignature`], [`SIGNATURE_HEADER`] | signed requests |
//! | [`TokenKey`], [`SessionClaims`] | the tokens of sessions |
//! | [`Blob`], [`Digest32`], [`digest_of`] | files by their digest |
//! | [`crc32c()`], [`crc32c_joined`], [`CHECKSUM_HEADER`], [`OFFSET_HEADER`] | uploads in pieces |
//! | [`Versions`], [`PROTOCOL_HEADER`] | the versions of the protocol |
//! | [`limits`] | limits that both sides keep to |
//! | [`read`], [`write()`] | messages from bytes of a bounded length, and back |
#![forbid(unsafe_code)]

#[rustfmt::skip]
#[allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all, reason = "the schema is the documentation of these types")]
mod generated;
mod digest;
mod error;
mod headers;
pub mod limits;
mod request;
mod signed;
mod token;
mod upload;
mod version;

pub use digest::{Digest32, digest_of};
pub use error::{ProtocolError, Result};
pub use generated::*;
pub use headers::{CHECKSUM_HEADER, OFFSET_HEADER, checksum_header, read_checksum_header};
pub use request::{RequestSignature, SIGNATURE_HEADER};
pub use signed::{KeyId, Label, Signer, TrustedKeys, verify_proof};
pub use token::{SessionClaims, TokenKey};
pub use upload::{crc32c, crc32c_joined};
pub use version::Versions;

/// The header that names the version of the protocol, and its value.
pub const PROTOCOL_HEADER: (&str, &str) = ("undertone-protocol", "1");

/// Reads a message of at most `limit` bytes.
///
/// # Errors
/// [`ProtocolError::TooLong`] above the limit; [`ProtocolError::Malformed`] for bytes that are no such message.
pub fn read<M: prost::Message + Default>(name: &'static str, bytes: &[u8], limit: usize) -> Result<M> {
    if bytes.len() > limit {
        let length = bytes.len();
        return Err(ProtocolError::TooLong { name, length, limit });
    }
    M::decode(bytes).map_err(|error| ProtocolError::Malformed {
        name,
        reason: error.to_string(),
    })
}

/// The bytes of a message.
pub fn write<M: prost::Message>(message: &M) -> Vec<u8> {
    message.encode_to_vec()
}

impl RetryWindow {
    /// A window between two times from now, in milliseconds.
    #[must_use]
    pub fn between(min_ms: u64, max_ms: u64) -> Self {
        Self {
            min_ms,
            max_ms: max_ms.max(min_ms),
        }
    }

    /// The wait for a uniform draw from `[0, 1)`. An empty window gives its minimum.
    #[must_use]
    pub fn wait(&self, draw: f64) -> u64 {
        let width = self.max_ms.saturating_sub(self.min_ms);
        self.min_ms
            .saturating_add((draw.clamp(0.0, 1.0) * width as f64) as u64)
    }
}

impl Problem {
    /// A refusal with its reason.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retry: None,
            offset: 0,
        }
    }

    /// The refusal with a window in which the device comes back.
    #[must_use]
    pub fn with_retry(self, retry: RetryWindow) -> Self {
        Self {
            retry: Some(retry),
            ..self
        }
    }
}

impl Blob {
    /// The name of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: digest_of(bytes).to_vec(),
            length: bytes.len() as u64,
            url: String::new(),
        }
    }

    /// The digest.
    ///
    /// # Errors
    /// [`ProtocolError::Length`] where it has not 32 bytes.
    pub fn digest(&self) -> Result<Digest32> {
        digest::digest32("the digest of a blob", &self.sha256)
    }

    /// Checks that these are the bytes of the blob.
    ///
    /// # Errors
    /// [`ProtocolError::Digest`] naming the blob.
    pub fn check(&self, name: &'static str, bytes: &[u8]) -> Result<()> {
        let fits = bytes.len() as u64 == self.length && digest_of(bytes) == self.digest()?;
        if fits {
            Ok(())
        } else {
            Err(ProtocolError::Digest { name })
        }
    }
}

/// PRIVACY: these name a subject or hold a secret.
macro_rules! unprintable {
    ($($name:ident),*) => {$(
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

unprintable!(Enrol, Certificate, SessionKeys, CheckIn, Assignment);

#[cfg(test)]
mod tests {
    mod generated;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_prints_a_certificate_prints_no_subject() {
        let certificate = Certificate {
            subject: b"a subject that is a person......".to_vec(),
            ..Certificate::default()
        };
        assert_eq!(format!("{certificate:?}"), "Certificate { .. }");
    }

    #[test]
    fn a_blob_is_checked_by_length_and_digest() {
        let blob = Blob::of(b"bytes");
        blob.check("a blob", b"bytes").unwrap();
        assert!(blob.check("a blob", b"other").is_err());
        let short = Blob {
            length: 4,
            ..blob.clone()
        };
        assert!(short.check("a blob", b"bytes").is_err());
        let bad = Blob {
            sha256: vec![0; 31],
            ..blob
        };
        assert!(matches!(
            bad.check("a blob", b"bytes"),
            Err(ProtocolError::Length { got: 31, .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read::<Board>("the board", &bytes, limits::MAX_MESSAGE);
            let _ = read::<Plan>("the plan", &bytes, limits::MAX_PLAN);
            let _ = read::<CheckInReply>("the reply", &bytes, limits::MAX_MESSAGE);
            let _ = read::<Next>("the step", &bytes, limits::MAX_SECAGG);
            prop_assert!(read::<Signed>("a value", &bytes, bytes.len().saturating_sub(1)).is_err() || bytes.is_empty());
        }

        #[test]
        fn a_wait_lies_in_its_window(min: u64, max: u64, draw in 0.0f64..1.0) {
            let window = RetryWindow::between(min, max);
            let wait = window.wait(draw);
            prop_assert!(wait >= window.min_ms && (wait <= window.max_ms || window.max_ms == min));
        }
    }
}
