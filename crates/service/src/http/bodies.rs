//! The bodies of requests: a limit for all that are on their way, and a min rate for each.
//!
//! A body is received here, as a whole, before its handler runs. Beyond the limits the client gets a refusal with the time after
//! which it may come again. A device then goes on with its upload where it stands.

use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use undertone_protocol::{Code, Problem, RetryWindow};

use super::Refused;

/// Bytes of bodies on their way at one time, unless a host sets it: 512 MiB.
pub(crate) const DEFAULT_IN_FLIGHT: u64 = 512 << 20;

/// The min rate of a body, in bytes per second: 128 kbit/s.
const MIN_RATE: u64 = 16_000;

/// The time after which a body must keep to the min rate.
const PATIENCE: Duration = Duration::from_secs(30);

/// The unit in which memory for bodies is counted, in bytes.
const UNIT: u64 = 1024;

/// Bytes from which on a piece of a body is kept as it came. Smaller ones are put together, since each piece costs memory of its own.
const PIECE: usize = 16 << 10;

/// The window of a client whose body finds no room.
const FULL: (u64, u64) = (5_000, 30_000);

/// The memory for bodies on their way, which all requests share.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    free: Arc<Semaphore>,
    patience: Duration,
}

impl InFlight {
    /// Room for this many bytes, rounded down to KiB.
    #[must_use]
    pub(crate) fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes / UNIT).unwrap_or(usize::MAX);
        Self {
            free: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            patience: PATIENCE,
        }
    }

    /// Bytes that are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u64 {
        self.free.available_permits() as u64 * UNIT
    }

    /// This limit with less patience, for tests.
    #[cfg(test)]
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The time from the begin of a body until it is too slow, if no more than `received` bytes of it have come.
    pub(super) fn allowed(&self, received: u64) -> Duration {
        self.patience.max(Duration::from_micros(
            received.saturating_mul(1_000_000) / MIN_RATE,
        ))
    }
}

/// The limits of the bodies of some routes.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    pub(super) in_flight: InFlight,
    /// Max number of bytes of one body.
    pub(super) max: usize,
}

/// A body that was not received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotReceived {
    TooLong,
    TooSlow,
    NoRoom,
    Broken,
}

impl IntoResponse for NotReceived {
    fn into_response(self) -> Response {
        let busy = |why: &str| {
            let window = RetryWindow::between(FULL.0, FULL.1);
            Refused(Problem::new(Code::Busy, why).with_retry(window)).into_response()
        };
        match self {
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
            Self::Broken => StatusCode::BAD_REQUEST.into_response(),
            Self::TooSlow => busy("the body of the request came at less than 128 kbit/s"),
            Self::NoRoom => busy("the service receives as much as it can hold"),
        }
    }
}

/// The pieces of a body, in their order.
#[derive(Clone, Default)]
pub(super) struct Pieces(Arc<Vec<Bytes>>);

impl std::ops::Deref for Pieces {
    type Target = [Bytes];

    fn deref(&self) -> &[Bytes] {
        &self.0
    }
}

/// A body on its way.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Bytes>,
    /// Small pieces that follow those.
    small: Vec<u8>,
    length: usize,
}

impl Gathered {
    fn add(&mut self, data: Bytes) {
        self.length += data.len();
        if data.len() < PIECE {
            self.small.extend_from_slice(&data);
            if self.small.len() >= PIECE {
                self.settle();
            }
        } else {
            self.settle();
            self.pieces.push(data);
        }
    }

    fn settle(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(take(&mut self.small).into());
        }
    }

    fn pieces(mut self) -> Vec<Bytes> {
        self.settle();
        self.pieces
    }
}

/// Receives the body of a request in pieces, which its handler finds among the extensions, and holds their memory until the request
/// is answered.
pub(super) async fn receive_pieces(State(bodies): State<Bodies>, request: Request, then: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match gather(&bodies, body).await {
        Ok((pieces, _room)) => {
            parts.extensions.insert(Pieces(Arc::new(pieces)));
            then.run(Request::from_parts(parts, Body::empty())).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Receives the body of a request, and holds its memory until the request is answered.
pub(super) async fn receive(State(bodies): State<Bodies>, request: Request, then: Next) -> Response {
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return then.run(Request::from_parts(parts, body)).await;
    }
    match read(&bodies, body).await {
        Ok((bytes, _room)) => then.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(refused) => refused.into_response(),
    }
}

/// Reads a body to its end, into one piece.
pub(super) async fn read(
    bodies: &Bodies,
    body: Body,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), NotReceived> {
    let (mut pieces, room) = gather(bodies, body).await?;
    let whole = match pieces.len() {
        0 | 1 => pieces.pop().unwrap_or_default(),
        _ => pieces.concat().into(),
    };
    Ok((whole, room))
}

/// Reads a body to its end. Memory is counted as it comes, so a client that only announces bytes takes none.
async fn gather(
    bodies: &Bodies,
    mut body: Body,
) -> Result<(Vec<Bytes>, Option<OwnedSemaphorePermit>), NotReceived> {
    let begun = Instant::now();
    let mut gathered = Gathered::default();
    let mut room: Option<OwnedSemaphorePermit> = None;
    if body.size_hint().lower() > bodies.max as u64 {
        return Err(NotReceived::TooLong);
    }
    loop {
        let until = begun + bodies.in_flight.allowed(gathered.length as u64);
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = match tokio::time::timeout_at(until, frame).await {
            Err(_) => return Err(NotReceived::TooSlow),
            Ok(None) => return Ok((gathered.pieces(), room)),
            Ok(Some(Err(_))) => return Err(NotReceived::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers are not read.
        let Ok(data) = frame.into_data() else { continue };
        let length = gathered.length + data.len();
        if length > bodies.max {
            return Err(NotReceived::TooLong);
        }
        let held = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) as u64;
        let needed = (length as u64).div_ceil(UNIT);
        if needed > held {
            // Bodies are shorter than 2^32 units.
            let missing = u32::try_from(needed - held).unwrap_or(u32::MAX);
            let more = bodies.in_flight.free.clone().try_acquire_many_owned(missing);
            let more = more.map_err(|_| NotReceived::NoRoom)?;
            match &mut room {
                Some(room) => room.merge(more),
                none => *none = Some(more),
            }
        }
        gathered.add(data);
    }
}
