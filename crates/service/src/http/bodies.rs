//! The bodies of requests: a limit for all that are on their way, and a min rate for each.
//!
//! A body is received here, as a whole, before its handler runs. Beyond the limits the client gets a refusal with the time after
//! which it may come again. A device then goes on with its upload where it stands.
//!
//! Bodies of sessions are received once the token in their head is checked. Check-ins and enrolments have a share of their own. A
//! session whose body needs room takes it from the body that comes most slowly, if that is slower than its own.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use undertone_protocol::{Code, Problem, RetryWindow};

use super::Refused;
use super::connections::Connection;

/// The part of them that is kept for check-ins and enrolments, one in this many.
const KEPT: u64 = 5;

/// The min rate of a body, in bytes per second: 128 kbit/s.
const MIN_RATE: u64 = 16_000;

/// The time after which a body must keep to the min rate.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The time in which the body of a check-in or an enrolment must be there, whose sender is not known before.
const GREETING: Duration = Duration::from_secs(10);

/// The time for which the body of a refused request is read and thrown away, so that the client reads the refusal.
const FAREWELL: Duration = Duration::from_secs(5);

/// A body makes room for others once it is this old.
const YOUNG: Duration = Duration::from_secs(2);

/// The time that a body has to make room.
const LEAVING: Duration = Duration::from_secs(1);

/// The unit in which memory for bodies is counted, in bytes.
const UNIT: u64 = 1024;

/// Bytes of a piece of a body. What comes in smaller parts is copied into pieces of this size: a part that is kept as it came keeps the
/// whole buffer of its connection, which is twice as large.
const PIECE: usize = 64 << 10;

/// The window of a client whose body finds no room.
const FULL: (u64, u64) = (5_000, 30_000);

/// The senders of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A session whose token was checked.
    Session,
    /// Anybody: a check-in or an enrolment.
    Anybody,
}

/// A body that is being received.
#[derive(Debug)]
struct Coming {
    begun: Instant,
    received: AtomicU64,
    /// Tells the receiver to give the memory back.
    leave: Notify,
}

impl Coming {
    /// Bytes per second so far.
    fn rate(&self) -> f64 {
        // The first piece of a body says little of its rate.
        let seconds = self.begun.elapsed().as_secs_f64().max(0.25);
        self.received.load(Ordering::Acquire) as f64 / seconds
    }
}

/// The memory for bodies on their way, which all requests share.
#[derive(Debug, Clone)]
pub struct InFlight {
    free: Arc<Semaphore>,
    /// The share of senders that nobody knows yet.
    kept: Arc<Semaphore>,
    units: (usize, usize),
    coming: Arc<Mutex<BTreeMap<u64, Arc<Coming>>>>,
    next: Arc<AtomicU64>,
    patience: Duration,
}

impl InFlight {
    /// Room for this many bytes, rounded down to KiB.
    #[must_use]
    pub(crate) fn new(bytes: u64) -> Self {
        let units = |bytes: u64| {
            usize::try_from(bytes / UNIT)
                .unwrap_or(usize::MAX)
                .min(Semaphore::MAX_PERMITS)
        };
        let kept = units(bytes / KEPT);
        let free = units(bytes) - kept;
        Self {
            free: Arc::new(Semaphore::new(free)),
            kept: Arc::new(Semaphore::new(kept)),
            units: (free, kept),
            coming: Arc::default(),
            next: Arc::default(),
            patience: PATIENCE,
        }
    }

    /// Bytes that are free for sessions.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u64 {
        self.free.available_permits() as u64 * UNIT
    }

    /// Bytes that are taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let free = self.free.available_permits() + self.kept.available_permits();
        (self.units.0 + self.units.1).saturating_sub(free) as u64 * UNIT
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Coming>>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the slowest body of a session to leave, if it is not half as fast as this one; `false` where there is none.
    fn make_room(&self, asking: &Coming) -> bool {
        let least = asking.rate() / 2.0;
        let coming = self.lock();
        let slowest = coming
            .values()
            .filter(|other| other.begun.elapsed() > YOUNG)
            .map(|other| (other.rate(), other))
            .min_by(|(one, _), (two, _)| one.total_cmp(two));
        match slowest {
            Some((rate, other)) if rate < least => {
                other.leave.notify_one();
                true
            }
            _ => false,
        }
    }

    /// Memory for more of a body.
    async fn take(&self, sender: Sender, units: u32, asking: &Coming) -> Option<OwnedSemaphorePermit> {
        let share = match sender {
            Sender::Session => &self.free,
            Sender::Anybody => &self.kept,
        };
        if let Ok(room) = share.clone().try_acquire_many_owned(units) {
            return Some(room);
        }
        if sender == Sender::Anybody || !self.make_room(asking) {
            return None;
        }
        let room = share.clone().acquire_many_owned(units);
        tokio::time::timeout(LEAVING, room).await.ok()?.ok()
    }

    /// This limit with less patience, for tests.
    #[cfg(test)]
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The time from the begin of a body until it is too slow, if no more than `received` bytes of it have come.
    pub(super) fn allowed(&self, received: u64) -> Duration {
        allowed(self.patience, received)
    }
}

