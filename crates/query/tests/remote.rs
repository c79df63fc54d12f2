//! Tables in an object store and on a web server, served on this machine.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use undertone_data::Grouped;

/// The part of S3 that reading needs: listings, sizes, and ranges of objects.
struct Store {
    address: String,
    /// Method, path with query, and whether the request was signed.
    seen: Arc<Mutex<Vec<(String, String, bool)>>>,
}

type Objects = BTreeMap<&'static str, String>;

impl Store {
    fn serve(objects: Objects) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (objects, log) = (Arc::new(objects), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (objects, log) = (objects.clone(), log.clone());
                std::thread::spawn(move || answer(stream, &objects, &log));
            }
        });
        Store { address, seen }
    }

    fn query(&self, table: &str, folder: &TempDir) -> Output {
        Command::new(env!("CARGO_BIN_EXE_undertone-query"))
            .args([
                "--table",
                table,
                "--sql",
                "SELECT who AS user_id, body AS text FROM posts",
                "--json",
            ])
            .arg("--out")
            .arg(folder.path().join("grouped"))
            .env("AWS_ENDPOINT", format!("http://{}", self.address))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "a secret of nobody")
            .output()
            .unwrap()
    }
}

fn answer(stream: TcpStream, objects: &Objects, log: &Mutex<Vec<(String, String, bool)>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let (mut range, mut signed) = (None, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(bytes) = header.strip_prefix("range: bytes=") {
            let (first, last) = bytes.split_once('-')?;
            range = Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?));
        }
        signed |= header.starts_with("authorization: aws4-hmac-sha256");
    }
    log.lock().unwrap().push((method.clone(), path.clone(), signed));
    let (status, body, extra) = if path.contains("list-type=2") {
        let prefix = path
            .split(['?', '&'])
            .find_map(|part| part.strip_prefix("prefix="))
            .unwrap_or("");
        (
            "200 OK",
            listing(objects, &prefix.replace("%2F", "/")),
            String::new(),
        )
    } else {
        let key = path.trim_start_matches('/').trim_start_matches("bucket/");
        match (objects.get(key), range) {
            (None, _) => ("404 Not Found", String::new(), String::new()),
            (Some(object), None) => ("200 OK", object.clone(), String::new()),
            (Some(object), Some((first, last))) => {
                let last = last.min(object.len() - 1);
                let extra = format!("content-range: bytes {first}-{last}/{}\r\n", object.len());
                ("206 Partial Content", object[first..=last].to_owned(), extra)
            }
        }
    };
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{extra}etag: \"1\"\r\n\
         last-modified: Wed, 05 Jun 2024 00:00:00 GMT\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes()).ok()?;
    }
    Some(())
}

fn listing(objects: &Objects, prefix: &str) -> String {
    let mut contents = String::new();
    for (key, object) in objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
        write!(
            contents,
            "<Contents><Key>{key}</Key><LastModified>2024-06-05T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>\
             <Size>{}</Size></Contents>",
            object.len()
        )
        .unwrap();
    }
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    )
}

fn lines(users: std::ops::Range<u32>) -> String {
    users
        .map(|user| format!("{{\"who\": \"u{}\", \"body\": \"text {user}\"}}\n", user % 10))
        .collect()
}

#[test]
fn an_object_store_is_read_like_a_folder() {
    let store = Store::serve(BTreeMap::from([
        ("posts/part-0.jsonl", lines(0..500)),
        ("posts/part-1.jsonl", lines(500..700)),
        ("posts/_SUCCESS", String::new()),
        ("other/part-0.jsonl", lines(0..1)),
    ]));
    let folder = TempDir::new().unwrap();
    let result = store.query("posts=s3://bucket/posts/", &folder);
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    let summary: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!((&summary["rows"], &summary["users"]), (&700.into(), &10.into()));
    let grouped = Grouped::open(&folder.path().join("grouped")).unwrap();
    assert!(grouped.user_sizes().all(|rows| rows == 70));
    let seen = store.seen.lock().unwrap();
    assert!(
        seen.iter()
            .all(|(_, path, signed)| *signed && !path.contains("other/")),
        "{seen:?}"
    );
}

#[test]
fn a_file_of_a_web_server() {
    let store = Store::serve(BTreeMap::from([("posts.jsonl", lines(0..300))]));
    let folder = TempDir::new().unwrap();
    let result = store.query(&format!("posts=http://{}/posts.jsonl", store.address), &folder);
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    assert_eq!(
        Grouped::open(&folder.path().join("grouped")).unwrap().num_rows(),
        300
    );
}

#[test]
fn what_is_not_there_is_named() {
    let store = Store::serve(BTreeMap::from([("posts/a.jsonl", lines(0..1))]));
    let folder = TempDir::new().unwrap();
    let result = store.query("posts=s3://bucket/none/", &folder);
    assert!(!result.status.success());
    let error: serde_json::Value = serde_json::from_slice(&result.stderr).unwrap();
    let error = error["error"].as_str().unwrap();
    assert!(
        error.contains("table \"posts\" (s3://bucket/none/): it holds no file"),
        "{error}"
    );
    assert!(!error.contains("secret"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
