//! The release of an attempt: exactly once, or not at all.
//!
//! | step | durable after it | a crash right after it |
//! |---|---|---|
//! | reserve | the attempt is releasing | the attempt is abandoned, its participants count |
//! | seal, close | nothing: sum and noise are in memory only | as before |
//! | stage | model and sealed state, under the name of the attempt | as before; both are swept |
//! | commit | line, head, participations, names of the blobs | the same bytes are published |
//! | publish | signed head, witness, blobs under their digests | nothing is left to do |

use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, Next, RunHead};
use undertone_coordinator::participation::{ParticipantId, Violation};
use undertone_coordinator::record::{AbandonedAttempt, EndReason, Issuer, LedgerMode};
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};
use undertone_coordinator::task::{IdentityLevel, TaskPurpose};
use undertone_protocol::{Blob, Head, Label, TaskState, Verdict, write};
use undertone_run_directory::metrics::MetricsLine;
use undertone_run_directory::task::round_record;
use undertone_store::{
    AbandonReason, AttemptId, AttemptState, Created, Lease, Millis, Outcome, Release, SessionId, StoreError,
    Unpublished,
};

use super::guard::forked;
use super::{Current, Inner, Room, Sums, lock};
use crate::attempt::group::{Blame, GroupSum};
use crate::attempt::session::Contributor;
use crate::error::{Result, ServiceError};
use crate::identity::{hex, unhex};
use crate::keys::random;
use crate::storage::head_state::{self, Place};
use crate::storage::pipe;

/// The name of a staged model.
pub const MODEL: &str = "model";

/// The name of a staged state.
pub const STATE: &str = "state";

/// Tries to learn whether a commit was made, before the task halts.
const READ_BACK: u32 = 3;

/// The sum of an attempt, with those who are in it.
struct Sealed {
    sum: RoundSum,
    included: Vec<Contributor>,
}

/// The failure of a release before its commit.
enum Failed {
    /// The attempt is abandoned for this reason. The head is as it was.
    Abandon(Box<Option<RunHead>>, AbandonReason),
    /// The task cannot go on in this process.
    Error(ServiceError),
}

impl<E: Into<ServiceError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Room {
    /// Releases the attempt whose machine has asked for it.
    ///
    /// # Errors
    /// [`ServiceError::Halted`]; the errors of the store. The head is then loaded anew before the next attempt.
    pub(super) fn release(&self) -> Result<()> {
        let started = self.now();
        let (current, head, lease) = {
            let mut inner = self.lock();
            let (Some(current), Some(head)) = (inner.current.take(), inner.head.take()) else {
                return Ok(());
            };
            inner.releasing = Some(current.id);
            inner.ending = Some((current.id, current.counted().collect()));
            (current, head, inner.lease.clone())
        };
        let outcome = self.make(&current, head, &lease);
        let now = self.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.releasing = None;
        match outcome {
            Ok((head, model, included)) => {
                inner.ending = None;
                inner.head = Some(head);
                inner.model = model;
                inner.failed = 0;
                inner.deserted = 0;
                inner.not_before = 0;
                let opened = inner.round_opened.take().unwrap_or(current.opened_at);
                inner.round_time.observe(now.saturating_sub(opened));
                // Their reports came after the goal.
                self.end_sessions(inner, &current, now, Verdict::Late, &included);
                tracing::info!(
                    task = %self.task.id,
                    round = current.opened.round(),
                    included = included.len(),
                    milliseconds = now.saturating_sub(started),
                    "a round was released"
                );
                drop(guard);
                self.notify();
                self.publish()
            }
            Err(Failed::Abandon(head, reason)) => {
                inner.head = *head;
                inner.current = Some(current);
                let attempt = inner.current.as_ref().map(|current| current.id);
                self.abandon(inner, now, reason)?;
                let lost = inner.head.is_none();
                drop(guard);
                if let Some(attempt) = attempt {
                    self.sweep_abandoned(attempt);
                }
                if lost { self.reload() } else { Ok(()) }
            }
            Err(Failed::Error(error)) => {
                drop(guard);
                // Another leader may have swept the files before they were written.
                self.sweep_abandoned(current.id);
                Err(error)
            }
        }
    }

