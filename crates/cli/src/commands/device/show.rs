//! Sessions and devices as text and as JSON.

use serde::Serialize;
use undertone_device::{
    Clock, Ended, Ineligible, Outcome, Participation, Progress, Status, SystemClock, Unmet,
};
use undertone_present::numbers::{grouped, hex, number};
use undertone_protocol::{Code, Verdict};

use crate::output::facts;

/// The end of a session.
#[derive(Debug, Serialize)]
pub(super) struct OutcomeView {
    /// `reported` if the update was sent, else the kind of end.
    ended: &'static str,
    /// The word of the service on the update; nothing rests on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    /// One sentence.
    message: String,
    /// The time of the next session, in milliseconds since 1970.
    wake_ms: u64,
    down_bytes: u64,
    up_bytes: u64,
}

impl OutcomeView {
    pub(super) fn new(outcome: &Outcome) -> Self {
        let (ended, message) = describe(&outcome.ended);
        let verdict = match outcome.ended {
            Ended::Reported(found) => Some(verdict(found.unwrap_or(Verdict::Unspecified))),
            _ => None,
        };
        Self {
            ended,
            verdict,
            message,
            wake_ms: outcome.wake_ms,
            down_bytes: outcome.down_bytes,
            up_bytes: outcome.up_bytes,
        }
    }

    /// `true` if the update was sent.
    pub(super) fn is_reported(&self) -> bool {
        self.ended == "reported"
    }

    /// One line for progress.
    pub(super) fn line(&self) -> String {
        format!("{}; next session in {}", self.message, self.wait())
    }

    pub(super) fn text(&self) -> String {
        facts([
            ("session", self.message.clone()),
            ("loaded", format!("{} bytes", grouped(self.down_bytes))),
            ("sent", format!("{} bytes", grouped(self.up_bytes))),
            ("next session", format!("in {}", self.wait())),
        ])
    }

    fn wait(&self) -> String {
        wait(self.wake_ms)
    }
}

/// The time until then.
fn wait(until_ms: u64) -> String {
    let seconds = until_ms.saturating_sub(SystemClock.now_ms()).div_ceil(1000);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Included => "included",
        Verdict::Late => "late",
        Verdict::Abandoned => "abandoned",
        Verdict::Unspecified => "unknown",
    }
}

fn describe(ended: &Ended) -> (&'static str, String) {
    match ended {
        Ended::Reported(found) => (
            "reported",
            match found.unwrap_or(Verdict::Unspecified) {
                Verdict::Included => {
                    "the update was sent, and the service says that it is in the released sum"
                }
                Verdict::Late => {
                    "the update was sent, and the service says that it came too late for the sum"
                }
                Verdict::Abandoned => {
                    "the update was sent, and the service says that the attempt was abandoned"
                }
                Verdict::Unspecified => "the update was sent, and the service has not said what became of it",
            }
            .to_owned(),
        ),
        Ended::NotEligible(reasons) if reasons.is_empty() => (
            "not_eligible",
            "the board has no task for this device now".to_owned(),
        ),
        Ended::NotEligible(reasons) => {
            let each = reasons.iter().map(|(task, why)| {
                let task: String = hex(task).chars().take(8).collect();
                format!("task {task}: {}", ineligible(*why))
            });
            let all: Vec<String> = each.collect();
            ("not_eligible", all.join("; "))
        }
        Ended::NotEnrolled => (
            "not_enrolled",
            "the device has no certificate that is valid now; run `undertone device enrol --again`"
                .to_owned(),
        ),
        Ended::Clock => (
            "clock",
            "the clock of this machine is wrong: it was later before, or it is far from that of the service"
                .to_owned(),
        ),
        Ended::Rejected(code, why) => (
            "rejected",
            format!("the service refused with {}: {why}", code_name(*code)),
        ),
        Ended::Refused(why) => (
            "refused",
            format!("the device refused the offer of the service: {why}"),
        ),
        Ended::Lost(code, why) => (
            "lost",
            format!(
                "the session ended before the update was sent, with {}: {why}",
                code_name(*code)
            ),
        ),
        Ended::NotTrained(why) => ("not_trained", format!("training gave no update: {why}")),
        Ended::HostNotReady(unmet) => ("host_not_ready", host(*unmet).to_owned()),
        Ended::Stopped => (
            "stopped",
            "the session was stopped by a signal or by a limit".to_owned(),
        ),
        Ended::TimedOut => ("timed_out", "a deadline of the session passed".to_owned()),
        Ended::Unreachable => (
            "unreachable",
            "the service cannot be reached; check its address and the network".to_owned(),
        ),
        _ => ("other", "the session ended".to_owned()),
    }
}

