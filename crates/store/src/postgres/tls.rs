//! The connection string of a server: the database, and the encryption of connections.

use std::path::PathBuf;
use std::sync::Arc;

use postgres::Config;
use postgres::config::{Host, SslMode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{Result, StoreError};

/// The encryption of connections.
#[derive(Clone)]
pub(super) enum Encryption {
    /// None: a Unix socket, a tunnel, or a closed network.
    None,
    /// TLS, to a server that shows a certificate for its name.
    Tls(Arc<ClientConfig>),
}

/// A connection string as its parts.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) encryption: Encryption,
    /// The database's name for messages, without a password.
    pub(super) place: String,
}

fn refused(reason: String) -> StoreError {
    StoreError::Unavailable {
        place: "the connection string of the store".to_owned(),
        reason,
    }
}

/// Reads a connection string.
pub(super) fn settings(url: &str) -> Result<Settings> {
    let (plain, asked) = without_tls(url)?;
    let mut config: Config = plain.parse().map_err(|error: postgres::Error| {
        // PRIVACY: the text of the error may hold a part of the string, and so of its password.
        let _ = error;
        refused("expected postgres://USER@HOST/DATABASE, got another form".to_owned())
    })?;
    let encryption = match asked {
        None => {
            config.ssl_mode(SslMode::Disable);
            Encryption::None
        }
        Some(roots) => {
            config.ssl_mode(SslMode::Require);
            Encryption::Tls(client(&roots)?)
        }
    };
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let place = format!(
        "the database {} of Postgres at {}",
        config.get_dbname().unwrap_or("of the user"),
        hosts.join(", ")
    );
    Ok(Settings {
        config,
        encryption,
        place,
    })
}

/// The connection string without its settings of TLS, and the file of root certificates where TLS is asked for.
fn without_tls(url: &str) -> Result<(String, Option<PathBuf>)> {
    let Some((base, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(value),
            _ => rest.push(pair),
        }
    }
    let plain = match rest.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", rest.join("&")),
    };
    match (mode, roots) {
        (None | Some("disable" | "prefer"), None) => Ok((plain, None)),
        (Some("require" | "verify-full"), Some(roots)) => {
            let path = decoded(roots).ok_or_else(|| {
                refused("expected sslrootcert=FILE with a path in percent code, got another form".to_owned())
            })?;
            Ok((plain, Some(path.into())))
        }
        (Some("require" | "verify-full"), None) => Err(refused(
            "sslmode=require and sslmode=verify-full need sslrootcert=FILE, the certificate of the server's authority in PEM"
                .to_owned(),
        )),
        (None | Some("disable" | "prefer"), Some(_)) => Err(refused(
            "sslrootcert needs sslmode=verify-full; without it connections would not be encrypted".to_owned(),
        )),
        (Some(other), _) => Err(refused(format!(
            "expected sslmode=disable, prefer, require or verify-full, got {:?}",
            other.chars().take(20).collect::<String>()
        ))),
    }
}

/// A text whose bytes may stand as `%41`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The settings of a client that trusts the authorities of a file, and no others.
fn client(roots: &PathBuf) -> Result<Arc<ClientConfig>> {
    let failed = |why: &dyn std::fmt::Display| {
        refused(format!(
            "sslrootcert: expected certificates in PEM in {}, got {why}",
            roots.display()
        ))
    };
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(roots).map_err(|error| failed(&error))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| failed(&error))?;
        store.add(certificate).map_err(|error| failed(&error))?;
    }
    if store.is_empty() {
        return Err(failed(&"none"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    Ok(Arc::new(
        builder.with_root_certificates(store).with_no_client_auth(),
    ))
}

#[cfg(test)]
mod tests;
