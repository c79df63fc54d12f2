//! Requests to a store of objects, each under a limit of time and of size.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::client::legacy::{Client, connect::HttpConnector as Sockets};
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::super::{BlobError, Result};
use super::{MAX_ANSWER, Patience};

/// Connections of the program's own TLS.
///
/// # Guarantee
/// An answer is read as a whole, up to [`MAX_ANSWER`] bytes, and a request ends within its time. Redirections are not followed.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    client: Client<HttpsConnector<Sockets>, HttpRequestBody>,
    patience: Patience,
}

impl Connector {
    /// Connections to servers of the public authorities, or of those in a file alone.
    pub(super) fn new(authority: Option<&Path>, patience: Patience) -> Result<Self> {
        let mut sockets = Sockets::new();
        sockets.enforce_http(false);
        sockets.set_connect_timeout(Some(patience.connect));
        sockets.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(authority)?)
            // The address has admitted plain HTTP at this machine alone.
            .https_or_http()
            .enable_http1()
            .wrap_connector(sockets);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Ok(Self { client, patience })
    }
}

fn tls(authority: Option<&Path>) -> Result<ClientConfig> {
    let refused = |path: &Path, got: String| BlobError::Address {
        expected: format!("certificates in PEM in {}", path.display()),
        got,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(Path::new("the program"), error.to_string()))?;
    let Some(path) = authority else {
        return Ok(builder.with_webpki_roots().with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_file_iter(path).map_err(|error| refused(path, error.to_string()))? {
        let certificate = found.map_err(|error| refused(path, error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(path, error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(refused(path, "none".to_owned())),
        false => Ok(builder.with_root_certificates(roots).with_no_client_auth()),
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Connector {
    fn call<'life0, 'asynchronous>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = core::result::Result<HttpResponse, HttpError>> + Send + 'asynchronous>>
    where
        'life0: 'asynchronous,
        Self: 'asynchronous,
    {
        Box::pin(async move {
            let patience = self.patience.of(request.body().content_length());
            let answer = async {
                let answer = self.client.request(request).await.map_err(|error| {
                    let kind = match error.is_connect() {
                        true => HttpErrorKind::Connect,
                        false => HttpErrorKind::Interrupted,
                    };
                    HttpError::new(kind, error)
                })?;
                let (parts, body) = answer.into_parts();
                let body = Limited::new(body, MAX_ANSWER).collect().await;
                let body = body.map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
                Ok(HttpResponse::from_parts(parts, body.to_bytes().into()))
            };
            match tokio::time::timeout(patience, answer).await {
                Ok(answered) => answered,
                Err(late) => Err(HttpError::new(HttpErrorKind::Timeout, late)),
            }
        })
    }
}
