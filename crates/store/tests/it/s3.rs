//! Blobs in a store of objects that fails, is slow, or lies.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_store::{AttemptId, BlobError, Blobs, Created, S3Blobs, TaskId};

use crate::common::s3::{Act, Request, S3Double, contents, credentials, impatient, page_of, patient};
use crate::common::{hex, sha};

const ATTEMPT: AttemptId = AttemptId(7);
const TASK: TaskId = TaskId([0xc0; 32]);

fn refused<T: std::fmt::Debug>(result: Result<T, BlobError>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words), "expected {words:?} in {error:?}");
    assert!(
        !error.contains("hunter2") && !error.chars().any(char::is_control),
        "{error:?}"
    );
}

/// An act for the first `count` requests that a condition takes.
fn first(
    count: usize,
    takes: impl Fn(&Request) -> bool + Send + 'static,
    act: impl Fn() -> Act + Send + 'static,
) -> impl FnMut(&Request) -> Act + Send + 'static {
    let mut left = count;
    move |request| {
        if left > 0 && takes(request) {
            left -= 1;
            return act();
        }
        Act::Serve
    }
}

fn puts(request: &Request) -> bool {
    request.method == "PUT"
}

fn reads(request: &Request) -> bool {
    request.method == "GET" && !request.query.contains_key("list-type")
}

fn lists(request: &Request) -> bool {
    request.query.contains_key("list-type")
}

#[test]
fn names_stand_below_the_prefix_and_nothing_else_stays() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    assert!(
        double.objects().is_empty(),
        "the check of conditions leaves nothing"
    );
    let digest = blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap().digest;
    blobs.publish(ATTEMPT, "model", &digest).unwrap();
    blobs.create_head(TASK, 3, b"head").unwrap();
    let names: Vec<String> = double.objects().into_keys().collect();
    let expected = [
        format!("of/us/blobs/{}", hex(&sha(b"model"))),
        format!("of/us/heads/{TASK}/3"),
        "of/us/staged/7/model".to_owned(),
    ];
    assert_eq!(names, expected);
    // Every object that must be new was created under the condition, and the blob was not.
    for request in double.seen().iter().filter(|request| puts(request)) {
        let conditional = request.headers.contains_key("if-none-match");
        assert_eq!(conditional, !request.name.contains("/blobs/"), "{}", request.name);
    }
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let double = S3Double::start();
    double.act(|_| Act::Unconditional);
    refused(
        double.open(),
        "s3://models/of/us cannot hold heads: a second object replaced the first",
    );
    assert!(double.objects().is_empty());
    // Another one says that it refused, and has replaced the object all the same.
    let mut number = 0;
    double.act(move |request| match request.method.as_str() {
        "PUT" => {
            number += 1;
            if number == 2 {
                Act::ServeThenStatus(412)
            } else {
                Act::Serve
            }
        }
        _ => Act::Serve,
    });
    refused(double.open(), "the second of two objects changed the first");
}

#[test]
fn errors_that_pass_are_tried_again_and_others_are_not() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    for status in [500, 503, 429] {
        double.act(first(2, |_| true, move || Act::Status(status, Vec::new())));
        blobs.put(&mut &status.to_string().into_bytes()[..]).unwrap();
    }
    double.act(|_| Act::Status(503, b"<Error><Code>SlowDown</Code></Error>".to_vec()));
    refused(blobs.put(&mut &b"plan"[..]), "503");
    for status in [400, 403] {
        let before = double.seen().len();
        double.act(move |_| Act::Status(status, Vec::new()));
        refused(blobs.last_head(TASK), "s3://models/of/us/heads/");
        assert_eq!(double.seen().len(), before + 1, "{status} was tried again");
    }
}

#[test]
fn a_lost_answer_makes_no_second_head() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    // The head was created and the connection broke: the caller sends the same bytes again.
    double.act(first(1, puts, || Act::ServeThenClose));
    refused(
        blobs.create_head(TASK, 1, b"one"),
        "creating s3://models/of/us/heads/",
    );
    assert_eq!(blobs.create_head(TASK, 1, b"one").unwrap(), Created::Same);
    assert_eq!(
        blobs.create_head(TASK, 1, b"two").unwrap(),
        Created::Other(b"one".to_vec())
    );
    // The head was created and the answer says otherwise: the repetition finds it.
    double.act(first(1, puts, || Act::ServeThenStatus(500)));
    assert_eq!(blobs.create_head(TASK, 2, b"one").unwrap(), Created::Same);
    double.act(first(1, puts, || Act::ServeThenStatus(500)));
    blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap();
    // A store that is busy with another writer says 409, and has nothing yet.
    double.act(first(2, puts, || Act::Status(409, Vec::new())));
    assert_eq!(blobs.create_head(TASK, 3, b"one").unwrap(), Created::Created);
    assert_eq!(blobs.head(TASK, 3).unwrap(), Some(b"one".to_vec()));
    double.act(|request| {
        if puts(request) {
            Act::Status(409, Vec::new())
        } else {
            Act::Serve
        }
    });
    refused(
        blobs.create_head(TASK, 4, b"one"),
        "another writer did not finish",
    );
}

