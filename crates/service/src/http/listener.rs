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

use super::connections::{Connections, Watched};
use super::idle::Idle;
use super::times::Times;
use crate::capacity::DEFAULT_CONNECTIONS;
use crate::error::{Result, ServiceError};
use crate::trouble::{Seldom, Trouble};

/// The time that open requests have to end after the listener stops.
const GRACE: Duration = Duration::from_secs(20);

/// The time for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Bytes that a connection keeps on their way to a client, besides one piece of a download.
const KEPT: usize = 128 << 10;

/// Requests of one connection that are served at one time, in HTTP/2.
const MAX_STREAMS: u32 = 64;

/// A listener that is bound and not served yet.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) times: Times,
    connections: Arc<Connections>,
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
            connections: Arc::new(Connections::new(DEFAULT_CONNECTIONS, None)),
        })
    }

    /// This listener with these places for its connections.
    pub fn within(self, connections: Arc<Connections>) -> Self {
        Self { connections, ..self }
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
        let connections = self.connections.clone();
        let mut stop = std::pin::pin!(stop);
        loop {
            // One connection without a place waits here, and the others in the queue of the operating system.
            let next = async {
                let (stream, peer) = self.tcp.accept().await?;
                Ok::<_, std::io::Error>((connections.place(peer.ip()).await, stream))
            };
            let (place, stream) = tokio::select! {
                accepted = next => match accepted {
                    Ok(accepted) => {
                        if let Some(troubles) = &connections.troubles {
                            troubles.works(Trouble::Descriptors);
                        }
                        accepted
                    }
                    Err(error) => {
                        refused(&connections, &error);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            let _ = stream.set_nodelay(true);
            let watched = Watched {
                routes: routes.clone(),
                connection: place.connection.clone(),
            };
            let service = TowerToHyperService::new(watched);
            let (watcher, acceptor) = (graceful.watcher(), acceptor.clone());
            tokio::spawn(async move {
                let known = place.connection.clone();
                let builder = builder(times);
                let served = async {
                    match acceptor {
                        None => {
                            let stream = TokioIo::new(Idle::new(stream, times, known.clone()));
                            let connection = builder.serve_connection(stream, service);
                            let _ = watcher.watch(connection.into_owned()).await;
                        }
                        Some(acceptor) => {
                            let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
                            let Ok(Ok(stream)) = shaken else { return };
                            let stream = TokioIo::new(Idle::new(stream, times, known.clone()));
                            let connection = builder.serve_connection(stream, service);
                            let _ = watcher.watch(connection.into_owned()).await;
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = known.end.notified() => {}
                }
                // The socket is closed by now.
                drop(place);
            });
        }
        drop(self.tcp);
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}

/// Notes a connection that was not accepted: no descriptor is free, or the peer has left.
fn refused(connections: &Connections, error: &std::io::Error) {
    static REFUSED: Seldom = Seldom::new();
    match &connections.troubles {
        Some(troubles) if crate::metrics::no_descriptor(error) => {
            troubles.failed(Trouble::Descriptors, error);
        }
        _ => {
            if let Some(left_out) = REFUSED.speaks() {
                tracing::warn!(%error, left_out, "a connection could not be accepted");
            }
        }
    }
}

fn builder(times: Times) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(KEPT)
        .header_read_timeout(times.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(times.head)
        .keep_alive_timeout(times.head)
        .max_send_buf_size(KEPT)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}
