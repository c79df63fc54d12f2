//! A small store of objects in this process, which speaks the part of S3 that blobs use, and misbehaves where a test asks for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use undertone_store::{Credentials, Patience, S3Blobs};

use super::{hex, sha};

/// Objects per page of a list, so that every list has several.
const PAGE: usize = 2;

/// A request that has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Name of the object, without the bucket.
    pub(crate) name: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    fn without_condition(mut self) -> Self {
        self.headers.remove("if-none-match");
        self
    }
}

/// The reaction of the store to a request.
pub(crate) enum Act {
    /// The reaction of a good store.
    Serve,
    /// The store serves the request without its condition.
    Unconditional,
    /// The store answers with a status and a text, and does nothing.
    Status(u16, Vec<u8>),
    /// The store does what is asked without its condition, and answers with a status.
    ServeThenStatus(u16),
    /// The store does what is asked, and closes the connection.
    ServeThenClose,
    /// The store answers with these bytes.
    Raw(Vec<u8>),
    /// The store never answers.
    Hang,
    /// The store serves a changed body.
    Changed(fn(Vec<u8>) -> Vec<u8>),
}

type Hook = Box<dyn FnMut(&Request) -> Act + Send>;

struct State {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    hook: Mutex<Hook>,
    seen: Mutex<Vec<Request>>,
    stop: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// The store. It ends with the value.
pub(crate) struct S3Double {
    state: Arc<State>,
    address: SocketAddr,
}

impl S3Double {
    pub(crate) fn start() -> Self {
        Self::with(None)
    }

    pub(crate) fn with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            objects: Mutex::default(),
            hook: Mutex::new(Box::new(|_| Act::Serve)),
            seen: Mutex::default(),
            stop: AtomicBool::new(false),
            tls,
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), shared.clone());
                std::thread::spawn(move || match shared.tls.clone() {
                    None => serve(&shared, stream),
                    Some(settings) => {
                        let connection = rustls::ServerConnection::new(settings).unwrap();
                        serve(&shared, rustls::StreamOwned::new(connection, stream));
                    }
                });
            }
        });
        Self { state, address }
    }

    /// The address of the blobs, with a prefix.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.state.tls.is_some() { "https" } else { "http" };
        format!(
            "s3://models/of/us?region=here&endpoint={scheme}://{}",
            self.address
        )
    }

    pub(crate) fn open(&self) -> Result<S3Blobs, undertone_store::BlobError> {
        S3Blobs::open(&self.url(), credentials("hunter2"), patient())
    }

    /// Asks for an act from now on.
    pub(crate) fn act(&self, hook: impl FnMut(&Request) -> Act + Send + 'static) {
        *self.state.hook.lock().unwrap() = Box::new(hook);
    }

    /// The names and contents of all objects.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.state.objects.lock().unwrap().clone()
    }

    pub(crate) fn insert(&self, name: &str, bytes: &[u8]) {
        self.state
            .objects
            .lock()
            .unwrap()
            .insert(name.to_owned(), bytes.to_vec());
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl Drop for S3Double {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.address);
    }
}

pub(crate) fn credentials(secret: &str) -> Credentials {
    Credentials::new("an-id".to_owned(), secret.to_owned(), Some("a-token".to_owned()))
}

/// Short pauses, for tests of stores that answer.
pub(crate) fn patient() -> Patience {
    Patience {
        retries: 2,
        pause: Duration::from_millis(5),
        ..Patience::default()
    }
}

/// Little patience, for tests of stores that do not answer.
pub(crate) fn impatient() -> Patience {
    Patience {
        answer: Duration::from_millis(500),
        ..patient()
    }
}

