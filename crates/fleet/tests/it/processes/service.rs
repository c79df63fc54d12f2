//! Three processes over one database, and the fleet that goes to all of them.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use undertone_device::{HttpTransport, NetworkLost, Reply, Request, Transport};
use undertone_fleet::{Doom, Fleet, FleetConfig, FleetError, Kill, Launch, MachineClock, Transports};
use undertone_protocol::{CheckInReply, TaskState, check_in_reply, limits, read};
use undertone_service::data_folder;
use undertone_service_testing::users;
use undertone_store::{Postgres, Store, TaskId};

use super::agreement::{Released, check};
use super::child::{FOLDER, LEASE, LEASE_TIME, NAME, ROLES, address_file};
use super::seen::Seen;
use super::task::{Size, create_task, data, drawn, fleet_config, temporary, witness};
use crate::server::Server;

/// The names of the processes.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A play that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(900);

/// Every role for every process.
pub(crate) const EVERYTHING: [&str; 3] = ["front,aggregator,leader"; 3];

/// A process of the service.
struct Node {
    kill: Kill,
    /// The address at which devices reach the process, while it runs.
    address: Option<String>,
    /// The number of starts of the process.
    life: u64,
    /// The time at which the process is started again.
    again: Option<Instant>,
    paused: bool,
}

