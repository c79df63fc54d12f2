//! TLS of the listeners.

mod end;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use undertone_store::Millis;
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};

/// A certificate chain with its key, in files that may change while the listener runs.
#[derive(Debug)]
pub struct ServerCertificate {
    certificates: PathBuf,
    key: PathBuf,
    present: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// Reads a certificate chain and its key, both in PEM.
    ///
    /// # Errors
    /// [`ServiceError::Value`] naming the file that holds no certificate or no key, or where the two do not fit.
    pub fn open(certificates: &Path, key: &Path) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            present: RwLock::new(read(certificates, key)?),
            certificates: certificates.to_owned(),
            key: key.to_owned(),
        }))
    }

    /// Reads the files again. New connections get what they hold then; open ones go on.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); the certificate before stays in use.
    pub fn reload(&self) -> Result<()> {
        let fresh = read(&self.certificates, &self.key)?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The time at which the present certificate ends, in milliseconds since 1970; `None` where it cannot be read.
    #[must_use]
    pub fn ends(&self) -> Option<Millis> {
        let present = self
            .present
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        end::of(present.cert.first()?)
    }

    /// The settings of a listener with the present certificate.
    ///
    /// # Errors
    /// [`ServiceError::Value`] where TLS has no version that this program speaks.
    pub fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        let versions = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let versions = versions.map_err(|error| ServiceError::Value {
            key: "TLS".to_owned(),
            expected: "a version that this program speaks".to_owned(),
            got: error.to_string(),
        })?;
        let mut config = versions.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = protocols();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.present
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

fn read(certificates: &Path, key: &Path) -> Result<Arc<CertifiedKey>> {
    let refused = |path: &Path, expected: &str, got: &dyn std::fmt::Display| ServiceError::Value {
        key: path.display().to_string(),
        expected: expected.to_owned(),
        got: got.to_string(),
    };
    let expected = "a file of certificates in PEM";
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(certificates, expected, &error))?;
    if chain.is_empty() {
        return Err(refused(certificates, expected, &"none"));
    }
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| refused(key, "a file with one private key in PEM", &error))?;
    let fits = |error: &dyn std::fmt::Display| refused(key, "the key of the first certificate", error);
    let certified = CertifiedKey::from_der(chain, secret, &provider()).map_err(|error| fits(&error))?;
    Ok(Arc::new(certified))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// HTTP/2 and HTTP/1.1.
fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

/// A certificate that the service signs itself, for demonstrations: the settings of its listener, and its PEM for the devices.
///
/// # Errors
/// [`ServiceError::Value`] naming a host that no certificate can name.
pub fn self_signed(hosts: &[String]) -> Result<(Arc<ServerConfig>, String)> {
    let refused = |error: &dyn std::fmt::Display| ServiceError::Value {
        key: "--listen".to_owned(),
        expected: "a host that a certificate can name".to_owned(),
        got: format!("{}: {error}", hosts.join(", ")),
    };
    let made = rcgen::generate_simple_self_signed(hosts.to_vec()).map_err(|error| refused(&error))?;
    let secret =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|error| refused(&error))?;
    let config = config(vec![made.cert.der().clone()], secret).map_err(|error| refused(&error))?;
    Ok((config, made.cert.pem()))
}

