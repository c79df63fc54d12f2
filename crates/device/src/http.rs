//! The transport over HTTP, by a small blocking client with TLS.

use std::net::IpAddr;
use std::time::Duration;

use undertone_protocol::OFFSET_HEADER;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, http};

use crate::driver::{NetworkLost, Transport};
use crate::error::{DeviceError, Result};
use crate::wire::{Method, Reply, Request};

/// A transport over HTTPS.
///
/// Redirects are not followed, because a token or an update must reach the named service alone.
#[derive(Debug)]
pub struct HttpTransport {
    agent: Agent,
    base: String,
    plain: bool,
}

impl HttpTransport {
    /// The transport to a service at this address, such as `https://fl.example.org`. Without TLS it must be an address of this machine.
    ///
    /// # Errors
    /// [`DeviceError::Value`] for another address.
    pub fn new(base: &str) -> Result<Self> {
        Self::with_roots(base, &[])
    }

    /// The transport to a service whose certificate comes from one of these roots, in PEM; from the public ones where there are none.
    ///
    /// # Errors
    /// [`DeviceError::Value`] for another address than [`new`](Self::new) takes, and for a root that is no certificate.
    pub fn with_roots(base: &str, roots: &[&[u8]]) -> Result<Self> {
        let base = base.trim_end_matches('/');
        let expected = "an address from https://, or http:// on this machine";
        let uri: http::Uri = base
            .parse()
            .map_err(|_| DeviceError::value("the address of the service", expected, base))?;
        let plain = match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(_)) => false,
            (Some("http"), Some(host)) if is_this_machine(host) => true,
            _ => return Err(DeviceError::value("the address of the service", expected, base)),
        };
        Self::make(base, plain, roots)
    }

    /// The transport to a service without TLS, wherever it is.
    ///
    /// PRIVACY: everybody on the way can read updates and take the device's place. This is for tests in closed networks.
    ///
    /// # Errors
    /// [`DeviceError::Value`] for an address that is none of `http://`.
    pub fn insecure(base: &str) -> Result<Self> {
        let base = base.trim_end_matches('/');
        if !base.starts_with("http://") {
            let expected = "an address from http://";
            return Err(DeviceError::value("the address of the service", expected, base));
        }
        Self::make(base, true, &[])
    }

    fn make(base: &str, plain: bool, roots: &[&[u8]]) -> Result<Self> {
        let certificate = |pem: &&[u8]| {
            Certificate::from_pem(pem)
                .map_err(|error| DeviceError::value("a root certificate", "one in PEM", error))
        };
        let roots: Vec<Certificate<'static>> = roots.iter().map(certificate).collect::<Result<_>>()?;
        let mut tls = TlsConfig::builder();
        if !roots.is_empty() {
            tls = tls.root_certs(RootCerts::new_with_certs(&roots));
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!plain)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls.build())
            .build()
            .new_agent();
        Ok(Self {
            agent,
            base: base.to_owned(),
            plain,
        })
    }

    fn uri(&self, target: &str) -> String {
        match target.starts_with('/') {
            true => format!("{}{target}", self.base),
            false => target.to_owned(),
        }
    }

    fn exchange(&self, request: &Request) -> Result<Reply, ureq::Error> {
        let timeout = Some(Duration::from_millis(request.timeout_ms));
        let mut builder = http::Request::builder()
            .method(request.method.name())
            .uri(self.uri(&request.target));
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let sent = match request.method {
            Method::Get | Method::Head => {
                let built = builder.body(())?;
                let configured = self.agent.configure_request(built).timeout_global(timeout);
                self.agent.run(configured.build())
            }
            Method::Post | Method::Put => {
                let builder = builder.header("content-type", "application/octet-stream");
                let built = builder.body(&request.body[..])?;
                let configured = self.agent.configure_request(built).timeout_global(timeout);
                self.agent.run(configured.build())
            }
        };
        let mut response = sent?;
        let offset = response
            .headers()
            .get(OFFSET_HEADER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok());
        let body = match request.method {
            Method::Head => Vec::new(),
            _ => response
                .body_mut()
                .with_config()
                .limit(request.max_reply as u64)
                .read_to_vec()?,
        };
        Ok(Reply {
            status: response.status().as_u16(),
            offset,
            body,
        })
    }
}

