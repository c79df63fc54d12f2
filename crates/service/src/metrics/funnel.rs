//! The funnel of each task by the version of the app: from the check-in to the release.
//!
//! PRIVACY: a count is shown once ten different devices stand behind it, and moves in steps of ten.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Code, Digest32, digest_of};
use undertone_store::{AttemptId, SessionId, SessionState, TaskId};

use super::crowd::Crowd;
use crate::keys::random;

/// Versions of a task that are counted apart. Devices say their version themselves, so all others are counted together.
const MAX_VERSIONS: usize = 32;

/// Sessions whose version is remembered; the sessions of one attempt are far fewer.
const MAX_SESSIONS: usize = 1 << 20;

/// The counts of one version of the app in a task, since the start of the server. `None` stands for fewer than ten devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunnelRow {
    /// The version; `None` for all versions that are not counted apart.
    pub version: Option<u32>,
    /// Check-ins that named the task.
    pub asked: Option<u64>,
    /// Check-ins that were refused because of their version.
    pub too_old: Option<u64>,
    /// Check-ins that were refused because of their certificate, evidence or participations.
    pub refused: Option<u64>,
    /// Check-ins that found no place: no attempt was open, or it had its devices.
    pub no_place: Option<u64>,
    /// Sessions that were assigned.
    pub assigned: Option<u64>,
    /// Sessions that had trained and joined a sum.
    pub ready: Option<u64>,
    /// Sessions whose update was accepted.
    pub reported: Option<u64>,
    /// Sessions in a release.
    pub included: Option<u64>,
}

impl FunnelRow {
    /// The counts by the names of their steps, in their order.
    pub(crate) fn steps(&self) -> [(&'static str, Option<u64>); 8] {
        [
            ("asked", self.asked),
            ("too_old", self.too_old),
            ("refused", self.refused),
            ("no_place", self.no_place),
            ("assigned", self.assigned),
            ("ready", self.ready),
            ("reported", self.reported),
            ("included", self.included),
        ]
    }
}

#[derive(Default)]
struct Counts {
    asked: Crowd,
    too_old: Crowd,
    refused: Crowd,
    no_place: Crowd,
    assigned: Crowd,
    ready: Crowd,
    reported: Crowd,
    included: Crowd,
}

/// The keyed name of a device.
type Name = [u8; 8];

struct Open {
    /// The place of task and version in [`Inner::rows`], and the device; `None` before the device has its answer.
    of: Option<(u32, Name)>,
    state: SessionState,
}

#[derive(Default)]
struct Inner {
    counts: BTreeMap<TaskId, BTreeMap<Option<u32>, Counts>>,
    /// The tasks and versions that sessions have, so that a session needs a number only.
    rows: Vec<(TaskId, Option<u32>)>,
    open: HashMap<SessionId, Open>,
    /// The sessions of an attempt by the name of their subject.
    members: HashMap<AttemptId, HashMap<ParticipantId, SessionId>>,
    /// Hides the keys of devices.
    salt: Option<Digest32>,
}

/// The funnels of a service.
#[derive(Default)]
pub struct Funnels {
    inner: Mutex<Inner>,
}

impl std::fmt::Debug for Funnels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: it names sessions and subjects.
        f.debug_struct("Funnels").finish_non_exhaustive()
    }
}

impl Inner {
    fn counts(&mut self, task: TaskId, version: u32) -> (Option<u32>, &mut Counts) {
        let versions = self.counts.entry(task).or_default();
        let apart = versions.contains_key(&Some(version)) || versions.len() < MAX_VERSIONS;
        let version = apart.then_some(version);
        (version, versions.entry(version).or_default())
    }

    /// The counts of a session.
    fn of(&mut self, row: u32) -> Option<&mut Counts> {
        let (task, version) = self.rows.get(row as usize)?;
        self.counts.get_mut(task)?.get_mut(version)
    }

