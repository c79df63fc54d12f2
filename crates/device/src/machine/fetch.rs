//! The blobs of a session: the plan, its vocabulary, its frozen parameters and the model, each under its digest.

use std::sync::Arc;

use undertone_aggregation::Wiped;
use undertone_protocol::{Blob, Digest32, PROTOCOL_HEADER, ProtocolError, limits};

use super::{Ended, Machine, State};
use crate::eligibility::Schedule;
use crate::error::Refusal;
use crate::floors::Neighbours;
use crate::job::{Job, SessionSeeds};
use crate::plan::{PlanChecks, SumPolicy, TaskPlan};
use crate::shared::Shared;
use crate::wire::{Bytes, Method, Reply, Request, hex, target};

/// Max bytes that are asked for at once, so that a lost connection costs no more.
const PART: u64 = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Plan,
    Vocabulary,
    Frozen,
    Model,
}

impl Piece {
    fn name(self) -> &'static str {
        match self {
            Self::Plan => "the plan",
            Self::Vocabulary => "the vocabulary",
            Self::Frozen => "the frozen parameters",
            Self::Model => "the model",
        }
    }
}

/// A blob on its way.
pub(super) struct Fetching {
    piece: Piece,
    digest: Digest32,
    blob: Blob,
    target: String,
    bytes: Vec<u8>,
}

impl Fetching {
    fn new(piece: Piece, blob: &Blob) -> Result<Self, Refusal> {
        let digest = blob.digest()?;
        let target = match &blob.url[..] {
            "" => format!("/v1/blobs/{}", hex(&digest)),
            url => target("the address of a blob", url)?.to_owned(),
        };
        Ok(Self {
            piece,
            digest,
            blob: blob.clone(),
            target,
            bytes: Vec::new(),
        })
    }

    /// The number of bytes of the next part.
    fn wanted(&self) -> u64 {
        (self.blob.length - self.bytes.len() as u64).min(PART)
    }

    pub(super) fn request(&self) -> Request {
        let from = self.bytes.len() as u64;
        let last = from + self.wanted().max(1) - 1;
        Request {
            method: Method::Get,
            target: self.target.clone(),
            headers: vec![("range", format!("bytes={from}-{last}"))],
            body: Wiped::default(),
            max_reply: usize::try_from(self.blob.length).unwrap_or(usize::MAX),
            timeout_ms: 120_000,
            blob: Some(self.digest),
        }
    }

    /// Adds a part of the blob, at its place with status 206, or the whole blob. Returns all bytes once they are there.
    fn add(&mut self, reply: Reply) -> Result<Option<Bytes>, Refusal> {
        let (name, wanted) = (self.piece.name(), self.wanted());
        let got = reply.body.len() as u64;
        let is_part = reply.status == 206;
        if !is_part {
            self.bytes = Vec::new();
        }
        let fits = match is_part {
            true => got > 0 && got <= wanted,
            false => got == self.blob.length,
        };
        if !fits {
            return Err(ProtocolError::Digest { name }.into());
        }
        match self.bytes.is_empty() {
            true => self.bytes = reply.body,
            false => self.bytes.extend_from_slice(&reply.body),
        }
        let is_whole = self.bytes.len() as u64 >= self.blob.length;
        Ok(is_whole.then(|| std::mem::take(&mut self.bytes).into()))
    }
}

