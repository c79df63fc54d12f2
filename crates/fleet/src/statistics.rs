//! Counts of what a fleet did.

use std::collections::BTreeMap;

use serde::Serialize;
use undertone_device::Ended;
use undertone_protocol::{Digest32, Verdict};

/// Counts of sessions, bytes and time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Tally {
    /// Number of sessions that have ended.
    pub sessions: u64,
    /// Sessions by their end, such as `included`, `not_eligible`, `rejected_too_soon`, `lost_gone` or `vanished_mid_upload`.
    pub ends: BTreeMap<String, u64>,
    /// Requests that faults befell, by the name of the fault.
    pub faults: BTreeMap<String, u64>,
    /// Number of requests that were sent, repeats included.
    pub requests: u64,
    /// Bytes of the bodies that were sent.
    pub up_bytes: u64,
    /// Bytes of the bodies that were received.
    pub down_bytes: u64,
    /// Number of local trainings.
    pub trainings: u64,
    /// Time on the wall that trainings took, in seconds, added over all threads.
    pub training_seconds: f64,
}

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.requests += other.requests;
        self.up_bytes += other.up_bytes;
        self.down_bytes += other.down_bytes;
        self.trainings += other.trainings;
        self.training_seconds += other.training_seconds;
        for (mine, theirs) in [(&mut self.ends, &other.ends), (&mut self.faults, &other.faults)] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
    }

    /// Number of sessions with this end.
    #[must_use]
    pub fn ended(&self, name: &str) -> u64 {
        self.ends.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn fault(&mut self, name: &str) {
        *self.faults.entry(name.to_owned()).or_default() += 1;
    }
}

/// The counts of one round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundTally {
    /// The task, in hexadecimal digits.
    pub task: String,
    /// The round.
    pub round: u64,
    /// Counts of the sessions that were assigned to the round.
    pub tally: Tally,
}

/// The counts of a fleet.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Statistics {
    /// All sessions.
    pub total: Tally,
    /// Sessions with an assignment, in the order of tasks and rounds.
    pub rounds: Vec<RoundTally>,
    /// Sessions without an assignment.
    pub unassigned: Tally,
    /// The last sentence that explained an end, by the name of the end.
    pub reasons: BTreeMap<String, String>,
}

/// The round of a task.
pub(crate) type RoundName = (Digest32, u64);

/// The counts while they grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    total: Tally,
    rounds: BTreeMap<RoundName, Tally>,
    unassigned: Tally,
    reasons: BTreeMap<String, String>,
}

impl Counts {
    /// Adds an ended session.
    pub(crate) fn add(&mut self, round: Option<RoundName>, mut tally: Tally, end: End) {
        tally.sessions = 1;
        tally.ends = BTreeMap::from([(end.name.clone(), 1)]);
        self.total.add(&tally);
        match round {
            Some(round) => self.rounds.entry(round).or_default().add(&tally),
            None => self.unassigned.add(&tally),
        }
        if let Some(reason) = end.reason {
            self.reasons.insert(end.name, reason);
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let round = |(&(task, round), tally): (&RoundName, &Tally)| RoundTally {
            task: task.iter().map(|byte| format!("{byte:02x}")).collect(),
            round,
            tally: tally.clone(),
        };
        Statistics {
            total: self.total.clone(),
            rounds: self.rounds.iter().map(round).collect(),
            unassigned: self.unassigned.clone(),
            reasons: self.reasons.clone(),
        }
    }
}

/// The end of a session, as statistics name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) reason: Option<String>,
}

impl End {
    pub(crate) fn vanished(point: &str) -> Self {
        Self {
            name: format!("vanished_{point}"),
            reason: None,
        }
    }

    pub(crate) fn of(ended: &Ended) -> Self {
        let code = |prefix: &str, code: undertone_protocol::Code| {
            let name = code.as_str_name().trim_start_matches("CODE_").to_lowercase();
            format!("{prefix}_{name}")
        };
        let (name, reason) = match ended {
            Ended::Reported(None) => ("reported".to_owned(), None),
            Ended::Reported(Some(verdict)) => (verdict_name(*verdict).to_owned(), None),
            Ended::NotEligible(reasons) => {
                let reasons: Vec<String> = reasons.iter().map(|(_, reason)| format!("{reason:?}")).collect();
                ("not_eligible".to_owned(), Some(reasons.join(", ")))
            }
            Ended::Rejected(why, sentence) => (code("rejected", *why), Some(sentence.clone())),
            Ended::Refused(refusal) => ("refused".to_owned(), Some(refusal.to_string())),
            Ended::Lost(why, sentence) => (code("lost", *why), Some(sentence.clone())),
            Ended::NotTrained(why) => ("not_trained".to_owned(), Some(why.clone())),
            Ended::HostNotReady(unmet) => ("host_not_ready".to_owned(), Some(format!("{unmet:?}"))),
            // An end without a reason is named like its variant.
            other => (snake_case(&format!("{other:?}")), None),
        };
        Self { name, reason }
    }
}

/// `TimedOut` as `timed_out`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unspecified => "reported",
        Verdict::Included => "included",
        Verdict::Late => "late",
        Verdict::Abandoned => "abandoned",
    }
}

#[cfg(test)]
mod tests {
    use undertone_protocol::Code;

    use super::*;

    #[test]
    fn ends_are_named_in_small_letters() {
        for (ended, name) in [
            (Ended::NotEnrolled, "not_enrolled"),
            (Ended::Clock, "clock"),
            (Ended::TimedOut, "timed_out"),
            (Ended::Reported(None), "reported"),
            (Ended::Reported(Some(Verdict::Late)), "late"),
            (Ended::Lost(Code::Gone, String::new()), "lost_gone"),
            (Ended::NotTrained("a reason".to_owned()), "not_trained"),
        ] {
            assert_eq!(End::of(&ended).name, name);
        }
    }

    #[test]
    fn the_total_is_the_sum_of_the_rounds_and_the_rest() {
        let mut counts = Counts::default();
        let tally = Tally {
            requests: 3,
            up_bytes: 10,
            training_seconds: 0.5,
            faults: BTreeMap::from([("delay".to_owned(), 2)]),
            ..Tally::default()
        };
        let included = End::of(&Ended::Reported(Some(Verdict::Included)));
        counts.add(Some(([1; 32], 4)), tally.clone(), included.clone());
        counts.add(Some(([1; 32], 5)), tally.clone(), included);
        let soon = End::of(&Ended::Rejected(Code::TooSoon, "in a while".to_owned()));
        counts.add(None, tally, soon);
        let statistics = counts.statistics();
        let mut sum = statistics.unassigned.clone();
        for round in &statistics.rounds {
            sum.add(&round.tally);
        }
        assert_eq!(sum, statistics.total);
        assert_eq!(statistics.total.ended("included"), 2);
        assert_eq!(statistics.unassigned.ended("rejected_too_soon"), 1);
        assert_eq!(statistics.reasons["rejected_too_soon"], "in a while");
        assert_eq!(statistics.rounds[1].round, 5);
        let json = serde_json::to_value(&statistics).unwrap();
        assert_eq!(json["total"]["sessions"], 3);
        assert_eq!(json["total"]["faults"]["delay"], 6);
    }
}