#[test]
fn a_store_that_does_not_answer_ends_in_an_error() {
    let double = S3Double::start();
    let blobs = S3Blobs::open(&double.url(), credentials("hunter2"), impatient()).unwrap();
    blobs.put(&mut &b"model"[..]).unwrap();
    double.act(|_| Act::Hang);
    refused(blobs.head(TASK, 1), "reading s3://models/of/us/heads/");
    refused(
        blobs.create_head(TASK, 1, b"one"),
        "creating s3://models/of/us/heads/",
    );
    refused(blobs.last_head(TASK), "listing s3://models/of/us/heads/");
    // An answer that begins and never ends.
    let drip = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc".to_vec();
    double.act(move |_| Act::Raw(drip.clone()));
    refused(blobs.last_head(TASK), "listing s3://models/of/us/heads/");
    // A port where nobody listens.
    let url = double.url();
    drop(double);
    refused(
        S3Blobs::open(&url, credentials("hunter2"), impatient()),
        "s3://models/of/us/tmp/",
    );
}

#[test]
fn bytes_that_are_not_those_asked_for_are_an_error() {
    let double = S3Double::start();
    let blobs = S3Blobs::open(&double.url(), credentials("hunter2"), impatient()).unwrap();
    let flip = |mut body: Vec<u8>| {
        body[0] ^= 1;
        body
    };
    double.act(move |request| {
        if reads(request) {
            Act::Changed(flip)
        } else {
            Act::Serve
        }
    });
    let error = blobs.put(&mut &b"model"[..]).unwrap_err();
    assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
    refused(blobs.stage(ATTEMPT, "model", &mut &b"model"[..]), "is damaged");
    refused(blobs.create_head(TASK, 1, b"one"), "is damaged");
    double.act(|_| Act::Serve);
    let digest = blobs.put(&mut &b"model"[..]).unwrap().digest;
    let read = |double: &S3Double, raw: &'static str| {
        double.act(move |request| match reads(request) {
            true => Act::Raw(raw.as_bytes().to_vec()),
            false => Act::Serve,
        });
        let mut bytes = Vec::new();
        let found = blobs.get(&digest, 1).unwrap().bytes.read_to_end(&mut bytes);
        let error = found.unwrap_err().to_string();
        assert!(error.contains("reading s3://models/of/us/blobs/"), "{error}");
    };
    let date = "Last-Modified: Tue, 24 Nov 2026 00:00:00 GMT\r\nETag: \"e\"";
    for raw in [
        "HTTP/1.1 206 x\r\nDATE\r\nContent-Range: bytes 1-4/5\r\nContent-Length: 3\r\n\r\node",
        "HTTP/1.1 206 x\r\nDATE\r\nContent-Range: bytes 0-3/5\r\nContent-Length: 4\r\n\r\nmode",
        "HTTP/1.1 206 x\r\nDATE\r\nContent-Range: bytes 1-3/5\r\nContent-Length: 3\r\n\r\node",
        "HTTP/1.1 206 x\r\nDATE\r\nContent-Length: 4\r\n\r\nodel",
        "HTTP/1.1 200 x\r\nDATE\r\nContent-Length: 5\r\n\r\nmodel",
        "HTTP/1.1 206 x\r\nDATE\r\nContent-Range: bytes 1-4/5\r\nContent-Length: 99999999\r\n\r\n",
        "no answer at all\r\n\r\n",
    ] {
        read(&double, raw.replace("DATE", date).leak());
    }
    // A head that is longer than any head is not read.
    double.act(move |request| match request.method.as_str() {
        "HEAD" => {
            Act::Raw(format!("HTTP/1.1 200 x\r\n{date}\r\nContent-Length: 99999999999\r\n\r\n").into_bytes())
        }
        _ => Act::Serve,
    });
    refused(blobs.head(TASK, 9), "at most 65536 bytes, got 99999999999");
}

