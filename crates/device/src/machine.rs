//! One session of a device, without sockets, clocks, threads or entropy.
//!
//! | state | action | left by |
//! |---|---|---|
//! | board | GET board | a task that the device is eligible for |
//! | session keys | POST session-keys, where the stock runs low | certificates, which are written |
//! | check-in | POST check-in | an assignment, whose head is written |
//! | blobs | GET plan, vocabulary, frozen parameters, model | bytes with the named digests |
//! | training | the job | a clipped and encoded update |
//! | participation | the row is written | the row is durable |
//! | join | POST join | an upload grant, or a queue |
//! | messages | GET next; POST shares, consistency, unmask | the messages of the secure sum |
//! | upload | PUT chunks, HEAD after a loss, POST commit | the whole update |
//! | end | GET next | the verdict |
//!
//! Every request can be sent again after a lost reply: its bytes are kept until the reply has arrived, and an update is masked once.

mod entry;
mod exchange;
mod fetch;
mod stage;

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use undertone_protocol::{
    Code, Digest32, PROTOCOL_HEADER, Problem, RequestSignature, RetryWindow, SIGNATURE_HEADER, Signer,
    TrustedKeys, Verdict,
};
use zeroize::Zeroizing;

use crate::conditions::Unmet;
use crate::eligibility::Ineligible;
use crate::error::{Refusal, shown};
use crate::floors::{Limits, PolicyFloors};
use crate::held::NamedRelease;
use crate::job::{Job, JobError, Trained};
use crate::memory::{Memory, PLAN_BACKOFF, Row, StockedKey};
use crate::shared::Shared;
use crate::wire::{Bytes, Reply, Request, is_path_segment};

pub(crate) use entry::Session;
use entry::{CheckingIn, Requesting};
use exchange::{Answer, Exchange, Upload};
use fetch::Fetching;
pub(crate) use fetch::load_model;

/// Max number of times that a request is sent without progress.
const MAX_TRIES: u32 = 8;

/// Max number of times that a board is asked for. More would bring every device of an outage back in the minute after it.
const MAX_BOARD_TRIES: u32 = 2;

/// Bounds on a wait inside a session, in milliseconds.
const WAIT: (u64, u64) = (1000, 60_000);

/// The longest time that a server can send a device away, in milliseconds.
pub(crate) const LONGEST_ABSENCE: u64 = 7 * 24 * 3_600_000;

/// The window after a run that reached no service, for a device that no service has named a window, in milliseconds.
const UNREACHABLE: (u64, u64) = (15 * 60_000, 60 * 60_000);

/// The window where nobody named one, in milliseconds.
const USUAL: (u64, u64) = (3_600_000, 2 * 3_600_000);

/// The settings of a device that do not change from session to session.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The population, a name that can stand in a path.
    pub population: String,
    /// The keys of the service, which sign boards.
    pub board_keys: TrustedKeys,
    /// The keys whose plans the device follows.
    pub task_keys: TrustedKeys,
    /// The issuers whose certificates the device accepts.
    pub issuers: TrustedKeys,
    /// The floors.
    pub floors: PolicyFloors,
    /// The limits of a session.
    pub limits: Limits,
    /// The version of the app.
    pub client_version: u32,
    /// Evidence of the platform for check-ins; empty without attestation.
    pub evidence: Vec<u8>,
}

/// An input of a machine.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it may hold an update or a token"
)]
pub enum Event {
    /// The start, and the end of a sleep.
    Wake,
    /// The reply to the last request.
    Reply(Reply),
    /// The blob of the last request, from the host's cache. The machine checks its digest.
    Cached(Bytes),
    /// The last request got no reply. It may have reached the service.
    NetworkLost,
    /// The last row was written, durably where its kind says so.
    Persisted,
    /// The job has ended.
    Trained(Result<Trained, JobError>),
    /// The host stops the session.
    Stopped,
}