    /// The place of a task and a version in the rows.
    fn row(&mut self, task: TaskId, version: Option<u32>) -> Option<u32> {
        // The newest tasks have the most sessions.
        let place = self.rows.iter().rposition(|row| *row == (task, version));
        let place = place.unwrap_or_else(|| {
            self.rows.push((task, version));
            self.rows.len() - 1
        });
        u32::try_from(place).ok()
    }

    /// The name of a device; `None` without entropy, where nothing is counted.
    fn name(&mut self, device: &Digest32) -> Option<Name> {
        let salt = match self.salt {
            Some(salt) => salt,
            None => *self.salt.insert(random().ok()?),
        };
        let mut name = Name::default();
        name.copy_from_slice(&digest_of(&[&salt[..], &device[..]].concat())[..8]);
        Some(name)
    }
}

impl Funnels {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the answer of a task to a check-in: a session, or the code of its refusal.
    pub(crate) fn answered(
        &self,
        task: TaskId,
        version: u32,
        device: &Digest32,
        answer: Result<SessionId, Code>,
    ) {
        let mut inner = self.lock();
        let Some(name) = inner.name(device) else { return };
        let (version, counts) = inner.counts(task, version);
        counts.asked.add(name);
        let session = match answer {
            Ok(session) => session,
            Err(code) => {
                match code {
                    Code::Upgrade => counts.too_old.add(name),
                    Code::NoTask | Code::Full | Code::Gone | Code::Busy => counts.no_place.add(name),
                    _ => counts.refused.add(name),
                }
                return;
            }
        };
        // A repeated check-in has its session again, and the attempt of a late one has ended.
        let is_new = inner.open.get(&session).is_some_and(|open| open.of.is_none());
        if is_new
            && let Some(row) = inner.row(task, version)
            && let Some(open) = inner.open.get_mut(&session)
        {
            open.of = Some((row, name));
            if let Some(counts) = inner.of(row) {
                counts.assigned.add(name);
            }
        }
    }

    /// Notes the subject of a session, which a release names.
    pub(crate) fn admitted(&self, attempt: AttemptId, user: ParticipantId, session: SessionId) {
        let mut inner = self.lock();
        if inner.open.len() >= MAX_SESSIONS {
            return;
        }
        let state = SessionState::Assigned;
        inner.open.insert(session, Open { of: None, state });
        inner.members.entry(attempt).or_default().insert(user, session);
    }

    /// Counts sessions that came further.
    pub(crate) fn noted(&self, states: &[(SessionId, SessionState)]) {
        let mut inner = self.lock();
        for &(session, state) in states {
            let Some(open) = inner.open.get_mut(&session) else {
                continue;
            };
            let before = std::mem::replace(&mut open.state, state);
            let Some((row, name)) = open.of else {
                continue;
            };
            let Some(counts) = inner.of(row) else {
                continue;
            };
            match (before, state) {
                (SessionState::Assigned, SessionState::Ready) => counts.ready.add(name),
                (SessionState::Ready, SessionState::Reported) => counts.reported.add(name),
                _ => {}
            }
        }
    }

    /// Counts the sessions of a release, and forgets those of its attempt.
    pub(crate) fn ended(&self, attempt: AttemptId, included: &[ParticipantId]) {
        let mut inner = self.lock();
        let members = inner.members.remove(&attempt).unwrap_or_default();
        for session in included.iter().filter_map(|user| members.get(user)) {
            if let Some((row, name)) = inner.open.get(session).and_then(|open| open.of)
                && let Some(counts) = inner.of(row)
            {
                counts.included.add(name);
            }
        }
        for session in members.values() {
            inner.open.remove(session);
        }
    }

