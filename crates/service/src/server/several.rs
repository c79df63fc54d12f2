//! The part of a service that knows of other processes: the tasks that they lead, and the end of the work of this one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use undertone_aggregation::ParamLayout;
use undertone_protocol::{Blob, Digest32, SessionClaims, TaskState, TokenKey, digest_of};
use undertone_store::{TaskId, TaskRow};

use super::Service;
use crate::cluster::Cluster;
use crate::cluster::shard::Shards;
use crate::error::{Result, ServiceError};
use crate::identity::{DAY, Member, hex, unhex};
use crate::room::{Room, newest_model};
use crate::task::Task;

/// A check-in whose signatures were checked.
///
/// PRIVACY: it names a subject, so it has no `Debug`. It travels between processes over mutual TLS alone.
pub(crate) struct CheckedIn {
    pub(super) population: String,
    /// PRIVACY: a check-in goes from thread to thread, and each move would leave a copy of the subject on a stack. The heap is wiped.
    pub(super) member: Box<Member>,
    pub(super) checkin: [u8; 16],
    pub(super) client_version: u32,
    pub(super) eligible: Vec<TaskId>,
    /// Evidence of the platform of the device.
    pub(super) evidence: Vec<u8>,
}

/// A check-in as it travels between processes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Travelling {
    population: String,
    subject: String,
    device: String,
    issuer: String,
    checkin: String,
    client_version: u32,
    eligible: Vec<String>,
    evidence: String,
}

impl CheckedIn {
    /// The tasks that the device may take part in.
    pub(crate) fn eligible(&self) -> &[TaskId] {
        &self.eligible
    }

    /// The population of the device.
    pub(crate) fn population(&self) -> &str {
        &self.population
    }

    /// The device.
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// The bytes for another process.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let travelling = Travelling {
            population: self.population.clone(),
            subject: hex(&self.member.subject),
            device: hex(&self.member.device),
            issuer: hex(&self.member.issuer),
            checkin: hex(&self.checkin),
            client_version: self.client_version,
            eligible: self.eligible.iter().map(|id| hex(&id.0)).collect(),
            evidence: hex(&self.evidence),
        };
        serde_json::to_vec(&travelling).unwrap_or_default()
    }

    /// Reads the bytes of another process; `None` for others.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let read: Travelling = serde_json::from_slice(bytes).ok()?;
        let digest = |text: &str| -> Option<Digest32> { unhex(text)?.try_into().ok() };
        Some(Self {
            member: Box::new(Member {
                subject: digest(&read.subject)?,
                device: digest(&read.device)?,
                issuer: digest(&read.issuer)?,
            }),
            population: read.population,
            checkin: unhex(&read.checkin)?.try_into().ok()?,
            client_version: read.client_version,
            evidence: unhex(&read.evidence)?,
            eligible: read
                .eligible
                .iter()
                .map(|id| Some(TaskId(digest(id)?)))
                .collect::<Option<_>>()?,
        })
    }
}

/// A task that another process leads, or nobody at the moment.
pub(super) struct Elsewhere {
    pub(super) task: Arc<Task>,
    pub(super) row: TaskRow,
    /// Bytes that a device loads and sends in a round.
    pub(super) bytes: (u64, u64),
    /// The model that the first of them was found for.
    model: Digest32,
}

impl Service {
    /// Makes this process one of several. Call it once, before the first [`tick`](Self::tick).
    pub fn join(&self, cluster: Arc<Cluster>) {
        // A second call would be a mistake of the host, and changes nothing.
        let _ = self.cluster.set(cluster);
    }

    /// The other processes; `None` for a service of one process.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// The key of session tokens. Processes of one service open each other's, under a key of the day; that of a process without others
    /// lives in its memory alone. `ago` counts the days back.
    pub(super) fn token_key(&self, ago: u64) -> TokenKey {
        match self.cluster() {
            None => TokenKey::new(&self.token),
            Some(_) => {
                let today = self.shared.store.now() / DAY;
                TokenKey::new(&self.shared.keys.tokens(today.saturating_sub(ago)))
            }
        }
    }

    /// The claims of a session token; `None` for one that does not open.
    pub(crate) fn open_token(&self, token: &[u8]) -> Option<SessionClaims> {
        let now = self.shared.store.now();
        let opened = self.token_key(0).open(token, now);
        match self.cluster() {
            None => opened.ok(),
            // An attempt may last over midnight.
            Some(_) => opened.or_else(|_| self.token_key(1).open(token, now)).ok(),
        }
    }

    /// The shards that this process holds for other leaders.
    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// The layout of the updates of a task.
    ///
    /// # Errors
    /// From the store and the blobs.
    pub(crate) fn layout_of(&self, id: TaskId) -> Result<Arc<ParamLayout>> {
        let known = self
            .elsewhere
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned();
        if let Some(known) = known {
            return Ok(known.task.privacy.layout().clone());
        }
        let row = self.shared.store.task(id)?;
        let task = Task::load(&row, self.shared.blobs.as_ref(), &self.shared.keys)?;
        Ok(task.privacy.layout().clone())
    }

    /// `true` while the process takes new work.
    pub fn takes_work(&self) -> bool {
        self.cluster().is_none_or(|cluster| cluster.takes_work())
    }

    /// `true` once this process leads no task, and holds no update of a device for another one.
    pub fn holds_nothing(&self) -> bool {
        self.rooms().is_empty() && self.shards.are_vacant()
    }

    /// `true` if this process should try to lead a task.
    pub(super) fn may_lead(&self, row: &TaskRow) -> bool {
        self.cluster()
            .is_none_or(|cluster| cluster.may_lead(row, self.shared.store.now()))
    }