/// Loads a model outside of a session, part by part. `send` gives `None` where the loading ends before its time.
pub(crate) fn load_model(
    blob: &Blob,
    mut send: impl FnMut(&Request) -> Option<Reply>,
) -> Result<Option<Bytes>, Refusal> {
    let mut fetching = Fetching::new(Piece::Model, blob)?;
    let next = |fetching: &Fetching| {
        let mut request = fetching.request();
        let (name, value) = PROTOCOL_HEADER;
        request.headers.push((name, value.to_owned()));
        request
    };
    while let Some(reply) = send(&next(&fetching)) {
        if !reply.is_success() {
            return Ok(None);
        }
        if let Some(bytes) = fetching.add(reply)? {
            blob.check(Piece::Model.name(), &bytes)?;
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

impl Machine {
    /// Lets the session use what other devices of this process have loaded and read, and leave the same for them.
    #[must_use]
    pub fn sharing(mut self, shared: Arc<Shared>) -> Self {
        self.shared = Some(shared);
        self
    }

    pub(super) fn fetch_plan(&mut self) {
        let Some(session) = &self.session else {
            return;
        };
        let blob = session.plan_blob.clone();
        if blob.length > limits::MAX_PLAN as u64 {
            let refusal = ProtocolError::TooLong {
                name: "the plan",
                length: usize::try_from(blob.length).unwrap_or(usize::MAX),
                limit: limits::MAX_PLAN,
            };
            return self.leave(Ended::Refused(refusal.into()));
        }
        self.fetch(Piece::Plan, &blob);
    }

    fn fetch(&mut self, piece: Piece, blob: &Blob) {
        let fetching = match Fetching::new(piece, blob) {
            Ok(fetching) => fetching,
            Err(refusal) => return self.leave(Ended::Refused(refusal)),
        };
        let shared = self.shared.as_ref();
        let known = shared.and_then(|shared| shared.blob(&fetching.digest, fetching.blob.length));
        self.state = State::Fetch(fetching);
        // Another device of this process has compared it with its digest.
        if let Some(bytes) = known {
            match self.read_blob(&bytes) {
                Ok(()) => self.fetch_next(),
                Err(refusal) => self.leave(Ended::Refused(refusal)),
            }
        }
    }

    /// A part of a blob: at its place with status 206, or the whole blob.
    pub(super) fn receive_blob(&mut self, reply: Reply) -> Result<(), Refusal> {
        let State::Fetch(fetching) = &mut self.state else {
            return Ok(());
        };
        let Some(bytes) = fetching.add(reply)? else {
            self.tries = 0;
            return Ok(());
        };
        self.tries = 0;
        let digest = fetching.digest;
        self.take_blob(&bytes)?;
        self.state = State::WriteBlob(digest, bytes);
        Ok(())
    }

    /// The host had the blob already.
    pub(super) fn cached(&mut self, bytes: &Bytes) {
        if !matches!(self.state, State::Fetch(_)) {
            return;
        }
        match self.take_blob(bytes) {
            Ok(()) => self.fetch_next(),
            Err(refusal) => self.leave(Ended::Refused(refusal)),
        }
    }

    /// Checks the digest of a blob and reads it.
    fn take_blob(&mut self, bytes: &Bytes) -> Result<(), Refusal> {
        let State::Fetch(fetching) = &self.state else {
            return Ok(());
        };
        fetching.blob.check(fetching.piece.name(), bytes)?;
        if let Some(shared) = &self.shared {
            shared.keep(fetching.digest, bytes);
        }
        self.read_blob(bytes)
    }

    /// Reads a blob whose digest was checked.
    fn read_blob(&mut self, bytes: &Bytes) -> Result<(), Refusal> {
        let State::Fetch(fetching) = &self.state else {
            return Ok(());
        };
        match fetching.piece {
            Piece::Plan => self.take_plan(bytes)?,
            Piece::Vocabulary => self.take_vocabulary(bytes)?,
            Piece::Frozen => {
                if let Some(session) = &mut self.session {
                    session.frozen = Some(Arc::clone(bytes));
                }
            }
            Piece::Model => {
                if let Some(session) = &mut self.session {
                    session.model = Some(Arc::clone(bytes));
                }
            }
        }
        self.advance();
        Ok(())
    }

    fn take_plan(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let (setup, task) = (&self.setup, session.task);
        let checks = PlanChecks {
            population: &setup.population,
            trusted: &setup.task_keys,
            floors: &setup.floors,
            limits: &setup.limits,
            client_version: setup.client_version,
        };
        let plan = TaskPlan::read(bytes, &task, &checks)?;
        let terms = plan.terms(session.round, session.attempt, session.shard, &session.settings)?;
        self.check_schedule(
            &task,
            &Schedule {
                round: session.round,
                min_sep: plan.min_sep,
                max_part: plan.max_part,
                timer_ms: plan.timer_ms,
            },
        )?;
        if !plan.has_examples(&self.memory) {
            let expected = "no more than the device has";
            return Err(Refusal::value("min_examples", expected, plan.min_examples));
        }
        // PRIVACY: over the life of the store, whatever becomes of this session.
        let (cost, floor) = (
            self.memory.cost_with(&task, plan.planned.rho),
            setup.floors.population_rho,
        );
        if cost > floor {
            return Err(Refusal::floor(
                "the planned cost (rho) of all tasks together",
                format!("at most {floor}"),
                cost,
            ));
        }
        self.check_neighbours(&plan)?;
        if let Some(session) = &mut self.session {
            session.terms = Some(terms);
            session.plan = Some(Arc::new(plan));
        }
        Ok(())
    }

    /// A secure sum needs a key that the neighbours accept.
    fn check_neighbours(&self, plan: &TaskPlan) -> Result<(), Refusal> {
        let (SumPolicy::SecAgg(secagg), Neighbours::Certified) = (&plan.sum, &self.setup.floors.neighbours)
        else {
            return Ok(());
        };
        let trusted = self.setup.issuers.keys();
        if !secagg.issuers.keys().iter().any(|key| trusted.contains(key)) {
            let expected = "an issuer that this device trusts";
            return Err(Refusal::floor("aggregation.issuers", expected, "others"));
        }
        match self.usable_key() {
            Some(_) => Ok(()),
            None => Err(Refusal::value(
                "the stock of session certificates",
                "at least one",
                "none",
            )),
        }
    }

    fn take_vocabulary(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(plan) = self.session.as_ref().and_then(|session| session.plan.clone()) else {
            return Ok(());
        };
        let max_bytes = self.setup.limits.down_bytes;
        let read = || plan.prepare(bytes, max_bytes);
        let prepared = match &self.shared {
            Some(shared) => shared.prepared(plan.digest, max_bytes, read)?,
            None => Arc::new(read()?),
        };
        let up = match &prepared.encoding {
            Some(encoding) => {
                (encoding.padded_dim() as u64).saturating_mul(encoding.bits_per_coordinate().into()) / 8
            }
            None => 4 * prepared.layout.len() as u64,
        };
        let limit = self.setup.limits.up_bytes;
        if up > limit {
            let expected = format!("at most {limit} bytes");
            return Err(Refusal::floor("the upload", expected, up));
        }
        if let Some(session) = &mut self.session {
            session.prepared = Some(prepared);
        }
        Ok(())
    }

    /// The next blob that is missing, or the training.
    pub(super) fn fetch_next(&mut self) {
        let Some(session) = &self.session else {
            return;
        };
        let Some(plan) = session.plan.clone() else {
            return self.fetch_plan();
        };
        if session.prepared.is_none() {
            return self.fetch(Piece::Vocabulary, &plan.vocabulary);
        }
        if let (Some(frozen), None) = (&plan.frozen, &session.frozen) {
            return self.fetch(Piece::Frozen, frozen);
        }
        if session.model.is_none() {
            let blob = session.model_blob.clone();
            return self.fetch(Piece::Model, &blob);
        }
        self.start_training();
    }

    /// PRIVACY: the seeds of a session are drawn once and leave with the job, which wipes them.
    fn start_training(&mut self) {
        let (mut order, mut encoding) = ([0; 32], [0; 32]);
        self.rng_fill(&mut order);
        self.rng_fill(&mut encoding);
        let seeds = SessionSeeds::new(order, encoding);
        zeroize::Zeroize::zeroize(&mut order);
        zeroize::Zeroize::zeroize(&mut encoding);
        let Some(session) = &self.session else {
            return;
        };
        let (Some(plan), Some(terms), Some(prepared), Some(model)) = (
            session.plan.clone(),
            session.terms.clone(),
            session.prepared.clone(),
            session.model.clone(),
        ) else {
            return;
        };
        self.state = State::Train(Box::new(Job {
            plan,
            terms,
            prepared,
            model,
            model_digest: session.model_digest(),
            frozen: session.frozen.clone(),
            seeds,
            shared: self.shared.clone(),
        }));
    }
}
