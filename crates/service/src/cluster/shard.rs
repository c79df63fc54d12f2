//! Shards of the sum of a plain attempt, held by processes that do not lead its task.
//!
//! The leader opens a shard, and gives devices a place at it. Everything about a session but its upload is the leader's: the process of
//! the shard asks it before an update is added, and says so afterwards. At the release the leader seals each shard once. The partial sum
//! travels over mutual TLS from memory to memory.

mod message;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use undertone_aggregation::{Bound, ParamLayout};
use undertone_protocol::{Commit, SessionClaims};
use undertone_store::{AttemptId, AttemptState, Millis, Outcome, SessionId, Store, TaskId};
use zeroize::Zeroizing;

use crate::attempt::plain::{PlainSum, Report};
use crate::attempt::refusal::Refusal;
use crate::error::Result;
use crate::storage::spool::Spool;
use crate::upload::{Trouble, Upload};
pub(crate) use message::{Opening, Partial, Terms};

/// The time between two looks at the attempts of shards, in milliseconds.
const LOOK: Millis = 2000;

/// The leader of a shard that has ended is remembered this long, so that devices learn their verdicts, in milliseconds.
const REMEMBERED: Millis = 10 * 60_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shard of the sum of one attempt.
pub(crate) struct Shard {
    /// The process that leads the task.
    pub(crate) leader: String,
    task: TaskId,
    fence: u64,
    until: Millis,
    sum: PlainSum,
    uploads: Mutex<BTreeMap<SessionId, Arc<Mutex<Upload>>>>,
}

impl Shard {
    /// The length of an upload in bytes.
    pub(crate) fn upload_bytes(&self) -> u64 {
        self.sum.upload_bytes()
    }

    /// Notes that a session has joined at the leader: its upload may come.
    pub(crate) fn joined(&self, session: SessionId, spool: &Arc<Spool>) {
        lock(&self.uploads)
            .entry(session)
            .or_insert_with(|| Arc::new(Mutex::new(Upload::new(spool, self.sum.upload_bytes()))));
    }

    /// Drops the upload of a session that has ended.
    pub(crate) fn left(&self, session: SessionId) {
        lock(&self.uploads).remove(&session);
    }

    fn upload_of(&self, session: SessionId) -> Result<Arc<Mutex<Upload>>, Trouble> {
        let early = || Refusal::OutOfTurn("the session has not joined".to_owned());
        let found = lock(&self.uploads).get(&session).cloned();
        Ok(found.ok_or_else(early)?)
    }

    /// Takes a chunk of an upload, and returns the number of bytes that are there.
    pub(crate) fn take(
        &self,
        session: SessionId,
        offset: u64,
        checksum: u32,
        chunk: &[u8],
    ) -> Result<u64, Trouble> {
        let upload = self.upload_of(session)?;
        let mut upload = hold(&upload)?;
        upload.take(offset, checksum, &[chunk])
    }

    /// The number of bytes of an upload that are there.
    pub(crate) fn offset(&self, session: SessionId) -> Result<u64, Trouble> {
        let upload = self.upload_of(session)?;
        let held = hold(&upload)?;
        Ok(held.offset())
    }

    /// Checks that an upload is whole. `true` if it is in the sum already.
    pub(crate) fn is_added(&self, session: SessionId, commit: &Commit) -> Result<bool, Trouble> {
        let upload = self.upload_of(session)?;
        let upload = hold(&upload)?;
        match upload.is_done() {
            true => Ok(true),
            false => Ok(upload.check_length(commit).map(|()| false)?),
        }
    }

    /// Adds an upload to the sum, once. The leader has granted it its place.
    pub(crate) fn add(&self, claims: &SessionClaims, commit: &Commit) -> Result<(), Trouble> {
        let session = SessionId(claims.session);
        let upload = self.upload_of(session)?;
        let mut upload = hold(&upload)?;
        if upload.is_done() {
            return Ok(());
        }
        upload.check_length(commit)?;
        let added = upload.with(commit.crc32c, |bytes| {
            self.sum.commit(&Report {
                session,
                user: undertone_coordinator::participation::ParticipantId::new(claims.pseudonym),
                bytes,
                weight: commit.weight,
                below: commit.below,
            })
        })?;
        match added {
            Ok(_) => {
                upload.end();
                Ok(())
            }
            Err(refusal) => {
                if refusal == Refusal::Norm {
                    upload.clear();
                }
                Err(refusal.into())
            }
        }
    }
}

/// The upload, for one request at a time.
fn hold(upload: &Mutex<Upload>) -> Result<MutexGuard<'_, Upload>, Trouble> {
    match upload.try_lock() {
        Ok(upload) => Ok(upload),
        // A change of an upload is one assignment or append, so a thread that panicked left it whole.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Refusal::Busy.into()),
    }
}