/// The time in which this many bytes must have moved, after a time of patience.
pub(super) fn allowed(patience: Duration, bytes: u64) -> Duration {
    patience.max(Duration::from_micros(bytes.saturating_mul(1_000_000) / MIN_RATE))
}

/// The place of a body among those that are being received, until this is dropped.
struct Listed<'f> {
    of: &'f InFlight,
    number: u64,
    coming: Arc<Coming>,
}

impl<'f> Listed<'f> {
    fn new(of: &'f InFlight, sender: Sender) -> Self {
        let number = of.next.fetch_add(1, Ordering::Relaxed);
        let coming = Arc::new(Coming {
            begun: Instant::now(),
            received: AtomicU64::new(0),
            leave: Notify::new(),
        });
        if sender == Sender::Session {
            of.lock().insert(number, coming.clone());
        }
        Self { of, number, coming }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.of.lock().remove(&self.number);
    }
}

/// The limits of the bodies of some routes.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    pub(super) in_flight: InFlight,
    /// Max number of bytes of one body.
    pub(super) max: usize,
    pub(super) sender: Sender,
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
    /// The last piece, while it grows.
    last: Vec<u8>,
    length: usize,
}

impl Gathered {
    fn add(&mut self, data: Bytes) {
        self.length += data.len();
        if data.len() >= PIECE {
            self.settle();
            self.pieces.push(data);
            return;
        }
        let mut rest = &data[..];
        while !rest.is_empty() {
            if self.last.capacity() == 0 {
                self.last.reserve_exact(PIECE);
            }
            let (now, later) = rest.split_at(rest.len().min(PIECE - self.last.len()));
            self.last.extend_from_slice(now);
            if self.last.len() == PIECE {
                self.settle();
            }
            rest = later;
        }
    }

    fn settle(&mut self) {
        if !self.last.is_empty() {
            self.last.shrink_to_fit();
            self.pieces.push(take(&mut self.last).into());
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
    let connection = parts.extensions.get::<Arc<Connection>>().cloned();
    match gather(&bodies, body, connection.as_deref()).await {
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
    let connection = parts.extensions.get::<Arc<Connection>>().cloned();
    // A stranger who sends slowly holds no place of a connection.
    let unknown = match bodies.sender {
        Sender::Session => None,
        Sender::Anybody => connection.as_ref().map(Connection::unknown),
    };
    let received = read(&bodies, body, connection.as_deref()).await;
    drop(unknown);
    match received {
        Ok((bytes, _room)) => then.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(refused) => refused.into_response(),
    }
}

/// Reads a body to its end, into one piece.
pub(super) async fn read(
    bodies: &Bodies,
    body: Body,
    connection: Option<&Connection>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), NotReceived> {
    let (mut pieces, room) = gather(bodies, body, connection).await?;
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
    connection: Option<&Connection>,
) -> Result<(Vec<Bytes>, Option<OwnedSemaphorePermit>), NotReceived> {
    let listed = Listed::new(&bodies.in_flight, bodies.sender);
    let coming = &listed.coming;
    let mut gathered = Gathered::default();
    let mut room: Option<OwnedSemaphorePermit> = None;
    if body.size_hint().lower() > bodies.max as u64 {
        return Err(NotReceived::TooLong);
    }
    loop {
        let allowed = match bodies.sender {
            Sender::Session => bodies.in_flight.allowed(gathered.length as u64),
            Sender::Anybody => GREETING.min(bodies.in_flight.patience),
        };
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = tokio::select! {
            frame = tokio::time::timeout_at(coming.begun + allowed, frame) => frame,
            () = coming.leave.notified() => return Err(NotReceived::NoRoom),
        };
        if let Some(connection) = connection {
            connection.moved();
        }
        let frame = match frame {
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
            coming.received.store(length as u64, Ordering::Release);
            let more = bodies.in_flight.take(bodies.sender, missing, coming);
            let more = more.await.ok_or(NotReceived::NoRoom)?;
            match &mut room {
                Some(room) => room.merge(more),
                none => *none = Some(more),
            }
        }
        gathered.add(data);
    }
}

/// Reads what comes of a body for a short while and throws it away. A connection that is closed with bytes unread would lose the
/// refusal on its way.
pub(super) async fn throw_away(mut body: Body, max: usize) {
    let reading = async {
        let mut length = 0;
        while length <= max {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) => length += frame.into_data().map_or(0, |data| data.len()),
                None | Some(Err(_)) => return,
            }
        }
    };
    let _ = tokio::time::timeout(FAREWELL, reading).await;
}
