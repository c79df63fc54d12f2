//! The stream of events: the overview, whenever it changes.
//!
//! One task of the runtime looks at the store while somebody watches, so that ten pages cost what one costs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::{Dashboard, overview};
use crate::admin::listener::refused;

/// The time between two looks at the store.
const LOOK: Duration = Duration::from_millis(250);

/// A line without meaning is sent this long after the last one, so that a connection that is gone is noticed.
const BEAT: Duration = Duration::from_secs(15);

/// Max number of streams.
const MAX_STREAMS: usize = 64;

/// The newest overview, for all streams.
pub(super) struct Feed {
    sender: watch::Sender<Seen>,
    looking: AtomicBool,
    places: Arc<Semaphore>,
}

/// The state of the service at a look.
#[derive(Clone, Default)]
struct Seen {
    /// The overview as JSON; empty before the first look.
    text: Arc<str>,
    /// `true` once the service ends.
    over: bool,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            sender: watch::Sender::default(),
            looking: AtomicBool::new(false),
            places: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }
}

/// Opens a stream of events.
pub(super) async fn events(State(dashboard): State<Arc<Dashboard>>) -> Response {
    let Ok(place) = dashboard.feed.places.clone().try_acquire_owned() else {
        return refused(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("expected at most {MAX_STREAMS} pages that watch at one time; close one"),
        );
    };
    let seen = dashboard.feed.sender.subscribe();
    let (sender, lines) = mpsc::channel(4);
    tokio::spawn(send(dashboard.clone(), seen, sender));
    if !dashboard.feed.looking.swap(true, Ordering::AcqRel) {
        tokio::spawn(look(dashboard));
    }
    let body = Body::from_stream(Lines { lines, _place: place });
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// Looks at the service while somebody watches.
async fn look(dashboard: Arc<Dashboard>) {
    let feed = &dashboard.feed;
    loop {
        if feed.sender.receiver_count() == 0 {
            feed.looking.store(false, Ordering::Release);
            // A stream that came in between has found this task at work, and started none.
            if feed.sender.receiver_count() == 0 || feed.looking.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        let over = dashboard.service.is_closed();
        let work = dashboard.clone();
        let made = tokio::task::spawn_blocking(move || overview::look(&work)).await;
        match made {
            Ok(Ok((text, stale))) => {
                feed.sender.send_if_modified(|seen| {
                    let changed = *seen.text != *text || seen.over != over;
                    if changed {
                        *seen = Seen {
                            text: text.into(),
                            over,
                        };
                    }
                    changed
                });
                for row in stale {
                    // A guarantee takes its time, and the next look shows it.
                    let work = dashboard.clone();
                    tokio::task::spawn_blocking(move || {
                        if let Err(error) = work.guarantees.refresh(&work.service, &row) {
                            tracing::warn!(task = %row.task.id, %error, "the guarantee of a task could not be computed");
                        }
                    });
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "the dashboard could not read the store"),
            Err(_) => tracing::error!("the dashboard could not make its overview"),
        }
        if over {
            feed.looking.store(false, Ordering::Release);
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends each change to one page.
async fn send(dashboard: Arc<Dashboard>, mut seen: watch::Receiver<Seen>, lines: mpsc::Sender<Bytes>) {
    let mut sent: Arc<str> = Arc::default();
    loop {
        let now = seen.borrow_and_update().clone();
        if !now.text.is_empty() && now.text != sent {
            sent = now.text;
            let event = format!(
                "event: overview\ndata: {{\"now\":{},\"overview\":{sent}}}\n\n",
                dashboard.now()
            );
            if lines.send(event.into()).await.is_err() {
                return;
            }
        }
        if now.over || dashboard.service.is_closed() {
            return;
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return },
            () = lines.closed() => return,
            () = tokio::time::sleep(BEAT) => if lines.send(Bytes::from_static(b": beat\n\n")).await.is_err() { return },
        }
    }
}

/// The lines of one stream.
struct Lines {
    lines: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Stream for Lines {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lines.poll_recv(context).map(|line| line.map(Ok))
    }
}
