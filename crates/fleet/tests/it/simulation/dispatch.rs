//! The routes of a service as function calls: a request goes in, a reply comes out, on the caller's thread.
//!
//! The listener's own routes are played by the tests over HTTP. Here a request costs no thread, so a hundred thousand histories can be
//! played.

use undertone_device::{Method, Reply, Request};
use undertone_protocol::{
    CHECKSUM_HEADER, CheckInReply, Code, Commit, Digest32, Offset, Problem, SIGNATURE_HEADER, check_in_reply,
    limits, read, read_checksum_header, write,
};
use undertone_service::server::Service;

type Answer = Result<Reply, Problem>;

fn ok(body: Vec<u8>) -> Reply {
    Reply {
        status: 200,
        offset: None,
        body,
    }
}

fn refused(problem: &Problem) -> Reply {
    Reply {
        // The device reads the code in the body, and the status alone of an answer to HEAD.
        status: if problem.code() == Code::NotFound {
            404
        } else {
            409
        },
        offset: None,
        body: write(problem),
    }
}

fn header<'r>(request: &'r Request, name: &str) -> &'r str {
    let found = request.headers.iter().find(|(known, _)| *known == name);
    found.map_or("", |(_, value)| value)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |place: usize| u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok();
    (0..text.len() / 2).map(byte).collect()
}

fn number(query: &str, key: &str) -> u64 {
    let mut parts = query.split('&').filter_map(|part| part.split_once('='));
    let found = parts.find(|(name, _)| *name == key);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Carries a request to the service.
pub(crate) fn carry(service: &Service, request: &Request) -> Reply {
    answer(service, request).unwrap_or_else(|problem| refused(&problem))
}

fn answer(service: &Service, request: &Request) -> Answer {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let signature = header(request, SIGNATURE_HEADER);
    match parts[..] {
        ["v1", "p", population, "board"] => service.board(population).map(ok),
        ["v1", "p", population, "enrol"] => service.enrol(population, &request.body).map(ok),
        ["v1", "p", population, "session-keys"] => service
            .certify(population, signature, path, &request.body)
            .map(ok),
        ["v1", "p", population, "check-in"] => {
            let assignment = service.check_in(population, signature, path, &request.body)?;
            Ok(ok(write(&CheckInReply {
                reply: Some(check_in_reply::Reply::Assignment(assignment)),
            })))
        }
        ["v1", "blobs", digest] => {
            let digest: Option<Digest32> = unhex(digest).and_then(|bytes| bytes.try_into().ok());
            service.blob(&digest.unwrap_or_default()).map(ok)
        }
        ["v1", "agg", "0", session, act] => of_session(service, request, session, act, query),
        _ => Err(Problem::new(Code::NotFound, "there is no such path")),
    }
}

fn of_session(service: &Service, request: &Request, session: &str, act: &str, query: &str) -> Answer {
    let gone = || Problem::new(Code::Gone, "the session is over");
    let malformed =
        |error: undertone_protocol::ProtocolError| Problem::new(Code::Malformed, error.to_string());
    let token = header(request, "authorization")
        .strip_prefix("Bearer ")
        .and_then(unhex);
    let (token, name) = token.zip(unhex(session)).ok_or_else(gone)?;
    let (room, claims) = service.session(&token, &name)?;
    let body = &request.body[..];
    match (request.method, act) {
        (_, "join") => room.join(&claims, body).map(|next| ok(write(&next))),
        (_, "next") => room
            .next(&claims, number(query, "after") as u8)
            .map(|next| ok(write(&next))),
        (_, "shares" | "consistency" | "unmask") => room.message(&claims, body).map(|next| ok(write(&next))),
        (Method::Head, "upload") => room.offset(&claims).map(|offset| Reply {
            offset: Some(offset),
            ..ok(Vec::new())
        }),
        (_, "upload") => {
            let checksum = read_checksum_header(header(request, CHECKSUM_HEADER))
                .ok_or_else(|| Problem::new(Code::Malformed, "a checksum of eight digits"))?;
            let offset = room.upload(&claims, number(query, "offset"), checksum, body)?;
            Ok(Reply {
                offset: Some(offset),
                ..ok(write(&Offset { offset }))
            })
        }
        (_, "commit") => {
            let commit: Commit = read("the commit", body, limits::MAX_MESSAGE).map_err(malformed)?;
            room.commit(&claims, &commit).map(|next| ok(write(&next)))
        }
        (_, "abort") => room.give_up(&claims).map(|()| ok(Vec::new())),
        _ => Err(Problem::new(Code::NotFound, "there is no such path")),
    }
}
