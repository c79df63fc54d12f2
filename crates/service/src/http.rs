//! The listener of devices, over HTTP/1.1 and HTTP/2, with or without TLS.

mod bodies;
mod cluster;
mod connections;
mod downloads;
mod idle;
mod listener;
mod rates;
pub mod scrub;
mod times;
pub mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, OriginalUri, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use undertone_protocol::{
    Abort, CHECKSUM_HEADER, CheckInReply, Code, Commit, Digest32, Next, OFFSET_HEADER, Offset,
    PROTOCOL_HEADER, Problem, SIGNATURE_HEADER, Versions, check_in_reply, limits, next, read,
    read_checksum_header, write,
};
use undertone_store::BlobReader;

use crate::identity::unhex;
use crate::room::{Claims, Reply, Room};
use crate::server::Service;
pub use bodies::InFlight;
use bodies::{Bodies, Pieces, Sender};
pub use cluster::{front_routes, peer_routes};
use connections::Connection;
pub use connections::Connections;
use downloads::Download;
pub use downloads::Downloads;
pub use listener::Listener;
pub(crate) use rates::Rates;
use scrub::scrubbed;

/// The longest wait of a poll.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// Seconds after which a client asks a busy service again, where the refusal has no window.
const BUSY: u64 = 5;

type Shared = State<Arc<Service>>;

/// The routes of devices.
pub fn routes(service: Arc<Service>) -> Router {
    routes_of(service, Versions::CURRENT)
}

/// The routes of devices that speak one of these versions of the protocol.
pub fn routes_of(service: Arc<Service>, versions: Versions) -> Router {
    let in_flight = service.in_flight().clone();
    routes_within(service, versions, &in_flight)
}

/// The routes of devices, under this limit for bodies on their way.
fn routes_within(service: Arc<Service>, versions: Versions, in_flight: &InFlight) -> Router {
    let limited = |max: usize, sender: Sender| Bodies {
        in_flight: in_flight.clone(),
        max,
        sender,
    };
    let received =
        |max: usize, sender| axum::middleware::from_fn_with_state(limited(max, sender), bodies::receive);
    let chunks = limited(limits::MAX_CHUNK, Sender::Session);
    let chunks = axum::middleware::from_fn_with_state(chunks, bodies::receive_pieces);
    let limit = |act| axum::middleware::from_fn_with_state((service.clone(), act), rates::of_act);
    let session = Router::new()
        .route("/join", post(join))
        .route("/next", get(next_step))
        .route("/shares", post(message))
        .route("/consistency", post(message))
        .route("/unmask", post(message))
        .route("/commit", post(commit))
        .route("/abort", post(abort))
        .layer(DefaultBodyLimit::max(limits::MAX_SECAGG))
        .layer(received(limits::MAX_SECAGG, Sender::Session))
        .route("/upload", put(upload).head(offset).layer(chunks))
        .layer(axum::middleware::from_fn_with_state(service.clone(), known));
    let population = Router::new()
        .route("/board", get(board))
        .route("/enrol", post(enrol).layer(limit(rates::Act::Enrol)))
        .route(
            "/session-keys",
            post(session_keys).layer(limit(rates::Act::Enrol)),
        )
        .route("/check-in", post(check_in).layer(limit(rates::Act::CheckIn)))
        .layer(DefaultBodyLimit::max(limits::MAX_MESSAGE))
        .layer(received(limits::MAX_MESSAGE, Sender::Anybody));
    Router::new()
        .nest("/v1/p/{population}", population)
        .nest("/v1/agg/0/{session}", session)
        .route("/v1/blobs/{digest}", get(blob))
        .layer(axum::middleware::from_fn_with_state(versions, version))
        .layer(axum::middleware::from_fn_with_state(
            service.clone(),
            rates::per_address,
        ))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(service)
}

/// Refuses a request of another version of the protocol.
async fn version(
    State(versions): State<Versions>,
    request: axum::extract::Request,
    then: axum::middleware::Next,
) -> Response {
    let got = text_header(request.headers(), PROTOCOL_HEADER.0);
    if !versions.speak(got) {
        let got: String = got.chars().take(20).collect();
        let message = format!("this service speaks {versions} of the protocol, and the request has {got:?}");
        return Refused(Problem::new(Code::Upgrade, message)).into_response();
    }
    then.run(request).await
}