/// An output of a machine. The host carries it out and reports back with an [`Event`].
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it may hold an update or a token"
)]
pub enum Action {
    /// Send this request.
    Http(Request),
    /// Train.
    Train(Box<Job>),
    /// Write this row.
    Persist(Row),
    /// Sleep until this time, in milliseconds since 1970.
    SleepUntil(u64),
    /// The session is over.
    Done(Outcome),
}

/// The end of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Ended {
    /// The update was sent. The verdict is the service's word, if it gave one; nothing rests on it.
    Reported(Option<Verdict>),
    /// The device is eligible for no task, for these reasons.
    NotEligible(Vec<(Digest32, Ineligible)>),
    /// The device has no certificate that is valid now: see [`Device::enrol`](crate::Device::enrol).
    NotEnrolled,
    /// The clock of the device is far from that of the board.
    Clock,
    /// The service refused the device, with a code and a sentence.
    Rejected(Code, String),
    /// The device refused the offer of the service.
    Refused(Refusal),
    /// The session ended before the update was sent, with the code of the service.
    Lost(Code, String),
    /// Local training used up its processor time. The device leaves the plan alone for a week.
    OutOfTime,
    /// Local training gave no update.
    NotTrained(String),
    /// A condition of the host is not met.
    HostNotReady(Unmet),
    /// The device was stopped by its host or by a limit.
    Stopped,
    /// A deadline passed.
    TimedOut,
    /// The upload was slower than the plan allows.
    TooSlow,
    /// The service cannot be reached.
    Unreachable,
}

/// The end of a session, and the time for the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The end.
    pub ended: Ended,
    /// The window for the next session, from now.
    pub next_window: RetryWindow,
    /// A time in that window, drawn uniformly, in milliseconds since 1970.
    pub wake_ms: u64,
    /// Bytes that the session loaded.
    pub down_bytes: u64,
    /// Bytes that the session sent.
    pub up_bytes: u64,
}

enum State {
    Board,
    Keys(Requesting),
    WriteStock(Vec<StockedKey>),
    CheckIn(CheckingIn),
    WriteHead,
    Fetch(Fetching),
    WriteBlob(Digest32, Bytes),
    Train(Box<Job>),
    Training,
    WritePlanBackoff(u64),
    WriteParticipation,
    Join,
    Poll,
    Answer(Answer),
    Upload,
    Probe,
    Commit,
    WriteProgress { ended: bool },
    Leave(Box<Ended>),
    Done(Box<Outcome>),
}

/// One session of a device.
///
/// # Guarantee
/// No byte of an update leaves before [`Event::Persisted`] has confirmed the participation's row. No update leaves under a plan that is not
/// signed, is weaker than the floors, or exceeds the lifetime budget. Neither does one for settings, a model, a round or a head that the
/// plan or the device's memory contradicts. One update is masked once, and one request to unmask is answered.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds an update and secret keys"
)]
pub struct Machine {
    setup: Arc<Setup>,
    /// The work that other devices of this process have done.
    shared: Option<Arc<Shared>>,
    memory: Memory,
    device: Signer,
    /// Keys, seeds and numbers that must be fresh.
    ///
    /// PRIVACY: in a box, because a value that moves leaves its bytes behind; it is overwritten where it lies.
    rng: Box<ChaCha20Rng>,
    /// Waits alone: how often a request was lost does not change the update.
    waits: Box<ChaCha20Rng>,
    started: bool,
    now: u64,
    state: State,
    checking_in: Option<CheckingIn>,
    session: Option<Session>,
    exchange: Option<Exchange>,
    upload: Option<Upload>,
    tries: u32,
    wait_until: Option<u64>,
    window: Option<RetryWindow>,
    confirmed_ms: Option<u64>,
    named: Vec<NamedRelease>,
    down: u64,
    up: u64,
}

