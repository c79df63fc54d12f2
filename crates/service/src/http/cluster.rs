//! The routes of a service of several processes: those of devices, and those of other processes.
//!
//! A front answers boards, blobs and enrolments itself. It checks the signature of a check-in, and hands it on to the leaders of the
//! tasks. A request of a session goes to the process that its path names.

mod shard;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, OriginalUri, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use tower::ServiceExt as _;
use undertone_protocol::{
    Assignment, CheckInReply, Code, Problem, SIGNATURE_HEADER, Versions, check_in_reply, limits, read, write,
};
use undertone_store::TaskId;

use self::shard::Place;
use super::bodies::{self, Bodies, Sender};
use super::connections::Connection;
use super::{Answer, Refused, blocking, private, protobuf, rates, routes, text_header, version};
use crate::cluster::{Cluster, Found, Silence};
use crate::identity::person::is_gone;
use crate::identity::unhex;
use crate::pace;
use crate::room::Reply;
use crate::server::{CheckedIn, Service};
use crate::trouble::Seldom;

/// The path at which a leader takes check-ins of fronts.
const CHECK_IN: &str = "/internal/v1/check-in";

/// Max bytes of a check-in between processes: hexadecimal digits for the fields of one of a device.
const MAX_CHECK_IN: usize = 2 * limits::MAX_MESSAGE;

#[derive(Clone)]
struct Front {
    service: Arc<Service>,
    cluster: Arc<Cluster>,
    /// The routes of the process itself.
    own: Router,
    bodies: Bodies,
}

/// The routes of devices, where `service` is one of several processes.
pub fn front_routes(service: Arc<Service>, cluster: Arc<Cluster>) -> Router {
    let own = routes(service.clone());
    let bodies = Bodies {
        in_flight: service.in_flight().clone(),
        max: limits::MAX_CHUNK,
        sender: Sender::Session,
    };
    let messages = Bodies {
        max: limits::MAX_MESSAGE,
        sender: Sender::Anybody,
        ..bodies.clone()
    };
    let limit = axum::middleware::from_fn_with_state((service.clone(), rates::Act::CheckIn), rates::of_act);
    let addresses = axum::middleware::from_fn_with_state(service.clone(), rates::per_address);
    let front = Front {
        service,
        cluster,
        own: own.clone(),
        bodies,
    };
    let check_in = post(check_in)
        .layer(DefaultBodyLimit::max(limits::MAX_MESSAGE))
        .layer(axum::middleware::from_fn_with_state(messages, bodies::receive))
        .layer(limit)
        .layer(axum::middleware::from_fn_with_state(Versions::CURRENT, version));
    Router::new()
        .route("/v1/p/{population}/check-in", check_in)
        .route("/v1/agg/{process}/{*rest}", any(session))
        .layer(addresses)
        .with_state(front)
        .fallback_service(own)
}

/// The routes of other processes. Each of them has shown a certificate of this service.
pub fn peer_routes(service: Arc<Service>, cluster: Arc<Cluster>) -> Router {
    let own = routes(service.clone());
    let bodies = Bodies {
        in_flight: service.in_flight().clone(),
        max: limits::MAX_CHUNK,
        sender: Sender::Session,
    };
    let front = Front {
        service,
        cluster,
        own,
        bodies,
    };
    Router::new()
        .route(
            CHECK_IN,
            post(check_in_of_a_front).layer(DefaultBodyLimit::max(MAX_CHECK_IN)),
        )
        .route("/internal/v1/tasks/{task}/stop", post(stop))
        .route(
            "/internal/v1/shards/open",
            post(shard::open).layer(DefaultBodyLimit::max(MAX_CHECK_IN)),
        )
        .route("/internal/v1/shards/{attempt}/seal", post(shard::seal))
        .route(
            "/internal/v1/sessions/{session}/{act}",
            post(shard::about_session),
        )
        .route("/v1/agg/{process}/{*rest}", any(session_of_a_front))
        .with_state(front)
}

fn gone() -> Problem {
    Problem::new(Code::Gone, "the session is over")
}

