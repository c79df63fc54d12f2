//! The way to a service in the same process: through its routes, without sockets.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;
use undertone_device::{Method, NetworkLost, Reply, Request, Transport};
use undertone_protocol::OFFSET_HEADER;
use undertone_service::server::Service;

use crate::error::{FleetError, Result};
use crate::transport::Transports;

/// Connections to a service in this process. A request passes the same routes, limits and headers as one from a socket.
#[derive(Debug, Clone)]
pub struct InProcess {
    router: Router,
    runtime: Arc<Runtime>,
}

impl InProcess {
    /// Connections to this service.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no threads can be started.
    pub fn new(service: Arc<Service>) -> Result<Self> {
        Self::to_router(undertone_service::http::routes(service))
    }

    /// Connections to these routes.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no threads can be started.
    pub fn to_router(router: Router) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .map_err(|source| FleetError::io("start the threads of a service in this process", source))?;
        Ok(Self {
            router,
            runtime: Arc::new(runtime),
        })
    }

    fn exchange(&self, request: &Request) -> Result<Reply, String> {
        let mut builder = http::Request::builder()
            .method(request.method.name())
            .uri(&request.target);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let body = match request.method {
            Method::Get | Method::Head => Body::empty(),
            Method::Post | Method::Put => Body::from(request.body.to_vec()),
        };
        let sent = builder.body(body).map_err(|error| error.to_string())?;
        let answer = async {
            let response = match self.router.clone().oneshot(sent).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let (parts, body) = response.into_parts();
            let body = match request.method {
                Method::Head => Vec::new(),
                _ => to_bytes(body, request.max_reply)
                    .await
                    .map_err(|error| error.to_string())?
                    .to_vec(),
            };
            let offset = parts.headers.get(OFFSET_HEADER);
            Ok(Reply {
                status: parts.status.as_u16(),
                offset: offset
                    .and_then(|value| value.to_str().ok())
                    .and_then(|value| value.parse().ok()),
                body,
            })
        };
        let limit = Duration::from_millis(request.timeout_ms);
        self.runtime
            .block_on(async { tokio::time::timeout(limit, answer).await })
            .map_err(|_| format!("no reply in {} ms", request.timeout_ms))?
    }
}

impl Transport for InProcess {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        self.exchange(request).map_err(NetworkLost)
    }
}

impl Transports for InProcess {
    fn open(&self, _: usize) -> Result<Box<dyn Transport>> {
        Ok(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::extract::DefaultBodyLimit;
    use axum::http::HeaderMap;
    use axum::routing::{get, put};

    use super::*;
    use crate::steps::tests::request;

    fn routes() -> Router {
        let echo = |headers: HeaderMap, body: Bytes| async move {
            let offset = format!("{}", body.len());
            let name = headers.get("undertone-protocol").cloned();
            let version = name.and_then(|name| name.to_str().map(str::to_owned).ok());
            ([(OFFSET_HEADER, offset)], version.unwrap_or_default())
        };
        let offset = || async { ([(OFFSET_HEADER, "7")], "a body that HEAD leaves out") };
        let slow = || async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        };
        Router::new()
            .route("/upload", put(echo).head(offset))
            .route("/slow", get(slow))
            .layer(DefaultBodyLimit::max(10))
    }

    #[test]
    fn requests_pass_the_routes_with_their_headers_and_limits() {
        let mut transport = InProcess::to_router(routes()).unwrap();
        let mut put = request(Method::Put, "/upload?offset=0");
        put.headers.push(("undertone-protocol", "1".to_owned()));
        put.body = vec![9; 5].into();
        let reply = transport.send(&put).unwrap();
        assert_eq!(
            (reply.status, reply.offset, &reply.body[..]),
            (200, Some(5), &b"1"[..])
        );
        put.body = vec![9; 11].into();
        assert_eq!(transport.send(&put).unwrap().status, 413);
        let head = transport.send(&request(Method::Head, "/upload")).unwrap();
        assert_eq!((head.offset, head.body.len()), (Some(7), 0));
        let missing = transport.send(&request(Method::Get, "/other")).unwrap();
        assert_eq!(missing.status, 404);
        let short = Request {
            max_reply: 0,
            body: vec![9; 5].into(),
            ..put
        };
        assert!(transport.send(&short).is_err(), "a reply above its limit");
    }

    #[test]
    fn a_service_that_does_not_answer_is_a_lost_network() {
        let mut transport = InProcess::to_router(routes()).unwrap();
        let mut slow = request(Method::Get, "/slow");
        slow.timeout_ms = 20;
        assert!(transport.send(&slow).is_err());
    }
}
