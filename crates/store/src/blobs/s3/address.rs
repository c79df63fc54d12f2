//! The address of a store of objects: one text without secrets.

use std::net::IpAddr;
use std::path::PathBuf;

use super::super::{BlobError, Result};

/// Address of the place where blobs are stored: `s3://BUCKET/PREFIX?region=NAME&endpoint=URL&ca=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) bucket: String,
    /// Prefix of the objects' names, without a slash at either end; empty for the whole bucket.
    pub(super) prefix: String,
    pub(super) region: String,
    /// The server of another provider than Amazon.
    pub(super) endpoint: Option<String>,
    /// The authority of that server in PEM, instead of the public ones.
    pub(super) authority: Option<PathBuf>,
}

const FORM: &str =
    "s3://BUCKET/PREFIX, with ?region=NAME, &endpoint=URL and &ca=FILE where the provider needs them";

impl Address {
    pub(super) fn read(text: &str) -> Result<Self> {
        // PRIVACY: somebody may have put a secret before an `@`, so the text itself is not shown.
        let refused = |expected: &str, got: &str| BlobError::Address {
            expected: expected.to_owned(),
            got: got.chars().take(80).collect(),
        };
        let rest = text
            .strip_prefix("s3://")
            .ok_or_else(|| refused(FORM, "another form"))?;
        if rest.contains('@') {
            return Err(refused(
                "an address without a secret; credentials come from the environment or a file",
                "a text with '@'",
            ));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(known) {
            return Err(refused(
                "a bucket of 3 to 63 characters of a-z, 0-9, '-' and '.'",
                bucket,
            ));
        }
        let prefix = prefix.trim_matches('/');
        let part = |part: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
            !part.is_empty() && part.bytes().all(known) && !part.bytes().all(|byte| byte == b'.')
        };
        let fits = prefix.is_empty() || (prefix.len() <= 200 && prefix.split('/').all(part));
        if !fits {
            return Err(refused(
                "a prefix of names of A-Z, a-z, 0-9, '_', '-' and '.'",
                prefix,
            ));
        }
        let mut address = Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            region: "us-east-1".to_owned(),
            endpoint: None,
            authority: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("region", region)) if !region.is_empty() => region.clone_into(&mut address.region),
                Some(("endpoint", endpoint)) => address.endpoint = Some(checked_endpoint(endpoint)?),
                Some(("ca", path)) if !path.is_empty() => address.authority = Some(path.into()),
                _ => return Err(refused("region=NAME, endpoint=URL or ca=FILE", pair)),
            }
        }
        Ok(address)
    }

    /// The name in messages.
    pub(super) fn place(&self) -> String {
        match self.prefix.as_str() {
            "" => format!("s3://{}", self.bucket),
            prefix => format!("s3://{}/{prefix}", self.bucket),
        }
    }
}

/// PRIVACY: models before their publication and sealed states travel there, so only this machine is spoken to without TLS.
fn checked_endpoint(text: &str) -> Result<String> {
    let refused = |expected: &str| BlobError::Address {
        expected: expected.to_owned(),
        got: text.chars().take(80).collect(),
    };
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| refused("an endpoint https://HOST or https://HOST:PORT"))?;
    let authority = rest.trim_end_matches('/');
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'[' | b']');
    if host.is_empty() || !authority.bytes().all(known) {
        return Err(refused("an endpoint https://HOST or https://HOST:PORT"));
    }
    let here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    match scheme {
        "https" => {}
        "http" if here => {}
        _ => return Err(refused("an endpoint https://..., or http:// at this machine")),
    }
    Ok(format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_settings() {
        let address = Address::read("s3://models").unwrap();
        assert_eq!((address.bucket.as_str(), address.prefix.as_str()), ("models", ""));
        assert_eq!(
            (address.region.as_str(), address.endpoint.as_deref()),
            ("us-east-1", None)
        );
        let text = "s3://my.models/a/b/?region=eu-1&endpoint=https://minio.example.org:9000/&ca=/etc/ca.pem";
        let address = Address::read(text).unwrap();
        assert_eq!(address.place(), "s3://my.models/a/b");
        assert_eq!(address.region, "eu-1");
        assert_eq!(
            address.endpoint.as_deref(),
            Some("https://minio.example.org:9000")
        );
        assert_eq!(address.authority, Some("/etc/ca.pem".into()));
        for here in ["127.0.0.1:1", "localhost", "[::1]:9000"] {
            Address::read(&format!("s3://models?endpoint=http://{here}")).unwrap();
        }
    }

    #[test]
    fn other_forms_are_refused_without_what_may_be_a_secret() {
        for (text, words) in [
            ("", "s3://BUCKET"),
            ("https://models", "s3://BUCKET"),
            ("s3://", "a bucket"),
            ("s3://Models", "a bucket"),
            ("s3://a/b", "a bucket"),
            ("s3://models/../x", "a prefix"),
            ("s3://models/a//b", "a prefix"),
            ("s3://models/a b", "a prefix"),
            ("s3://models?region=", "region=NAME"),
            ("s3://models?secret=1", "region=NAME"),
            ("s3://models?endpoint=minio", "an endpoint"),
            ("s3://models?endpoint=http://10.0.0.5", "http:// at this machine"),
            (
                "s3://models?endpoint=http://localhost.evil.org",
                "http:// at this machine",
            ),
            ("s3://models?endpoint=ftp://h", "http:// at this machine"),
            ("s3://models?endpoint=https://h/path", "an endpoint"),
        ] {
            let error = Address::read(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let error = Address::read("s3://id:hunter2@models").unwrap_err().to_string();
        assert!(
            !error.contains("hunter2") && error.contains("credentials"),
            "{error}"
        );
    }
}
