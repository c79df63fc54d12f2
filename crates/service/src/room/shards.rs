//! The shards of the sum of a plain attempt, as its leader sees them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use undertone_aggregation::AggregationError;
use undertone_protocol::{Next, Verdict, Wait, next};
use undertone_store::{Lease, SessionId, SessionState};

use super::devices::{Claims, Reply, current_of, gone, step};
use super::{Current, Inner, Room, Sums, Uploading};
use crate::attempt::Event;
use crate::attempt::plain::PlainResult;
use crate::attempt::refusal::Refusal;
use crate::attempt::session::Stage;
use crate::cluster::shard::{Opening, Partial, Terms};
use crate::cluster::{Cluster, Peer};
use crate::error::Result;

/// The time for the opening of a shard. An attempt goes on without a process that takes longer.
const TO_OPEN: Duration = Duration::from_secs(2);

/// Max bytes of a refusal of another process.
const MAX_REFUSAL: usize = 4096;

/// A shard in the memory of another process.
pub(super) struct Remote {
    process: String,
    /// The start of the process that opened the shard. A later one of its name has no shard.
    epoch: u64,
    url: String,
    /// `true` once its process was lost, with everything that was in the shard.
    lost: bool,
}

/// The shards of an attempt.
#[derive(Default)]
pub(super) struct Shards {
    remote: Vec<Remote>,
    /// `true` if the leader holds a part of the sum, too.
    here: bool,
    /// The sessions whose updates may be added, wherever. There are at most as many as the goal.
    granted: BTreeSet<SessionId>,
}

impl Shards {
    /// The shard of a new session: 0 for the leader, and the number of another process from 1 on.
    pub(super) fn place(&self, session: SessionId) -> u32 {
        let living: Vec<u32> = (1u32..)
            .zip(&self.remote)
            .filter(|(_, remote)| !remote.lost)
            .map(|(number, _)| number)
            .chain(self.here.then_some(0))
            .collect();
        // Session names are random.
        let draw = usize::from(session.0[0]) << 8 | usize::from(session.0[1]);
        living.get(draw % living.len().max(1)).copied().unwrap_or(0)
    }

    /// The name of the process of a shard; `None` for the leader itself.
    pub(super) fn process(&self, shard: u32) -> Option<&str> {
        let remote = self.remote.get((shard as usize).checked_sub(1)?)?;
        Some(&remote.process)
    }

    /// Gives a session its place in the sum. The first ones up to the goal get one.
    pub(super) fn grant(&mut self, session: SessionId, goal: u64) -> bool {
        if self.remote.is_empty() || self.granted.contains(&session) {
            return true;
        }
        let free = (self.granted.len() as u64) < goal;
        if free {
            self.granted.insert(session);
        }
        free
    }

    /// Takes the place of a session back, which was lost before its update was added.
    pub(super) fn take_back(&mut self, session: SessionId) {
        self.granted.remove(&session);
    }
}

impl Room {
    /// Opens a shard at each process that holds shards now. One that does not answer holds none.
    pub(super) fn open_shards(&self, cluster: &Arc<Cluster>, lease: &Lease, current: &Current) -> Shards {
        let Sums::Plain(sum) = &current.sums else {
            return Shards::default();
        };
        let terms = Terms {
            task: self.task.id,
            attempt: current.id.0,
            fence: lease.fence,
            leader: cluster.name(),
            until: current.machine.settings().attempt_until(),
            goal: u32::try_from(self.task.file.goal()).unwrap_or(u32::MAX),
            with_bits: current.opened.estimate().is_some(),
        };
        let opening = Opening::new(&terms, current.opened.bound());
        if opening.upload_bytes != sum.upload_bytes() {
            return Shards::default();
        }
        let body = serde_json::to_vec(&opening).unwrap_or_default();
        let (own, others): (Vec<Peer>, Vec<Peer>) = cluster
            .aggregators()
            .into_iter()
            .partition(|peer| peer.name == cluster.name());
        let urls: Vec<String> = others.iter().map(|peer| peer.url.clone()).collect();
        let answers = cluster.ask_all(&urls, "/internal/v1/shards/open", &body, MAX_REFUSAL, TO_OPEN);
        let mut shards = Shards {
            here: !own.is_empty(),
            ..Shards::default()
        };
        for (peer, answer) in others.into_iter().zip(answers) {
            match answer {
                Some(_) => shards.remote.push(Remote {
                    process: peer.name,
                    epoch: peer.epoch,
                    url: peer.url,
                    lost: false,
                }),
                None => tracing::warn!(process = %peer.name, "a process holds no shard of this attempt"),
            }
        }
        crate::failpoint!("shards.opened");
        // A leader without the role holds the sum where no process with it lives.
        shards.here |= shards.remote.is_empty();
        shards
    }