    /// Leads a task, under the leases and at the place of this process.
    pub(super) fn led(&self, task: Task) -> Result<Option<Arc<Room>>> {
        let (shared, spool) = (self.shared.clone(), self.spool.clone());
        let lock = || self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, left) = (task.id, lock().get(&task.id).cloned());
        let led = Room::lead_among(shared, spool, task, self.cluster().cloned(), left.as_ref())?;
        lock().remove(&id);
        Ok(led)
    }

    /// Keeps the participants of a room that cannot go on. The next room of the task counts them.
    pub(super) fn keep_left_over(&self, id: TaskId, room: &Room) {
        if let Some(left) = room.left_over() {
            let mut kept = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(id, left);
        }
    }

    /// `true` for a room whose process ends, once its attempt has ended: other processes take the task.
    pub(super) fn must_leave(&self, room: &Room) -> bool {
        self.cluster()
            .is_some_and(|cluster| (cluster.is_draining() && room.is_vacant()) || cluster.is_replaced())
    }

    /// Ends the work at one task, and hands its lease back.
    pub(super) fn close_room(&self, id: TaskId) {
        let Some(room) = self.write_rooms().remove(&id) else {
            return;
        };
        if let Err(error) = room.close() {
            tracing::error!(task = %id, %error, "the work at a task could not be ended; the next process waits for the end of the lease");
        }
    }

    /// Remembers the tasks that have no room here, for boards, blobs and check-ins.
    pub(super) fn look_elsewhere(&self, rows: Vec<TaskRow>) {
        if self.cluster().is_none() {
            return;
        }
        self.shards.sweep(self.shared.store.as_ref());
        let mut found = BTreeMap::new();
        for row in rows {
            let live = matches!(row.state, TaskState::Active | TaskState::Paused);
            if !live || self.room(row.task.id).is_some() {
                continue;
            }
            let id = row.task.id;
            match self.other(row) {
                Ok(other) => {
                    self.troubles().task_works(id);
                    found.insert(id, Arc::new(other));
                }
                Err(error) => self.stumbled(id, &error),
            }
        }
        *self.elsewhere.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    pub(super) fn other(&self, row: TaskRow) -> Result<Elsewhere> {
        let known = self
            .elsewhere
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&row.task.id)
            .cloned();
        let (store, blobs) = (self.shared.store.as_ref(), self.shared.blobs.as_ref());
        let task = match &known {
            Some(known) => known.task.clone(),
            None => Arc::new(Task::load(&row, blobs, &self.shared.keys)?),
        };
        let model = match task.of {
            Some(of) => store.task(of)?.head_model,
            None => row.head_model,
        };
        let bytes = match &known {
            Some(known) if known.model == model => known.bytes,
            _ => match newest_model(blobs, &model) {
                Ok(Blob { length, .. }) => (length + task.plan.len() as u64, task.upload_bytes()),
                // Its leader has committed and not published it yet: the sizes of the model before stand meanwhile.
                Err(_) if known.is_some() => {
                    let before = known.map_or((0, 0), |known| known.bytes);
                    return Ok(Elsewhere {
                        task,
                        row,
                        bytes: before,
                        model: [0; 32],
                    });
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Elsewhere {
            task,
            row,
            bytes,
            model,
        })
    }

    fn others(&self) -> Vec<Arc<Elsewhere>> {
        let elsewhere = self.elsewhere.read().unwrap_or_else(PoisonError::into_inner);
        elsewhere.values().cloned().collect()
    }

    /// The tasks of a population that have no room here.
    pub(super) fn elsewhere_of(&self, population: &str) -> Vec<Arc<Elsewhere>> {
        let mut others = self.others();
        others.retain(|other| other.task.population == population && self.room(other.task.id).is_none());
        others
    }

    /// `true` for the digest of a plan or a vocabulary of a task that has no room here.
    pub(super) fn is_part_elsewhere(&self, digest: &Digest32) -> bool {
        self.others()
            .iter()
            .any(|other| other.task.vocabulary == *digest || digest_of(&other.task.plan) == *digest)
    }

    /// The rows of these tasks, as far as they have no room here, as they were at the last look.
    pub(crate) fn rows_elsewhere(&self, tasks: &[TaskId]) -> Vec<TaskRow> {
        let others = self.others();
        let asked = others.iter().filter(|other| tasks.contains(&other.task.id));
        asked.map(|other| other.row.clone()).collect()
    }

    /// Ends a task that another process leads, by asking that process. `false` where no other process leads it. Call it on a thread that
    /// may block.
    ///
    /// # Errors
    /// [`ServiceError::Value`] where the leader does not do it.
    pub fn stop_elsewhere(&self, id: TaskId) -> Result<bool> {
        let Some(cluster) = self.cluster() else {
            return Ok(false);
        };
        let Some(leader) = cluster.leader_of(id) else {
            return Ok(false);
        };
        let refused = |got: String| ServiceError::Value {
            key: format!("process {}, which leads the task", leader.name),
            expected: "willing to end it".to_owned(),
            got,
        };
        let path = format!("/internal/v1/tasks/{}/stop", hex(&id.0));
        let asked = cluster.peers.post(&leader.url, &path, Vec::new(), 4096);
        match cluster.runtime().block_on(asked) {
            Ok((status, _)) if status.is_success() => Ok(true),
            Ok((status, body)) => Err(refused(format!(
                "{status}: {}",
                String::from_utf8_lossy(&body).escape_debug()
            ))),
            Err(silence) => Err(refused(format!("{silence:?}"))),
        }
    }
}
