//! The steps of a session, as they show in requests.

use undertone_device::{Method, Request};

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Board,
    SessionKeys,
    CheckIn,
    Blob,
    Join,
    Poll,
    Answer,
    Upload,
    Probe,
    Commit,
    Unmask,
    Abort,
}

impl Step {
    /// The step that a request belongs to.
    pub(crate) fn of(request: &Request) -> Self {
        let path = request.target.split('?').next().unwrap_or_default();
        let (rest, last) = path.rsplit_once('/').unwrap_or(("", path));
        match (request.method, last) {
            _ if request.blob.is_some() || rest.ends_with("/blobs") => Self::Blob,
            (_, "board") => Self::Board,
            (_, "session-keys") => Self::SessionKeys,
            (_, "check-in") => Self::CheckIn,
            (_, "join") => Self::Join,
            (_, "next") => Self::Poll,
            (Method::Head, "upload") => Self::Probe,
            (_, "upload") => Self::Upload,
            (_, "commit") => Self::Commit,
            (_, "unmask") => Self::Unmask,
            (_, "abort") => Self::Abort,
            _ => Self::Answer,
        }
    }
}

/// Asks for an answer at once: a long poll would keep a thread of the fleet waiting.
pub(crate) fn without_wait(request: &mut Request) {
    if let Some((head, _)) = request.target.rsplit_once("&wait=") {
        request.target = format!("{head}&wait=0");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn request(method: Method, target: &str) -> Request {
        Request {
            method,
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new().into(),
            max_reply: 1000,
            timeout_ms: 1000,
            blob: None,
        }
    }

    #[test]
    fn every_request_of_a_session_belongs_to_one_step() {
        for (method, target, step) in [
            (Method::Get, "/v1/p/words/board", Step::Board),
            (Method::Post, "/v1/p/words/session-keys", Step::SessionKeys),
            (Method::Post, "/v1/p/words/check-in", Step::CheckIn),
            (Method::Get, "/v1/blobs/00ff", Step::Blob),
            (Method::Post, "/v1/agg/0/ab/join", Step::Join),
            (Method::Get, "/v1/agg/0/ab/next?after=0&wait=25", Step::Poll),
            (Method::Post, "/v1/agg/0/ab/shares", Step::Answer),
            (Method::Post, "/v1/agg/0/ab/consistency", Step::Answer),
            (Method::Put, "/v1/agg/0/ab/upload?offset=7", Step::Upload),
            (Method::Head, "/v1/agg/0/ab/upload", Step::Probe),
            (Method::Post, "/v1/agg/0/ab/commit", Step::Commit),
            (Method::Post, "/v1/agg/0/ab/unmask", Step::Unmask),
            (Method::Post, "/v1/agg/0/ab/abort", Step::Abort),
        ] {
            assert_eq!(Step::of(&request(method, target)), step, "{target}");
        }
    }

    #[test]
    fn polls_ask_for_an_answer_at_once() {
        let mut poll = request(Method::Get, "/v1/agg/0/ab/next?after=3&wait=25");
        without_wait(&mut poll);
        assert_eq!(poll.target, "/v1/agg/0/ab/next?after=3&wait=0");
        let mut join = request(Method::Post, "/v1/agg/0/ab/join");
        without_wait(&mut join);
        assert_eq!(join.target, "/v1/agg/0/ab/join");
    }
}
