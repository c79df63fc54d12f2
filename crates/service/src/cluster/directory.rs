//! The processes of a service, as this one sees them, and the choice of the leader of a task.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use undertone_store::{Millis, ProcessRow, TaskId};

use super::Roles;

/// A process that gave no sign of life for longer takes no new work, in milliseconds.
pub(super) const FRESH: Millis = 10_000;

/// A process that is not the first choice for a task waits this long before it takes the lease.
const GRACE: Duration = Duration::from_secs(3);

/// A process of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) url: String,
    pub(crate) roles: Roles,
    /// Milliseconds since its last sign of life, when the directory was read.
    pub(crate) age: Millis,
}

impl Peer {
    fn is_fresh(&self) -> bool {
        self.age <= FRESH
    }
}

/// The processes as they were when the store was read last.
#[derive(Debug, Default)]
pub(super) struct Directory {
    peers: Vec<Peer>,
    /// Since when each task has no leader.
    free: Mutex<BTreeMap<TaskId, Instant>>,
}

impl Directory {
    pub(super) fn read(&mut self, rows: Vec<ProcessRow>, now: Millis) {
        let peer = |row: ProcessRow| Peer {
            age: now.saturating_sub(row.beat),
            roles: Roles::of_row(&row.roles),
            name: row.name,
            epoch: row.epoch,
            url: row.url,
        };
        self.peers = rows.into_iter().map(peer).collect();
    }

    pub(super) fn peer(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// `true` while this start of a process gives signs of life.
    pub(super) fn lives(&self, name: &str, epoch: u64) -> bool {
        self.peer(name)
            .is_some_and(|peer| peer.epoch == epoch && peer.is_fresh())
    }

    /// The processes that hold shards now.
    pub(super) fn aggregators(&self) -> impl Iterator<Item = &Peer> {
        self.peers
            .iter()
            .filter(|peer| peer.is_fresh() && peer.roles.aggregator)
    }

    /// `true` if this process should take the lease of a task that nobody leads. Tasks are spread over the processes by a hash; the
    /// others step in where the first choice does not come.
    pub(super) fn should_lead(&self, task: TaskId, own: &str) -> bool {
        let leaders = self
            .peers
            .iter()
            .filter(|peer| peer.is_fresh() && peer.roles.leader);
        let choice = leaders.max_by_key(|peer| weight(task, &peer.name));
        if choice.is_none_or(|peer| peer.name == own) {
            return true;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(task).or_insert_with(Instant::now).elapsed() >= GRACE
    }

    /// Notes that a task has a leader.
    pub(super) fn is_led(&self, task: TaskId) {
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&task);
    }
}

/// The weight of a process for a task: the process of the highest one is its first choice.
fn weight(task: TaskId, name: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"undertone leader")
        .chain_update(task.0)
        .chain_update(name)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, roles: &str, beat: Millis) -> ProcessRow {
        ProcessRow {
            name: name.to_owned(),
            epoch: 1,
            url: format!("https://{name}"),
            roles: roles.to_owned(),
            beat,
        }
    }

    #[test]
    fn each_task_has_one_first_choice_among_the_living_leaders() {
        let mut directory = Directory::default();
        let now = 1_000_000;
        directory.read(
            vec![
                row("a", "front,leader", now),
                row("b", "leader", now - FRESH),
                row("c", "leader", now - FRESH - 1),
                row("d", "front,aggregator", now),
            ],
            now,
        );
        let mut chosen = BTreeMap::<&str, u32>::new();
        for number in 0..64 {
            let task = TaskId([number; 32]);
            let choices: Vec<&str> = ["a", "b", "c", "d"]
                .into_iter()
                .filter(|name| directory.should_lead(task, name))
                .collect();
            let &[one] = &choices[..] else {
                panic!("{choices:?}")
            };
            *chosen.entry(one).or_default() += 1;
        }
        // Each of two gets fewer than 10 of 64 tasks with probability below 1e-8, if the hash is fair.
        assert!(
            chosen.len() == 2 && chosen.values().all(|count| *count >= 10),
            "{chosen:?}"
        );
        assert!(
            !chosen.contains_key("c") && !chosen.contains_key("d"),
            "{chosen:?}"
        );
        let holders: Vec<&str> = directory.aggregators().map(|peer| peer.name.as_str()).collect();
        assert_eq!(holders, ["d"]);
    }

    #[test]
    fn a_process_that_sees_no_leader_leads() {
        assert!(Directory::default().should_lead(TaskId([1; 32]), "alone"));
    }
}
