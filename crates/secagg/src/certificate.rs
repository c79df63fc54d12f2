//! Certificates by which an issuer vouches for the identities of a session.

use crate::context::Digest32;
use crate::error::{Result, SecAggError};

/// Max bytes of a certificate.
pub const MAX_CERTIFICATE_BYTES: usize = 512;

/// A certificate of one identity: 1 to [`MAX_CERTIFICATE_BYTES`] bytes that only a [`Vouch`] understands.
///
/// It is public. A client shows it to the server, and the server shows it to the client's neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate(Box<[u8]>);

impl Certificate {
    /// A copy of the issuer's bytes.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] for no bytes and for more than [`MAX_CERTIFICATE_BYTES`]. Nothing is copied then.
    ///
    /// # Example
    /// ```
    /// use undertone_secagg::{Certificate, MAX_CERTIFICATE_BYTES};
    /// assert_eq!(Certificate::new(&[7; 230])?.as_bytes(), [7; 230]);
    /// assert!(Certificate::new(&[]).is_err());
    /// assert!(Certificate::new(&[7; MAX_CERTIFICATE_BYTES + 1]).is_err());
    /// # Ok::<(), undertone_secagg::SecAggError>(())
    /// ```
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if (1..=MAX_CERTIFICATE_BYTES).contains(&bytes.len()) {
            return Ok(Self(bytes.into()));
        }
        Err(SecAggError::Setting {
            name: "the length of a certificate",
            expected: "1 to 512 bytes",
            got: bytes.len() as u64,
        })
    }

    /// The issuer's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The check of certificates, with the keys of the trusted issuers and the time at which certificates must be valid.
///
/// This crate neither parses certificates nor reads a clock, so the caller brings both.
pub trait Vouch: Send + Sync {
    /// Returns `true` if a trusted issuer vouches by `certificate` for exactly this identity, for this population, now.
    ///
    /// The bytes may come from a lying server or client, so the check must bear any bytes. A certificate that does not name the
    /// identity, or that names several, must not vouch for it.
    fn vouches(&self, identity: &Digest32, certificate: &[u8]) -> bool;
}
