//! The session with the aggregator: joining, the messages of a secure sum, the upload and the verdict.

use std::sync::Arc;

use undertone_aggregation::{UpdateBytes, Wiped};
use undertone_protocol::{
    Abort, CHECKSUM_HEADER, Code, Commit, Next, Offset, TrustedKeys, UploadGrant, Verdict, checksum_header,
    crc32c, limits, next, read, write,
};
use undertone_secagg::message::{Message, RelayedShares, Roster, Survivors, Unmask};
use undertone_secagg::{Certificate, Client, ClientPhase, SigningIdentity, Trust};

use super::{Ended, Machine, PLAN_BACKOFF, State, WAIT};
use crate::certificates::Issuers;
use crate::error::Refusal;
use crate::floors::Neighbours;
use crate::job::{JobError, Payload, Residues, Trained};
use crate::memory::{Progress, StockedKey};
use crate::plan::SumPolicy;
use crate::wire::{Method, Reply, Request};

/// Seconds that a server may hold a request for the next message.
const LONG_POLL_S: u64 = 25;

/// Min bytes of a chunk, whatever the service asks for.
const MIN_CHUNK: usize = 256;

/// The time before the speed of an upload counts, in milliseconds.
const SLOW_START: u64 = 30_000;

/// Number of times that a device asks for a verdict after its last message.
const VERDICT_POLLS: u32 = 2;

/// The machine of a secure sum, and the state of the conversation.
pub(super) struct Exchange {
    client: Option<Client>,
    /// The first message of a secure sum.
    keys: Vec<u8>,
    /// Kind byte of the last message of the secure sum that was answered; 0 before the first.
    phase: u8,
    /// The update before it is masked or sent.
    residues: Option<Residues>,
    below: Option<bool>,
    committed: bool,
    /// `true` once the device has sent its last message.
    answered: bool,
    verdict_polls: u32,
    pub(super) verdict: Option<Verdict>,
}

impl Exchange {
    /// `true` once the service has accepted the whole update.
    pub(super) fn is_committed(&self) -> bool {
        self.committed
    }

    pub(super) fn progress(&self, ended: bool) -> Progress {
        match (ended, self.verdict) {
            (true, Some(verdict)) => Progress::Ended(verdict),
            _ => Progress::Committed,
        }
    }
}

/// An answer of the secure sum, kept until it has arrived.
pub(super) struct Answer {
    path: &'static str,
    body: Wiped<u8>,
    last: bool,
}

/// The bytes of an update: numbers, or masked residues.
enum Content {
    Plain(UpdateBytes),
    Packed(Wiped<u8>),
}

impl std::ops::Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(update) => update.as_bytes(),
            Self::Packed(bytes) => bytes,
        }
    }
}

/// The bytes of an upload, kept until the service has accepted all of them.
pub(super) struct Upload {
    bytes: Content,
    crc: u32,
    offset: usize,
    chunk: usize,
    /// The time of the first request.
    started: Option<u64>,
}

impl Upload {
    fn new(bytes: Content, chunk: usize) -> Self {
        Self {
            crc: crc32c(0, &bytes),
            bytes,
            offset: 0,
            chunk,
            started: None,
        }
    }

    fn part(&self) -> &[u8] {
        let end = self.bytes.len().min(self.offset + self.chunk);
        &self.bytes[self.offset..end]
    }
}

impl Machine {
    /// The first session key whose certificate is in time.
    pub(super) fn usable_key(&self) -> Option<&StockedKey> {
        let in_time = |key: &&StockedKey| key.not_after_ms > self.now;
        self.memory.stock.iter().find(in_time)
    }

    /// The job has ended: prepares the session of the update, and asks for the row of the participation.
    pub(super) fn trained(&mut self, trained: Result<Trained, JobError>) {
        if !matches!(self.state, State::Training) {
            return;
        }
        let trained = match trained {
            Ok(trained) => trained,
            Err(JobError::Stopped) => return self.leave(Ended::Stopped),
            Err(JobError::OutOfTime) => {
                self.advance();
                self.state = State::WritePlanBackoff(self.now.saturating_add(PLAN_BACKOFF));
                return;
            }
            Err(JobError::Refused(refusal)) => return self.leave(Ended::Refused(refusal)),
            Err(error) => return self.leave(Ended::NotTrained(error.to_string())),
        };
        if self
            .session
            .as_ref()
            .is_none_or(|session| self.now >= session.report_by)
        {
            return self.leave(Ended::TimedOut);
        }
        match self.prepare_exchange(trained) {
            Ok(()) => {
                self.advance();
                self.state = State::WriteParticipation;
            }
            Err(refusal) => self.leave(Ended::Refused(refusal)),
        }
    }

