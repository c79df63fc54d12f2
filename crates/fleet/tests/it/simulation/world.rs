//! A service and its devices under a clock that the test moves. Processes die and come back, requests are lost, late and repeated.

mod network;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use undertone_device::{
    Action, Bytes, Ended, Event, Job, JobError, Machine, Memory, Reply, Request, Row, Trained,
};
use undertone_protocol::{Digest32, TaskState};
use undertone_service::server::Service;
use undertone_service_testing::{START, shared};
use undertone_store::{ManualClock, NewTask, Store as _};
use zeroize::Zeroizing;

use super::dispatch::carry;
use super::durable::{Crash, Durable};
use super::kinds::{Kind, Manner, Point};
use super::template::Template;
pub(crate) use network::cut;

/// Requests that are kept for replays.
const KEPT: usize = 64;

/// The fate of the next request of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    /// The service never gets the request.
    LostBefore,
    /// The service handles the request, and the reply is lost.
    LostAfter,
    Duplicated,
    /// The device gives the request up, and the service gets it at a later time.
    Late,
    /// The request is changed on its way, in one of several manners.
    Forged(u8),
}

/// A simulated device.
pub(crate) struct SimDevice {
    pub(crate) number: usize,
    pub(crate) subject: usize,
    /// The rows that were written. They outlive the process of the device.
    pub(crate) memory: Memory,
    pub(crate) machine: Option<Box<Machine>>,
    event: Option<Event>,
    pub(crate) wake: u64,
    pub(crate) fate: Fate,
    sessions: u64,
    pub(crate) ends: Vec<Ended>,
    /// The path of its last session, such as `/v1/agg/0/ab`.
    pub(crate) session: Option<String>,
    /// The point at which it leaves for good.
    pub(crate) leaves: Option<Point>,
    /// A request on its way, for whose reply the device waits.
    waits: Option<Waiting>,
}

/// A request that the network keeps back.
struct Waiting {
    request: Request,
    /// The total number of requests that arrive before this one, which also waits until the time `at`.
    after: u64,
    at: u64,
}

/// The course of a session, as the service answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SessionLog {
    pub(crate) subject: usize,
    pub(crate) joined: bool,
    pub(crate) committed: bool,
    pub(crate) late: bool,
    pub(crate) left: bool,
}

/// The outcome of sending.
enum Sending {
    Event(Event),
    /// The device has left.
    Left,
    /// The reply comes later.
    Waits,
}

/// A request that was sent, for replays.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) device: usize,
    pub(crate) request: Request,
}

/// A process of the service.
struct Process {
    service: Service,
    /// `false` for a process that is stopped: it answers, and does nothing on its own.
    ticks: bool,
}

/// Everything about one play of a template.
pub(crate) struct World<'t> {
    pub(crate) template: &'t Template,
    pub(crate) clock: ManualClock,
    pub(crate) durable: Arc<Durable>,
    processes: Vec<Process>,
    starts: u64,
    /// Requests go to this process, counted from the newest.
    pub(crate) route: usize,
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) held: Vec<Sent>,
    blobs: BTreeMap<Digest32, Bytes>,
    /// The longest pause between two sessions of a device, in milliseconds.
    pub(crate) max_pause: u64,
    /// Number of things that happened, by name: a history that does nothing shows nothing.
    pub(crate) happened: BTreeMap<&'static str, u64>,
    /// Replaces the update of a device, by its number.
    pub(crate) updates: Option<fn(usize, &mut [f32], f64)>,
    /// The sessions, in the order of their assignments.
    pub(crate) sessions: Vec<SessionLog>,
    /// The treatment of the messages of one kind.
    pub(crate) meddle: Option<(Kind, Manner)>,
    /// Number of requests that have arrived.
    arrived: u64,
    /// Number of messages that were treated so.
    pub(crate) meddled: u64,
}

impl<'t> World<'t> {
    /// A world of this template with one process.
    pub(crate) fn new(template: &'t Template) -> Self {
        Self::changed(template, |_| (), |_| ())
    }