impl Transport for HttpTransport {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        debug_assert!(self.plain || self.uri(&request.target).starts_with("https://"));
        self.exchange(request)
            .map_err(|error| NetworkLost(error.to_string()))
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine() {
        for good in [
            "https://fl.example.org",
            "http://127.0.0.1:8080/",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(HttpTransport::new(good).is_ok(), "{good}");
        }
        for bad in [
            "http://fl.example.org",
            "http://127.0.0.1.example.org",
            "ftp://localhost",
            "localhost",
            "",
        ] {
            assert!(HttpTransport::new(bad).is_err(), "{bad}");
        }
        assert!(HttpTransport::insecure("http://fl.example.org").is_ok());
        assert!(HttpTransport::insecure("https://fl.example.org").is_err());
        assert!(HttpTransport::with_roots("https://a.example", &[b"no certificate"]).is_err());
    }

    /// Answers connections, each with the next of these responses, and returns the requests.
    fn answering(responses: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serve = move || {
            let mut requests = Vec::new();
            for response in responses {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut text, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    text.push_str(&line);
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                text.push_str(&String::from_utf8_lossy(&body));
                requests.push(text);
                stream.write_all(response.as_bytes()).unwrap();
            }
            requests
        };
        (base, std::thread::spawn(serve))
    }

    fn request(method: Method, max_reply: usize) -> Request {
        Request {
            method,
            target: "/v1/x?offset=3".to_owned(),
            headers: vec![("undertone-protocol", "1".to_owned())],
            body: b"body".to_vec().into(),
            max_reply,
            timeout_ms: 5000,
            blob: None,
        }
    }

    #[test]
    fn requests_and_replies_travel_whole_and_no_reply_exceeds_its_limit() {
        let (base, server) = answering(&[
            "HTTP/1.1 409 Conflict\r\ncontent-length: 5\r\nconnection: close\r\nundertone-offset: 77\r\n\r\nreply",
            "HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\nundertone-offset: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nreply",
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "",
        ]);
        let mut transport = HttpTransport::new(&base).unwrap();
        let put = transport.send(&request(Method::Put, 100)).unwrap();
        assert_eq!(
            (put.status, put.offset, &put.body[..]),
            (409, Some(77), &b"reply"[..])
        );
        let head = transport.send(&request(Method::Head, 100)).unwrap();
        assert_eq!((head.status, head.offset, head.body.len()), (200, Some(9), 0));
        assert!(transport.send(&request(Method::Get, 4)).is_err(), "too long");
        let redirect = transport.send(&request(Method::Post, 100)).unwrap();
        assert_eq!(redirect.status, 302, "a redirect is not followed");
        assert!(transport.send(&request(Method::Post, 100)).is_err(), "no reply");
        let requests = server.join().unwrap();
        assert!(requests[0].starts_with("PUT /v1/x?offset=3 HTTP/1.1\r\n"));
        assert!(requests[0].contains("undertone-protocol: 1\r\n") && requests[0].ends_with("\r\n\r\nbody"));
        assert!(
            requests[2].starts_with("GET /v1/x?offset=3 HTTP/1.1\r\n") && requests[2].ends_with("\r\n\r\n")
        );
    }

    /// One connection over TLS, by a certificate for `localhost` that signs itself.
    fn serving_tls() -> (String, String, std::thread::JoinHandle<bool>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let serve = move || {
            let (stream, _) = listener.accept().unwrap();
            let connection = rustls::ServerConnection::new(std::sync::Arc::new(config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut request = [0; 16];
            if stream.read_exact(&mut request).is_err() {
                return false;
            }
            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nreply";
            stream.write_all(reply).unwrap();
            stream.flush().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            true
        };
        (base, made.cert.pem(), std::thread::spawn(serve))
    }

    #[test]
    fn a_service_is_trusted_by_a_root_of_the_app_alone() {
        let (base, root, server) = serving_tls();
        let mut transport = HttpTransport::with_roots(&base, &[root.as_bytes()]).unwrap();
        let reply = transport.send(&request(Method::Get, 100)).unwrap();
        assert_eq!((reply.status, &reply.body[..]), (200, &b"reply"[..]));
        assert!(server.join().unwrap());

        let (base, _, server) = serving_tls();
        let mut transport = HttpTransport::new(&base).unwrap();
        assert!(
            transport.send(&request(Method::Get, 100)).is_err(),
            "no public root"
        );
        assert!(!server.join().unwrap(), "no byte of a request arrives");
        let (base, _, server) = serving_tls();
        let mut transport = HttpTransport::with_roots(&base, &[root.as_bytes()]).unwrap();
        assert!(
            transport.send(&request(Method::Get, 100)).is_err(),
            "another root"
        );
        assert!(!server.join().unwrap());
    }
}
