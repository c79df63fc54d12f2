//! A TCP proxy between devices and a service, which delays, cuts and stalls connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{FleetError, Result};

/// The time between two looks at the end of the proxy.
const LOOK: Duration = Duration::from_millis(20);

/// Max bytes that are forwarded at once.
const PART: usize = 16 << 10;

/// The treatment of one connection. Bytes are those of the TCP stream, headers and TLS included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conduct {
    /// The delay of each part of up to 16 KiB, in either direction.
    pub delay: Duration,
    /// Cut the connection after so many bytes to the service.
    pub cut_up_after: Option<u64>,
    /// Cut the connection after so many bytes to the device. With 0 the service answers into the void.
    pub cut_down_after: Option<u64>,
    /// Forward nothing to the service after so many bytes, and keep the connection open.
    pub stall_up_after: Option<u64>,
    /// Forward nothing to the device after so many bytes, and keep the connection open.
    pub stall_down_after: Option<u64>,
}

type Rule = dyn Fn(u64) -> Conduct + Send + Sync;

struct Shared {
    target: SocketAddr,
    rule: Box<Rule>,
    over: AtomicBool,
    connections: AtomicU64,
    cuts: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A running proxy. It ends, with all its connections, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("target", &self.shared.target)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy on a free port of this machine. `rule` names the treatment of each connection by its number, from 0.
    ///
    /// # Errors
    /// [`FleetError::Io`] where no port can be bound.
    pub fn start(target: SocketAddr, rule: impl Fn(u64) -> Conduct + Send + Sync + 'static) -> Result<Self> {
        let failed = |source| FleetError::io("bind a port for the proxy", source);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            target,
            rule: Box::new(rule),
            over: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            threads: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let listening = Some(std::thread::spawn(move || listen(&listener, &served)));
        Ok(Self {
            address,
            shared,
            listening,
        })
    }

    /// The address that devices connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections that were accepted.
    #[cfg(test)]
    fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Number of connections that the proxy cut.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        let threads =
            std::mem::take(&mut *self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.over.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        let conduct = (shared.rule)(shared.connections.fetch_add(1, Ordering::SeqCst));
        let ways = TcpStream::connect(shared.target).and_then(|service| {
            let back = (service.try_clone()?, client.try_clone()?);
            Ok([((client, service), true), (back, false)])
        });
        // A service that is down is a closed connection for the device.
        let Ok(ways) = ways else { continue };
        let mut threads = shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        for ((from, to), up) in ways {
            let shared = Arc::clone(shared);
            threads.push(std::thread::spawn(move || {
                pump(&from, &to, up, &conduct, &shared);
            }));
        }
    }
}

/// Forwards bytes in one direction until either side closes, the conduct cuts, or the proxy ends.
fn pump(mut from: &TcpStream, mut to: &TcpStream, up: bool, conduct: &Conduct, shared: &Shared) {
    let (cut, stall) = match up {
        true => (conduct.cut_up_after, conduct.stall_up_after),
        false => (conduct.cut_down_after, conduct.stall_down_after),
    };
    let _ = from.set_read_timeout(Some(LOOK));
    let _ = to.set_nodelay(true);
    let (mut forwarded, mut part) = (0u64, vec![0; PART]);
    while !shared.over.load(Ordering::SeqCst) {
        let got = match from.read(&mut part) {
            Ok(0) => {
                // Half of a connection may close before the other.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(got) => got,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        std::thread::sleep(conduct.delay);
        let room = |limit: Option<u64>| limit.map_or(u64::MAX, |limit| limit - forwarded.min(limit));
        let (to_cut, to_stall) = (room(cut), room(stall));
        let allowed = to_cut.min(to_stall).min(got as u64);
        if to.write_all(&part[..allowed as usize]).is_err() {
            break;
        }
        forwarded += allowed;
        if allowed < got as u64 {
            if to_cut <= to_stall {
                shared.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
            while !shared.over.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
            }
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A service that answers each connection with the bytes that it gets.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 1000];
                    while let Ok(got) = stream.read(&mut bytes) {
                        if got == 0 || stream.write_all(&bytes[..got]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// The bytes that come back for 1000 bytes, within 500 ms.
    fn exchanged(proxy: &Proxy) -> usize {
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = stream.write_all(&[7; 1000]);
        let (mut all, mut bytes) = (0, [0; 1000]);
        while all < 1000 {
            match stream.read(&mut bytes) {
                Ok(got) if got > 0 => all += got,
                _ => break,
            }
        }
        all
    }

    #[test]
    fn connections_are_forwarded_whole_and_late() {
        let delay = Duration::from_millis(60);
        let proxy = Proxy::start(echo(), move |_| Conduct {
            delay,
            ..Conduct::default()
        })
        .unwrap();
        let started = Instant::now();
        assert_eq!(exchanged(&proxy), 1000);
        assert!(started.elapsed() >= 2 * delay);
        assert_eq!((proxy.connections(), proxy.cuts()), (1, 0));
    }

    #[test]
    fn a_connection_is_cut_at_the_named_byte_of_either_direction() {
        let proxy = Proxy::start(echo(), |number| match number {
            0 => Conduct {
                cut_up_after: Some(300),
                ..Conduct::default()
            },
            1 => Conduct {
                cut_down_after: Some(0),
                ..Conduct::default()
            },
            _ => Conduct::default(),
        })
        .unwrap();
        assert!(exchanged(&proxy) <= 300);
        assert_eq!(exchanged(&proxy), 0);
        assert_eq!(exchanged(&proxy), 1000);
        assert_eq!((proxy.connections(), proxy.cuts()), (3, 2));
    }

    #[test]
    #[ignore = "slow"]
    fn a_stalled_connection_stays_open_and_ends_with_the_proxy() {
        let proxy = Proxy::start(echo(), |_| Conduct {
            stall_down_after: Some(400),
            ..Conduct::default()
        })
        .unwrap();
        let started = Instant::now();
        assert_eq!(exchanged(&proxy), 400);
        assert!(
            started.elapsed() >= Duration::from_millis(400),
            "it was not closed"
        );
        assert_eq!(proxy.cuts(), 0);
        drop(proxy);
    }

    #[test]
    fn a_service_that_is_down_closes_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        let proxy = Proxy::start(nobody, |_| Conduct::default()).unwrap();
        assert_eq!(exchanged(&proxy), 0);
    }
}