    fn prepare_exchange(&mut self, trained: Trained) -> Result<(), Refusal> {
        let mut exchange = Exchange {
            client: None,
            keys: Vec::new(),
            phase: 0,
            residues: None,
            below: trained.below,
            committed: false,
            answered: false,
            verdict_polls: 0,
            verdict: None,
        };
        match trained.payload {
            Payload::Plain(update) => {
                let content = Content::Plain(UpdateBytes::new(update));
                self.upload = Some(Upload::new(content, limits::MAX_CHUNK));
            }
            Payload::Residues(residues) => {
                let (client, keys) = self.join_sum()?;
                exchange.client = Some(client);
                exchange.keys = keys;
                exchange.residues = Some(residues);
            }
        }
        if let Some(session) = &mut self.session {
            session.taking_part_at = Some(self.now);
        }
        self.exchange = Some(exchange);
        Ok(())
    }

    /// Makes the machine of the secure sum, under the floors of this device and for the bytes that it has.
    fn join_sum(&mut self) -> Result<(Client, Vec<u8>), Refusal> {
        let missing = || Refusal::value("the session", "a plan of a secure sum", "none");
        let session = self.session.as_ref().ok_or_else(missing)?;
        let (plan, terms) = match (&session.plan, &session.terms, &session.model) {
            (Some(plan), Some(terms), Some(_)) => (plan.clone(), terms),
            _ => return Err(missing()),
        };
        let context = plan.context(terms, session.model_digest());
        let context = context.ok_or_else(missing)?;
        let SumPolicy::SecAgg(secagg) = &plan.sum else {
            return Err(missing());
        };
        let floors = self.setup.floors.secagg.clone();
        // PRIVACY: whom the device trusts is its own choice. A plan can only name fewer issuers than the app does.
        let trust = match &self.setup.floors.neighbours {
            Neighbours::Anyone => None,
            Neighbours::Listed(known) => Some(Trust::Listed(Arc::clone(known))),
            Neighbours::Certified => {
                let named = secagg.issuers.keys();
                let trusted = self.setup.issuers.keys().iter();
                Some(Trust::Issuer(Arc::new(Issuers {
                    keys: TrustedKeys::new(trusted.filter(|key| named.contains(key)).copied()),
                    population: self.setup.population.clone(),
                    now_ms: self.now,
                })))
            }
        };
        let (client, keys) = match trust {
            None => {
                let identity = SigningIdentity::generate(&mut *self.rng);
                Client::join_simulation(identity, context, &mut *self.rng)
            }
            Some(trust) => {
                let key = self.take_key()?;
                let certificate = Certificate::new(&write(&key.certificate))?;
                let identity = SigningIdentity::from_seed(&key.seed).with_certificate(certificate);
                let floors = floors.with_trust(trust)?;
                Client::join(identity, context, floors, &mut *self.rng)
            }
        };
        Ok((client, keys.encode()))
    }

    /// The session key of this participation. It leaves the stock with the participation's row.
    fn take_key(&mut self) -> Result<StockedKey, Refusal> {
        let key = self
            .usable_key()
            .cloned()
            .ok_or_else(|| Refusal::value("the stock of session certificates", "at least one", "none"))?;
        if let Some(session) = &mut self.session {
            session.key = Some(key.clone());
        }
        Ok(key)
    }

    /// `true` if the present state waits for the reply to a request.
    pub(super) fn asks(&self) -> bool {
        match &self.state {
            State::Board | State::Keys(_) | State::CheckIn(_) | State::Fetch(_) => true,
            State::Leave(_) => self.session.is_some(),
            State::Join | State::Poll | State::Answer(_) | State::Probe => {
                self.session.is_some() && self.exchange.is_some()
            }
            State::Upload | State::Commit => {
                self.session.is_some() && self.exchange.is_some() && self.upload.is_some()
            }
            _ => false,
        }
    }

