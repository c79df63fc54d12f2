//! The open connections of a listener: their number has a ceiling, and a silent one makes room for a new one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::response::Response;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::times::Times;
use crate::trouble::Troubles;

/// A part of all connections that makes room at once, where all places are taken: looking for them costs a look at each.
const BATCH: usize = 64;

/// A place that was asked for is free by then, or another look is due.
const AGAIN: Duration = Duration::from_millis(100);

/// The connections of a listener.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    freed: Notify,
    /// The place where a full table of descriptors is noted.
    pub(super) troubles: Option<Arc<Troubles>>,
}

impl Connections {
    /// Places for this many connections.
    #[must_use]
    pub fn new(max: usize, troubles: Option<Arc<Troubles>>) -> Self {
        Self {
            max: max.max(1),
            next: AtomicU64::new(0),
            open: Mutex::default(),
            freed: Notify::new(),
            troubles,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// A place for a connection. Where all are taken, connections that ask for nothing end, the longest silent one first.
    pub(super) async fn place(self: &Arc<Self>, peer: IpAddr) -> Place {
        loop {
            {
                let mut open = self.lock();
                if open.len() < self.max {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    let connection = Arc::new(Connection::new(peer));
                    open.insert(id, connection.clone());
                    return Place {
                        all: self.clone(),
                        id,
                        connection,
                    };
                }
                self.make_room(&open);
            }
            let _ = tokio::time::timeout(AGAIN, self.freed.notified()).await;
        }
    }

    /// Ends some connections that have no open request: first those that were never served.
    fn make_room(&self, open: &HashMap<u64, Arc<Connection>>) {
        let mut silent: Vec<(bool, Instant, &Arc<Connection>)> = open
            .values()
            .filter(|connection| connection.requests.load(Ordering::Acquire) == 0)
            .map(|connection| (connection.was_served(), connection.last(), connection))
            .collect();
        silent.sort_unstable_by_key(|(served, last, _)| (*served, *last));
        for (_, _, connection) in silent.iter().take((self.max / BATCH).max(1)) {
            connection.end.notify_one();
        }
    }
}

/// The place of a connection, which is free once this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<Connections>,
    id: u64,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
        self.all.freed.notify_one();
    }
}

/// A connection, as far as its end is concerned. Requests carry it in their extensions.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) peer: IpAddr,
    begun: Instant,
    /// Milliseconds from the begin to the last act that was more than bytes: a request, an answer, a piece of a body.
    last: AtomicU64,
    /// Requests that are being served, and downloads.
    requests: AtomicUsize,
    downloads: AtomicUsize,
    asked: AtomicBool,
    served: AtomicBool,
    /// Wakes the connection to end it.
    pub(super) end: Notify,
}

impl Connection {
    fn new(peer: IpAddr) -> Self {
        Self {
            peer,
            begun: Instant::now(),
            last: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            downloads: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            served: AtomicBool::new(false),
            end: Notify::new(),
        }
    }

    /// Notes that the connection is of use.
    pub(super) fn moved(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        self.last.store(now, Ordering::Release);
    }

    /// The time of the last act that was of use.
    fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last.load(Ordering::Acquire))
    }

    fn was_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// The time at which the connection ends, if it does nothing of use until then.
    pub(super) fn until(&self, times: &Times) -> Instant {
        if !self.asked.load(Ordering::Acquire) {
            return self.begun + times.first;
        }
        let limit = match self.downloads.load(Ordering::Acquire) {
            0 => times.rest,
            _ => times.stall,
        };
        self.last() + limit
    }

    /// A request that was made and served, for tests.
    #[cfg(test)]
    pub(super) fn ask(self: &Arc<Self>) {
        drop(self.request());
    }

    /// A request that is being served until this is dropped.
    fn request(self: &Arc<Self>) -> Asked {
        self.asked.store(true, Ordering::Release);
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.moved();
        Asked(self.clone())
    }

    /// A request whose sender nobody knows yet keeps no place: the connection may end until this is dropped.
    pub(super) fn unknown(self: &Arc<Self>) -> Unknown {
        self.requests.fetch_sub(1, Ordering::AcqRel);
        Unknown(self.clone())
    }

    /// A download that is open until this is dropped.
    pub(super) fn download(self: &Arc<Self>) -> Downloading {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.downloads.fetch_add(1, Ordering::AcqRel);
        self.moved();
        Downloading(self.clone())
    }
}

/// See [`Connection::request`].
struct Asked(Arc<Connection>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        self.0.served.store(true, Ordering::Release);
        self.0.moved();
    }
}

/// See [`Connection::unknown`].
pub(super) struct Unknown(Arc<Connection>);

impl Drop for Unknown {
    fn drop(&mut self) {
        self.0.requests.fetch_add(1, Ordering::AcqRel);
    }
}

/// See [`Connection::download`].
pub(super) struct Downloading(Arc<Connection>);

impl Downloading {
    /// Notes that the client took a piece.
    pub(super) fn moved(&self) {
        self.0.moved();
    }
}

impl Drop for Downloading {
    fn drop(&mut self) {
        self.0.downloads.fetch_sub(1, Ordering::AcqRel);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        self.0.moved();
    }
}

/// The routes, as one connection reaches them.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) routes: Router,
    pub(super) connection: Arc<Connection>,
}

impl<B> Service<Request<B>> for Watched
where
    B: Send + 'static,
    Router: Service<Request<B>, Response = Response, Error = Infallible>,
    <Router as Service<Request<B>>>::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let asked = self.connection.request();
        request.extensions_mut().insert(self.connection.clone());
        let answer = self.routes.clone().oneshot(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(asked);
            answer
        })
    }
}
