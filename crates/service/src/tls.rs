//! TLS of the listeners.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Result, ServiceError};

/// The settings of a listener with this certificate chain and key, both in PEM.
///
/// # Errors
/// [`ServiceError::Value`] naming the file that holds no certificate or no key, or where the two do not fit.
pub fn server_config(certificates: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
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
    config(chain, secret).map_err(|error| refused(key, "the key of the first certificate", &error))
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

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
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
}