/// A refusal as a response.
struct Refused(Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.code() {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Malformed | Code::Range | Code::Norm => StatusCode::BAD_REQUEST,
            Code::BadCertificate | Code::BadSignature => StatusCode::UNAUTHORIZED,
            Code::Revoked | Code::Attestation | Code::NotEligible => StatusCode::FORBIDDEN,
            Code::Gone => StatusCode::GONE,
            Code::Upgrade => StatusCode::UPGRADE_REQUIRED,
            Code::TooSoon | Code::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Code::Busy | Code::NoTask | Code::Full => StatusCode::SERVICE_UNAVAILABLE,
            Code::Conflict | Code::OutOfTurn | Code::Late | Code::StaleModel => StatusCode::CONFLICT,
            Code::Unspecified => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, protobuf(write(&self.0))).into_response();
        let wait = match self.0.retry {
            Some(window) => Some(window.min_ms.div_ceil(1000)),
            None => (self.0.code() == Code::Busy).then_some(BUSY),
        };
        if let Some(wait) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, wait.into());
        }
        response
    }
}

type Answer = std::result::Result<Response, Refused>;

fn protobuf(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let kind = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Reply<T> + Send + 'static) -> Reply<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Problem::new(
            Code::Busy,
            "the service could not serve the request",
        ))
    })
}

/// Runs work that handles a subject, and leaves no trace of it on the stack.
async fn private<T: Send + 'static>(work: impl FnOnce() -> Reply<T> + Send + 'static) -> Reply<T> {
    blocking(|| scrubbed(work)).await
}

fn text_header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

async fn board(State(service): Shared, Path(population): Path<String>, headers: HeaderMap) -> Answer {
    let board = match service.fresh_board(&population) {
        Some(board) => board,
        None => blocking(move || service.posted_board(&population)).await?,
    };
    let seen = board.tag.is_some() && headers.get(header::IF_NONE_MATCH) == board.tag.as_ref();
    let mut response = match seen {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => protobuf(board.body.clone()),
    };
    let about = response.headers_mut();
    about.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=30"));
    about.extend(board.tag.clone().map(|tag| (header::ETAG, tag)));
    Ok(response)
}

async fn enrol(State(service): Shared, Path(population): Path<String>, body: Bytes) -> Answer {
    Ok(protobuf(
        private(move || service.enrol(&population, &body)).await?,
    ))
}

async fn session_keys(
    State(service): Shared,
    Path(population): Path<String>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let signature = text_header(&headers, SIGNATURE_HEADER).to_owned();
    let work = move || service.certify(&population, &signature, uri.path(), &body);
    Ok(protobuf(private(work).await?))
}

async fn check_in(
    State(service): Shared,
    Path(population): Path<String>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let signature = text_header(&headers, SIGNATURE_HEADER).to_owned();
    let work = move || service.check_in(&population, &signature, uri.path(), &body);
    let assignment = private(work).await?;
    let reply = CheckInReply {
        reply: Some(check_in_reply::Reply::Assignment(assignment)),
    };
    Ok(protobuf(write(&reply)))
}

async fn blob(
    State(service): Shared,
    Path(digest): Path<String>,
    connection: Option<Extension<Arc<Connection>>>,
    headers: HeaderMap,
) -> Answer {
    let digest: Digest32 = unhex(&digest)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(downloads::missing)?;
    let place = service.downloads().place()?;
    let asked = service.clone();
    blocking(move || asked.may_read(&digest)).await?;
    let blobs = service.shared().blobs.clone();
    let length = service.downloads().length(&blobs, digest).await?;
    let body = async |from: u64| {
        let reader = blocking(move || blobs.get(&digest, from).map_err(|_| downloads::missing())).await;
        let same = |reader: &BlobReader| reader.length == length;
        let Some(reader) = reader.ok().filter(same) else {
            service.downloads().forget(&digest);
            return Err(Refused(downloads::missing()));
        };
        let connection = connection.map(|Extension(connection)| connection.download());
        Ok(Download::body(reader, length - from, connection, place))
    };
    let fixed = [
        (header::CACHE_CONTROL, "max-age=31536000, immutable"),
        (header::ACCEPT_RANGES, "bytes"),
    ];
    let range = text_header(&headers, header::RANGE.as_str());
    match range
        .strip_prefix("bytes=")
        .and_then(|range| range.strip_suffix('-'))
        .map(str::parse::<u64>)
    {
        Some(Ok(from)) if from < length => {
            let content = format!("bytes {from}-{}/{length}", length - 1);
            let part = body(from).await?;
            Ok((
                StatusCode::PARTIAL_CONTENT,
                fixed,
                [
                    (header::CONTENT_RANGE, content),
                    (header::CONTENT_LENGTH, (length - from).to_string()),
                ],
                part,
            )
                .into_response())
        }
        Some(Ok(_)) => {
            let content = format!("bytes */{length}");
            Ok((
                StatusCode::RANGE_NOT_SATISFIABLE,
                [(header::CONTENT_RANGE, content)],
            )
                .into_response())
        }
        _ => {
            let whole = body(0).await?;
            Ok((fixed, [(header::CONTENT_LENGTH, length.to_string())], whole).into_response())
        }
    }
}

