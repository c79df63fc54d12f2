//! The way in: links that work once, sessions, and the requests that are let in.
//!
//! A session is a random token that the page keeps for its tab and sends as a bearer token. There is no cookie, so no other page
//! can make a browser act for its user. Requests of other origins and under foreign names of this host are refused all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use undertone_protocol::{Digest32, digest_of};
use undertone_service::Result;
use undertone_service::keys::random;
use zeroize::Zeroizing;

use super::Dashboard;
use crate::admin::listener::{TOKEN_FILE, refused};

/// The time in which a link can be used.
const LINK: Duration = Duration::from_secs(600);

/// A session ends this long after its last request.
const IDLE: Duration = Duration::from_secs(12 * 3600);

/// Max number of links and of sessions. The oldest makes room for a new one.
const MAX: usize = 64;

/// The links and the sessions of a dashboard, by the digests of their secrets.
#[derive(Default)]
pub(crate) struct Doors {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    links: Vec<(Digest32, Instant)>,
    sessions: Vec<(Digest32, Instant)>,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doors").finish_non_exhaustive()
    }
}

impl Doors {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The code of a new link. It opens one session, within ten minutes.
    ///
    /// # Errors
    /// No entropy.
    pub(crate) fn link(&self) -> Result<Zeroizing<String>> {
        let code = secret()?;
        add(&mut self.lock().links, digest_of(code.as_bytes()), LINK);
        Ok(code)
    }

    /// Uses a link up. `false` where there is none with this code.
    pub(super) fn unlock(&self, code: &str) -> bool {
        let digest = digest_of(code.as_bytes());
        let mut inner = self.lock();
        inner.links.retain(|(_, made)| made.elapsed() < LINK);
        let before = inner.links.len();
        inner.links.retain(|(found, _)| *found != digest);
        inner.links.len() < before
    }

    /// Opens a session, and gives its token.
    pub(super) fn open(&self) -> Result<Zeroizing<String>> {
        let token = secret()?;
        add(&mut self.lock().sessions, digest_of(token.as_bytes()), IDLE);
        Ok(token)
    }

    /// `true` if this is the token of a session, which goes on.
    fn knows(&self, token: &str) -> bool {
        let digest = digest_of(token.as_bytes());
        let mut inner = self.lock();
        inner.sessions.retain(|(_, used)| used.elapsed() < IDLE);
        let found = inner.sessions.iter_mut().find(|(found, _)| *found == digest);
        found.is_some_and(|(_, used)| {
            *used = Instant::now();
            true
        })
    }

    fn close(&self, token: &str) {
        let digest = digest_of(token.as_bytes());
        self.lock().sessions.retain(|(found, _)| *found != digest);
    }
}

fn add(all: &mut Vec<(Digest32, Instant)>, digest: Digest32, life: Duration) {
    all.retain(|(_, at)| at.elapsed() < life);
    if all.len() >= MAX {
        let oldest = all.iter().enumerate().min_by_key(|(_, (_, at))| *at);
        if let Some((place, _)) = oldest {
            all.remove(place);
        }
    }
    all.push((digest, Instant::now()));
}

/// 128 random bits as 22 letters, digits, hyphens and underscores, so that a link fits a line.
fn secret() -> Result<Zeroizing<String>> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = Zeroizing::new(u128::from_be_bytes(*Zeroizing::new(random::<16>()?)));
    let letter = |place: u32| char::from(LETTERS[(*bits >> (6 * place)) as usize % 64]);
    Ok(Zeroizing::new((0..22).map(letter).collect()))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
}

impl Dashboard {
    fn is_operator(&self, token: &str) -> bool {
        digest_of(token.as_bytes()) == self.token
    }
}

/// Lets requests in that name this machine as their host and come from the page itself.
pub(in crate::admin) async fn from_here(request: Request, then: Next) -> Response {
    match foreign(request.method(), request.uri(), request.headers()) {
        Some(reason) => refused(StatusCode::FORBIDDEN, reason.to_owned()),
        None => then.run(request).await,
    }
}

/// The reason for which a request is refused before anything of it is read.
pub(super) fn foreign(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
    // A name that a stranger's DNS points here would make the stranger's page the origin of this one.
    let Some(host) = host.filter(|host| is_loopback(host)) else {
        return Some(
            "the host of a request must be 127.0.0.1, [::1] or localhost; reach this machine through a tunnel to that address",
        );
    };
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if let Some(origin) = text("origin") {
        let origin = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        if origin != Some(host) {
            return Some("the request comes from a page of another origin");
        }
    }
    let strict = !matches!(*method, Method::GET | Method::HEAD);
    match text("sec-fetch-site") {
        None | Some("same-origin") => None,
        Some("none") if !strict => None,
        // A link on another page leads to the page of the dashboard, and to nothing else.
        Some(_) if *method == Method::GET && uri.path() == "/" => None,
        Some(_) => Some("the request comes from a page of another site"),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => address,
            Some((address, port)) if port.strip_prefix(':').is_some_and(is_port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Lets requests in with the token of a session, or with that of operators.
pub(super) async fn authorise(
    State(dashboard): State<Arc<Dashboard>>,
    request: Request,
    then: Next,
) -> Response {
    let known = bearer(request.headers())
        .is_some_and(|token| dashboard.doors.knows(token) || dashboard.is_operator(token));
    match known {
        true => then.run(request).await,
        false => refused(
            StatusCode::UNAUTHORIZED,
            "the request needs the token of a session; open one by a link, or with the token of operators"
                .to_owned(),
        ),
    }
}

/// The right to a session.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    /// The code of a link.
    #[serde(default)]
    code: Option<String>,
    /// The token of operators.
    #[serde(default)]
    token: Option<String>,
}

/// A session, as the page gets it.
#[derive(Serialize)]
struct Session<'t> {
    token: &'t str,
}

/// Opens a session.
pub(super) async fn enter(State(dashboard): State<Arc<Dashboard>>, body: axum::body::Bytes) -> Response {
    let Ok(Key { code, token }) = serde_json::from_slice(&body) else {
        return refused(
            StatusCode::BAD_REQUEST,
            "the body must be {\"code\": TEXT} or {\"token\": TEXT}".to_owned(),
        );
    };
    let (code, token) = (code.map(Zeroizing::new), token.map(Zeroizing::new));
    let by_link = code.is_some_and(|code| dashboard.doors.unlock(&code));
    if !by_link && !token.is_some_and(|token| dashboard.is_operator(token.trim())) {
        return refused(
            StatusCode::UNAUTHORIZED,
            format!(
                "expected a link that was not used and is younger than 10 minutes, or the content of {TOKEN_FILE} in the data folder"
            ),
        );
    }
    match dashboard.doors.open() {
        Ok(token) => Json(Session { token: &token }).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Ends the session of the request.
pub(super) async fn leave(State(dashboard): State<Arc<Dashboard>>, headers: HeaderMap) -> Response {
    if let Some(token) = bearer(&headers) {
        dashboard.doors.close(token);
    }
    StatusCode::NO_CONTENT.into_response()
}