    /// A world whose store goes by other rules than the task says.
    pub(crate) fn changed(
        template: &'t Template,
        rules: impl FnOnce(&mut NewTask),
        durable: impl FnOnce(&mut Durable),
    ) -> Self {
        let clock = ManualClock::at(START);
        let mut made = Durable::new(template.stores(&clock, rules));
        durable(&mut made);
        let device = |(number, subject): (usize, &usize)| SimDevice {
            number,
            subject: *subject,
            memory: Memory {
                certificate: Some(template.certificates[number].clone()),
                training_examples: 8,
                ..Memory::default()
            },
            machine: None,
            event: None,
            wake: START,
            fate: Fate::Delivered,
            sessions: 0,
            ends: Vec::new(),
            session: None,
            leaves: None,
            waits: None,
        };
        let mut world = Self {
            template,
            clock,
            durable: Arc::new(made),
            processes: Vec::new(),
            starts: 0,
            route: 0,
            devices: template.subjects.iter().enumerate().map(device).collect(),
            sent: Vec::new(),
            held: Vec::new(),
            blobs: BTreeMap::new(),
            max_pause: 2_000,
            happened: BTreeMap::new(),
            updates: None,
            sessions: Vec::new(),
            meddle: None,
            arrived: 0,
            meddled: 0,
        };
        world.start();
        // The first turn leads the task, and the second one opens an attempt.
        world.tick();
        world.tick();
        world
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    pub(crate) fn now(&self) -> u64 {
        self.durable.now()
    }

    /// Starts a process, beside those that run.
    pub(crate) fn start(&mut self) {
        self.starts += 1;
        let process = format!("process {}", self.starts);
        let shared = shared(self.durable.clone(), self.durable.clone(), &process);
        let service = Service::new(shared, self.template.rules.identity()).unwrap();
        self.processes.push(Process { service, ticks: true });
    }

    /// Number of processes that run.
    pub(crate) fn running(&self) -> usize {
        self.processes.len()
    }

    /// All processes that run stop to do anything on their own, and a new one starts.
    pub(crate) fn take_over(&mut self) {
        self.processes
            .iter_mut()
            .for_each(|process| process.ticks = false);
        self.start();
    }

    /// Stopped processes go on.
    pub(crate) fn wake_processes(&mut self) {
        self.processes.iter_mut().for_each(|process| process.ticks = true);
    }

    /// The newest process dies; what it knew is gone.
    pub(crate) fn kill(&mut self) {
        if self.processes.pop().is_some() {
            self.durable.restart();
            self.note("kill");
        }
    }

    /// Does what is due in every process that is not stopped.
    pub(crate) fn tick(&mut self) {
        let mut place = 0;
        while place < self.processes.len() {
            let process = &self.processes[place];
            if !process.ticks {
                place += 1;
                continue;
            }
            match survived(|| process.service.tick()) {
                // A store that cannot be reached is tried again at the next turn.
                Some(_) => place += 1,
                None => {
                    drop(self.processes.remove(place));
                    self.durable.restart();
                    self.note("crash in a tick");
                }
            }
        }
    }

    /// Carries a request to a process. `None` where nobody answers.
    pub(crate) fn carry(&mut self, request: &Request) -> Option<Reply> {
        let running = self.processes.len();
        let place = running.checked_sub(1)? - self.route.min(running - 1);
        let service = &self.processes[place].service;
        self.arrived += 1;
        let reply = survived(|| carry(service, request));
        if reply.is_none() {
            drop(self.processes.remove(place));
            self.durable.restart();
            self.note("crash in a request");
        }
        reply
    }

    /// Lets a device go on for so many actions, or until it sleeps.
    pub(crate) fn step(&mut self, number: usize, actions: usize) {
        for _ in 0..actions {
            if self.devices[number].wake > self.now() || !self.act(number) {
                return;
            }
        }
    }

    /// One action of a device; `false` where it sleeps then.
    fn act(&mut self, number: usize) -> bool {
        let now = self.now();
        let template = self.template;
        if let Some(waiting) = &self.devices[number].waits {
            // A minute without other messages ends the wait for them.
            if now < waiting.at || (self.arrived < waiting.after && now < waiting.at + 2000) {
                return false;
            }
            if let Some(Waiting { request, .. }) = self.devices[number].waits.take() {
                let reply = self.carry(&request);
                self.observe(number, Kind::of(&request), reply.as_ref());
                let event = reply.map_or(Event::NetworkLost, Event::Reply);
                self.devices[number].event = Some(event);
            }
        }
        let device = &mut self.devices[number];
        let event = device.event.take().unwrap_or(Event::Wake);
        if device.machine.is_none() {
            device.sessions += 1;
            let mut seed = Zeroizing::new([0; 32]);
            seed[..8].copy_from_slice(&device.sessions.to_le_bytes());
            seed[8..16].copy_from_slice(&(number as u64).to_le_bytes());
            let (setup, memory) = (template.setup.clone(), device.memory.clone());
            device.machine = Some(Box::new(Machine::new(
                setup,
                memory,
                template.signers[number].clone(),
                &seed,
            )));
        }
        let Some(machine) = &mut device.machine else {
            return false;
        };
        let event = match machine.step(now, event) {
            Action::Http(request) => match self.request(number, request) {
                Sending::Event(event) => event,
                Sending::Left => {
                    let device = &mut self.devices[number];
                    (device.machine, device.wake) = (None, u64::MAX);
                    return false;
                }
                Sending::Waits => return false,
            },
            Action::Train(job) => Event::Trained(self.train(number, *job)),
            Action::Persist(row) => {
                match &row {
                    Row::Blob { digest, bytes } => {
                        self.blobs.insert(*digest, Bytes::clone(bytes));
                    }
                    row => self.devices[number].memory.apply(row),
                }
                Event::Persisted
            }
            Action::SleepUntil(until) => {
                self.devices[number].wake = until.max(now + 1);
                return false;
            }
            Action::Done(outcome) => {
                let device = &mut self.devices[number];
                device.machine = None;
                if outcome.ended != Ended::Unreachable {
                    device.memory.window = Some(outcome.next_window);
                }
                device.ends.push(outcome.ended);
                device.wake = outcome.wake_ms.clamp(now + 1, now + self.max_pause);
                return false;
            }
        };
        self.devices[number].event = Some(event);
        true
    }

    fn train(&self, number: usize, job: Job) -> Result<Trained, JobError> {
        assert!(matches!(job.purpose(), undertone_device::Purpose::Train));
        let subject = self.devices[number].subject;
        let updates = self.updates;
        job.run_with(|update, norm| match updates {
            Some(updates) => updates(number, update, norm),
            None => {
                let length = update.len();
                update[subject % length] = norm as f32;
            }
        })
    }

    /// The process of a device dies. Its rows stay.
    pub(crate) fn vanish(&mut self, number: usize) {
        let now = self.now();
        let device = &mut self.devices[number];
        if device.machine.take().is_some() {
            (device.event, device.waits) = (None, None);
            device.wake = now + 1;
            self.note("vanish");
        }
    }

    /// Lets every device go on until it sleeps, and then the service.
    pub(crate) fn turn(&mut self) {
        if self.processes.is_empty() {
            self.start();
        }
        for number in 0..self.devices.len() {
            self.step(number, 200);
        }
        self.tick();
    }

    /// Turns with this time between them, until the task has released `round` rounds. Returns `false` after `turns` of them.
    pub(crate) fn run_until(&mut self, round: u64, turns: usize, pause: u64) -> bool {
        for _ in 0..turns {
            if self.round() >= round {
                return true;
            }
            self.turn();
            self.clock.advance(pause);
        }
        self.round() >= round
    }

    /// Number of released rounds.
    pub(crate) fn round(&self) -> u64 {
        self.durable.task(self.template.new_task.id).unwrap().head_round
    }

    pub(crate) fn state(&self) -> TaskState {
        self.durable.task(self.template.new_task.id).unwrap().state
    }
}

/// The value of an act of a process; `None` where the process died in it.
fn survived<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Crash>() => None,
        // A panic of the product fails the test.
        Err(payload) => resume_unwind(payload),
    }
}
