//! The requests around shards: of devices to the process of a shard, and between it and the leader.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use undertone_protocol::{
    CHECKSUM_HEADER, Code, Commit, Next, OFFSET_HEADER, Offset, Problem, SessionClaims, crc32c, limits, next,
    read, read_checksum_header, write,
};
use undertone_store::SessionId;

use super::super::{Answer, Refused, blocking, protobuf, text_header};
use super::{Front, gone, hand_on, later};
use crate::attempt::refusal::Refusal;
use crate::cluster::shard::{Opening, Shard};
use crate::http::bodies;
use crate::http::connections::Connection;
use crate::identity::unhex;
use crate::room::Reply;
use crate::upload::Trouble;

impl From<Trouble> for Problem {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused(problem) => problem,
            Trouble::Damaged => gone(),
        }
    }
}

/// The place of the upload of a session.
pub(super) enum Place {
    /// A shard of this process.
    Here(Arc<Shard>, SessionClaims),
    /// A shard of this process that has ended. The leader knows the verdict.
    Past(String),
}

/// The place of a request of a session; `None` for a session that this process leads.
pub(super) fn place_of(front: &Front, rest: &str, headers: &HeaderMap) -> Option<Place> {
    let token = text_header(headers, header::AUTHORIZATION.as_str())
        .strip_prefix("Bearer ")
        .and_then(unhex)?;
    let shards = front.service.shards();
    let claims = front.service.open_token(&token)?;
    let session = unhex(rest.split('/').next()?)?;
    if claims.session[..] != session[..] {
        return None;
    }
    match shards.of(claims.attempt) {
        Some(shard) => Some(Place::Here(shard, claims)),
        None => shards.leader_of_past(claims.attempt).map(Place::Past),
    }
}

/// Serves a request of a session whose upload goes to a shard of this process. Everything else about the session is the leader's.
pub(super) async fn serve(
    front: Front,
    shard: Arc<Shard>,
    claims: SessionClaims,
    rest: String,
    request: Request,
) -> Response {
    let session = SessionId(claims.session);
    let act = rest.split('/').nth(1).unwrap_or_default().to_owned();
    let (parts, body) = request.into_parts();
    let connection = parts.extensions.get::<Arc<Connection>>().cloned();
    let received = bodies::read(&front.bodies, body, connection.as_deref()).await;
    let (bytes, _room) = match received {
        Ok(received) => received,
        Err(refused) => return refused.into_response(),
    };
    let answer = match (parts.method.clone(), act.as_str()) {
        (Method::PUT, "upload") => upload(shard, session, &parts, bytes).await,
        (Method::HEAD, "upload") => offset(shard, session).await,
        (Method::POST, "commit") => commit(&front, shard, claims, &parts.headers, bytes).await,
        _ => {
            let request = Request::from_parts(parts, Body::from(bytes));
            let response = to_leader(&front, &shard.leader, &rest, request).await;
            if response.status().is_success() {
                match act.as_str() {
                    "join" => shard.joined(session, front.service.spool()),
                    "abort" => shard.left(session),
                    _ => {}
                }
            }
            Ok(response)
        }
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Hands a request of a session on to its leader.
pub(super) async fn to_leader(front: &Front, leader: &str, rest: &str, request: Request) -> Response {
    let query = request
        .uri()
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    hand_on(front, leader, &format!("/v1/agg/{leader}/{rest}{query}"), request).await
}

async fn upload(
    shard: Arc<Shard>,
    session: SessionId,
    parts: &axum::http::request::Parts,
    chunk: Bytes,
) -> Answer {
    let malformed = |why: &str| Problem::new(Code::Malformed, why);
    let checksum = read_checksum_header(text_header(&parts.headers, CHECKSUM_HEADER))
        .ok_or_else(|| malformed("the checksum of the chunk must have eight hexadecimal digits"))?;
    let query: Query<super::super::Chunk> =
        Query::try_from_uri(&parts.uri).map_err(|_| malformed("the offset of the chunk is missing"))?;
    if chunk.len() > limits::MAX_CHUNK {
        let expected = format!("at most {}", limits::MAX_CHUNK);
        return Err(Refusal::range("the length of a chunk", expected, chunk.len())
            .problem()
            .into());
    }
    let taken = blocking(move || {
        if crc32c(0, &chunk) != checksum {
            return Err(Refusal::Malformed("the checksum of the chunk does not fit".to_owned()).problem());
        }
        Ok(shard.take(session, query.offset, checksum, &chunk)?)
    });
    let offset = taken.await?;
    Ok((
        [(OFFSET_HEADER, offset.to_string())],
        protobuf(write(&Offset { offset })),
    )
        .into_response())
}

async fn offset(shard: Arc<Shard>, session: SessionId) -> Answer {
    let offset = blocking(move || Ok(shard.offset(session)?)).await?;
    Ok([(OFFSET_HEADER, offset.to_string())].into_response())
}

/// Adds an update: the leader grants its place, the shard adds it, and the leader counts it. Each step may be repeated.
async fn commit(
    front: &Front,
    shard: Arc<Shard>,
    claims: SessionClaims,
    headers: &HeaderMap,
    body: Bytes,
) -> Answer {
    let commit: Commit = read("the commit", &body, limits::MAX_MESSAGE)
        .map_err(|error| Problem::new(Code::Malformed, error.to_string()))?;
    let session = SessionId(claims.session);
    let (of, asked) = (shard.clone(), commit);
    let added = blocking(move || Ok(of.is_added(session, &asked)?)).await?;
    if !added {
        let granted = ask(front, &shard.leader, session, "grant", headers).await?;
        if granted.step.is_some() {
            shard.left(session);
            return Ok(protobuf(write(&granted)));
        }
        let of = shard.clone();
        let _worker = front.service.workers().acquire().await;
        let started = std::time::Instant::now();
        let done = blocking(move || Ok(of.add(&claims, &commit)?)).await;
        if let Err(problem) = done {
            if matches!(problem.code(), Code::Norm | Code::Gone) {
                // The leader frees the place of the session; where it does not learn it, the session expires.
                let _ = ask(front, &shard.leader, session, "refused", headers).await;
                shard.left(session);
            }
            return Err(Refused(problem));
        }
        front
            .service
            .metrics()
            .added(shard.upload_bytes(), started.elapsed());
    }
    #[cfg(feature = "failpoints")]
    blocking(|| {
        crate::failpoint!("shard.added");
        Ok(())
    })
    .await?;
    let counted = ask(front, &shard.leader, session, "reported", headers).await?;
    let answer = match counted.step {
        Some(step) => step,
        None => next::Step::Wait(undertone_protocol::Wait {}),
    };
    Ok(protobuf(write(&Next {
        step: Some(answer),
        retry: counted.retry,
    })))
}

/// Asks the leader about a session, with the token of its device.
async fn ask(front: &Front, leader: &str, session: SessionId, act: &str, headers: &HeaderMap) -> Reply {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::POST;
    if let Some(token) = headers.get(header::AUTHORIZATION) {
        request.headers_mut().insert(header::AUTHORIZATION, token.clone());
    }
    let (name, process) = (crate::identity::hex(&session.0), front.cluster.name());
    let path = format!("/internal/v1/sessions/{name}/{act}?process={process}");
    let response = hand_on(front, leader, &path, request).await;
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), limits::MAX_MESSAGE)
        .await
        .map_err(|_| later())?;
    match status.is_success() {
        true => read("the answer of the leader", &body, limits::MAX_MESSAGE).map_err(|_| later()),
        false => {
            Err(read("the refusal of the leader", &body, limits::MAX_MESSAGE).unwrap_or_else(|_| later()))
        }
    }
}