    /// The funnel of a task, one row per version.
    pub fn rows(&self, task: TaskId) -> Vec<FunnelRow> {
        let inner = self.lock();
        let versions = inner.counts.get(&task).into_iter().flatten();
        versions
            .map(|(version, counts)| FunnelRow {
                version: *version,
                asked: counts.asked.shown(),
                too_old: counts.too_old.shown(),
                refused: counts.refused.shown(),
                no_place: counts.no_place.shown(),
                assigned: counts.assigned.shown(),
                ready: counts.ready.shown(),
                reported: counts.reported.shown(),
                included: counts.included.shown(),
            })
            .filter(|row| row.asked.is_some())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId([1; 32]);
    const ATTEMPT: AttemptId = AttemptId(7);

    fn session(number: u8) -> SessionId {
        SessionId([number; 16])
    }

    fn device(number: u32) -> Digest32 {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn a_funnel_counts_each_session_once_at_each_step() {
        let funnels = Funnels::default();
        for number in 0..30 {
            let (user, session) = (ParticipantId::new(u64::from(number)), session(number));
            funnels.admitted(ATTEMPT, user, session);
            // A repeated check-in is asked again, and assigned once.
            funnels.answered(TASK, 3, &device(number.into()), Ok(session));
            funnels.answered(TASK, 3, &device(number.into()), Ok(session));
            if number < 20 {
                for state in [SessionState::Ready, SessionState::Ready, SessionState::Reported] {
                    funnels.noted(&[(session, state)]);
                }
            }
        }
        for number in 0..12 {
            funnels.answered(TASK, 2, &device(number), Err(Code::Upgrade));
            funnels.answered(TASK, 3, &device(number), Err(Code::Full));
        }
        let included: Vec<ParticipantId> = (0..10).map(ParticipantId::new).collect();
        funnels.ended(ATTEMPT, &included);
        funnels.ended(ATTEMPT, &included);
        let rows = funnels.rows(TASK);
        assert_eq!(rows.len(), 2);
        let (old, new) = (&rows[0], &rows[1]);
        assert_eq!(
            (old.version, old.asked, old.too_old, old.assigned),
            (Some(2), Some(10), Some(10), None)
        );
        assert_eq!(
            (new.version, new.asked, new.no_place),
            (Some(3), Some(70), Some(10))
        );
        assert_eq!(
            (new.assigned, new.ready, new.reported, new.included),
            (Some(30), Some(20), Some(20), Some(10))
        );
        assert!(funnels.lock().open.is_empty() && funnels.lock().members.is_empty());
        assert_eq!(funnels.rows(TaskId([2; 32])), []);
        // An answer that comes after the end of its attempt stays nowhere.
        funnels.answered(TASK, 3, &device(99), Ok(session(99)));
        assert!(funnels.lock().open.is_empty());
    }

    #[test]
    fn no_cell_below_ten_is_shown_and_none_moves_by_one() {
        let funnels = Funnels::default();
        let mut seen = Vec::new();
        for number in 0..25 {
            funnels.admitted(ATTEMPT, ParticipantId::new(u64::from(number)), session(number));
            funnels.answered(TASK, 1, &device(number.into()), Ok(session(number)));
            seen.push(funnels.rows(TASK).first().and_then(|row| row.assigned));
        }
        assert_eq!(seen[..9], [None; 9]);
        assert_eq!(seen[9..19], [Some(10); 10]);
        assert_eq!(seen[19..], [Some(20); 6]);
    }

    #[test]
    fn nine_devices_that_come_often_show_nothing_in_any_cell() {
        let funnels = Funnels::default();
        for number in 0..9 {
            for _ in 0..50 {
                funnels.answered(TASK, 1, &device(number), Err(Code::Full));
            }
        }
        assert_eq!(funnels.rows(TASK), []);
        // The tenth device comes for another reason: the cell of the first nine stays hidden.
        funnels.answered(TASK, 1, &device(9), Err(Code::Upgrade));
        let rows = funnels.rows(TASK);
        let shown: Vec<_> = rows[0]
            .steps()
            .into_iter()
            .filter(|(_, count)| count.is_some())
            .collect();
        assert_eq!(shown, [("asked", Some(450))]);
    }

    #[test]
    fn devices_that_invent_versions_fill_no_memory() {
        let funnels = Funnels::default();
        for version in 0..10_000 {
            funnels.answered(TASK, version, &device(version), Err(Code::Upgrade));
        }
        assert_eq!(funnels.lock().counts[&TASK].len(), MAX_VERSIONS + 1);
        let rows = funnels.rows(TASK);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].version, rows[0].too_old), (None, Some(9_960)));
    }
}