    /// The request of a state with a session.
    pub(super) fn session_request(&self) -> Option<Request> {
        let session = self.session.as_ref()?;
        let request = |method, path: &str, body: Wiped<u8>| Request {
            method,
            target: format!("{}/{path}", session.base),
            headers: vec![("authorization", format!("Bearer {}", *session.token))],
            body,
            max_reply: limits::MAX_SECAGG,
            timeout_ms: 60_000,
            blob: None,
        };
        let post = |path: &str, body: Vec<u8>| request(Method::Post, path, body.into());
        if let State::Leave(_) = &self.state {
            let abort = Abort {
                code: Code::NotEligible.into(),
            };
            return Some(post("abort", write(&abort)));
        }
        let exchange = self.exchange.as_ref()?;
        match &self.state {
            State::Join => Some(post("join", exchange.keys.clone())),
            State::Poll => {
                let path = format!("next?after={}&wait={LONG_POLL_S}", exchange.phase);
                Some(request(Method::Get, &path, Wiped::default()))
            }
            State::Answer(answer) => Some(request(Method::Post, answer.path, answer.body.clone())),
            State::Upload => {
                let upload = self.upload.as_ref()?;
                let part = upload.part();
                let path = format!("upload?offset={}", upload.offset);
                let mut put = request(Method::Put, &path, part.to_vec().into());
                put.headers
                    .push((CHECKSUM_HEADER, checksum_header(crc32c(0, part))));
                put.timeout_ms = 120_000;
                Some(put)
            }
            State::Probe => Some(request(Method::Head, "upload", Wiped::default())),
            State::Commit => {
                let upload = self.upload.as_ref()?;
                let commit = Commit {
                    length: upload.bytes.len() as u64,
                    crc32c: upload.crc,
                    weight: 1.0,
                    below: exchange.below,
                };
                Some(post("commit", write(&commit)))
            }
            _ => None,
        }
    }

    /// A repeat that came too late: the phase of the first message, whose reply was lost, is over.
    pub(super) fn go_on(&mut self) {
        if let (State::Answer(answer), Some(exchange)) = (&self.state, &mut self.exchange) {
            exchange.answered |= answer.last;
        }
        self.state = State::Poll;
    }

    /// A reply of the aggregator.
    pub(super) fn receive_session(&mut self, reply: &Reply) -> Result<(), Refusal> {
        match &self.state {
            State::Upload => return self.receive_offset(&reply.body),
            State::Probe => {
                self.state = State::Upload;
                self.resume_at(reply.offset.unwrap_or(0));
                return Ok(());
            }
            _ => {}
        }
        let next: Next = read("the next step", &reply.body, limits::MAX_SECAGG)?;
        match &self.state {
            State::Join => self.advance(),
            State::Answer(answer) => {
                let last = answer.last;
                self.advance();
                if let Some(exchange) = &mut self.exchange {
                    exchange.answered |= last;
                }
            }
            State::Commit => {
                self.advance();
                self.upload = None;
                if let Some(exchange) = &mut self.exchange {
                    exchange.committed = true;
                    exchange.answered = exchange.client.is_none();
                    if let Some(next::Step::Verdict(verdict)) = next.step {
                        return self.receive_verdict(verdict, next.retry);
                    }
                }
                self.state = State::WriteProgress { ended: false };
                return Ok(());
            }
            _ => {}
        }
        self.receive_next(next)
    }

    fn receive_next(&mut self, next: Next) -> Result<(), Refusal> {
        match next.step {
            Some(next::Step::Verdict(verdict)) => self.receive_verdict(verdict, next.retry),
            Some(next::Step::Upload(grant)) => self.receive_grant(&grant),
            Some(next::Step::Secagg(message)) => self.receive_message(&message),
            Some(next::Step::Wait(_)) | None => {
                self.wait_for_more(next.retry);
                Ok(())
            }
        }
    }

    /// Nothing to do yet. After its last message a device does not wait long for a verdict on which nothing rests.
    fn wait_for_more(&mut self, retry: Option<undertone_protocol::RetryWindow>) {
        let was_polling = matches!(self.state, State::Poll);
        self.state = State::Poll;
        if let Some(exchange) = &mut self.exchange
            && exchange.answered
        {
            exchange.verdict_polls += 1;
            if exchange.verdict_polls > VERDICT_POLLS {
                self.window = retry.or(self.window);
                return self.finish(Ended::Reported(None));
            }
        }
        if was_polling || retry.is_some() {
            let usual = undertone_protocol::RetryWindow::between(WAIT.0, 2 * WAIT.0);
            self.sleep(retry.unwrap_or(usual));
        }
    }

    fn receive_verdict(
        &mut self,
        verdict: i32,
        retry: Option<undertone_protocol::RetryWindow>,
    ) -> Result<(), Refusal> {
        self.window = retry.or(self.window);
        let verdict = Verdict::try_from(verdict).unwrap_or(Verdict::Unspecified);
        let Some(exchange) = &mut self.exchange else {
            return Ok(());
        };
        if exchange.committed {
            exchange.verdict = Some(verdict);
            self.advance();
            self.state = State::WriteProgress { ended: true };
        } else {
            let name = verdict.as_str_name().to_owned();
            self.finish(Ended::Lost(Code::Late, name));
        }
        Ok(())
    }