impl Machine {
    /// A session of the device with this key. `seed` is 32 secret bytes of the operating system that serve this session alone.
    #[must_use]
    pub fn new(setup: Arc<Setup>, memory: Memory, device: Signer, seed: &Zeroizing<[u8; 32]>) -> Self {
        let mut waits = Box::new(ChaCha20Rng::from_seed(**seed));
        waits.set_stream(1);
        Self {
            setup,
            shared: None,
            memory,
            device,
            rng: Box::new(ChaCha20Rng::from_seed(**seed)),
            waits,
            started: false,
            now: 0,
            state: State::Board,
            checking_in: None,
            session: None,
            exchange: None,
            upload: None,
            tries: 0,
            wait_until: None,
            window: None,
            confirmed_ms: None,
            named: Vec::new(),
            down: 0,
            up: 0,
        }
    }

    /// The memory, with every row that was confirmed.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes an event and returns the next action. `now_ms` is the device's clock, in milliseconds since 1970.
    ///
    /// An event that does not answer the last action changes nothing, and the action is returned again.
    pub fn step(&mut self, now_ms: u64, event: Event) -> Action {
        let first = !std::mem::replace(&mut self.started, true);
        // A clock that is set back during a session does not lengthen it.
        self.now = self.now.max(now_ms);
        if first && let Some(ended) = self.unfit() {
            self.finish(ended);
        }
        match event {
            Event::Wake => {}
            Event::Stopped => self.leave(Ended::Stopped),
            Event::NetworkLost => self.lost(),
            Event::Reply(reply) => self.replied(reply),
            Event::Cached(bytes) => self.cached(&bytes),
            Event::Persisted => self.persisted(),
            Event::Trained(trained) => self.trained(trained),
        }
        self.check_limits();
        self.action()
    }

    /// The reason why no session can start at all.
    fn unfit(&self) -> Option<Ended> {
        if !is_path_segment(&self.setup.population) {
            let expected = "up to 100 letters, digits, dots, hyphens and underscores";
            let refusal = Refusal::value("the population", expected, self.setup.population.len());
            return Some(Ended::Refused(refusal));
        }
        None
    }

    /// The time of this session that a signed board has confirmed; `None` before its board. The host keeps it: it is the one time by
    /// which texts are deleted.
    #[must_use]
    pub fn confirmed_ms(&self) -> Option<u64> {
        self.confirmed_ms
    }

    /// The releases that the board of this session names for predictions.
    pub(crate) fn named(&self) -> &[NamedRelease] {
        &self.named
    }

    /// PRIVACY: rows are confirmed in this order: the head before training, the participation before the first byte.
    fn persisted(&mut self) {
        let Some(row) = self.row() else {
            return;
        };
        self.memory.apply(&row);
        self.advance();
        match std::mem::replace(&mut self.state, State::Board) {
            State::WriteStock(_) => self.check_in(),
            State::WriteHead => self.fetch_plan(),
            State::WriteBlob(..) => self.fetch_next(),
            State::WritePlanBackoff(_) => self.leave(Ended::OutOfTime),
            State::WriteParticipation => self.state = State::Join,
            State::WriteProgress { ended: true } => {
                let verdict = self.exchange.as_ref().and_then(|exchange| exchange.verdict);
                self.finish(Ended::Reported(verdict));
            }
            State::WriteProgress { ended: false } => self.state = State::Poll,
            other => self.state = other,
        }
    }

    /// The row that the present state waits for.
    fn row(&self) -> Option<Row> {
        match &self.state {
            State::WriteStock(keys) => Some(Row::Stock(keys.clone())),
            State::WriteHead => self.session.as_ref().map(Session::head),
            State::WriteBlob(digest, bytes) => Some(Row::Blob {
                digest: *digest,
                bytes: Arc::clone(bytes),
            }),
            State::WritePlanBackoff(until_ms) => self
                .session
                .as_ref()
                .map(|session| session.plan_backoff(*until_ms)),
            State::WriteParticipation => self.session.as_ref().and_then(Session::participation),
            State::WriteProgress { ended } => {
                let (session, exchange) = (self.session.as_ref()?, self.exchange.as_ref()?);
                Some(session.progress(exchange.progress(*ended)))
            }
            _ => None,
        }
    }

