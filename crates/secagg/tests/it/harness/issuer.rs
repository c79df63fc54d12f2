//! An issuer that certifies identities by its signature, and the check of its certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ed25519_dalek::{Signature, Signer, SigningKey};
use undertone_secagg::{Certificate, Digest32, SigningIdentity, Trust, Vouch};

use super::forge::labelled;

pub(crate) struct Issuer {
    key: SigningKey,
    /// Certificates that were looked at.
    checks: AtomicU32,
}

impl Issuer {
    pub(crate) fn new(seed: u8) -> Arc<Self> {
        Arc::new(Self {
            key: SigningKey::from_bytes(&[seed; 32]),
            checks: AtomicU32::new(0),
        })
    }

    pub(crate) fn certify(&self, identity: &Digest32) -> Certificate {
        let signed = labelled("test certificate", &[identity]);
        Certificate::new(&self.key.sign(&signed).to_bytes()).unwrap()
    }

    /// The identity with its certificate.
    pub(crate) fn enrol(&self, identity: SigningIdentity) -> SigningIdentity {
        let certificate = self.certify(&identity.public());
        identity.with_certificate(certificate)
    }

    pub(crate) fn trust(self: &Arc<Self>) -> Trust {
        Trust::Issuer(Arc::<Self>::clone(self))
    }

    pub(crate) fn checks(&self) -> u32 {
        self.checks.load(Ordering::SeqCst)
    }
}

impl Vouch for Issuer {
    fn vouches(&self, identity: &Digest32, certificate: &[u8]) -> bool {
        self.checks.fetch_add(1, Ordering::SeqCst);
        let signed = labelled("test certificate", &[identity]);
        Signature::from_slice(certificate).is_ok_and(|signature| {
            self.key
                .verifying_key()
                .verify_strict(&signed, &signature)
                .is_ok()
        })
    }
}