/// The name of a code without its prefix.
fn code_name(code: Code) -> &'static str {
    let name = code.as_str_name();
    name.strip_prefix("CODE_").unwrap_or(name)
}

fn ineligible(why: Ineligible) -> String {
    match why {
        Ineligible::Closed => "it takes no devices now".to_owned(),
        Ineligible::Version => "it needs a newer app".to_owned(),
        Ineligible::TooFewExamples => {
            "the device has too few examples; add texts with `undertone device add`".to_owned()
        }
        Ineligible::TooNew { until_ms } => {
            format!(
                "the device is too new, or was restored; it may take part in {}",
                wait(until_ms)
            )
        }
        Ineligible::TooSoon { until_ms } => {
            format!(
                "the device took part a short while ago; it may take part again in {}",
                wait(until_ms)
            )
        }
        Ineligible::TooFewRounds => "too few rounds have passed since the device took part".to_owned(),
        Ineligible::TooOften => "the device has taken part as often as the task allows".to_owned(),
        Ineligible::OldRound => "the board shows a round that the device saw end".to_owned(),
        Ineligible::TooLarge => "it moves more bytes than the device allows".to_owned(),
        _ => "the device may not take part".to_owned(),
    }
}

fn host(unmet: Unmet) -> &'static str {
    match unmet {
        Unmet::Charging => "the machine is not charging",
        Unmet::Idle => "the machine is in use",
        Unmet::Unmetered => "the network is metered",
        Unmet::Storage => "storage is short",
        Unmet::Thermal => "the machine is too warm",
        _ => "a condition of the machine is not met",
    }
}

/// A device.
#[derive(Debug, Serialize)]
pub(super) struct StatusView {
    /// The public key.
    device: String,
    enrolled: bool,
    session_keys: usize,
    training_examples: u64,
    withheld_examples: u64,
    spent_rho: f64,
    wake_ms: u64,
    participations: Vec<ParticipationView>,
}

#[derive(Debug, Serialize)]
struct ParticipationView {
    task: String,
    round: u64,
    attempt: u32,
    at_ms: u64,
    /// `begun`, `committed`, or the verdict of the service.
    progress: &'static str,
}

impl StatusView {
    pub(super) fn new(key: &[u8], status: &Status, participations: &[Participation]) -> Self {
        Self {
            device: hex(key),
            enrolled: status.enrolled,
            session_keys: status.session_keys,
            training_examples: status.training_examples,
            withheld_examples: status.withheld_examples,
            spent_rho: status.spent_rho,
            wake_ms: status.wake_ms,
            participations: participations
                .iter()
                .map(|row| ParticipationView {
                    task: hex(&row.task),
                    round: row.round,
                    attempt: row.attempt,
                    at_ms: row.at_ms,
                    progress: match row.progress {
                        Progress::Begun => "begun",
                        Progress::Committed => "committed",
                        Progress::Ended(found) => verdict(found),
                    },
                })
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let enrolled = match self.enrolled {
            true => "yes",
            false => "no; run `undertone device enrol --again`",
        };
        let mut rows = vec![
            ("device", self.device.clone()),
            ("enrolled", enrolled.to_owned()),
            ("keys for secure sums", grouped(self.session_keys as u64)),
            ("examples for training", grouped(self.training_examples)),
            ("examples withheld", grouped(self.withheld_examples)),
            (
                "planned cost of all tasks",
                format!("rho = {}", number(self.spent_rho)),
            ),
            ("participations", grouped(self.participations.len() as u64)),
        ];
        if self.wake_ms > 0 {
            rows.push(("next session", format!("in {}", wait(self.wake_ms))));
        }
        for row in &self.participations {
            let task: String = row.task.chars().take(8).collect();
            rows.push((
                "took part",
                format!("task {task}, round {}: {}", row.round, row.progress),
            ));
        }
        facts(rows)
    }
}