    /// The action of the present state. A job leaves once; all other actions can be repeated.
    fn action(&mut self) -> Action {
        if let State::Done(outcome) = &self.state {
            return Action::Done(Outcome::clone(outcome));
        }
        if let Some(until) = self.wait_until {
            if self.now < until {
                return Action::SleepUntil(until);
            }
            self.wait_until = None;
        }
        if let Some(row) = self.row() {
            return Action::Persist(row);
        }
        if matches!(self.state, State::Train(_)) {
            let State::Train(job) = std::mem::replace(&mut self.state, State::Training) else {
                return Action::SleepUntil(self.now + WAIT.0);
            };
            return Action::Train(job);
        }
        match self.request() {
            Some(mut request) => {
                let (name, value) = PROTOCOL_HEADER;
                request.headers.push((name, value.to_owned()));
                self.up = self.up.saturating_add(request.body.len() as u64);
                Action::Http(request)
            }
            // The job is under way.
            None => Action::SleepUntil(self.now + WAIT.0),
        }
    }

    /// The request of the present state.
    fn request(&self) -> Option<Request> {
        match &self.state {
            State::Board => Some(self.board_request()),
            State::Keys(requesting) => {
                let certificate = self.memory.certificate.clone();
                Some(self.signed(requesting.request(&self.setup.population, certificate)))
            }
            State::CheckIn(checking_in) => Some(self.signed(self.check_in_request(checking_in))),
            State::Fetch(fetching) => Some(fetching.request()),
            State::Join
            | State::Poll
            | State::Answer(_)
            | State::Upload
            | State::Probe
            | State::Commit
            | State::Leave(_) => self.session_request(),
            _ => None,
        }
    }

    /// Adds the device's signature of a request at the present time.
    fn signed(&self, mut request: Request) -> Request {
        let (method, path) = (request.method.name(), &request.target);
        let signature = RequestSignature::new(&self.device, self.now, method, path, &request.body);
        request.headers.push((SIGNATURE_HEADER, signature.header()));
        request
    }

    fn replied(&mut self, reply: Reply) {
        self.down = self.down.saturating_add(reply.body.len() as u64);
        if matches!(self.state, State::Leave(_)) {
            return self.left();
        }
        debug_assert_eq!(self.asks(), self.request().is_some());
        if self.wait_until.is_some() || !self.asks() {
            return;
        }
        if !reply.is_success() {
            return self.refused(&reply);
        }
        let result = match &self.state {
            State::Board => self.receive_board(&reply.body),
            State::Keys(_) => self.receive_certificates(&reply.body),
            State::CheckIn(_) => self.receive_assignment(&reply.body),
            State::Fetch(_) => self.receive_blob(reply),
            _ => self.receive_session(&reply),
        };
        if let Err(refusal) = result {
            tracing::warn!(%refusal, "the device refuses the offer of the service");
            self.leave(Ended::Refused(refusal));
        }
    }

    /// A status of failure: a refusal with a code, or nothing that can be read.
    fn refused(&mut self, reply: &Reply) {
        // A reply to HEAD has no body to say more.
        if matches!(self.state, State::Probe) && reply.status == 404 {
            return self.resume_at(0);
        }
        let Some(problem) = reply.problem() else {
            return self.lost();
        };
        if self.session.is_none() {
            return match &self.state {
                // The stock may still suffice, and a plain task needs none.
                State::Keys(_) => {
                    self.advance();
                    self.check_in();
                }
                _ => self.rejected(&problem),
            };
        }
        let code = problem.code();
        let transient =
            matches!(code, Code::Busy) || (matches!(self.state, State::Fetch(_)) && code == Code::NotFound);
        if transient {
            return self.try_again(problem.retry);
        }
        if matches!(self.state, State::Upload) && code == Code::Conflict {
            return self.resume_at(problem.offset);
        }
        if matches!(self.state, State::Join | State::Answer(_)) && code == Code::OutOfTurn && self.tries > 0 {
            return self.go_on();
        }
        tracing::info!(code = code.as_str_name(), "the service ended the session");
        self.window = problem.retry;
        self.finish(Ended::Lost(code, shown(&problem.message)));
    }

