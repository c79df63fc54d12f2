//! The certificates by which the processes of a service know each other.
//!
//! Their authority is a key that follows from the key file of the service, so each process that has the file makes its own
//! certificate at its start. The key of the certificate is fresh and lives in memory alone.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};
use crate::keys::Keys;

/// The name in the certificates of all processes. Addresses change, and each process may stand for any other.
pub(super) const NAME: &str = "process.undertone.internal";

/// The bytes before the secret of an Ed25519 key in PKCS #8.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The settings of TLS between processes. Both ends show a certificate.
// PRIVACY: it holds secret keys, so it has no `Debug`.
pub(super) struct Credentials {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: ClientConfig,
    /// The authority of the certificates.
    #[cfg(test)]
    pub(super) roots: Arc<RootCertStore>,
}

fn failed(error: &dyn std::fmt::Display) -> ServiceError {
    ServiceError::Value {
        key: "the certificate of a process".to_owned(),
        expected: "one that follows from the key file".to_owned(),
        got: error.to_string(),
    }
}

/// The credentials of a process of the service that has these keys.
pub(super) fn credentials(keys: &Keys) -> Result<Credentials> {
    let seed = keys.processes();
    let mut pkcs8 = Zeroizing::new(PKCS8.to_vec());
    pkcs8.extend_from_slice(&*seed);
    let authority_key =
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()), &PKCS_ED25519)
            .map_err(|error| failed(&error))?;
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| failed(&error))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "processes of an Undertone service");
    let authority = params
        .self_signed(&authority_key)
        .map_err(|error| failed(&error))?;
    let issuer = Issuer::new(params, authority_key);

    let key = KeyPair::generate_for(&PKCS_ED25519).map_err(|error| failed(&error))?;
    let mut leaf = CertificateParams::new([NAME.to_owned()]).map_err(|error| failed(&error))?;
    leaf.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let leaf = leaf.signed_by(&key, &issuer).map_err(|error| failed(&error))?;
    let chain = || vec![CertificateDer::from(leaf.der().to_vec())];
    let secret = || PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| failed(&error));

    let mut roots = RootCertStore::empty();
    roots
        .add(authority.der().clone())
        .map_err(|error| failed(&error))?;
    let roots = Arc::new(roots);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // PRIVACY: an un-noised sum may travel here. A peer without a certificate of this service gets nothing.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| failed(&error))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(), secret()?)
        .map_err(|error| failed(&error))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain(), secret()?)
        .map_err(|error| failed(&error))?;
    Ok(Credentials {
        server: Arc::new(server),
        client,
        #[cfg(test)]
        roots,
    })
}