/// The bearer token of a request, and the name of the session in its path.
fn named(session: &str, headers: &HeaderMap) -> Reply<(Vec<u8>, Vec<u8>)> {
    let token = text_header(headers, header::AUTHORIZATION.as_str())
        .strip_prefix("Bearer ")
        .and_then(unhex);
    let named = token.zip(unhex(session));
    named.ok_or_else(|| Problem::new(Code::Gone, "the session is over"))
}

/// The session of a request, by its bearer token and its path.
async fn session(service: Arc<Service>, session: &str, headers: &HeaderMap) -> Reply<(Arc<Room>, Claims)> {
    let (token, name) = named(session, headers)?;
    blocking(move || service.session(&token, &name)).await
}

/// Refuses a body of a session that nobody has before it is received.
async fn known(
    State(service): Shared,
    Path(name): Path<String>,
    request: axum::extract::Request,
    then: axum::middleware::Next,
) -> Response {
    // What has no body is checked by its handler.
    if axum::body::HttpBody::is_end_stream(request.body()) {
        return then.run(request).await;
    }
    match session(service, &name, request.headers()).await {
        Ok(_) => then.run(request).await,
        Err(problem) => {
            bodies::throw_away(request.into_body(), limits::MAX_SECAGG).await;
            Refused(problem).into_response()
        }
    }
}

async fn join(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, body: Bytes) -> Answer {
    let (room, claims) = session(service, &name, &headers).await?;
    Ok(protobuf(write(
        &blocking(move || room.join(&claims, &body)).await?,
    )))
}

/// The query of a poll.
#[derive(Debug, serde::Deserialize)]
struct Poll {
    #[serde(default)]
    after: u8,
    #[serde(default)]
    wait: u64,
}

async fn next_step(
    State(service): Shared,
    Path(name): Path<String>,
    Query(poll): Query<Poll>,
    headers: HeaderMap,
) -> Answer {
    let (room, claims) = session(service, &name, &headers).await?;
    let mut changes = room.changes();
    let until = tokio::time::Instant::now() + MAX_WAIT.min(Duration::from_secs(poll.wait));
    loop {
        changes.mark_unchanged();
        let (asked, of) = (room.clone(), claims.clone());
        let step: Next = blocking(move || asked.next(&of, poll.after)).await?;
        let waits = matches!(step.step, Some(next::Step::Wait(_)));
        if !waits || tokio::time::timeout_at(until, changes.changed()).await.is_err() {
            let status = if waits {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            return Ok((status, protobuf(write(&step))).into_response());
        }
    }
}

async fn message(
    State(service): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (room, claims) = session(service, &name, &headers).await?;
    Ok(protobuf(write(
        &blocking(move || room.message(&claims, &body)).await?,
    )))
}

/// The query of a chunk.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
}

async fn upload(
    State(service): Shared,
    Path(name): Path<String>,
    Query(chunk): Query<Chunk>,
    headers: HeaderMap,
    Extension(chunk_bytes): Extension<Pieces>,
) -> Answer {
    let (token, name) = named(&name, &headers)?;
    let checksum = read_checksum_header(text_header(&headers, CHECKSUM_HEADER));
    let malformed = || {
        Problem::new(
            Code::Malformed,
            format!("{CHECKSUM_HEADER} must have eight hexadecimal digits"),
        )
    };
    let checksum = checksum.ok_or_else(malformed)?;
    let work = move || {
        let (room, claims) = service.session(&token, &name)?;
        room.upload_parts(&claims, chunk.offset, checksum, &chunk_bytes)
    };
    let offset = blocking(work).await?;
    Ok((
        [(OFFSET_HEADER, offset.to_string())],
        protobuf(write(&Offset { offset })),
    )
        .into_response())
}

async fn offset(State(service): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let (room, claims) = session(service, &name, &headers).await?;
    let offset = blocking(move || room.offset(&claims)).await?;
    Ok([(OFFSET_HEADER, offset.to_string())].into_response())
}

async fn commit(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, body: Bytes) -> Answer {
    let (room, claims) = session(service.clone(), &name, &headers).await?;
    let malformed =
        |error: undertone_protocol::ProtocolError| Problem::new(Code::Malformed, error.to_string());
    let commit: Commit = read("the commit", &body, limits::MAX_MESSAGE).map_err(malformed)?;
    // An update is checked and added by one thread, so more of them than cores would only wait for each other.
    let _worker = service.workers().acquire().await;
    Ok(protobuf(write(
        &blocking(move || room.commit(&claims, &commit)).await?,
    )))
}

async fn abort(State(service): Shared, Path(name): Path<String>, headers: HeaderMap, body: Bytes) -> Answer {
    let (room, claims) = session(service, &name, &headers).await?;
    let malformed =
        |error: undertone_protocol::ProtocolError| Problem::new(Code::Malformed, error.to_string());
    let _: Abort = read("the abort", &body, limits::MAX_MESSAGE).map_err(malformed)?;
    blocking(move || room.give_up(&claims)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests;