    /// Deletes the staged files of an attempt that the store calls abandoned. Where that fails, the next lease of the task does it.
    fn sweep_abandoned(&self, attempt: AttemptId) {
        let abandoned = |outcome: Outcome| outcome.state == AttemptState::Abandoned;
        if self.shared.store.outcome(attempt).is_ok_and(abandoned)
            && let Err(error) = self.shared.blobs.sweep(attempt)
        {
            tracing::warn!(task = %self.task.id, %error, "staged files could not be deleted");
        }
    }

    /// The head of the store again, where the one in memory was consumed and its round was not committed.
    fn reload(&self) -> Result<()> {
        let (head, model) = self.unless_passing(self.load())?;
        let mut inner = self.lock();
        inner.head = Some(head);
        inner.model = model;
        Ok(())
    }

    /// The release up to its commit.
    fn make(
        &self,
        current: &Current,
        head: RunHead,
        lease: &Lease,
    ) -> Result<(RunHead, Blob, Vec<SessionId>), Failed> {
        let store = &self.shared.store;
        match self.too_slow(current.opened.round(), self.now()) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(Failed::Abandon(Box::new(Some(head)), AbandonReason::Deadline)),
            Err(error) => return Err(Failed::Error(error)),
        }
        let counted = u64::from(current.machine.counts().reported);
        if let Err(error) = store.reserve(lease, current.id, counted) {
            return Err(match error {
                StoreError::Conflict { .. } => Failed::Abandon(Box::new(Some(head)), AbandonReason::Store),
                error => Failed::Error(error.into()),
            });
        }
        crate::failpoint!("release.reserved");
        // The reports are in the sum, so nothing comes that could use this memory.
        self.spool.trim();
        let Some(Sealed { sum, included }) = self.seal(current, lease.fence)? else {
            return Err(Failed::Abandon(Box::new(Some(head)), AbandonReason::Protocol));
        };
        crate::failpoint!("release.sealed");
        let names = included.iter().map(|contributor| contributor.user);
        let users: Vec<ParticipantId> = names.collect();
        // PRIVACY: a database that restarted may have admitted a subject twice, to two shards.
        let distinct: std::collections::BTreeSet<ParticipantId> = users.iter().copied().collect();
        if distinct.len() != users.len() {
            return Err(Failed::Abandon(Box::new(Some(head)), AbandonReason::Duplicate));
        }
        // PRIVACY: the sum itself says who is in it. What the store or the sessions remember does not.
        if (users.len() as u64) < self.task.file.floor() {
            return Err(Failed::Abandon(Box::new(Some(head)), AbandonReason::Few));
        }
        let lost: Vec<ParticipantId> = current.counted().filter(|user| !users.contains(user)).collect();
        let attempts = self.abandoned()?;
        let on_device = self.counts_on_devices();
        let who = Participants {
            names: if on_device { Vec::new() } else { users.clone() },
            unnamed: on_device.then_some(users.len() as u64),
            survivors: self.task.is_secure().then_some(users.len() as u64),
            examples: None,
            summed_on_gpu: false,
            lost: if on_device { Vec::new() } else { lost.clone() },
            attempts,
            issuer: self.issuer(),
            mode: Some(match (self.task.file.seed, on_device) {
                (Some(_), _) => LedgerMode::ParityTest,
                (None, true) => LedgerMode::DeviceLedger,
                (None, false) => LedgerMode::Service,
            }),
        };
        let gathered = Gathered {
            sum,
            who,
            lane: None,
            diagnostics: Diagnostics::default(),
        };
        let entropy = match self.task.file.seed {
            // PRIVACY: each close brings fresh entropy of its own; only a parity test repeats.
            None => RoundEntropy::fresh(random()?),
            Some(seed) => RoundEntropy::seeded(seed),
        };
        let opened = head.open(None)?;
        let mut next = match head.close(opened, gathered, &entropy, &mut |_| ()) {
            Ok(next) => next,
            Err(CloseError::Refused { head, why }) => {
                tracing::error!(%why, "the head refused the sum of an attempt");
                return Err(Failed::Abandon(Box::new(Some(*head)), AbandonReason::Protocol));
            }
            Err(CloseError::Lost { why }) => return Err(Failed::Error(self.halt(&why.to_string()))),
        };
        #[cfg(feature = "failpoints")]
        crate::failpoint::drawn(current.id, next.entry.round, next.entry.noise_key.as_deref());
        crate::failpoint!("release.closed");
        if matches!(self.task.file.purpose, TaskPurpose::Train { .. }) {
            // It is in the parameters, and nobody reads it any more.
            next.average = None;
        }
        let (model, release) = self.stage(current, &next, users, lost)?;
        crate::failpoint!("release.staged");
        self.commit_release(lease, &release)?;
        crate::failpoint!("release.committed");
        let mut sessions: Vec<SessionId> = included.iter().map(|contributor| contributor.session).collect();
        sessions.sort_unstable();
        Ok((next.head, model, sessions))
    }

    /// Seals the sums of the attempt, once. `None` where there is no sum that can be released.
    fn seal(&self, current: &Current, fence: u64) -> Result<Option<Sealed>> {
        match &current.sums {
            Sums::Plain(sum) => {
                let Ok(mut result) = sum.seal() else {
                    return Ok(None);
                };
                if let Err(error) = self.seal_shards(current, fence, &mut result) {
                    tracing::error!(task = %self.task.id, %error, "the shards of a sum could not be added");
                    return Ok(None);
                }
                result.included.sort_unstable();
                Ok(Some(Sealed {
                    sum: RoundSum::Users {
                        sum: result.sum,
                        bits: result.bits,
                    },
                    included: result.included,
                }))
            }
            Sums::Groups(groups) => {
                let sums: Vec<GroupSum> = groups
                    .iter()
                    .filter_map(|group| lock(group).seal().ok())
                    .collect();
                let Ok(merged) = GroupSum::merge(sums) else {
                    return Ok(None);
                };
                for Blame { session, about } in &merged.culprits {
                    // The sum is right all the same. Which of the two lied, the shares alone do not say.
                    tracing::warn!(
                        task = %self.task.id,
                        session = %hex(&session.0),
                        about = %hex(&about.0),
                        "a share was false: the session that gave it lied, or the one that made it"
                    );
                }
                let clients = merged.included.len() as u64;
                let encoding = self.task.privacy.encoding();
                let sum = match encoding.filter(|encoding| encoding.client_noise().is_some()) {
                    Some(encoding) => {
                        let round = encoding.for_round(&self.task.rotations, current.opened.round())?;
                        RoundSum::WithClientNoise(round.decode(merged.sum, clients)?)
                    }
                    None => RoundSum::Modular {
                        residues: merged.sum,
                        included: clients,
                        rotations: self.task.rotations.clone(),
                    },
                };
                Ok(Some(Sealed {
                    sum,
                    included: merged.included,
                }))
            }
        }
    }

    /// The issuer that vouches for the users of the task, with the keys whose certificates count in this process.
    fn issuer(&self) -> Option<Issuer> {
        let keys = &self.shared.keys;
        match self.task.file.service.identity {
            IdentityLevel::Dev => None,
            IdentityLevel::Certificate | IdentityLevel::Attested => {
                Some(Issuer::new(&keys.issuer_name(), &keys.issuer_keys()))
            }
        }
    }

    /// The attempts without a release since the last release, as the ledger names them.
    fn abandoned(&self) -> Result<Vec<AbandonedAttempt>> {
        let attempts = self.shared.store.abandoned_since_release(self.task.id)?;
        let on_device = self.counts_on_devices();
        Ok(attempts
            .into_iter()
            .map(|attempt| AbandonedAttempt {
                attempt: attempt.attempt_of_round,
                reason: attempt.reason,
                participants: if on_device {
                    Vec::new()
                } else {
                    attempt.participants
                },
                row_spent: false,
            })
            .collect())
    }

    /// Stages model and state under the name of the attempt, and reads them back.
    fn stage(
        &self,
        current: &Current,
        next: &Next,
        included: Vec<ParticipantId>,
        lost: Vec<ParticipantId>,
    ) -> Result<(Blob, Release)> {
        let head = &next.head;
        let blobs = &self.shared.blobs;
        let model = match self.task.file.purpose {
            TaskPurpose::Train { .. } => head_state::model(head)?,
            TaskPurpose::Evaluate { .. } => self.rates(current, next)?,
        };
        let place = Place {
            task: self.task.id,
            round: head.round(),
            attempt: current.id.0,
        };
        let staged_model = blobs.stage(current.id, MODEL, &mut model.as_slice())?;
        drop(model);
        crate::failpoint!("release.model_staged");
        let staged_state = pipe::through(
            |writer| head_state::save(head, &self.shared.keys, place, writer),
            |reader| Ok(blobs.stage(current.id, STATE, reader)?),
        )?;
        let release = Release {
            attempt: current.id,
            round: current.opened.round(),
            included,
            lost,
            digest: head.chain().head().to_owned(),
            previous: next.entry.previous_sha256.clone(),
            line: next.line.clone(),
            model: staged_model.digest,
            state: Some(staged_state.digest),
            noise_key: next.entry.noise_key.clone(),
            metrics: self.metrics(current, next)?,
        };
        let model = Blob {
            sha256: staged_model.digest.to_vec(),
            length: staged_model.length,
            url: String::new(),
        };
        Ok((model, release))
    }

    /// The line of `metrics.jsonl`: a service knows counts, times and the release, and nothing of single updates.
    fn metrics(&self, current: &Current, next: &Next) -> Result<Vec<u8>> {
        let seconds = self.now().saturating_sub(current.opened_at) as f64 / 1000.0;
        let record = round_record(next, seconds);
        serde_json::to_vec(&MetricsLine::Round(record)).map_err(|error| ServiceError::Value {
            key: "the metrics of a round".to_owned(),
            expected: "numbers that JSON can hold".to_owned(),
            got: error.to_string(),
        })
    }

    /// Commits a release. Where the answer was lost, the outcome is read back.
    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<(), Failed> {
        let store = &self.shared.store;
        let mut tries = 0;
        loop {
            match store.commit_release(lease, release) {
                Ok(()) => return Ok(()),
                Err(StoreError::Unavailable { place, reason }) => {
                    tries += 1;
                    let outcome = store.outcome(release.attempt);
                    match outcome.map(|outcome| outcome.state) {
                        Ok(AttemptState::Committed) => return Ok(()),
                        // The same bytes again: nothing was drawn in between.
                        Ok(AttemptState::Releasing) | Err(_) if tries <= READ_BACK => {
                            std::thread::sleep(core::time::Duration::from_millis(100 << tries));
                        }
                        _ => return Err(Failed::Error(StoreError::Unavailable { place, reason }.into())),
                    }
                }
                Err(StoreError::Refused(violation)) => {
                    // Admission let through what the commit refuses: its rows cannot be trusted.
                    // PRIVACY: the reason names no user, since operators read it.
                    return Err(Failed::Error(self.halt(&broken_schema(&violation))));
                }
                Err(StoreError::Conflict { .. }) => {
                    return Err(Failed::Abandon(Box::new(None), AbandonReason::Store));
                }
                Err(error) => return Err(Failed::Error(error.into())),
            }
        }
    }

    /// Publishes what is committed and not published: the signed head, the witness, the blobs. Everything is idempotent.
    ///
    /// # Errors
    /// [`ServiceError::Halted`] where a head of that round, or of a later one, was published with other bytes.
    pub(super) fn publish(&self) -> Result<()> {
        let (store, blobs) = (&self.shared.store, &self.shared.blobs);
        self.guard()?;
        for unpublished in store.unpublished(self.task.id)? {
            let head = self.signed_head(&unpublished)?;
            match blobs.create_head(self.task.id, unpublished.round, &head)? {
                Created::Created | Created::Same => {}
                Created::Other(_) => return Err(self.halt(&forked(unpublished.round))),
            }
            crate::failpoint!("publish.head");
            self.witness(unpublished.round, &head)?;
            crate::failpoint!("publish.witness");
            for (name, digest) in [(MODEL, Some(unpublished.model)), (STATE, unpublished.state)] {
                if let Some(digest) = digest {
                    blobs.publish(unpublished.attempt, name, &digest)?;
                }
            }
            crate::failpoint!("publish.blobs");
            // The mark comes last: without it the files of an attempt would stay after a crash.
            blobs.sweep(unpublished.attempt)?;
            crate::failpoint!("publish.swept");
            store.published(self.task.id, unpublished.round)?;
            crate::failpoint!("publish.done");
        }
        Ok(())
    }

    fn signed_head(&self, unpublished: &Unpublished) -> Result<Vec<u8>> {
        let head = Head {
            task: self.task.id.0.to_vec(),
            round: unpublished.round,
            attempt: unpublished.attempt_of_round,
            model_sha256: unpublished.model.to_vec(),
            state_sha256: unpublished
                .state
                .map(|digest| digest.to_vec())
                .unwrap_or_default(),
            chain: unhex(&unpublished.chain).unwrap_or_default(),
        };
        Ok(write(
            &self
                .shared
                .keys
                .head(self.task.id)
                .sign(Label::Head, write(&head)),
        ))
    }

    /// Ends the task after its last round.
    pub(super) fn complete(&self) -> Result<()> {
        let over = {
            let inner = self.lock();
            let live = matches!(inner.state, TaskState::Active | TaskState::Paused);
            live && inner.head.as_ref().is_some_and(RunHead::is_over)
        };
        match over {
            true => self.end(EndReason::Completed),
            false => Ok(()),
        }
    }

    /// Ends the task: the last line of its ledger names the attempts since the last release.
    ///
    /// # Errors
    /// From the store; a task that has ended. An open attempt is abandoned first.
    pub fn end(&self, reason: EndReason) -> Result<()> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let ended = self.end_with(inner, reason);
        inner.noted(ended)?;
        let is_over = inner.state == TaskState::Completed;
        drop(guard);
        self.notify();
        if is_over {
            self.tidy();
        }
        Ok(())
    }

    /// Deletes the sessions of the ended task now, and not seven days later by a server that may not run then. Where that fails, a later
    /// sweep does it.
    fn tidy(&self) {
        let store = &self.shared.store;
        if let Err(error) = store.sweep() {
            tracing::warn!(task = %self.task.id, %error, "the sessions of the task could not be deleted yet");
        }
        if self.task.file.service.forget_pseudonyms
            && let Err(error) = store.scrub()
        {
            tracing::warn!(task = %self.task.id, %error, "the files of the database may hold deleted rows yet");
        }
    }

    fn end_with(&self, inner: &mut Inner, reason: EndReason) -> Result<()> {
        self.abandon(inner, self.now(), AbandonReason::Operator)?;
        let Some(head) = inner.head.take() else {
            return Ok(());
        };
        let attempts = self.abandoned()?;
        let previous = head.chain().head().to_owned();
        let (line, _, chain) = head.end(reason, attempts, self.issuer())?;
        self.shared
            .store
            .end(&inner.lease, &line, chain.head(), &previous)?;
        crate::failpoint!("task.ended");
        inner.state = TaskState::Completed;
        if self.task.file.service.forget_pseudonyms {
            // Where this fails, the next sweep does it.
            let forgotten = self
                .shared
                .store
                .forget_pseudonym_key(self.task.id, &self.shared.process);
            if let Err(error) = forgotten {
                tracing::warn!(task = %self.task.id, %error, "the key of the pseudonyms could not be destroyed yet");
            }
        }
        Ok(())
    }

    /// Milliseconds since the attempt was opened; 0 without one.
    #[must_use]
    pub fn attempt_age(&self) -> Millis {
        let now = self.now();
        self.lock()
            .current
            .as_ref()
            .map_or(0, |current| now.saturating_sub(current.opened_at))
    }
}

/// The reason for which a task halts whose sum holds a user that the schema forbids.
fn broken_schema(violation: &Violation) -> String {
    let rule = match violation {
        Violation::TooSoon { .. } | Violation::OutOfStep { .. } => "the distance of two participations",
        Violation::TooOften { .. } => "the max number of participations",
        Violation::Twice { .. } => "one participation per round",
        _ => "the order of rounds",
    };
    format!(
        "the commit found a user who breaks {rule}, though admission had let the user in: the rows of the store cannot be trusted. \
         Start a new task; its ledger composes with this one"
    )
}
