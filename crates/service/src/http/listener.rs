//! The listener: connections with or without TLS, and their time-outs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::idle::Idle;
use crate::error::{Result, ServiceError};

/// The time that open requests have to end after the listener stops.
const GRACE: Duration = Duration::from_secs(20);

/// The time for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections that are open at one time. Others wait in the queue of the operating system.
const MAX_CONNECTIONS: usize = 20_000;

/// Requests of one connection that are served at one time, in HTTP/2.
const MAX_STREAMS: u32 = 64;

/// The times that a connection has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Maximum time for the head of a request, from the end of the one before.
    pub(super) head: Duration,
    /// Maximum time without a byte in either direction. It is longer than the longest wait of a poll.
    pub(super) idle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(90),
        }
    }
}

/// A listener that is bound and not served yet.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) times: Times,
}

impl Listener {
    /// Binds an address. Without `tls` it speaks plain HTTP.
    ///
    /// # Errors
    /// [`ServiceError::Io`] naming the address.
    pub async fn bind(address: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Result<Self> {
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|error| ServiceError::io("listen on", std::path::Path::new(address), error))?;
        Ok(Self {
            tcp,
            tls,
            times: Times::default(),
        })
    }

    /// The address, with the port that was taken.
    ///
    /// # Errors
    /// [`ServiceError::Io`].
    pub fn address(&self) -> Result<SocketAddr> {
        self.tcp.local_addr().map_err(|error| {
            ServiceError::io("read the address of", std::path::Path::new("the listener"), error)
        })
    }

    /// Serves until `stop` ends, and then waits a while for open requests.
    pub async fn serve(self, routes: Router, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let acceptor = self.tls.map(tokio_rustls::TlsAcceptor::from);
        let times = self.times;
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let next = async {
                // The semaphore is never closed.
                let place = connections.clone().acquire_owned().await;
                (place, self.tcp.accept().await)
            };
            let (place, stream) = tokio::select! {
                (place, accepted) = next => match accepted {
                    Ok((stream, _)) => (place, stream),
                    Err(error) => {
                        // No descriptor is free, or the peer has left.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(routes.clone());
            let (watcher, acceptor) = (graceful.watcher(), acceptor.clone());
            tokio::spawn(async move {
                let _place = place;
                let builder = builder(times);
                match acceptor {
                    None => {
                        let stream = TokioIo::new(Idle::new(stream, times.idle));
                        let connection = builder.serve_connection(stream, service);
                        let _ = watcher.watch(connection.into_owned()).await;
                    }
                    Some(acceptor) => {
                        let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
                        let Ok(Ok(stream)) = shaken else { return };
                        let stream = TokioIo::new(Idle::new(stream, times.idle));
                        let connection = builder.serve_connection(stream, service);
                        let _ = watcher.watch(connection.into_owned()).await;
                    }
                }
            });
        }
        drop(self.tcp);
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}

fn builder(times: Times) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(times.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(times.head)
        .keep_alive_timeout(times.head)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}
