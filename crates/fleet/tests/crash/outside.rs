//! The side of the devices: a child that dies and is started again, the requests to it, and everything that it was seen to serve.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use undertone_device::{HttpTransport, Method, NetworkLost, Reply, Request, Transport};
use undertone_fleet::{Doom, FleetClock, FleetError, Kill, Launch, Transports};
use undertone_service_testing::{START, fleet_clock};

use super::child::{BEGIN, CLOCK, FOLDER, PROGRESS, address_file, show};
use super::seen::Seen;

/// The time that a child has to start. A start takes a fraction of a second on an idle machine.
const TO_START: Duration = Duration::from_secs(120);

/// The clock of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildClock {
    Virtual,
    Machine,
}

/// The end of each life of a child, by the number of its start, from 1, and the round of the last head that was seen.
pub(crate) type Dooms = Box<dyn FnMut(u64, u64) -> Doom + Send>;

/// The dooms of a list, one per start, and none after the last.
pub(crate) fn listed(dooms: Vec<Doom>) -> Dooms {
    Box::new(move |start, _| dooms.get(start as usize - 1).cloned().unwrap_or(Doom::None))
}

/// A child that serves a data folder. Devices reach it over sockets, whichever of its lives it is in.
pub(crate) struct Outside {
    pub(crate) folder: PathBuf,
    now: AtomicU64,
    clock: ChildClock,
    wire: Mutex<Wire>,
}

struct Wire {
    kill: Kill,
    dooms: Dooms,
    /// Max number of starts.
    patience: u64,
    address: String,
    lives: u64,
    control: Option<HttpTransport>,
    seen: Seen,
}

impl Outside {
    /// A child that is not started yet, and is started at most `patience` times.
    pub(crate) fn new(folder: &Path, clock: ChildClock, dooms: Dooms, patience: u64, seed: u64) -> Arc<Self> {
        let launch = Launch::new(std::env::current_exe().unwrap());
        Self::launched(launch, folder, clock, dooms, patience, seed)
    }

    /// A child whose system calls of these kinds are listed in a file.
    pub(crate) fn traced(folder: &Path, calls: &str, list: &Path) -> Arc<Self> {
        // The tracer is a process of its own, so that the child is the process that is waited for.
        let launch = ["-D", "-f", "-y", "-s", "64", "-e", calls, "-o"]
            .into_iter()
            .fold(Launch::new("strace"), Launch::arg)
            .arg(list)
            .arg(std::env::current_exe().unwrap());
        Self::launched(launch, folder, ChildClock::Virtual, listed(Vec::new()), 1, 1)
    }

