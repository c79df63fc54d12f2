//! The troubles of a process: a closed list of states, and the one place that owns them.
//!
//! A failure that may pass ends nothing. It enters a state, which is logged once, shown by `/readyz` and by the metric
//! `undertone_trouble`, and left when its cause is gone. Whatever fails in the state meanwhile is not logged again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use undertone_store::{StoreError, TaskId};

use crate::error::ServiceError;

/// A state is left once it works again and nothing has failed for this long. Without it, a disk that takes every second write would
/// enter and leave its state without end.
const QUIET: Duration = Duration::from_secs(5);

/// The states of a process in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Trouble {
    /// The store does not answer, or does not write.
    Store,
    /// The data folder takes no bytes, or has less room than it must keep.
    Disk,
    /// The operating system gives no descriptor to a new connection.
    Descriptors,
    /// The clock of this machine has jumped, or is not that of the store.
    Clock,
    /// A task cannot go on, such as one whose plan is missing. Other tasks go on.
    Task,
}

impl Trouble {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Store,
        Self::Disk,
        Self::Descriptors,
        Self::Clock,
        Self::Task,
    ];

    /// The name, as the metric shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Disk => "disk",
            Self::Descriptors => "descriptors",
            Self::Clock => "clock",
            Self::Task => "task",
        }
    }

    /// One sentence for `/readyz`. The reason stands in the log: it may name files, hosts and tasks, and a probe has no token.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Store => "the store does not answer, or does not write",
            Self::Disk => "the data folder has no room, or cannot be written",
            Self::Descriptors => "no descriptor is free for a new connection",
            Self::Clock => "the clock of this machine has jumped, or is not that of the store",
            Self::Task => "a task cannot go on, and the others do",
        }
    }

    /// `true` for a state in which the process serves nobody well, so that a load balancer should pass it by.
    #[must_use]
    pub fn is_of_the_process(self) -> bool {
        self != Self::Task
    }
}

#[derive(Debug)]
struct Entered {
    since: Instant,
    last: Instant,
}

/// The troubles that a process is in.
#[derive(Debug)]
pub struct Troubles {
    entered: Mutex<BTreeMap<(Trouble, Option<TaskId>), Entered>>,
    /// `true` while there is one, so that success costs one look.
    any: AtomicBool,
    quiet: Duration,
}

impl Default for Troubles {
    fn default() -> Self {
        Self::with_quiet(QUIET)
    }
}

impl Troubles {
    /// States that are left after this time without a failure.
    #[must_use]
    pub fn with_quiet(quiet: Duration) -> Self {
        Self {
            entered: Mutex::default(),
            any: AtomicBool::new(false),
            quiet,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Trouble, Option<TaskId>), Entered>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failure of the process. The first one enters the state.
    pub fn failed(&self, trouble: Trouble, reason: &dyn std::fmt::Display) {
        if self.enter(trouble, None) {
            tracing::error!(state = trouble.name(), error = %reason, "the process is in trouble");
        }
    }

    /// Notes that what failed works again. The state is left after a while without a failure.
    pub fn works(&self, trouble: Trouble) {
        if let Some(seconds) = self.leave(trouble, None, self.quiet) {
            tracing::warn!(state = trouble.name(), seconds, "the trouble is over");
        }
    }

    /// Notes that a task cannot go on.
    pub(crate) fn task_failed(&self, task: TaskId, error: &ServiceError) {
        if self.enter(Trouble::Task, Some(task)) {
            tracing::error!(state = Trouble::Task.name(), %task, %error, "a task could not go on");
        }
    }

    /// Notes that a task goes on.
    pub(crate) fn task_works(&self, task: TaskId) {
        if let Some(seconds) = self.leave(Trouble::Task, Some(task), self.quiet) {
            tracing::warn!(state = Trouble::Task.name(), %task, seconds, "the task goes on");
        }
    }

    /// Forgets the tasks that are led no more.
    pub(crate) fn keep_tasks(&self, live: impl Fn(TaskId) -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut entered = self.lock();
        entered.retain(|(_, task), _| task.is_none_or(&live));
        self.any.store(!entered.is_empty(), Ordering::Release);
    }

    /// Notes the outcome of a transaction of the store.
    pub(crate) fn stored<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => self.works(Trouble::Store),
            Err(error @ StoreError::Unavailable { .. }) => self.failed(Trouble::Store, error),
            // The store has answered.
            Err(_) => {}
        }
    }

    /// `true` where the failure was not there before.
    fn enter(&self, trouble: Trouble, task: Option<TaskId>) -> bool {
        let now = Instant::now();
        let mut entered = self.lock();
        self.any.store(true, Ordering::Release);
        match entered.entry((trouble, task)) {
            std::collections::btree_map::Entry::Occupied(mut there) => {
                there.get_mut().last = now;
                false
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(Entered {
                    since: now,
                    last: now,
                });
                true
            }
        }
    }

    /// The seconds in a state that is left now.
    fn leave(&self, trouble: Trouble, task: Option<TaskId>, quiet: Duration) -> Option<u64> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut entered = self.lock();
        let there = entered.get(&(trouble, task))?;
        if there.last.elapsed() < quiet {
            return None;
        }
        let seconds = there.since.elapsed().as_secs();
        entered.remove(&(trouble, task));
        self.any.store(!entered.is_empty(), Ordering::Release);
        Some(seconds)
    }

    /// `true` while the process is in a trouble.
    pub(crate) fn is_in(&self, trouble: Trouble) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().contains_key(&(trouble, None))
    }

    /// Number of troubles of each kind: 0 or 1, and for tasks their number.
    #[must_use]
    pub fn counts(&self) -> [(Trouble, usize); 5] {
        let entered = self.lock();
        Trouble::ALL.map(|kind| (kind, entered.keys().filter(|(of, _)| *of == kind).count()))
    }
}