/// A service of three processes, over the machine's clock.
pub(crate) struct Service {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) task: TaskId,
    pub(crate) size: Size,
    seed: u64,
    /// The store as an outsider sees it.
    pub(crate) store: Postgres,
    nodes: Mutex<Vec<Node>>,
    seen: Mutex<Seen>,
    /// The roles of each process.
    roles: [&'static str; 3],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// A new database with one active task. No process runs yet.
    pub(crate) fn new(server: &Server, size: Size, seed: u64) -> Arc<Self> {
        Self::with_roles(server, size, seed, EVERYTHING)
    }

    /// A service whose processes have these roles.
    pub(crate) fn with_roles(server: &Server, size: Size, seed: u64, roles: [&'static str; 3]) -> Arc<Self> {
        Self::with_leases(server, size, seed, roles, LEASE)
    }

    /// A service whose processes have these roles, and leases of this many milliseconds.
    pub(crate) fn with_leases(
        server: &Server,
        size: Size,
        seed: u64,
        roles: [&'static str; 3],
        lease: u64,
    ) -> Arc<Self> {
        Self::at(&server.database(), size, seed, roles, lease)
    }

    /// A service over this empty database.
    pub(crate) fn at(url: &str, size: Size, seed: u64, roles: [&'static str; 3], lease: u64) -> Arc<Self> {
        let folder = temporary();
        data_folder::keep_on_server(&data(folder.path()), url).unwrap();
        let shared =
            data_folder::open_beside(&data(folder.path()), Some(&witness(folder.path())), "setup").unwrap();
        let task = create_task(&shared, size);
        drop(shared);
        let nodes = NAMES
            .into_iter()
            .zip(roles)
            .map(|(name, roles)| Node {
                kill: Kill::new(
                    launch(folder.path(), name, roles, lease),
                    drawn(&[seed, u64::from(name.as_bytes()[0])]),
                ),
                address: None,
                life: 0,
                again: None,
                paused: false,
            })
            .collect();
        Arc::new(Self {
            task,
            size,
            store: Postgres::open(url).unwrap(),
            seed,
            nodes: Mutex::new(nodes),
            seen: Mutex::default(),
            folder,
            roles,
        })
    }

    /// Starts a process.
    pub(crate) fn start(&self, number: usize, doom: Doom) {
        let mut nodes = lock(&self.nodes);
        let node = &mut nodes[number];
        let _ = fs::remove_file(address_file(self.folder.path(), NAMES[number]));
        node.kill.start(doom).unwrap();
        node.life += 1;
        node.address = None;
        node.again = None;
    }

    /// Sees which processes listen, and which have ended. Returns the numbers of those that ended since the last look.
    pub(crate) fn look(&self) -> Vec<usize> {
        let mut ended = Vec::new();
        for (number, node) in lock(&self.nodes).iter_mut().enumerate() {
            if node.kill.is_running() && node.kill.poll().unwrap().is_some() {
                node.address = None;
                ended.push(number);
            }
            if node.kill.is_running() && node.address.is_none() && self.roles[number].contains("front") {
                let file = address_file(self.folder.path(), NAMES[number]);
                node.address = fs::read_to_string(file)
                    .ok()
                    .map(|address| format!("http://{address}"));
            }
        }
        ended
    }

    /// Starts the processes that ended again, each after a pause of up to `max` that the seed draws.
    pub(crate) fn revive(&self, max: Duration, mut doom: impl FnMut(usize) -> Doom) {
        for number in self.look() {
            let mut nodes = lock(&self.nodes);
            let node = &mut nodes[number];
            let part = drawn(&[self.seed, number as u64, node.life]) % 1000;
            node.again = Some(Instant::now() + max * part as u32 / 1000);
        }
        for number in 0..NAMES.len() {
            let due = lock(&self.nodes)[number]
                .again
                .is_some_and(|at| at <= Instant::now());
            if due {
                self.start(number, doom(number));
            }
        }
    }

    /// Asks a process to end, as an operator does.
    pub(crate) fn terminate(&self, number: usize) {
        lock(&self.nodes)[number].kill.terminate().unwrap();
    }

    /// Kills a process.
    pub(crate) fn kill(&self, number: usize) {
        let mut nodes = lock(&self.nodes);
        nodes[number].kill.kill().unwrap();
        nodes[number].address = None;
    }

    /// Starts a killed process again after up to a second.
    pub(crate) fn again(&self, number: usize) {
        let mut nodes = lock(&self.nodes);
        let part = drawn(&[self.seed, number as u64, nodes[number].life]) % 1000;
        nodes[number].again = Some(Instant::now() + Duration::from_millis(part));
    }

    /// Stops a process by SIGSTOP, or lets it go on.
    pub(crate) fn pause(&self, number: usize, pause: bool) {
        let mut nodes = lock(&self.nodes);
        let node = &mut nodes[number];
        match pause {
            true => node.kill.pause().unwrap(),
            false => node.kill.resume().unwrap(),
        }
        node.paused = pause;
    }

    /// `true` while a process runs.
    pub(crate) fn is_running(&self, number: usize) -> bool {
        lock(&self.nodes)[number].kill.is_running()
    }

    /// The visits of a fail point in all processes so far.
    pub(crate) fn visits(&self, point: &str) -> [usize; 3] {
        NAMES.map(|name| {
            let path = self.folder.path().join(format!("visits-{name}"));
            let text = fs::read_to_string(path).unwrap_or_default();
            text.lines().filter(|line| *line == point).count()
        })
    }

    /// Number of ends of all processes so far.
    pub(crate) fn deaths(&self) -> u64 {
        lock(&self.nodes).iter().map(|node| node.kill.deaths()).sum()
    }

    /// The number of the process that leads the task.
    pub(crate) fn leader(&self) -> Option<usize> {
        let row = self.store.task(self.task).ok()?;
        let holder = row.holder.filter(|holder| holder.until > self.store.now())?;
        NAMES.iter().position(|name| *name == holder.process)
    }

    /// The number of released rounds, and whether the task has ended. Nothing while the database is down.
    pub(crate) fn progress(&self) -> Option<(u64, bool)> {
        let row = self.store.task(self.task).ok()?;
        lock(&self.seen).heads.push(row.head_round);
        assert_ne!(
            row.state,
            TaskState::Halted,
            "the task was halted: {}",
            self.log()
        );
        Some((row.head_round, row.state == TaskState::Completed))
    }

    /// The last words of the processes.
    pub(crate) fn log(&self) -> String {
        let mut all = String::new();
        for name in NAMES {
            let text = fs::read_to_string(self.folder.path().join(format!("log-{name}"))).unwrap_or_default();
            let start = text.floor_char_boundary(text.len().saturating_sub(2500));
            all.push_str(&format!("--- {name}\n{}\n", &text[start..]));
        }
        all
    }

    /// The addresses of all processes, once each of them listens.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let begun = Instant::now();
        loop {
            self.look();
            let nodes = lock(&self.nodes);
            let found: Option<Vec<String>> = nodes.iter().map(|node| node.address.clone()).collect();
            drop(nodes);
            if let Some(found) = found {
                let bare = |address: &String| address.trim_start_matches("http://").to_owned();
                return found.iter().map(bare).collect();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "a process does not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Notes what a device was served.
    pub(crate) fn note(&self, request: &Request, reply: &Reply) {
        let mut seen = lock(&self.seen);
        seen.note(request, reply);
        // Replies of several workers have no common order.
        seen.rounds.clear();
    }

    /// Lets a fleet with these connections run until the task has ended, and checks everything. All processes run.
    pub(crate) fn play_over(
        self: &Arc<Self>,
        devices: usize,
        transports: impl Transports + 'static,
    ) -> Released {
        let begun = Instant::now();
        let fleet = self.fleet_over(devices, transports);
        fleet
            .enrol()
            .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
        fleet
            .run_until(|| {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "the task does not end: {}",
                    self.log()
                );
                self.look();
                self.progress().is_some_and(|(_, over)| over)
            })
            .unwrap();
        self.end(&fleet)
    }

    /// A fleet that goes to all fronts.
    pub(crate) fn fleet(self: &Arc<Self>, devices: usize) -> Fleet<'static> {
        self.fleet_over(devices, ToFronts(self.clone()))
    }

    fn fleet_over(self: &Arc<Self>, devices: usize, transports: impl Transports + 'static) -> Fleet<'static> {
        let config = FleetConfig {
            clock: Arc::new(MachineClock),
            seed: self.seed,
            workers: 3,
            max_pause_ms: 2000,
            start_spread_ms: 500,
            ..fleet_config(self.folder.path(), devices)
        };
        Fleet::new(config, users(devices), transports).unwrap()
    }

    /// Starts all processes, lets the fleet run until the task has ended, and checks everything. `meanwhile` is called many times per
    /// second with the number of released rounds.
    pub(crate) fn play(
        self: &Arc<Self>,
        devices: usize,
        mut doom: impl FnMut(usize) -> Doom,
        mut meanwhile: impl FnMut(u64),
    ) -> Released {
        let mut lives = true;
        for number in 0..NAMES.len() {
            let doom = doom(number);
            lives &= matches!(doom, Doom::None);
            self.start(number, doom);
        }
        let begun = Instant::now();
        let fleet = self.fleet(devices);
        while !self.has_fronts(lives) {
            self.look();
            assert!(begun.elapsed() < PATIENCE, "no process starts: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        if lives {
            self.await_all();
        }
        // Processes may die before the first round, too.
        while let Err(error) = fleet.enrol() {
            assert!(begun.elapsed() < PATIENCE, "{error}: {}", self.log());
            meanwhile(0);
        }
        let mut head = 0;
        fleet
            .run_until(|| {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "the task does not end: {}",
                    self.log()
                );
                meanwhile(head);
                match self.progress() {
                    Some((released, over)) => {
                        head = released;
                        over
                    }
                    None => false,
                }
            })
            .unwrap();
        self.end(&fleet)
    }

    /// Lets the last process publish what it has committed, ends all, and checks everything.
    pub(crate) fn end(&self, fleet: &Fleet<'_>) -> Released {
        let begun = Instant::now();
        let over = || {
            self.store
                .unpublished(self.task)
                .is_ok_and(|rows| rows.is_empty())
                && self.staged().is_empty()
        };
        while !over() {
            // A process that died after the last commit leaves its publication to the next one.
            self.revive(Duration::ZERO, |_| Doom::None);
            assert!(
                begun.elapsed() < PATIENCE,
                "the last round is not published: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        for number in 0..NAMES.len() {
            if lock(&self.nodes)[number].paused {
                self.pause(number, false);
            }
            self.kill(number);
        }
        let seen = lock(&self.seen).clone();
        // On a busy machine a process may be taken for dead, and its sessions are lost with it, as they are at quick deadlines.
        let size = Size {
            quick: true,
            ..self.size
        };
        check(self.folder.path(), self.task, size, &seen, fleet)
    }

    fn staged(&self) -> Vec<undertone_store::AttemptId> {
        use undertone_store::{Blobs as _, FolderBlobs};
        let folder = data(self.folder.path()).join(data_folder::BLOBS);
        FolderBlobs::open(&folder).unwrap().staged().unwrap()
    }

    /// Waits until each process can know all others, so that the first round that devices take part in is spread over them.
    pub(crate) fn await_all(&self) {
        let begun = Instant::now();
        while self.store.processes().unwrap().len() < NAMES.len() {
            assert!(begun.elapsed() < PATIENCE, "a process is missing: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Devices reach a front, or every front.
    fn has_fronts(&self, every: bool) -> bool {
        let nodes = lock(&self.nodes);
        let mut fronts = nodes
            .iter()
            .zip(self.roles)
            .filter(|(_, roles)| roles.contains("front"))
            .map(|(node, _)| node.address.is_some());
        match every {
            true => fronts.all(|reached| reached),
            false => fronts.any(|reached| reached),
        }
    }

    fn place(&self, number: usize) -> Option<(String, u64)> {
        let nodes = lock(&self.nodes);
        let node = &nodes[number];
        (!node.paused).then_some(())?;
        Some((node.address.clone()?, node.life))
    }
}

fn launch(folder: &Path, name: &str, roles: &str, lease: u64) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .arg("processes::child::a_child_process_serves_in_its_roles")
        .arg("--nocapture")
        .env(FOLDER, folder)
        .env(NAME, name)
        .env(ROLES, roles)
        .env(LEASE_TIME, lease.to_string())
        .env(
            "UNDERTONE_FAIL_POINT_VISITS",
            folder.join(format!("visits-{name}")),
        )
        .env("UNDERTONE_FAIL_POINT_DRAWS", folder.join("draws"))
        .log(folder.join(format!("log-{name}")))
}

/// The connection of a worker. It goes to one front, and to the next one where that does not answer.
struct Connection {
    service: Arc<Service>,
    front: usize,
    http: Option<(u64, HttpTransport)>,
    /// The round of the last assignment.
    round: u64,
}

impl Connection {
    fn exchange(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let lost = || NetworkLost("every process is down".to_owned());
        // A balancer sends nothing to a process that does not listen.
        let next = |step| (self.front + step) % NAMES.len();
        let found = (0..NAMES.len())
            .map(next)
            .find_map(|front| Some((front, self.service.place(front)?)));
        let (front, (address, life)) = found.ok_or_else(lost)?;
        if front != self.front {
            self.front = front;
            self.http = None;
        }
        if self.http.as_ref().is_none_or(|(known, _)| *known != life) {
            self.http = Some((life, HttpTransport::new(&address).unwrap()));
        }
        let (_, http) = self.http.as_mut().ok_or_else(lost)?;
        http.send(request)
    }
}

impl Transport for Connection {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let reply = match self.exchange(request) {
            Ok(reply) => reply,
            Err(lost) => {
                self.front = (self.front + 1) % NAMES.len();
                self.http = None;
                std::thread::sleep(Duration::from_millis(5));
                return Err(lost);
            }
        };
        if request.target.ends_with("/check-in") && reply.status == 200 {
            let answer: CheckInReply = read("the reply", &reply.body, limits::MAX_MESSAGE).unwrap();
            if let Some(check_in_reply::Reply::Assignment(assignment)) = answer.reply {
                // Whichever front answers, a worker that has seen a round sees no earlier one.
                assert!(assignment.round >= self.round, "the head fell");
                self.round = assignment.round;
            }
        }
        self.service.note(request, &reply);
        Ok(reply)
    }
}

struct ToFronts(Arc<Service>);

impl Transports for ToFronts {
    fn open(&self, worker: usize) -> Result<Box<dyn Transport>, FleetError> {
        Ok(Box::new(Connection {
            service: self.0.clone(),
            front: worker % NAMES.len(),
            http: None,
            round: 0,
        }))
    }
}
