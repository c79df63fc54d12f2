//! Signed values: the signature covers a label and the bytes as they travel.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::digest::{Digest32, digest_of, digest32};
use crate::error::{ProtocolError, Result};
use crate::generated::Signed;

/// The kind of a signed value. A signature of one kind never serves another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// The tasks of a population, by the key of the service.
    Board,
    /// The part of a task that devices need, by the key of the task.
    Plan,
    /// The certificate of a device, by an issuer.
    Certificate,
    /// The certificate of a key of secure sums, by an issuer.
    SessionCertificate,
    /// The head of a task, by the head key.
    Head,
    /// A request of a device.
    Request,
    /// The proof of an enrolment, by the device key.
    Enrolment,
}

impl Label {
    /// The name in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Board => "the board",
            Self::Plan => "the plan",
            Self::Certificate => "the certificate",
            Self::SessionCertificate => "the session certificate",
            Self::Head => "the head",
            Self::Request => "the request",
            Self::Enrolment => "the enrolment",
        }
    }

    fn prefix(self) -> &'static [u8] {
        match self {
            Self::Board => b"undertone/1/board\0",
            Self::Plan => b"undertone/1/plan\0",
            Self::Certificate => b"undertone/1/certificate\0",
            Self::SessionCertificate => b"undertone/1/session-certificate\0",
            Self::Head => b"undertone/1/head\0",
            Self::Request => b"undertone/1/request\0",
            Self::Enrolment => b"undertone/1/enrolment\0",
        }
    }

    fn message(self, body: &[u8]) -> Vec<u8> {
        [self.prefix(), body].concat()
    }
}

/// The short name of a public key: the first eight bytes of its SHA-256.
pub type KeyId = [u8; 8];

fn key_id(public: &Digest32) -> KeyId {
    let mut id = KeyId::default();
    id.copy_from_slice(&digest_of(public)[..8]);
    id
}

/// A key that signs. Its bytes are wiped when it is dropped.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a secret key must not be printable"
)]
#[derive(Clone)]
pub struct Signer(SigningKey);

impl Signer {
    /// The key of 32 secret bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> Digest32 {
        self.0.verifying_key().to_bytes()
    }

    /// The short name of the public key.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        key_id(&self.public())
    }

    /// Signs bytes as a value of this kind.
    #[must_use]
    pub fn sign(&self, label: Label, body: Vec<u8>) -> Signed {
        let signature = self.proof(label, &body);
        Signed {
            body,
            key_id: self.key_id().to_vec(),
            signature,
        }
    }

    /// The signature alone, where the bytes travel elsewhere.
    #[must_use]
    pub fn proof(&self, label: Label, body: &[u8]) -> Vec<u8> {
        self.0.sign(&label.message(body)).to_bytes().to_vec()
    }
}

/// Checks a signature that travels beside its bytes.
///
/// # Errors
/// [`ProtocolError::Key`], [`ProtocolError::Length`] or [`ProtocolError::Signature`].
pub fn verify_proof(label: Label, public: &Digest32, body: &[u8], signature: &[u8]) -> Result<()> {
    let name = label.name();
    let key = VerifyingKey::from_bytes(public).map_err(|_| ProtocolError::Key { name })?;
    let signature = Signature::from_slice(signature).map_err(|_| ProtocolError::Length {
        name: "a signature",
        expected: Signature::BYTE_SIZE,
        got: signature.len(),
    })?;
    // Strict: no small-order keys, and one signature per message.
    key.verify_strict(&label.message(body), &signature)
        .map_err(|_| ProtocolError::Signature { name })
}

/// The public keys that a reader trusts for one kind of value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedKeys(Vec<Digest32>);

impl TrustedKeys {
    /// Trusts these public keys.
    pub fn new(keys: impl IntoIterator<Item = Digest32>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[Digest32] {
        &self.0
    }

    /// The bytes of a signed value, after its signature was checked, and the key that signed it.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownKey`] or [`ProtocolError::Signature`]; nothing of the body is read before.
    pub fn open<'s>(&self, label: Label, signed: &'s Signed) -> Result<(&'s [u8], Digest32)> {
        let public = self
            .0
            .iter()
            .find(|public| key_id(public)[..] == signed.key_id[..])
            .ok_or_else(|| ProtocolError::UnknownKey {
                name: label.name(),
                key: signed
                    .key_id
                    .iter()
                    .take(8)
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            })?;
        verify_proof(label, public, &signed.body, &signed.signature)?;
        Ok((&signed.body, *public))
    }

    /// Trusts one more key, given as bytes.
    ///
    /// # Errors
    /// [`ProtocolError::Length`] where it has not 32 bytes.
    pub fn add(&mut self, key: &[u8]) -> Result<()> {
        self.0.push(digest32("a public key", key)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [Label; 7] = [
        Label::Board,
        Label::Plan,
        Label::Certificate,
        Label::SessionCertificate,
        Label::Head,
        Label::Request,
        Label::Enrolment,
    ];

    #[test]
    fn a_signature_of_one_kind_serves_no_other() {
        let key = Signer::from_seed(&[3; 32]);
        let trusted = TrustedKeys::new([key.public()]);
        for made in LABELS {
            let signed = key.sign(made, b"body".to_vec());
            for read in LABELS {
                assert_eq!(
                    trusted.open(read, &signed).is_ok(),
                    made == read,
                    "{made:?} as {read:?}"
                );
            }
        }
    }

    #[test]
    fn changed_bytes_and_foreign_keys_are_refused() {
        let (key, other) = (Signer::from_seed(&[3; 32]), Signer::from_seed(&[4; 32]));
        let trusted = TrustedKeys::new([key.public()]);
        let signed = key.sign(Label::Plan, b"body".to_vec());
        assert_eq!(
            trusted.open(Label::Plan, &signed),
            Ok((&b"body"[..], key.public()))
        );
        for (place, bytes) in [("body", &signed.body), ("signature", &signed.signature)] {
            for index in 0..bytes.len() {
                let mut changed = signed.clone();
                match place {
                    "body" => changed.body[index] ^= 1,
                    _ => changed.signature[index] ^= 1,
                }
                let expected = Err(ProtocolError::Signature { name: "the plan" });
                assert_eq!(trusted.open(Label::Plan, &changed), expected, "{place} {index}");
            }
        }
        assert!(matches!(
            trusted.open(Label::Plan, &other.sign(Label::Plan, b"body".to_vec())),
            Err(ProtocolError::UnknownKey { .. })
        ));
        // The name of a trusted key does not help a foreign signature.
        let forged = Signed {
            key_id: key.key_id().to_vec(),
            ..other.sign(Label::Plan, b"body".to_vec())
        };
        assert!(matches!(
            trusted.open(Label::Plan, &forged),
            Err(ProtocolError::Signature { .. })
        ));
    }

    #[test]
    fn keys_of_small_order_sign_nothing() {
        // The neutral element accepts a signature of any message, unless such keys are refused.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut signature = [0; 64];
        signature[0] = 1;
        assert!(verify_proof(Label::Request, &neutral, b"anything", &signature).is_err());
    }
}
