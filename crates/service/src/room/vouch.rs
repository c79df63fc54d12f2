//! The identities that groups of secure sums accept.

use std::sync::Arc;

use undertone_coordinator::task::IdentityLevel;
use undertone_protocol::{Digest32, Label, SessionCertificate, Signed, TrustedKeys, read};
use undertone_secagg::{MAX_CERTIFICATE_BYTES, Trust, Vouch};
use undertone_store::Store;

use crate::keys::Keys;
use crate::task::Task;

/// The check of session certificates, at the time of the store.
struct Certified {
    issuers: TrustedKeys,
    population: String,
    store: Arc<dyn Store>,
}

impl Vouch for Certified {
    fn vouches(&self, identity: &Digest32, certificate: &[u8]) -> bool {
        let name = Label::SessionCertificate.name();
        let Ok(signed) = read::<Signed>(name, certificate, MAX_CERTIFICATE_BYTES) else {
            return false;
        };
        let Ok((body, _)) = self.issuers.open(Label::SessionCertificate, &signed) else {
            return false;
        };
        read::<SessionCertificate>(name, body, MAX_CERTIFICATE_BYTES).is_ok_and(|certificate| {
            certificate.population == self.population
                && certificate.session_key == identity
                && (certificate.not_before_ms..certificate.not_after_ms).contains(&self.store.now())
        })
    }
}

/// The trust of a task's groups: the certificates of the service's issuer, or anyone with identity `dev`.
pub(crate) fn trust(task: &Task, keys: &Keys, store: &Arc<dyn Store>) -> Trust {
    match task.file.service.identity {
        IdentityLevel::Dev => Trust::Anyone,
        IdentityLevel::Certificate | IdentityLevel::Attested => Trust::Issuer(Arc::new(Certified {
            issuers: TrustedKeys::new(keys.issuer_keys()),
            population: task.population.clone(),
            store: store.clone(),
        })),
    }
}