    /// Loses the shards whose processes have ended, with all of their sessions: nobody knows who had reported there.
    pub(super) fn lose_shards(&self, inner: &mut Inner) -> Result<()> {
        let (Some(cluster), Some(current)) = (&self.cluster, &mut inner.current) else {
            return Ok(());
        };
        let mut lost = Vec::new();
        for (number, remote) in (1u32..).zip(&mut current.shards.remote) {
            if !remote.lost && !cluster.lives(&remote.process, remote.epoch) {
                remote.lost = true;
                tracing::warn!(process = %remote.process, task = %self.task.id, "a shard was lost with its process");
                lost.push(number);
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let sessions: Vec<SessionId> = current
            .devices
            .iter()
            .filter(|(_, device)| lost.contains(&device.at))
            .map(|(session, _)| *session)
            .collect();
        for session in sessions {
            let now = self.now();
            let Some(current) = &mut inner.current else { break };
            current.shards.take_back(session);
            let state = current.sessions.get_mut(session);
            let Some(at) = state.and_then(crate::attempt::session::Session::lose) else {
                continue;
            };
            let state = match at.counts() {
                true => SessionState::Lost,
                false => SessionState::LostBeforeReady,
            };
            self.shared.store.note_sessions(&[(session, state)])?;
            self.event(inner, now, Event::SumLost(session))?;
        }
        Ok(())
    }

    /// Grants a session of the shard of `process` its place in the sum, before its update is added there. `what` of the answer is empty
    /// where it has one, and the end of the session otherwise.
    ///
    /// # Errors
    /// A refusal: the session is over, has not joined, or has its place in another shard.
    pub(crate) fn grant(&self, claims: &Claims, process: &str) -> Reply {
        let session = SessionId(claims.session);
        if let Some(answer) = self.settled(&self.lock(), claims) {
            return Ok(answer);
        }
        let mut inner = self.lock();
        let goal = self.task.file.goal();
        let current = current_of(&mut inner, claims)?;
        let device = current.devices.get(&session).ok_or_else(gone)?;
        let state = current.sessions.get_mut(session).ok_or_else(gone)?;
        if state.end().is_some() {
            return Err(gone());
        }
        // PRIVACY: a device that goes to two shards is added once.
        if current.shards.process(device.at) != Some(process) || matches!(device.upload, Uploading::Nothing) {
            return Err(Refusal::OutOfTurn("the session has not joined this shard".to_owned()).problem());
        }
        let reported = state.stage() >= Stage::Reported;
        if !reported && (!current.machine.awaits(session) || !current.shards.grant(session, goal)) {
            state.late();
            return Ok(self.verdict(&inner, Verdict::Late));
        }
        let until = current.machine.settings().attempt_until();
        // The device has done its part: the session does not expire while its update is added.
        state.extend(until);
        Ok(Next {
            step: None,
            retry: None,
        })
    }

    /// Counts a session whose update is in the sum of the shard of `process`.
    ///
    /// # Errors
    /// A refusal: the session is over, or has its place in another shard.
    pub(crate) fn reported_at_shard(&self, claims: &Claims, process: &str) -> Reply {
        let now = self.now();
        let session = SessionId(claims.session);
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(answer) = self.settled(inner, claims) {
            return Ok(answer);
        }
        let current = current_of(inner, claims)?;
        let device = current.devices.get(&session).ok_or_else(gone)?;
        if current.shards.process(device.at) != Some(process) {
            return Err(Refusal::OutOfTurn("the session has not joined this shard".to_owned()).problem());
        }
        let state = current.sessions.get_mut(session).ok_or_else(gone)?;
        if state.end().is_some() {
            return Err(gone());
        }
        if state.reach(Stage::Reported).is_ok_and(|moved| moved) {
            self.event(inner, now, Event::Reported(session))?;
            drop(guard);
            self.note(session, SessionState::Reported)?;
        }
        Ok(step(next::Step::Wait(Wait {})))
    }

    /// Seals the shards of an attempt, each once, and adds their sums to that of the leader. A shard that does not give its sum is lost
    /// with its sessions, and the others go on.
    ///
    /// # Errors
    /// A sum that leaves its range.
    pub(super) fn seal_shards(
        &self,
        current: &Current,
        fence: u64,
        result: &mut PlainResult,
    ) -> Result<(), AggregationError> {
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let length = result.sum.bound().layout().len();
        let goal = self.task.file.goal() as usize;
        let max = 1024 + 24 * goal + 8 * (length + 4);
        let attempt = current.id.0;
        let living: Vec<&Remote> = current
            .shards
            .remote
            .iter()
            .filter(|remote| !remote.lost && cluster.lives(&remote.process, remote.epoch))
            .collect();
        let urls: Vec<String> = living.iter().map(|remote| remote.url.clone()).collect();
        let path = format!("/internal/v1/shards/{attempt}/seal?fence={fence}");
        // The lease is not renewed meanwhile. A process that takes longer has lost its shard.
        let within = Duration::from_millis(self.lease_time / 3);
        let answers = cluster.ask_all(&urls, &path, &[], max, within);
        crate::failpoint!("shards.sealed");
        let mut parts = Vec::new();
        for (remote, answer) in living.into_iter().zip(answers) {
            let with_bits = result.bits.is_some();
            let part = answer.and_then(|bytes| Partial::read(&bytes, attempt, fence, length, with_bits));
            match part {
                Some(part) => parts.push(part),
                None => tracing::warn!(process = %remote.process, "a shard did not give its sum: it is lost"),
            }
        }
        Partial::merge(result, parts)
    }
}