/// Failures that each request may have are logged once per this time.
const PAUSE: u64 = 60;

/// A line of the log that is written seldom, however often its cause comes. A client cannot fill the log by it.
#[derive(Debug, Default)]
pub struct Seldom {
    /// The second of the last line since the first use, plus one.
    last: AtomicU64,
    left_out: AtomicU64,
}

impl Seldom {
    /// A line that was never written.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// The number of lines that were left out before this one; `None` where this one is left out, too.
    #[must_use]
    pub fn speaks(&self) -> Option<u64> {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let now = BEGUN.get_or_init(Instant::now).elapsed().as_secs() + 1;
        let last = self.last.load(Ordering::Acquire);
        let due = last == 0 || now >= last + PAUSE;
        let mine = due
            && self
                .last
                .compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        match mine {
            true => Some(self.left_out.swap(0, Ordering::AcqRel)),
            false => {
                self.left_out.fetch_add(1, Ordering::AcqRel);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(troubles: &Troubles) -> Vec<(&'static str, usize)> {
        let there = troubles.counts().into_iter().filter(|(_, count)| *count > 0);
        there.map(|(kind, count)| (kind.name(), count)).collect()
    }

    #[test]
    fn a_failure_enters_a_state_once_and_success_leaves_it() {
        let troubles = Troubles::with_quiet(Duration::ZERO);
        assert!(troubles.enter(Trouble::Store, None));
        for _ in 0..1000 {
            assert!(!troubles.enter(Trouble::Store, None), "it was entered twice");
        }
        troubles.failed(Trouble::Disk, &"full");
        assert_eq!(names(&troubles), [("store", 1), ("disk", 1)]);
        troubles.works(Trouble::Store);
        assert_eq!(names(&troubles), [("disk", 1)]);
        troubles.works(Trouble::Disk);
        assert_eq!(names(&troubles), []);
    }

    #[test]
    fn a_state_stays_while_some_acts_fail_and_others_work() {
        let troubles = Troubles::with_quiet(Duration::from_millis(50));
        troubles.failed(Trouble::Store, &"a write failed");
        troubles.works(Trouble::Store);
        assert_eq!(names(&troubles), [("store", 1)]);
        std::thread::sleep(Duration::from_millis(60));
        troubles.works(Trouble::Store);
        assert_eq!(names(&troubles), []);
    }

    #[test]
    fn tasks_have_a_state_each_and_one_that_is_led_no_more_has_none() {
        let troubles = Troubles::with_quiet(Duration::ZERO);
        let error = ServiceError::Sealed;
        let (one, two) = (TaskId([1; 32]), TaskId([2; 32]));
        troubles.task_failed(one, &error);
        troubles.task_failed(two, &error);
        troubles.task_failed(two, &error);
        assert_eq!(names(&troubles), [("task", 2)]);
        troubles.task_works(one);
        assert_eq!(names(&troubles), [("task", 1)]);
        troubles.keep_tasks(|task| task == one);
        assert_eq!(names(&troubles), []);
    }

    #[test]
    fn only_a_store_that_does_not_answer_is_in_trouble() {
        let troubles = Troubles::with_quiet(Duration::ZERO);
        let missing: Result<(), StoreError> = Err(StoreError::Missing {
            what: "task",
            name: "x".to_owned(),
        });
        troubles.stored(&missing);
        assert_eq!(names(&troubles), []);
        troubles.stored::<()>(&Err(StoreError::Unavailable {
            place: "here".to_owned(),
            reason: "gone".to_owned(),
        }));
        assert_eq!(names(&troubles), [("store", 1)]);
        troubles.stored(&Ok(()));
        assert_eq!(names(&troubles), []);
    }

    #[test]
    fn a_line_of_each_request_is_written_once_a_minute() {
        let seldom = Seldom::new();
        assert_eq!(seldom.speaks(), Some(0));
        let more = (0..1000).filter(|_| seldom.speaks().is_some()).count();
        assert_eq!(more, 0);
    }
}
