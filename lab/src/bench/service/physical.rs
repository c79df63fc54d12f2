//! Physical limits, measured in the process of the item: connections without a service, signatures, files and databases.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rusqlite::Connection;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use undertone_protocol::{Label, Signer, limits, verify_proof};
use undertone_service::http::tls;

use super::client::{Place, Stream, tls_config};
use crate::bench::usage::median;

/// Number of cores of the machine.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Bytes of a reply to a chunk of an upload, head and body.
pub(super) const SMALL_REPLY: usize = 180;

/// Bytes of a request that has a chunk as its body, without that body.
const CHUNK_HEAD: usize = 320;

enum Served {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Served {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn answer(&mut self, reply: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(reply),
            Self::Tls(stream) => stream.write_all(reply).and_then(|()| stream.flush()),
        }
    }
}

/// Answers requests of one size by replies of another, until the peer leaves.
fn serve(
    stream: TcpStream,
    tls: Option<&Arc<ServerConfig>>,
    request: usize,
    reply: usize,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut served = match tls {
        None => Served::Plain(stream),
        Some(config) => {
            let connection = ServerConnection::new(config.clone())?;
            Served::Tls(Box::new(StreamOwned::new(connection, stream)))
        }
    };
    // As large as the pieces in which a server reads.
    let (mut buffer, reply) = (vec![0; request.min(256 << 10)], vec![b'r'; reply]);
    loop {
        let mut left = request;
        while left > 0 {
            let wanted = left.min(buffer.len());
            match served.read(&mut buffer[..wanted]) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(got) => left -= got,
            }
        }
        if served.answer(&reply).is_err() {
            return Ok(());
        }
    }
}

/// Requests per second of connections that send bytes and await bytes, with no work in between. Each of them takes `seconds`.
pub(super) fn exchanges(
    connections: usize,
    tls: bool,
    request: usize,
    reply: usize,
    seconds: f64,
) -> anyhow::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening for a raw connection")?;
    let address = listener.local_addr()?;
    let (server, client) = match tls {
        true => {
            let (config, root) = tls::self_signed(&["localhost".to_owned()])?;
            (Some(config), Some(tls_config(&root)?))
        }
        false => (None, None),
    };
    let place = Place { address, tls: client };
    let until = Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let (listener, server, place) = (&listener, server.as_ref(), &place);
        let mut callers = Vec::new();
        for _ in 0..connections {
            scope.spawn(move || -> anyhow::Result<()> {
                let (stream, _) = listener.accept()?;
                serve(stream, server, request, reply)
            });
            callers.push(scope.spawn(move || -> anyhow::Result<f64> {
                let mut stream = Stream::open(place)?;
                let (sent, mut got) = (vec![b's'; request], vec![0; reply]);
                let (started, mut count) = (Instant::now(), 0.0);
                while started.elapsed() < until {
                    stream.write_all(&sent)?;
                    stream.flush()?;
                    stream.read_exact(&mut got)?;
                    count += 1.0;
                }
                Ok(count / started.elapsed().as_secs_f64())
            }));
        }
        let mut rate = 0.0;
        for caller in callers {
            rate += caller.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(rate)
    })
}

/// Bytes per second of connections that carry uploads and nothing else: chunks with the head of a request, and small replies.
pub(super) fn uploads(connections: usize, tls: bool, bytes: u64, seconds: f64) -> anyhow::Result<f64> {
    let chunk = limits::MAX_CHUNK.min(usize::try_from(bytes)?);
    let rate = exchanges(connections, tls, chunk + CHUNK_HEAD, SMALL_REPLY, seconds)?;
    Ok(rate * chunk as f64)
}

/// Signatures that one core verifies per second.
pub(super) fn verifications() -> anyhow::Result<f64> {
    const TIMES: u32 = 2000;
    let signer = Signer::from_seed(&[3; 32]);
    let (public, body) = (signer.public(), [5; 120]);
    let proof = signer.proof(Label::Request, &body);
    let started = Instant::now();
    for _ in 0..TIMES {
        verify_proof(Label::Request, &public, &body, &proof)?;
    }
    Ok(f64::from(TIMES) / started.elapsed().as_secs_f64())
}

