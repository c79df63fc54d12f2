//! A verifier behind an address of the operator: Play Integrity, App Attest, or any other.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_protocol::Digest32;
use ureq::http;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::{AttestError, Attestor, Passed};
use crate::error::{Result, ServiceError};
use crate::identity::hex;

/// Max bytes of an answer.
const MAX_ANSWER: u64 = 4 << 10;

/// Max letters of an identifier of hardware.
const MAX_HARDWARE: usize = 256;

/// Max number of requests at one time; more are answered as unavailable.
const MAX_OPEN: usize = 64;

/// The time that the verifier has for one verdict.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The question to the verifier.
#[derive(Serialize)]
struct Question {
    /// The evidence in hexadecimal digits.
    evidence: String,
    /// The challenge that it must be over, in hexadecimal digits.
    challenge: String,
}

/// The answer of the verifier.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    /// `true` if the evidence is genuine and over the challenge.
    passed: bool,
    /// An identifier of the hardware, where the platform gives one.
    #[serde(default)]
    hardware: Option<String>,
    /// A sentence for the device, where the evidence is refused.
    #[serde(default)]
    reason: Option<String>,
}

/// A verifier that is asked over HTTPS. It learns evidence and challenge, neither a subject nor a task.
pub struct Webhook {
    agent: ureq::Agent,
    url: String,
    open: AtomicUsize,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").finish_non_exhaustive()
    }
}

impl Webhook {
    /// The verifier at an `https` address, or at an `http` address of this machine. `root` is a root of its certificate in PEM; the
    /// public ones count without it.
    ///
    /// # Errors
    /// [`ServiceError::Value`] for another address, and for a root that is no certificate.
    pub fn new(url: &str, root: Option<&[u8]>) -> Result<Self> {
        let refused = |key: &str, expected: &str, got: String| ServiceError::Value {
            key: key.to_owned(),
            expected: expected.to_owned(),
            got,
        };
        let expected = "an address from https://, or http:// on this machine";
        let uri: http::Uri = url
            .parse()
            .map_err(|_| refused("the verifier of evidence", expected, format!("{url:?}")))?;
        let plain = match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(_)) => false,
            (Some("http"), Some(host)) if is_this_machine(host) => true,
            _ => return Err(refused("the verifier of evidence", expected, format!("{url:?}"))),
        };
        let mut tls = TlsConfig::builder();
        if let Some(pem) = root {
            let root = Certificate::from_pem(pem).map_err(|error| {
                refused(
                    "the root of the verifier",
                    "a certificate in PEM",
                    error.to_string(),
                )
            })?;
            tls = tls.root_certs(RootCerts::new_with_certs(&[root]));
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!plain)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .tls_config(tls.build())
            .build()
            .new_agent();
        Ok(Self {
            agent,
            url: url.to_owned(),
            open: AtomicUsize::new(0),
        })
    }

    fn ask(&self, evidence: &[u8], challenge: &Digest32) -> Result<Verdict, String> {
        let question = Question {
            evidence: hex(evidence),
            challenge: hex(challenge),
        };
        let body = serde_json::to_vec(&question).map_err(|error| error.to_string())?;
        let mut response = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .send(&body[..])
            .map_err(|error| error.to_string())?;
        if response.status().as_u16() != 200 {
            return Err(format!("expected status 200, got {}", response.status().as_u16()));
        }
        let read = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let answer = read.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| format!("expected a verdict in JSON: {error}"))
    }
}

impl Attestor for Webhook {
    fn verify(&self, evidence: &[u8], challenge: &Digest32) -> Result<Passed, AttestError> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= MAX_OPEN {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return Err(AttestError::Unavailable(format!(
                "the verifier has {MAX_OPEN} requests already"
            )));
        }
        let answer = self.ask(evidence, challenge);
        self.open.fetch_sub(1, Ordering::AcqRel);
        let verdict = answer
            .map_err(|error| AttestError::Unavailable(format!("the verifier gave no verdict: {error}")))?;
        if !verdict.passed {
            let reason = verdict
                .reason
                .unwrap_or_else(|| "the evidence is not genuine".to_owned());
            return Err(AttestError::Refused(reason.chars().take(200).collect()));
        }
        match verdict.hardware {
            Some(hardware) if hardware.len() > MAX_HARDWARE => Err(AttestError::Unavailable(format!(
                "the verifier named hardware by more than {MAX_HARDWARE} bytes"
            ))),
            hardware => Ok(Passed {
                hardware: hardware.map(|hardware| {
                    Sha256::new()
                        .chain_update(b"undertone/1/hardware\0")
                        .chain_update(hardware)
                        .finalize()
                        .into()
                }),
            }),
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
