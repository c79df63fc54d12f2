//! Sessions and devices as text and as JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use undertone_device::{
    Clock, Device, Ended, Evaluation, HeldModel, Ineligible, Outcome, Participation, Prediction, Status,
    SystemClock, verdict_name,
};
use undertone_present::numbers::{grouped, hex, number};
use undertone_protocol::Verdict;

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
        let verdict = match outcome.ended {
            Ended::Reported(found) => Some(verdict_name(found.unwrap_or(Verdict::Unspecified))),
            _ => None,
        };
        Self {
            ended: outcome.ended.name(),
            verdict,
            message: describe(&outcome.ended),
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

/// The end of a session, with the command that mends it.
fn describe(ended: &Ended) -> String {
    match ended {
        Ended::NotEligible(reasons) if !reasons.is_empty() => {
            let each = reasons.iter().map(|(task, why)| {
                let task: String = hex(task).chars().take(8).collect();
                format!("task {task}: {}", ineligible(*why))
            });
            let all: Vec<String> = each.collect();
            all.join("; ")
        }
        Ended::NotEnrolled => format!("{ended}: run `undertone device enrol --again`"),
        other => other.to_string(),
    }
}

pub(super) fn ineligible(why: Ineligible) -> String {
    match why {
        Ineligible::TooNew { until_ms }
        | Ineligible::TooSoon { until_ms }
        | Ineligible::PlanBackoff { until_ms } => {
            format!("{why}; it may take part in {}", wait(until_ms))
        }
        Ineligible::TooFewExamples => format!("{why} with `undertone device add`"),
        _ => why.to_string(),
    }
}

/// Predicted words.
#[derive(Debug, Serialize)]
pub(super) struct PredictionView {
    task: String,
    /// The number of releases before the model.
    round: u64,
    words: Vec<WordView>,
}

#[derive(Debug, Serialize)]
struct WordView {
    word: String,
    probability: f64,
}

impl PredictionView {
    pub(super) fn new(model: &HeldModel, words: &[Prediction]) -> Self {
        Self {
            task: hex(&model.task),
            round: model.round,
            words: words
                .iter()
                .map(|each| WordView {
                    word: each.word.clone(),
                    probability: each.probability,
                })
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        facts(
            self.words
                .iter()
                .map(|each| (&each.word[..], format!("{:.4}", each.probability))),
        )
    }
}

/// The quality of a model on withheld texts.
#[derive(Debug, Serialize)]
pub(super) struct EvaluationView {
    examples: u64,
    words: u64,
    /// Absent where the model gave no finite loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    top1: f64,
    in_vocabulary_top1: f64,
}

impl EvaluationView {
    pub(super) fn new(measured: &Evaluation) -> Self {
        Self {
            examples: measured.examples,
            words: measured.words,
            loss: Some(measured.loss).filter(|loss| loss.is_finite()),
            top1: measured.top1,
            in_vocabulary_top1: measured.in_vocabulary_top1,
        }
    }

    pub(super) fn text(&self) -> String {
        let loss = self
            .loss
            .map_or("not finite".to_owned(), |loss| format!("{loss:.4} nats per word"));
        facts([
            ("withheld examples", grouped(self.examples)),
            ("words", grouped(self.words)),
            ("loss", loss),
            ("first choice is right", format!("{:.4}", self.top1)),
            ("among known words", format!("{:.4}", self.in_vocabulary_top1)),
        ])
    }
}

/// A device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StatusView {
    /// The public key.
    device: String,
    /// The subject of the certificate: by it an operator can bar the person of this device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    enrolled: bool,
    session_keys: usize,
    training_examples: u64,
    withheld_examples: u64,
    spent_rho: f64,
    wake_ms: u64,
    participations: Vec<ParticipationView>,
    /// The time of this state, in milliseconds since 1970.
    as_of_ms: u64,
    /// `true` if another process runs the device now.
    #[serde(default)]
    running: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct ParticipationView {
    task: String,
    round: u64,
    attempt: u32,
    at_ms: u64,
    /// `begun`, `committed`, or the verdict of the service.
    progress: Cow<'static, str>,
}

impl StatusView {
    /// The state of an open device.
    pub(super) fn of(device: &Device) -> anyhow::Result<Self> {
        let (status, participations) = (device.status()?, device.participations()?);
        let subject = device.subject()?;
        Ok(Self::new(
            &device.public_key(),
            subject.as_ref(),
            &status,
            &participations,
        ))
    }

    /// The state without the subject of the person.
    pub(super) fn without_subject(self) -> Self {
        Self {
            subject: None,
            ..self
        }
    }

    /// The state that a process which runs the device has left.
    pub(super) fn while_running(self) -> Self {
        Self {
            running: true,
            ..self
        }
    }

    fn new(
        key: &[u8],
        subject: Option<&[u8; 32]>,
        status: &Status,
        participations: &[Participation],
    ) -> Self {
        Self {
            as_of_ms: SystemClock.now_ms(),
            running: false,
            device: hex(key),
            subject: subject.map(|subject| hex(subject)),
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
                    progress: row.progress.name().into(),
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
        if let Some(subject) = &self.subject {
            rows.insert(1, ("person", subject.clone()));
        }
        if self.running {
            let seconds = SystemClock.now_ms().saturating_sub(self.as_of_ms) / 1000;
            rows.insert(
                0,
                (
                    "state",
                    format!("of {seconds} s ago, before the session of the process that runs this device"),
                ),
            );
        }
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