async fn check_in(
    State(front): State<Front>,
    Path(population): Path<String>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let signature = text_header(&headers, SIGNATURE_HEADER).to_owned();
    let service = front.service.clone();
    let checked = private(move || {
        let checked = service.checked_in(&population, &signature, uri.path(), &body);
        if let Err(problem) = &checked {
            service.metrics().check_in(None, Some(problem.code()));
        }
        checked
    });
    let checked = Arc::new(checked.await?);
    let answer = answer_of_all(&front, &checked).await;
    let (service, refusal) = (front.service.clone(), answer.as_ref().err().cloned());
    let ended = private(move || {
        service.answered(&checked, refusal.as_ref());
        Ok(())
    });
    ended.await?;
    Ok(protobuf(answer?))
}

/// The answer of the tasks of all processes to a check-in, as it travels.
async fn answer_of_all(front: &Front, checked: &Arc<CheckedIn>) -> Reply<Vec<u8>> {
    let (service, asked) = (front.service.clone(), checked.clone());
    let own = private(move || {
        let (mut task, mut is_here) = (None, false);
        let answer = service.offer(&asked, &mut task, &mut is_here);
        Ok((reply(&service, task, answer), is_here))
    });
    let (mut last, mut is_here) = match own.await? {
        (Ok(reply), _) => return Ok(reply),
        (Err(problem), _) if is_gone(&problem) => return Err(problem),
        (Err(problem), is_here) => (problem, is_here),
    };
    let rows = front.service.rows_elsewhere(checked.eligible());
    let some = !rows.is_empty();
    let (cluster, now) = (front.cluster.clone(), front.service.shared().store.now());
    // A leader that is not known yet is looked for in the store.
    let leaders = blocking(move || Ok(cluster.leaders(&rows, now))).await?;
    if leaders.is_empty() && some {
        // The task has no leader for the moment, and soon has one.
        last = Problem::new(Code::NoTask, "the task has no open attempt now").with_retry(pace::idle(10_000));
    }
    for leader in leaders {
        let asked = front
            .cluster
            .peers
            .post(&leader.url, CHECK_IN, checked.to_bytes(), limits::MAX_MESSAGE);
        match asked.await {
            Ok((StatusCode::OK, reply)) => return Ok(reply.to_vec()),
            Ok((_, refusal)) => match read::<Problem>("the refusal", &refusal, limits::MAX_MESSAGE) {
                Ok(problem) if is_gone(&problem) => return Err(problem),
                Ok(problem) => {
                    // The leader has asked the store about the device.
                    is_here = true;
                    last = problem;
                }
                Err(_) => last = busy(),
            },
            Err(silence) => {
                static SILENT: Seldom = Seldom::new();
                if let Some(left_out) = SILENT.speaks() {
                    tracing::warn!(process = %leader.name, ?silence, left_out, "a check-in could not be handed on");
                }
                last = busy();
            }
        }
    }
    if !is_here {
        let (service, asked) = (front.service.clone(), checked.clone());
        private(move || service.still_here(asked.population(), asked.member())).await?;
    }
    Err(last)
}

fn busy() -> Problem {
    later().with_retry(pace::idle(10_000))
}

/// The device asks again when it likes.
fn later() -> Problem {
    Problem::new(
        Code::Busy,
        "the service could not serve the request; try again later",
    )
}

/// The answer of the tasks that this process leads, as it travels. `asked` is the last task that was asked for a place.
fn reply(service: &Service, asked: Option<TaskId>, answer: Reply<Assignment>) -> Reply<Vec<u8>> {
    service
        .metrics()
        .check_in(asked, answer.as_ref().err().map(Problem::code));
    let assignment = answer?;
    Ok(write(&CheckInReply {
        reply: Some(check_in_reply::Reply::Assignment(assignment)),
    }))
}

async fn check_in_of_a_front(State(front): State<Front>, body: Bytes) -> Answer {
    let malformed = || Problem::new(Code::Malformed, "the check-in of a front cannot be read");
    let reply = private(move || {
        let checked = CheckedIn::from_bytes(&body).ok_or_else(malformed)?;
        let mut asked = None;
        let answer = front.service.answer(&checked, &mut asked);
        reply(&front.service, asked, answer)
    });
    Ok(protobuf(reply.await?))
}