    fn launched(
        launch: Launch,
        folder: &Path,
        clock: ChildClock,
        dooms: Dooms,
        patience: u64,
        seed: u64,
    ) -> Arc<Self> {
        let name = match clock {
            ChildClock::Virtual => "virtual",
            ChildClock::Machine => "real",
        };
        let launch = launch
            .arg("--exact")
            .arg("child::a_child_process_runs_the_service")
            .arg("--nocapture")
            .env(FOLDER, folder)
            .env(CLOCK, name)
            .env("UNDERTONE_FAIL_POINT_VISITS", folder.join("visits"))
            .env("UNDERTONE_FAIL_POINT_DRAWS", folder.join("draws"))
            .log(folder.join("log"));
        Arc::new(Self {
            folder: folder.to_owned(),
            now: AtomicU64::new(START),
            clock,
            wire: Mutex::new(Wire {
                kill: Kill::new(launch, seed),
                patience,
                dooms,
                address: String::new(),
                lives: 0,
                control: None,
                seen: Seen::default(),
            }),
        })
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the time at which the child does what is due.
    pub(crate) fn at(&self, now: u64) {
        self.now.store(now, Ordering::SeqCst);
    }

    /// Starts the child where it does not run.
    fn revive(&self, wire: &mut Wire) {
        if wire.kill.is_running() && wire.kill.poll().unwrap().is_none() {
            return;
        }
        loop {
            let start = wire.kill.starts() + 1;
            assert!(
                start <= wire.patience,
                "the child ended {} times: {}",
                start - 1,
                self.log()
            );
            let visits = self.folder.join("visits");
            if visits.exists() {
                fs::rename(&visits, self.visits_of(start - 1)).unwrap();
            }
            show(
                &self.folder.join(BEGIN),
                &format!("{start} {}", self.now.load(Ordering::SeqCst)),
            );
            let doom = (wire.dooms)(start, wire.seen.heads.last().copied().unwrap_or(0));
            wire.kill.start(doom).unwrap();
            let address = address_file(&self.folder, start);
            let ready = match wire.kill.wait_ready(TO_START, || address.exists()) {
                Ok(ready) => ready,
                Err(FleetError::Late { .. }) => panic!("the child does not start: {}", self.log()),
                Err(error) => panic!("{error}"),
            };
            if ready {
                wire.address = format!("http://{}", fs::read_to_string(address).unwrap());
                wire.lives += 1;
                wire.control = None;
                return;
            }
        }
    }

    fn visits_of(&self, start: u64) -> PathBuf {
        self.folder.join(format!("visits-{start}"))
    }

    /// The fail points that a start visited, each with its number of visits.
    pub(crate) fn visits(&self, start: u64) -> BTreeMap<String, u64> {
        let last = match self.visits_of(start) {
            path if path.exists() => path,
            _ => self.folder.join("visits"),
        };
        let mut counts = BTreeMap::new();
        for line in fs::read_to_string(last).unwrap_or_default().lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    /// The last words of the child.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let start = text.len().saturating_sub(3000);
        text.get(start..).unwrap_or(&text).to_owned()
    }

    /// Sends a request of the test itself.
    fn control(&self, wire: &mut Wire, target: String) -> Option<String> {
        self.revive(wire);
        let control = wire
            .control
            .get_or_insert_with(|| HttpTransport::new(&wire.address).unwrap());
        let request = Request {
            method: Method::Get,
            target,
            headers: Vec::new(),
            body: Vec::new().into(),
            max_reply: 1000,
            timeout_ms: 60_000,
            blob: None,
        };
        let reply = control.send(&request).ok()?;
        assert_eq!(reply.status, 200, "{}", self.log());
        Some(String::from_utf8(reply.body).unwrap())
    }

    /// Lets the child do what is due. `true` once the task is completed.
    pub(crate) fn tick(&self) -> bool {
        let mut guard = self.wire();
        let wire = &mut *guard;
        let progress = match self.clock {
            ChildClock::Virtual => {
                let now = self.now.load(Ordering::SeqCst);
                self.control(wire, format!("/test/tick?now={now}"))
            }
            ChildClock::Machine => {
                let progress = fs::read_to_string(self.folder.join(PROGRESS)).ok();
                if progress
                    .as_ref()
                    .is_none_or(|progress| !progress.ends_with("Completed"))
                {
                    self.revive(wire);
                }
                progress
            }
        };
        let Some(progress) = progress else { return false };
        let (head, state) = progress.split_once(' ').unwrap();
        wire.seen.heads.push(head.parse().unwrap());
        // By the clock of the machine, the test would wait for ever.
        assert!(
            self.clock == ChildClock::Virtual || state != "Paused",
            "the task paused in round {head}: too few devices are left that may take part"
        );
        state == "Completed"
    }

    /// The clock of a fleet, which moves that of the child.
    pub(crate) fn fleet_clock(self: &Arc<Self>) -> Arc<dyn FleetClock> {
        let outside = self.clone();
        fleet_clock(move |now| outside.at(now))
    }

    /// Asks the child to end its work. It ends by itself afterwards.
    pub(crate) fn close(&self) {
        let mut guard = self.wire();
        let _ = self.control(&mut guard, "/test/close".to_owned());
    }

    /// Stops the child by SIGSTOP, does something, and lets it go on.
    pub(crate) fn stand_still(&self, meanwhile: impl FnOnce()) {
        let wire = self.wire();
        wire.kill.pause().unwrap();
        meanwhile();
        wire.kill.resume().unwrap();
    }

    /// Kills the child, and gives what it was seen to do.
    pub(crate) fn end(&self) -> Seen {
        let mut wire = self.wire();
        wire.kill.kill().unwrap();
        wire.seen.clone()
    }

    /// Number of starts and of deaths so far.
    pub(crate) fn lives(&self) -> (u64, u64) {
        let wire = self.wire();
        (wire.kill.starts(), wire.kill.deaths())
    }

    /// Number of assignments so far.
    pub(crate) fn assignments(&self) -> usize {
        self.wire().seen.rounds.len()
    }
}

/// The connection of a worker, which is made anew for each life of the child.
struct Connection {
    outside: Arc<Outside>,
    life: u64,
    http: Option<HttpTransport>,
}

impl Transport for Connection {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let mut guard = self.outside.wire();
        let wire = &mut *guard;
        self.outside.revive(wire);
        if self.life != wire.lives {
            self.life = wire.lives;
            self.http = None;
        }
        let http = self
            .http
            .get_or_insert_with(|| HttpTransport::new(&wire.address).unwrap());
        let reply = http.send(request)?;
        wire.seen.note(request, &reply);
        Ok(reply)
    }
}

/// The connections of a fleet to a child.
pub(crate) struct ToChild(pub(crate) Arc<Outside>);

impl Transports for ToChild {
    fn open(&self, _: usize) -> Result<Box<dyn Transport>, FleetError> {
        Ok(Box::new(Connection {
            outside: self.0.clone(),
            life: 0,
            http: None,
        }))
    }
}