    /// The permission to send a plain update.
    fn receive_grant(&mut self, grant: &UploadGrant) -> Result<(), Refusal> {
        let secure = self
            .exchange
            .as_ref()
            .is_none_or(|exchange| exchange.client.is_some() || exchange.committed);
        let Some(upload) = self.upload.as_mut().filter(|_| !secure) else {
            return Err(Refusal::OutOfTurn {
                expected: "a message of the secure sum",
                got: "an upload grant",
            });
        };
        if grant.length != upload.bytes.len() as u64 {
            let expected = format!("{} bytes", upload.bytes.len());
            return Err(Refusal::value("the upload grant", expected, grant.length));
        }
        upload.started = Some(self.now);
        upload.chunk = (grant.chunk as usize).clamp(MIN_CHUNK, limits::MAX_CHUNK);
        self.state = State::Upload;
        Ok(())
    }

    /// A message of the secure sum: the one that the client waits for, or a repeat of one that it has answered.
    ///
    /// PRIVACY: no message is answered twice. The answer of the first is sent until it has arrived.
    fn receive_message(&mut self, message: &[u8]) -> Result<(), Refusal> {
        let kind = message.get(1).copied().unwrap_or(0);
        let Some(exchange) = &mut self.exchange else {
            return Ok(());
        };
        if kind != 0 && kind <= exchange.phase {
            self.wait_for_more(None);
            return Ok(());
        }
        let Some(client) = &mut exchange.client else {
            return Err(Refusal::OutOfTurn {
                expected: "an upload grant",
                got: "a message of a secure sum",
            });
        };
        let answer = |path, body: Vec<u8>, last| {
            State::Answer(Answer {
                path,
                body: body.into(),
                last,
            })
        };
        let state = match client.phase() {
            ClientPhase::Roster => {
                let roster = Roster::decode(message)?;
                let shares = client.receive_roster(&roster, &mut *self.rng)?;
                answer("shares", shares.encode(), false)
            }
            ClientPhase::Shares => {
                let shares = RelayedShares::decode(message)?;
                let Some(mut residues) = exchange.residues.take() else {
                    return Err(Refusal::value("the update", "one that was not sent", "none"));
                };
                let input = client.receive_shares(&shares, &mut residues.0)?;
                let mut upload = Upload::new(Content::Packed(input.packed.into()), limits::MAX_CHUNK);
                upload.started = Some(self.now);
                self.upload = Some(upload);
                State::Upload
            }
            ClientPhase::Survivors => {
                let survivors = Survivors::decode(message)?;
                let consistency = client.receive_survivors(&survivors)?;
                answer("consistency", consistency.encode(), false)
            }
            ClientPhase::Unmask => {
                let request = Unmask::decode(message)?;
                let shares = client.receive_unmask(&request)?;
                answer("unmask", shares.encode(), true)
            }
            ClientPhase::Done | ClientPhase::Aborted => {
                return Err(Refusal::OutOfTurn {
                    expected: "a verdict",
                    got: "a message of the secure sum",
                });
            }
        };
        exchange.phase = kind;
        self.tries = 0;
        self.state = state;
        Ok(())
    }

    /// The service has a chunk.
    fn receive_offset(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let reply: Offset = read("the offset", body, limits::MAX_MESSAGE)?;
        let plan = self.session.as_ref().and_then(|session| session.plan.as_ref());
        let min_speed = plan.map_or(0, |plan| plan.upload_kbps_min);
        let Some(upload) = &mut self.upload else {
            return Ok(());
        };
        let sent = upload.offset + upload.part().len();
        if reply.offset == sent as u64 {
            let whole = sent == upload.bytes.len();
            // Bits per millisecond are kilobits per second.
            let taken = self.now - upload.started.unwrap_or(self.now);
            let speed = (8 * sent as u64) / taken.max(1);
            if !whole && taken > SLOW_START && speed < min_speed.into() {
                self.leave(Ended::TooSlow);
                return Ok(());
            }
            upload.offset = sent;
            self.advance();
            if whole {
                self.state = State::Commit;
            }
        } else {
            self.resume_at(reply.offset);
        }
        Ok(())
    }

    /// Goes on where the service says that it is.
    pub(super) fn resume_at(&mut self, offset: u64) {
        self.tries += 1;
        if self.tries > super::MAX_TRIES {
            return self.leave(Ended::Unreachable);
        }
        let Some(upload) = &mut self.upload else {
            return;
        };
        match usize::try_from(offset)
            .ok()
            .filter(|offset| *offset <= upload.bytes.len())
        {
            Some(offset) => {
                upload.offset = offset;
                let whole = offset == upload.bytes.len();
                self.state = if whole { State::Commit } else { State::Upload };
            }
            None => {
                let expected = format!("at most {}", upload.bytes.len());
                let refusal = Refusal::value("the offset of the upload", expected, offset);
                self.leave(Ended::Refused(refusal));
            }
        }
    }
}
