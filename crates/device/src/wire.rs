//! Requests and replies, as any transport can carry them.

use std::sync::Arc;

use undertone_aggregation::Wiped;
use undertone_protocol::{Problem, limits, read};

use crate::error::Refusal;

/// Max number of characters of a path or an address that a server may name.
const MAX_TARGET: usize = 512;

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Reads the headers alone.
    Head,
    /// Sends a message.
    Post,
    /// Sends a chunk of an upload.
    Put,
}

impl Method {
    /// The name in HTTP.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// A request of a machine. Every request may be sent again after a lost reply.
#[derive(Clone)]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it may hold an update, a token or a certificate"
)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// A path on the service, from `/v1`, or an `https` address.
    pub target: String,
    /// Headers beside those of the transport.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for reads.
    pub body: Wiped<u8>,
    /// Max number of bytes of the reply that the machine reads. A transport stops reading after them.
    pub max_reply: usize,
    /// The time to wait for the reply, in milliseconds.
    pub timeout_ms: u64,
    /// The digest of the blob that is asked for. A host that has the blob may answer with [`Event::Cached`](crate::Event::Cached).
    pub blob: Option<[u8; 32]>,
}

/// The reply to a request.
#[derive(Clone, Default)]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it may hold a session token"
)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The header `undertone-offset`, where there is one.
    pub offset: Option<u64>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// `true` for a status from 200 to 299.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The refusal in the body of another status, where there is a readable one.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let problem: Problem = read("the refusal", &self.body, limits::MAX_MESSAGE).ok()?;
        (problem.code != 0).then_some(problem)
    }
}

/// A blob, shared between sessions of one process.
pub type Bytes = Arc<[u8]>;

/// Checks a path or an address that a server named.
///
/// # Errors
/// [`Refusal::Value`] for anything but a path from `/` or an `https` address, of printable ASCII characters without spaces.
pub(crate) fn target<'t>(name: &'static str, target: &'t str) -> Result<&'t str, Refusal> {
    let printable = target.bytes().all(|byte| byte.is_ascii_graphic());
    let place = target.starts_with("https://") || (target.starts_with('/') && !target.starts_with("//"));
    let clean = !target.contains(['?', '#', '\\']) && !target.contains("..");
    if printable && place && clean && target.len() <= MAX_TARGET {
        return Ok(target);
    }
    let expected = "a path from / or an https address, without a query";
    Err(Refusal::value(name, expected, format!("{} bytes", target.len())))
}

/// Hexadecimal digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `true` for a name that can stand in a path as it is.
pub(crate) fn is_path_segment(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 100 && name.bytes().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_names_paths_and_https_addresses_alone() {
        for good in ["/v1/agg/0", "https://cdn.example/v1/blobs"] {
            assert!(target("aggregator", good).is_ok(), "{good}");
        }
        let long = format!("/{}", "a".repeat(MAX_TARGET));
        for bad in [
            "",
            "v1",
            "//host/path",
            "http://a/b",
            "file:///etc/passwd",
            "/a b",
            "/a\r\nHost: b",
            "/a/../b",
            "/a?b",
            "/ä",
            &long,
        ] {
            assert!(target("aggregator", bad).is_err(), "{bad}");
        }
    }
}
