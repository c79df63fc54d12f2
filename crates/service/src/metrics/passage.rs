//! The way of sessions through attempts: how many reached each stage, and where the others were lost.

use std::collections::BTreeMap;

use undertone_store::TaskId;

use super::{Metrics, in_steps};
use crate::attempt::session::{End, LostAt, Session, Stage};

/// Sessions by the furthest stage that they reached, and by their end. The numbers are exact.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Passage {
    pub(crate) attempts: u64,
    pub(crate) assigned: u64,
    pub(crate) joined: u64,
    pub(crate) reported: u64,
    pub(crate) included: u64,
    pub(crate) late: u64,
    pub(crate) lost: BTreeMap<LostAt, u64>,
}

/// The figures of a passage that may be shown: in steps of ten, `None` below ten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of sessions that reached each stage.
    pub stages: Vec<(&'static str, Option<u64>)>,
    /// Number of sessions that were lost at each stage.
    pub lost: Vec<(&'static str, Option<u64>)>,
}

impl Passage {
    /// Counts a session. `included` is `true` where its update is in a release.
    pub(crate) fn add(&mut self, session: &Session, included: bool) {
        let stage = session.stage();
        self.assigned += 1;
        self.joined += u64::from(stage >= Stage::Ready);
        self.reported += u64::from(stage >= Stage::Reported);
        self.included += u64::from(included);
        match session.end() {
            Some(End::Lost(at)) => *self.lost.entry(at).or_default() += 1,
            Some(End::Late) => self.late += 1,
            None => {}
        }
    }

    /// The figures that may be shown.
    #[must_use]
    pub fn shown(&self) -> Passed {
        let stages = [
            ("assigned", self.assigned),
            ("joined", self.joined),
            ("reported", self.reported),
            ("included", self.included),
        ];
        let at = |at: LostAt| self.lost.get(&at).copied().unwrap_or(0);
        let lost = [
            ("before its update was ready", at(LostAt::Assigned)),
            ("while its group gathered", at(LostAt::Lobby)),
            ("while its group made keys", at(LostAt::Keys)),
            ("before it sent its shares", at(LostAt::Shares)),
            ("while uploading", at(LostAt::Uploading)),
            ("after its report", at(LostAt::Reported)),
            ("reported after the goal", self.late),
        ];
        let shown = |(name, number): (&'static str, u64)| (name, in_steps(number));
        Passed {
            attempts: self.attempts,
            stages: stages.map(shown).to_vec(),
            lost: lost.map(shown).to_vec(),
        }
    }
}

impl Metrics {
    /// Adds the sessions of an attempt that has ended.
    pub(crate) fn passed(&self, task: TaskId, attempt: &Passage) {
        let mut inner = self.lock();
        let all = inner.passages.entry(task).or_default();
        all.attempts += 1;
        all.assigned += attempt.assigned;
        all.joined += attempt.joined;
        all.reported += attempt.reported;
        all.included += attempt.included;
        all.late += attempt.late;
        for (at, number) in &attempt.lost {
            *all.lost.entry(*at).or_default() += number;
        }
    }

    /// The sessions of all attempts of a task that have ended since the start of the process.
    pub fn passage_of(&self, task: TaskId) -> Passed {
        let inner = self.lock();
        inner.passages.get(&task).cloned().unwrap_or_default().shown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_in_each_stage_that_it_reached_and_cells_move_in_steps_of_ten() {
        let metrics = Metrics::default();
        let task = TaskId([1; 32]);
        for number in 0..29 {
            let mut passage = Passage::default();
            let mut session = Session::new(1000);
            session.reach(Stage::Reported).unwrap();
            passage.add(&session, true);
            let mut lost = Session::new(1000);
            lost.lose();
            passage.add(&lost, false);
            if number == 0 {
                session.late();
                passage.add(&session, false);
            }
            metrics.passed(task, &passage);
        }
        let passed = metrics.passage_of(task);
        assert_eq!(passed.attempts, 29);
        assert_eq!(
            passed.stages,
            [
                ("assigned", Some(50)),
                ("joined", Some(30)),
                ("reported", Some(30)),
                ("included", Some(20)),
            ]
        );
        let cell = |name: &str| passed.lost.iter().find(|(found, _)| *found == name).unwrap().1;
        assert_eq!(cell("before its update was ready"), Some(20));
        assert_eq!(cell("reported after the goal"), None);
    }
}