#[test]
fn an_answer_has_a_max_size_and_its_text_is_cut() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    let text = "\u{1b}[31mGo away\r\n".repeat(10_000).into_bytes();
    double.act(move |_| Act::Status(400, text.clone()));
    let error = blobs.last_head(TASK).unwrap_err().to_string();
    assert!(
        error.len() < 600 && !error.chars().any(char::is_control),
        "{error:?}"
    );
    // 9 MiB of an error, and a list without an end.
    double.act(|_| Act::Status(400, vec![b'x'; 9 << 20]));
    refused(blobs.last_head(TASK), "length limit exceeded");
    let mut number = 0u64;
    double.act(move |_| {
        number += 1;
        Act::Status(200, page_of("", Some(&number.to_string())).into_bytes())
    });
    refused(blobs.last_head(TASK), "expected an end within 1000 pages");
    double.act(|_| Act::Status(200, page_of("", Some("again")).into_bytes()));
    refused(blobs.staged(), "expected an end within");
    for garbage in [
        "",
        "<",
        "<ListBucketResult><Contents></Contents></ListBucketResult>",
        "\0\0",
    ] {
        double.act(move |_| Act::Status(200, garbage.as_bytes().to_vec()));
        // An empty list of another form is no head; everything else is an error.
        if let Ok(found) = blobs.last_head(TASK) {
            assert_eq!(found, None, "{garbage:?}");
        }
    }
}

#[test]
fn names_of_others_are_no_rounds_and_lists_have_pages() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    let folder = format!("of/us/heads/{TASK}");
    let other = TaskId([0xc1; 32]);
    for name in ["007", "-1", "x", "5/6", "18446744073709551616"] {
        double.insert(&format!("{folder}/{name}"), b"");
    }
    double.insert(&format!("of/us/heads/{other}/99"), b"");
    // A folder named as a number is no head, but is the name of an attempt among the staged files.
    assert_eq!(blobs.head(TASK, 5).unwrap(), None);
    for round in 1..=9 {
        blobs.create_head(TASK, round, b"head").unwrap();
    }
    assert_eq!(blobs.last_head(TASK).unwrap(), Some(9));
    assert!(double.seen().iter().filter(|request| lists(request)).count() > 5);
    // A list of names that were not asked for.
    let foreign = page_of(&contents(&format!("of/us/heads/{other}/99"), 1), None);
    double.act(move |request| match lists(request) {
        true => Act::Status(200, foreign.clone().into_bytes()),
        false => Act::Serve,
    });
    assert_eq!(blobs.last_head(TASK).unwrap(), None);
}

#[test]
fn redirections_are_not_followed() {
    let (double, elsewhere) = (S3Double::start(), S3Double::start());
    let blobs = double.open().unwrap();
    let target = elsewhere.url().rsplit_once('=').unwrap().1.to_owned();
    for status in [301, 302, 307, 308] {
        let raw = format!("HTTP/1.1 {status} x\r\nLocation: {target}/models/x\r\nContent-Length: 0\r\n\r\n");
        double.act(move |_| Act::Raw(raw.clone().into_bytes()));
        refused(blobs.head(TASK, 1), "reading s3://models/");
    }
    assert!(elsewhere.seen().is_empty());
}

#[test]
fn other_credentials_are_refused_without_being_shown() {
    let double = S3Double::start();
    let stranger = undertone_store::Credentials::new("a-stranger".to_owned(), "hunter2".to_owned(), None);
    refused(S3Blobs::open(&double.url(), stranger, patient()), "403");
}

#[test]
fn the_reader_asks_for_a_long_blob_in_parts() {
    let double = S3Double::start();
    let blobs = double.open().unwrap();
    let bytes: Vec<u8> = (0..9u32 << 20).map(|number| (number % 251) as u8).collect();
    let digest = blobs.put(&mut &bytes[..]).unwrap().digest;
    let parts = Arc::new(AtomicUsize::new(0));
    let counted = parts.clone();
    double.act(move |request| {
        if reads(request) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Act::Serve
    });
    let mut read = Vec::new();
    blobs
        .get(&digest, 5)
        .unwrap()
        .bytes
        .read_to_end(&mut read)
        .unwrap();
    assert!(read == bytes[5..]);
    assert_eq!(parts.load(Ordering::SeqCst), 3);
}

#[test]
fn tls_needs_a_certificate_of_the_authority() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, made.cert.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let settings = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().to_vec().into()], key)
        .unwrap();
    let double = S3Double::with(Some(Arc::new(settings)));
    let url = format!("{}&ca={}", double.url(), authority.display());
    let blobs = S3Blobs::open(&url, credentials("hunter2"), patient()).unwrap();
    blobs.create_head(TASK, 1, b"one").unwrap();
    refused(double.open(), "creating s3://models/of/us/tmp/");
    let missing = format!("{}&ca={}", double.url(), folder.path().join("none").display());
    refused(
        S3Blobs::open(&missing, credentials("hunter2"), patient()),
        "certificates in PEM",
    );
}