/// A request of a session: to this process, or to the one that its path names.
async fn session(
    State(front): State<Front>,
    Path((process, rest)): Path<(String, String)>,
    request: Request,
) -> Response {
    if process == front.cluster.name() {
        return here(front, &process, rest, request).await;
    }
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let token = super::named(rest.split('/').next().unwrap_or_default(), request.headers());
    let opens = token.is_ok_and(|(token, session)| {
        let claims = front.service.open_token(&token);
        claims.is_some_and(|claims| claims.session[..] == session[..])
    });
    let (parts, body) = request.into_parts();
    if !opens {
        bodies::throw_away(body, limits::MAX_CHUNK).await;
        return Refused(gone()).into_response();
    }
    let connection = parts.extensions.get::<Arc<Connection>>().cloned();
    // The body is received as a whole first, so that a slow device holds no connection between processes.
    match bodies::read(&front.bodies, body, connection.as_deref()).await {
        Ok((bytes, _room)) => {
            let request = Request::from_parts(parts, Body::from(bytes));
            hand_on(&front, &process, &path, request).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// A request that a front, or the process of a shard, has handed on.
async fn session_of_a_front(
    State(front): State<Front>,
    Path((process, rest)): Path<(String, String)>,
    request: Request,
) -> Response {
    match process == front.cluster.name() {
        true => here(front, &process, rest, request).await,
        false => Refused(gone()).into_response(),
    }
}

/// Serves a request of a session that this process leads, by its own routes, or one whose upload goes to a shard of this process.
async fn here(front: Front, process: &str, rest: String, mut request: Request) -> Response {
    match shard::place_of(&front, &rest, request.headers()) {
        Some(Place::Here(shard, claims)) => return shard::serve(front, shard, claims, rest, request).await,
        Some(Place::Past(leader)) if leader != process => {
            return shard::to_leader(&front, &leader, &rest, request).await;
        }
        _ => {}
    }
    let own = request.uri().path_and_query().and_then(|path| {
        let rest = path.as_str().strip_prefix("/v1/agg/")?.strip_prefix(process)?;
        format!("/v1/agg/0{rest}").parse::<Uri>().ok()
    });
    let Some(own) = own else {
        return Refused(gone()).into_response();
    };
    *request.uri_mut() = own;
    // The path parameters of the outer route are not those of the inner one.
    let connection = request.extensions_mut().remove::<Arc<Connection>>();
    request.extensions_mut().clear();
    if let Some(connection) = connection {
        request.extensions_mut().insert(connection);
    }
    match front.own.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Hands a request on to another process.
///
/// A session is over only with its process. Where the process may have started since this one looked, the device asks again.
async fn hand_on(front: &Front, process: &str, path: &str, request: Request) -> Response {
    let (cluster, name) = (front.cluster.clone(), process.to_owned());
    let problem = match blocking(move || Ok(cluster.peer(&name))).await {
        Ok(Found::Peer(peer)) => match front.cluster.peers.send(&peer.url, path, request).await {
            Ok(response) => return response,
            Err(Silence::Gone) => {
                let cluster = front.cluster.clone();
                match blocking(move || Ok(cluster.successor(&peer))).await {
                    Ok(Found::Nobody) => gone(),
                    Ok(Found::Peer(_) | Found::Unsure) => later(),
                    Err(problem) => problem,
                }
            }
            Err(silence) => silence.into(),
        },
        Ok(Found::Nobody) => gone(),
        Ok(Found::Unsure) => later(),
        Err(problem) => problem,
    };
    Refused(problem).into_response()
}

async fn stop(State(front): State<Front>, Path(task): Path<String>) -> Response {
    let Some(id) = unhex(&task).and_then(|bytes| bytes.try_into().ok()).map(TaskId) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let service = front.service;
    let stopped = tokio::task::spawn_blocking(move || match service.room(id) {
        Some(_) => service.stop(id).map_err(|error| error.to_string()),
        None => Err("this process does not lead the task".to_owned()),
    });
    match stopped.await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(reason)) => (StatusCode::CONFLICT, reason).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
