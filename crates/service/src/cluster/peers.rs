//! Requests from one process to another, over mutual TLS.

use std::error::Error as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, Request, Response, StatusCode, Uri, header};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use undertone_protocol::{Code, Problem};

use super::credentials::{Credentials, NAME};
use crate::error::{Result, ServiceError};
use crate::trouble::Seldom;

/// The time for a connection to another process.
const CONNECT: Duration = Duration::from_secs(3);

/// The time after which a connection without requests is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The time until the head of an answer, which is longer than the longest wait of a poll.
const ANSWER: Duration = Duration::from_secs(60);

/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The connections to the other processes.
#[derive(Debug)]
pub struct Peers {
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

/// The reason for which another process gave no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// Nobody listens at its address: the process has ended, and everything in its memory is gone.
    Gone,
    /// The process may live, and may have handled the request.
    Unknown(String),
}

impl From<Silence> for Problem {
    fn from(silence: Silence) -> Self {
        match silence {
            Silence::Gone => Problem::new(Code::Gone, "the session is over"),
            Silence::Unknown(reason) => {
                // PRIVACY: the reason may name addresses within the service; it stays here.
                static SILENT: Seldom = Seldom::new();
                if let Some(left_out) = SILENT.speaks() {
                    tracing::warn!(reason, left_out, "another process did not answer");
                }
                Problem::new(
                    Code::Busy,
                    "the service could not serve the request; try again later",
                )
            }
        }
    }
}

impl Peers {
    pub(super) fn new(credentials: &Credentials) -> Result<Self> {
        let name = ServerName::try_from(NAME).map_err(|error| ServiceError::Value {
            key: "the name of the processes".to_owned(),
            expected: "a host name".to_owned(),
            got: error.to_string(),
        })?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(credentials.client.clone())
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        Ok(Self { client })
    }

    /// Sends a request to the process at this address. `path` holds the query.
    pub(crate) async fn send(
        &self,
        url: &str,
        path: &str,
        mut request: Request<Body>,
    ) -> std::result::Result<Response<Body>, Silence> {
        let uri: Uri = format!("{url}{path}")
            .parse()
            .map_err(|error: axum::http::uri::InvalidUri| Silence::Unknown(error.to_string()))?;
        *request.uri_mut() = uri;
        *request.version_mut() = axum::http::Version::HTTP_11;
        drop_hop_by_hop(request.headers_mut());
        let sent = tokio::time::timeout(ANSWER, self.client.request(request)).await;
        match sent {
            Ok(Ok(response)) => {
                let (mut parts, body) = response.into_parts();
                drop_hop_by_hop(&mut parts.headers);
                Ok(Response::from_parts(parts, Body::new(body)))
            }
            Ok(Err(error)) if error.is_connect() && is_refused(&error) => Err(Silence::Gone),
            Ok(Err(error)) => {
                let source = error.source().map_or_else(String::new, ToString::to_string);
                Err(Silence::Unknown(format!("{error}: {source}")))
            }
            Err(_) => Err(Silence::Unknown("it took too long".to_owned())),
        }
    }

    /// Sends bytes to the process at this address, and returns the status and the body of its answer, which has at most `max` bytes.
    pub(crate) async fn post(
        &self,
        url: &str,
        path: &str,
        body: Vec<u8>,
        max: usize,
    ) -> std::result::Result<(StatusCode, Bytes), Silence> {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = axum::http::Method::POST;
        let (parts, body) = self.send(url, path, request).await?.into_parts();
        let read = tokio::time::timeout(ANSWER, axum::body::to_bytes(body, max)).await;
        match read {
            Ok(Ok(bytes)) => Ok((parts.status, bytes)),
            Ok(Err(error)) => Err(Silence::Unknown(error.to_string())),
            Err(_) => Err(Silence::Unknown("its answer took too long".to_owned())),
        }
    }
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// `true` where nobody listens at the address.
fn is_refused(error: &dyn std::error::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        source = error.source();
    }
    false
}
