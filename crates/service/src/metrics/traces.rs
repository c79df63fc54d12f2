//! The course of each attempt: its steps, and the time of each.
//!
//! PRIVACY: a trace is of an attempt as a whole, by the transactions of its leader. It holds no session, device or group, and no
//! number of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use undertone_store::TaskId;

/// A step of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedStep {
    /// `select`, `report`, `release` or `publish`, or the name of a transaction of the store.
    pub name: &'static str,
    /// The begin of the step.
    pub begun: SystemTime,
    /// The end of the step.
    pub ended: SystemTime,
}

/// The course of an attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptTrace {
    /// The population of the task.
    pub population: String,
    /// The name of the task.
    pub task: String,
    /// The round.
    pub round: u64,
    /// `committed`, or the reason for which the attempt was abandoned.
    pub outcome: &'static str,
    /// The opening of the attempt.
    pub begun: SystemTime,
    /// The end of the attempt; for a committed one, the end of its publication.
    pub ended: SystemTime,
    /// The steps of the attempt, in the order of their ends.
    pub steps: Vec<TracedStep>,
}

/// A program that collects traces.
type Sink = Box<dyn Fn(AttemptTrace) + Send + Sync>;

/// The attempts of a service that are open.
#[derive(Default)]
pub(crate) struct Traces {
    sink: OnceLock<Sink>,
    open: Mutex<BTreeMap<TaskId, Open>>,
}

struct Open {
    trace: AttemptTrace,
    /// The stage in which the attempt is, and its begin.
    stage: (&'static str, SystemTime),
}

impl Open {
    fn enter(&mut self, stage: &'static str, now: SystemTime) {
        let (name, begun) = std::mem::replace(&mut self.stage, (stage, now));
        self.trace.steps.push(TracedStep {
            name,
            begun,
            ended: now,
        });
    }
}

impl Traces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskId, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hand_to(&self, sink: Sink) {
        // A second collector has no meaning.
        let _ = self.sink.set(sink);
    }

    /// `true` if somebody collects traces.
    pub(crate) fn wanted(&self) -> bool {
        self.sink.get().is_some()
    }

    /// Notes that an attempt was opened by a transaction that began at `begun`.
    pub(crate) fn opened(&self, id: TaskId, population: &str, task: &str, round: u64, begun: SystemTime) {
        let now = SystemTime::now();
        let trace = AttemptTrace {
            population: population.to_owned(),
            task: task.to_owned(),
            round,
            outcome: "committed",
            begun,
            ended: now,
            steps: vec![TracedStep {
                name: "open_attempt",
                begun,
                ended: now,
            }],
        };
        let stage = ("select", now);
        let before = self.lock().insert(id, Open { trace, stage });
        // Its publication was left to another process.
        self.hand(before);
    }

    /// Notes a transaction of the leader of a task, and the stage that begins with its end.
    pub(crate) fn made(
        &self,
        id: TaskId,
        name: &'static str,
        begun: SystemTime,
        stage: Option<&'static str>,
    ) {
        let now = SystemTime::now();
        if let Some(open) = self.lock().get_mut(&id) {
            open.trace.steps.push(TracedStep {
                name,
                begun,
                ended: now,
            });
            open.trace.ended = now;
            if let Some(stage) = stage {
                open.enter(stage, now);
            }
        }
    }

    /// Notes that the attempt of a task has ended: it was abandoned, or its release was published.
    pub(crate) fn ended(&self, id: TaskId, abandoned: Option<&'static str>) {
        let now = SystemTime::now();
        let mut open = self.lock().remove(&id);
        if let Some(open) = &mut open {
            open.enter("", now);
            open.trace.ended = now;
            if let Some(reason) = abandoned {
                open.trace.outcome = reason;
            }
        }
        self.hand(open);
    }

    fn hand(&self, open: Option<Open>) {
        if let (Some(sink), Some(open)) = (self.sink.get(), open) {
            sink(open.trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_attempt_has_stages_that_follow_one_another_and_is_handed_on_once() {
        let (traces, kept) = (Traces::default(), Arc::new(Mutex::new(Vec::new())));
        let task = TaskId([1; 32]);
        assert!(!traces.wanted());
        let sink = kept.clone();
        traces.hand_to(Box::new(move |trace| sink.lock().unwrap().push(trace)));
        let now = SystemTime::now;
        traces.opened(task, "p", "words", 4, now());
        traces.made(task, "close_selection", now(), Some("report"));
        traces.made(task, "reserve", now(), Some("release"));
        traces.made(task, "commit_release", now(), Some("publish"));
        traces.ended(task, None);
        traces.ended(task, None);
        traces.opened(task, "p", "words", 5, now());
        traces.ended(task, Some("few"));
        let kept = kept.lock().unwrap();
        assert_eq!(kept.len(), 2);
        let names: Vec<&str> = kept[0].steps.iter().map(|step| step.name).collect();
        assert_eq!(
            names,
            [
                "open_attempt",
                "close_selection",
                "select",
                "reserve",
                "report",
                "commit_release",
                "release",
                "publish"
            ]
        );
        assert_eq!((kept[0].outcome, kept[0].round), ("committed", 4));
        assert_eq!((kept[1].outcome, kept[1].round), ("few", 5));
        for trace in kept.iter() {
            assert!(trace.steps.iter().all(|step| step.begun <= step.ended));
            assert!(
                trace
                    .steps
                    .iter()
                    .all(|step| trace.begun <= step.begun && step.ended <= trace.ended)
            );
            let stages: Vec<&TracedStep> = trace
                .steps
                .iter()
                .filter(|step| !step.name.contains('_') && step.name != "reserve")
                .collect();
            assert!(stages.windows(2).all(|pair| pair[0].ended == pair[1].begun));
        }
    }
}