/// The query about a session: the process of its shard.
#[derive(Debug, serde::Deserialize)]
pub(super) struct At {
    process: String,
}

/// Answers the process of a shard about a session, at the leader.
pub(super) async fn about_session(
    State(front): State<Front>,
    Path((name, act)): Path<(String, String)>,
    Query(at): Query<At>,
    headers: HeaderMap,
) -> Answer {
    let (room, claims) = super::super::session(front.service.clone(), &name, &headers).await?;
    let step = blocking(move || match act.as_str() {
        "grant" => room.grant(&claims, &at.process),
        "reported" => room.reported_at_shard(&claims, &at.process),
        "refused" => room.give_up(&claims).map(|()| Next {
            step: None,
            retry: None,
        }),
        _ => Err(gone()),
    });
    Ok(protobuf(write(&step.await?)))
}

/// Opens a shard for a leader.
pub(super) async fn open(State(front): State<Front>, body: Bytes) -> Answer {
    let service = front.service;
    let opened = blocking(move || {
        let opening: Opening = serde_json::from_slice(&body).map_err(|_| gone())?;
        if !service.takes_work() {
            return Err(Refusal::Gone.problem());
        }
        let task = opening.task().ok_or_else(gone)?;
        let layout = service.layout_of(task).map_err(Problem::from)?;
        let opened = service.shards().open(&opening, layout);
        opened.map_err(|refusal| refusal.problem())
    });
    opened.await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The query of a seal.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Seal {
    fence: u64,
}

/// Seals a shard, once.
pub(super) async fn seal(
    State(front): State<Front>,
    Path(attempt): Path<u64>,
    Query(seal): Query<Seal>,
) -> Answer {
    let service = front.service;
    let sealed = blocking(move || {
        let store = service.shared().store.as_ref();
        let sealed = service.shards().seal(attempt, seal.fence, store);
        sealed.map_err(|refusal| refusal.problem())
    });
    // PRIVACY: the bytes are wiped once they were sent.
    let sealed = sealed.await?;
    Ok(Body::from(Bytes::from_owner(sealed)).into_response())
}