/// The shards that this process holds.
#[derive(Default)]
pub(crate) struct Shards {
    open: Mutex<BTreeMap<AttemptId, Arc<Shard>>>,
    /// The highest fence that was named for each task.
    fences: Mutex<BTreeMap<TaskId, u64>>,
    looked: Mutex<Millis>,
    /// The leaders of shards that have ended, each with the end of its memory.
    past: Mutex<BTreeMap<AttemptId, (String, Millis)>>,
}

impl Shards {
    /// The shard of an attempt.
    pub(crate) fn of(&self, attempt: u64) -> Option<Arc<Shard>> {
        lock(&self.open).get(&AttemptId(attempt)).cloned()
    }

    /// The leader of an attempt whose shard here has ended.
    pub(crate) fn leader_of_past(&self, attempt: u64) -> Option<String> {
        let past = lock(&self.past);
        past.get(&AttemptId(attempt)).map(|(leader, _)| leader.clone())
    }

    /// Ends a shard. Of two calls at one time, one gets it.
    fn end(&self, id: AttemptId, now: Millis) -> Option<Arc<Shard>> {
        let shard = lock(&self.open).remove(&id)?;
        lock(&self.past).insert(id, (shard.leader.clone(), now + REMEMBERED));
        Some(shard)
    }

    /// `true` where no session has joined at a shard of this process: the leaders lose nothing by its end.
    pub(crate) fn are_vacant(&self) -> bool {
        lock(&self.open)
            .values()
            .all(|shard| lock(&shard.uploads).is_empty())
    }

    /// Remembers a fence. `false` for a lower one than before: its leader leads no more.
    fn is_highest(&self, task: TaskId, fence: u64) -> bool {
        let mut fences = lock(&self.fences);
        let known = fences.entry(task).or_default();
        *known = fence.max(*known);
        *known == fence
    }

    /// Opens a shard for a leader. A second opening for the same attempt is refused: its sum may have been sealed.
    pub(crate) fn open(&self, opening: &Opening, layout: Arc<ParamLayout>) -> Result<(), Refusal> {
        let task = opening.task().ok_or(Refusal::Gone)?;
        if !self.is_highest(task, opening.fence) {
            return Err(Refusal::Gone);
        }
        let bound = Bound::new(layout, opening.clipping(), opening.non_finite());
        let sum = PlainSum::new(bound, opening.goal, opening.with_bits)
            .map_err(|error| Refusal::Conflict(error.to_string()))?;
        if sum.upload_bytes() != opening.upload_bytes {
            return Err(Refusal::Conflict(format!(
                "the leader expects uploads of {} bytes, and this process of {}",
                opening.upload_bytes,
                sum.upload_bytes()
            )));
        }
        let mut open = lock(&self.open);
        let id = AttemptId(opening.attempt);
        if open.contains_key(&id) || lock(&self.past).contains_key(&id) {
            return Err(Refusal::Gone);
        }
        let shard = Shard {
            leader: opening.leader.clone(),
            task,
            fence: opening.fence,
            until: opening.until,
            sum,
            uploads: Mutex::default(),
        };
        open.insert(id, Arc::new(shard));
        Ok(())
    }

    /// Seals a shard, once, for the leader that has reserved its attempt under this fence.
    ///
    /// PRIVACY: two sums over different sets of sessions would tell them apart, so a second seal gives nothing. The store says that the
    /// attempt is being released before the first byte is read.
    pub(crate) fn seal(
        &self,
        attempt: u64,
        fence: u64,
        store: &dyn Store,
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let id = AttemptId(attempt);
        let shard = self.of(attempt).ok_or(Refusal::Gone)?;
        if shard.fence != fence || !self.is_highest(shard.task, fence) {
            return Err(Refusal::Gone);
        }
        let reserved = |outcome: Outcome| outcome.state == AttemptState::Releasing && outcome.fence == fence;
        if !store.outcome(id).is_ok_and(reserved) {
            return Err(Refusal::Gone);
        }
        let taken = self.end(id, store.now()).ok_or(Refusal::Gone)?;
        crate::failpoint!("shard.taken");
        let result = taken.sum.seal()?;
        // A sum that lost an addition is no sum.
        Partial::write(attempt, fence, result).map_err(|_| Refusal::Gone)
    }

    /// Drops the shards of attempts that have ended. Their sums are wiped.
    pub(crate) fn sweep(&self, store: &dyn Store) {
        let now = store.now();
        {
            let mut looked = lock(&self.looked);
            if now.saturating_sub(*looked) < LOOK {
                return;
            }
            *looked = now;
        }
        let open: Vec<(AttemptId, Millis)> = lock(&self.open)
            .iter()
            .map(|(id, shard)| (*id, shard.until))
            .collect();
        for (id, until) in open {
            let ended =
                |outcome: Outcome| matches!(outcome.state, AttemptState::Committed | AttemptState::Abandoned);
            if now >= until || store.outcome(id).is_ok_and(ended) {
                self.end(id, now);
            }
        }
        lock(&self.past).retain(|_, (_, until)| *until > now);
    }
}

#[cfg(test)]
mod tests;