    /// The service takes no update of this device now.
    fn rejected(&mut self, problem: &Problem) {
        self.window = problem.retry;
        self.finish(Ended::Rejected(problem.code(), shown(&problem.message)));
    }

    /// A request got no usable reply: it is sent again after a while.
    fn lost(&mut self) {
        match &self.state {
            State::Leave(_) => self.left(),
            State::Upload => {
                self.state = State::Probe;
                self.try_again(None);
            }
            _ if self.asks() => self.try_again(None),
            _ => {}
        }
    }

    /// Waits as the service asked, or longer from time to time, and repeats the action.
    fn try_again(&mut self, retry: Option<RetryWindow>) {
        self.tries += 1;
        let most = match self.state {
            State::Board => MAX_BOARD_TRIES,
            _ => MAX_TRIES,
        };
        if self.tries > most {
            let usual = RetryWindow::between(UNREACHABLE.0, UNREACHABLE.1);
            self.window = Some(self.memory.window.unwrap_or(usual));
            return self.finish(Ended::Unreachable);
        }
        let base = WAIT.0 << self.tries.min(6);
        let window = retry.unwrap_or_else(|| RetryWindow::between(base / 2, base));
        self.sleep(window);
    }

    fn sleep(&mut self, window: RetryWindow) {
        let wait = window.wait(self.draw()).clamp(WAIT.0, WAIT.1);
        self.wait_until = Some(self.now + wait);
    }

    /// Progress was made: the next request has all its tries.
    fn advance(&mut self) {
        self.tries = 0;
        self.wait_until = None;
    }

    fn draw(&mut self) -> f64 {
        (self.waits.next_u64() >> 11) as f64 * (-53f64).exp2()
    }

    fn check_limits(&mut self) {
        if matches!(self.state, State::Done(_) | State::Leave(_)) {
            return;
        }
        let limits = &self.setup.limits;
        if self.down > limits.down_bytes || self.up > limits.up_bytes {
            return self.leave(Ended::Stopped);
        }
        if self
            .session
            .as_ref()
            .is_some_and(|session| self.now >= session.end_by)
        {
            self.leave(Ended::TimedOut);
        }
    }

    /// Ends the session. Where the service waits for this device, it is told so first.
    fn leave(&mut self, ended: Ended) {
        if matches!(self.state, State::Done(_) | State::Leave(_)) {
            return;
        }
        self.wait_until = None;
        match self.session {
            Some(_) => {
                self.wipe();
                self.state = State::Leave(Box::new(ended));
            }
            None => self.finish(ended),
        }
    }

    /// The service was told, or cannot be.
    fn left(&mut self) {
        if let State::Leave(ended) = std::mem::replace(&mut self.state, State::Board) {
            self.finish(*ended);
        }
    }

    fn finish(&mut self, ended: Ended) {
        if matches!(self.state, State::Done(_)) {
            return;
        }
        self.wipe();
        let window = self
            .window
            .unwrap_or_else(|| RetryWindow::between(USUAL.0, USUAL.1));
        let next_window = RetryWindow::between(
            window.min_ms.min(LONGEST_ABSENCE),
            window.max_ms.min(LONGEST_ABSENCE),
        );
        let wake_ms = self.now.saturating_add(next_window.wait(self.draw()));
        self.wait_until = None;
        self.state = State::Done(Box::new(Outcome {
            ended,
            next_window,
            wake_ms,
            down_bytes: self.down,
            up_bytes: self.up,
        }));
    }

    /// Everything that came from the person's text, and the keys of the secure sum.
    fn wipe(&mut self) {
        self.exchange = None;
        self.upload = None;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        *self.rng = ChaCha20Rng::from_seed([0; 32]);
        *self.waits = ChaCha20Rng::from_seed([0; 32]);
        // Keeps the compiler from leaving out writes that nothing reads.
        std::hint::black_box((&self.rng, &self.waits));
    }
}
