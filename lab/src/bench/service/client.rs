//! A light client: prepared requests over one connection of HTTP/1.1 that stays open, with TLS or without.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use undertone_protocol::{PROTOCOL_HEADER, Problem, limits, read};

/// The longest wait for a reply: a poll waits 25 s.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of a request that are sent as one piece with their headers.
const SMALL: usize = 16 << 10;

/// The place of a server.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    /// The settings of TLS; plain TCP without them.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// The settings of a client that trusts one certificate.
pub(super) fn tls_config(root: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(root.as_bytes()).context("reading a certificate")?;
    roots.add(certificate).context("trusting a certificate")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("choosing versions of TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A stream with TLS or without.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(super) fn open(place: &Place) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(place.address).with_context(|| format!("connecting to {}", place.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some(config) = &place.tls else {
            return Ok(Self::Plain(stream));
        };
        let connection = ClientConnection::new(config.clone(), ServerName::try_from("localhost")?)?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .context("the handshake of TLS")?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A request without a body, as it travels.
pub(super) fn get(target: &str) -> Vec<u8> {
    let (name, version) = PROTOCOL_HEADER;
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{name}: {version}\r\n\r\n").into_bytes()
}

/// The head of a request with a body of this length.
pub(super) fn head(method: &str, target: &str, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let (name, version) = PROTOCOL_HEADER;
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n{name}: {version}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {length}\r\n\r\n"));
    text.into_bytes()
}

/// A reply; its body lies in the buffer of the connection.
#[derive(Debug)]
pub(super) struct Reply<'c> {
    pub(super) status: u16,
    pub(super) body: &'c [u8],
    /// Bytes of head and body.
    pub(super) bytes: usize,
}

impl Reply<'_> {
    /// The body of a success.
    pub(super) fn success(&self) -> anyhow::Result<&[u8]> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let problem: Problem = read("the refusal", self.body, limits::MAX_MESSAGE).unwrap_or_default();
        bail!(
            "the service answered {}: {}: {}",
            self.status,
            problem.code().as_str_name(),
            problem.message.escape_debug()
        )
    }

    /// The refusal, where the reply is one.
    pub(super) fn problem(&self) -> anyhow::Result<Problem> {
        ensure!(
            self.status >= 400,
            "a refusal was expected, got status {}",
            self.status
        );
        Ok(read("the refusal", self.body, limits::MAX_MESSAGE)?)
    }
}

/// One connection, for one request at a time.
pub(super) struct Connection {
    stream: Stream,
    sent: Vec<u8>,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) fn open(place: &Place) -> anyhow::Result<Self> {
        Ok(Self {
            stream: Stream::open(place)?,
            sent: Vec::with_capacity(SMALL),
            buffer: Vec::new(),
        })
    }

    /// Sends a request and reads its reply.
    pub(super) fn exchange(&mut self, head: &[u8], body: &[u8]) -> anyhow::Result<Reply<'_>> {
        if body.len() <= SMALL {
            self.sent.clear();
            self.sent.extend_from_slice(head);
            self.sent.extend_from_slice(body);
            self.stream.write_all(&self.sent)
        } else {
            self.stream
                .write_all(head)
                .and_then(|()| self.stream.write_all(body))
        }
        .and_then(|()| self.stream.flush())
        .context("sending a request")?;
        self.receive()
    }

    fn receive(&mut self) -> anyhow::Result<Reply<'_>> {
        const HEAD: usize = 16 << 10;
        let mut filled = 0;
        let (start, status, length) = loop {
            if self.buffer.len() < filled + HEAD {
                self.buffer.resize(filled + HEAD, 0);
            }
            let got = self
                .stream
                .read(&mut self.buffer[filled..])
                .context("reading a reply")?;
            ensure!(got > 0, "the service closed the connection");
            filled += got;
            if let Some(end) = find(&self.buffer[..filled], b"\r\n\r\n") {
                let (status, length) = parse(&self.buffer[..end])?;
                break (end + 4, status, length);
            }
            ensure!(filled <= HEAD, "a reply with a head above {HEAD} bytes");
        };
        let end = start + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        if filled < end {
            self.stream
                .read_exact(&mut self.buffer[filled..end])
                .context("reading a reply")?;
        }
        ensure!(filled <= end, "bytes after a reply that nobody asked for");
        Ok(Reply {
            status,
            body: &self.buffer[start..end],
            bytes: end,
        })
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// The status of a reply and the length of its body.
fn parse(head: &[u8]) -> anyhow::Result<(u16, usize)> {
    let text = std::str::from_utf8(head).context("a head of a reply that is not text")?;
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 "))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok());
    let Some(status) = status else {
        bail!(
            "expected a status line of HTTP/1.1, got {:?}",
            text.lines().next()
        );
    };
    let mut length = 0;
    for line in lines {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().context("the length of a reply")?;
        }
    }
    Ok((status, length))
}