/// A certificate for tests and closed networks, with its own key, both in PEM. It ends after so many days.
///
/// It is that of a server and of no authority, so clients accept it, and it can be their root as well.
///
/// # Errors
/// [`ServiceError::Value`] naming a host that no certificate can name.
pub fn test_certificate(hosts: &[String], days: u32) -> Result<(String, Zeroizing<String>)> {
    let refused = |error: &dyn std::fmt::Display| ServiceError::Value {
        key: "the hosts of a certificate".to_owned(),
        expected: "names and addresses that a certificate can name".to_owned(),
        got: format!("{}: {error}", hosts.join(", ")),
    };
    let key = rcgen::KeyPair::generate().map_err(|error| refused(&error))?;
    let mut params = rcgen::CertificateParams::new(hosts.to_vec()).map_err(|error| refused(&error))?;
    params.is_ca = rcgen::IsCa::ExplicitNoCa;
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "undertone test certificate");
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // A device whose clock is a little behind accepts it too.
    let from = now.saturating_sub(Duration::from_secs(3600));
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + from;
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(86_400 * u64::from(days));
    let made = params.self_signed(&key).map_err(|error| refused(&error))?;
    Ok((made.pem(), Zeroizing::new(key.serialize_pem())))
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = protocols();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_or_a_foreign_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain = write("chain.pem", &made.cert.pem());
        let key = write("key.pem", &made.signing_key.serialize_pem());
        let foreign = write("foreign.pem", &other.signing_key.serialize_pem());
        let empty = write("empty.pem", "");
        let server_config = |chain: &Path, key: &Path| ServerCertificate::open(chain, key)?.config();
        server_config(&chain, &key).unwrap();
        for (chain, key, named) in [
            (&empty, &key, "empty.pem"),
            (&chain, &empty, "empty.pem"),
            (&chain, &foreign, "foreign.pem"),
            (&folder.path().join("absent"), &key, "absent"),
        ] {
            let error = server_config(chain, key).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        self_signed(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    }

    #[test]
    fn a_test_certificate_is_no_authority_and_a_client_accepts_it_for_its_hosts_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let (certificate, secret) = test_certificate(&hosts, 30).unwrap();
        std::fs::write(&chain, &certificate).unwrap();
        std::fs::write(&key, &*secret).unwrap();
        let server = ServerCertificate::open(&chain, &key).unwrap().config().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&chain).unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let shakes = |host: &str| {
            let name = host.to_owned().try_into().unwrap();
            let mut client = rustls::ClientConnection::new(Arc::new(client.clone()), name).unwrap();
            let mut server = rustls::ServerConnection::new(server.clone()).unwrap();
            let mut bytes = Vec::new();
            while client.is_handshaking() {
                bytes.clear();
                client.write_tls(&mut bytes).unwrap();
                server.read_tls(&mut bytes.as_slice()).unwrap();
                server.process_new_packets().unwrap();
                bytes.clear();
                server.write_tls(&mut bytes).unwrap();
                client.read_tls(&mut bytes.as_slice()).unwrap();
                if client.process_new_packets().is_err() {
                    return false;
                }
            }
            true
        };
        assert!(shakes("localhost") && shakes("127.0.0.1"));
        assert!(!shakes("elsewhere.example.org"));
        assert!(test_certificate(&["grüße".to_owned()], 30).is_err());
    }

    /// The certificate that a new connection gets.
    fn shown(config: &Arc<ServerConfig>) -> Vec<u8> {
        let client = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut bytes = Vec::new();
        while client.is_handshaking() {
            bytes.clear();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        client.peer_certificates().unwrap()[0].to_vec()
    }

    /// A client that accepts every certificate: the test compares it.
    #[derive(Debug)]
    struct Anyone;

    impl rustls::client::danger::ServerCertVerifier for Anyone {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &rustls::pki_types::ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }
    }

    #[test]
    fn new_connections_get_the_certificate_of_the_files_as_they_were_last_reloaded() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        let fresh = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&chain, made.cert.pem()).unwrap();
            std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            made.cert.der().to_vec()
        };
        let first = fresh();
        let certificate = ServerCertificate::open(&chain, &key).unwrap();
        let config = certificate.config().unwrap();
        assert_eq!(shown(&config), first);
        let second = fresh();
        assert_eq!(shown(&config), first);
        certificate.reload().unwrap();
        assert_eq!(shown(&config), second);
        // A half-written file leaves the certificate as it was.
        std::fs::write(&key, "nothing").unwrap();
        assert!(certificate.reload().is_err());
        assert_eq!(shown(&config), second);
    }
}