/// Bytes per second that one core copies.
pub(super) fn copies() -> f64 {
    const LENGTH: usize = 64 << 20;
    let (from, mut to) = (vec![1u8; LENGTH], vec![0u8; LENGTH]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let started = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        best = best.min(started.elapsed().as_secs_f64());
    }
    LENGTH as f64 / best
}

/// Seconds to write this number of bytes into a new file and make them durable.
pub(super) fn written(folder: &Path, bytes: u64) -> anyhow::Result<f64> {
    let path = folder.join("written");
    let piece = vec![9u8; (1 << 20).min(usize::try_from(bytes)?.max(1))];
    let write = || -> std::io::Result<f64> {
        let started = Instant::now();
        let (mut file, mut left) = (File::create(&path)?, bytes);
        while left > 0 {
            let length = left.min(piece.len() as u64);
            file.write_all(&piece[..length as usize])?;
            left -= length;
        }
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        Ok(started.elapsed().as_secs_f64())
    };
    let seconds = write().with_context(|| format!("writing {bytes} bytes to {}", path.display()))?;
    std::fs::remove_file(&path)?;
    Ok(seconds)
}

/// Median seconds to make a small write durable.
pub(super) fn synced(folder: &Path) -> anyhow::Result<f64> {
    const TIMES: usize = 31;
    let path = folder.join("synced");
    let write = || -> std::io::Result<Vec<f64>> {
        let mut file = File::create(&path)?;
        let mut all = Vec::new();
        for _ in 0..TIMES {
            let started = Instant::now();
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
            all.push(started.elapsed().as_secs_f64());
        }
        Ok(all)
    };
    let mut all = write().with_context(|| format!("writing {}", path.display()))?;
    std::fs::remove_file(&path)?;
    Ok(median(&mut all))
}

/// A database as the store has one, with one table.
pub(super) struct Database {
    conn: Connection,
}

impl Database {
    /// Makes the database. `full` makes each commit durable against a loss of power.
    pub(super) fn new(folder: &Path, name: &str, full: bool) -> anyhow::Result<Self> {
        let conn = Connection::open(folder.join(name))?;
        let synchronous = if full { "FULL" } else { "NORMAL" };
        conn.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; \
             CREATE TABLE users (task INTEGER, user INTEGER, last INTEGER, count INTEGER, PRIMARY KEY (task, user)) \
             STRICT, WITHOUT ROWID; CREATE TABLE lines (seq INTEGER PRIMARY KEY, line BLOB) STRICT;"
        ))?;
        Ok(Self { conn })
    }

    /// Seconds of one transaction that writes a row for each user, twice, and one line.
    pub(super) fn release(&mut self, users: &[u64], line: &[u8]) -> anyhow::Result<f64> {
        let started = Instant::now();
        let transaction = self.conn.transaction()?;
        for _ in 0..2 {
            let mut row = transaction.prepare_cached(
                "INSERT INTO users VALUES (1, ?1, 7, 1) ON CONFLICT (task, user) DO UPDATE SET count = count + 1",
            )?;
            for user in users {
                row.execute([user.cast_signed()])?;
            }
        }
        transaction.execute("INSERT INTO lines (line) VALUES (?1)", [line])?;
        transaction.commit()?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Commits per second of one row each.
    pub(super) fn commits(&mut self, seconds: f64) -> anyhow::Result<f64> {
        let (started, mut count) = (Instant::now(), 0u64);
        while started.elapsed().as_secs_f64() < seconds {
            self.conn
                .prepare_cached("INSERT OR REPLACE INTO users VALUES (2, ?1, 7, 1)")?
                .execute([count.cast_signed()])?;
            count += 1;
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }
}