fn serve(state: &State, stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = request(&mut stream) {
        state.seen.lock().unwrap().push(request.clone());
        let act = (state.hook.lock().unwrap())(&request);
        let answer = match act {
            Act::Serve => answer(state, &request),
            Act::Unconditional => answer(state, &request.clone().without_condition()),
            Act::Status(status, text) => reply(status, &[], &text, &request),
            Act::ServeThenStatus(status) => {
                answer(state, &request.clone().without_condition());
                reply(status, &[], b"", &request)
            }
            Act::ServeThenClose => {
                answer(state, &request);
                return;
            }
            Act::Raw(bytes) => bytes,
            Act::Hang => {
                while !state.stop.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return;
            }
            Act::Changed(change) => {
                let whole = answer(state, &request);
                let end = whole.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
                [&whole[..end], &change(whole[end..].to_vec())].concat()
            }
        };
        let stream = stream.get_mut();
        if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

fn request(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = || {
        let mut line = String::new();
        let read = stream.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        name: path
            .strip_prefix("/models")
            .unwrap()
            .trim_start_matches('/')
            .to_owned(),
        query: pairs
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect(),
        headers,
        body,
    })
}

fn decoded(text: &str) -> String {
    text.replace("%2F", "/").replace("%3D", "=")
}

/// An answer, without its body where only the head was asked for.
fn reply(status: u16, headers: &[(&str, String)], body: &[u8], request: &Request) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Of a test\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !headers.iter().any(|(name, _)| *name == "Content-Length") {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    match request.method.as_str() {
        "HEAD" => text.into_bytes(),
        _ => [text.as_bytes(), body].concat(),
    }
}

fn answer(state: &State, request: &Request) -> Vec<u8> {
    let signed = request.headers.get("authorization").is_some_and(|text| {
        text.starts_with("AWS4-HMAC-SHA256 Credential=an-id/") && text.contains("/here/s3/aws4_request")
    });
    let token = request
        .headers
        .get("x-amz-security-token")
        .is_some_and(|token| token == "a-token");
    let digest = request.headers.get("x-amz-content-sha256");
    if !signed || !token || digest != Some(&hex(&sha(&request.body))) {
        return reply(403, &[], b"<Error><Code>AccessDenied</Code></Error>", request);
    }
    let mut objects = state.objects.lock().unwrap();
    if request.query.contains_key("list-type") {
        return reply(200, &[], list(&objects, request).as_bytes(), request);
    }
    let of = |bytes: &[u8]| {
        vec![
            ("ETag", format!("\"{}\"", hex(&sha(bytes)))),
            ("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT".to_owned()),
        ]
    };
    match (request.method.as_str(), objects.get(&request.name)) {
        ("PUT", Some(_)) if request.headers.get("if-none-match").is_some_and(|tag| tag == "*") => reply(
            412,
            &[],
            b"<Error><Code>PreconditionFailed</Code></Error>",
            request,
        ),
        ("PUT", _) => {
            let headers = of(&request.body);
            objects.insert(request.name.clone(), request.body.clone());
            reply(200, &headers, b"", request)
        }
        ("DELETE", _) => {
            objects.remove(&request.name);
            reply(204, &[], b"", request)
        }
        (_, None) => reply(404, &[], b"<Error><Code>NoSuchKey</Code></Error>", request),
        ("HEAD", Some(bytes)) => {
            let mut headers = of(bytes);
            headers.push(("Content-Length", bytes.len().to_string()));
            reply(200, &headers, b"", request)
        }
        ("GET", Some(bytes)) => {
            let range = request
                .headers
                .get("range")
                .and_then(|range| range.strip_prefix("bytes="));
            let mut headers = of(bytes);
            let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
                return reply(200, &headers, bytes, request);
            };
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
            let to = to.min(bytes.len().saturating_sub(1));
            if from >= bytes.len() {
                return reply(416, &[], b"", request);
            }
            headers.push(("Content-Range", format!("bytes {from}-{to}/{}", bytes.len())));
            reply(206, &headers, &bytes[from..=to], request)
        }
        _ => reply(405, &[], b"", request),
    }
}

/// A page of names: those directly below the prefix, and their folders.
fn list(objects: &BTreeMap<String, Vec<u8>>, request: &Request) -> String {
    let prefix = &request.query["prefix"];
    assert_eq!(request.query.get("delimiter").map(String::as_str), Some("/"));
    let mut found = Vec::new();
    for (name, bytes) in objects {
        let Some(rest) = name.strip_prefix(prefix.as_str()) else {
            continue;
        };
        let entry = match rest.split_once('/') {
            Some((folder, _)) => {
                format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>")
            }
            None => contents(name, bytes.len()),
        };
        if found.last() != Some(&entry) {
            found.push(entry);
        }
    }
    let from: usize = request
        .query
        .get("continuation-token")
        .map_or(0, |token| token.parse().unwrap());
    let page = &found[from..found.len().min(from + PAGE)];
    let more = match from + PAGE < found.len() {
        true => Some((from + PAGE).to_string()),
        false => None,
    };
    page_of(&page.concat(), more.as_deref())
}

pub(crate) fn contents(name: &str, size: usize) -> String {
    format!(
        "<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>2026-11-24T00:00:00.000Z</LastModified><ETag>\"e\"</ETag></Contents>"
    )
}

/// A page of a list.
pub(crate) fn page_of(entries: &str, token: Option<&str>) -> String {
    let token = token.map_or(String::new(), |token| {
        format!("<NextContinuationToken>{token}</NextContinuationToken>")
    });
    format!("<?xml version=\"1.0\"?><ListBucketResult>{entries}{token}</ListBucketResult>")
}
