//! The things that an operator sees: counts, times and figures of releases, and nothing of single devices.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry, LedgerLine, PrivacyReport};
use undertone_coordinator::task::TaskPurpose;
use undertone_protocol::{Digest32, TaskKind, TaskState};
use undertone_run_directory::metrics::MetricsLine;
use undertone_service::identity::hex;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::task::Task;
use undertone_service::{Result, ServiceError};
use undertone_store::TaskRow;

/// Rounds that a description lists, the last ones.
const LISTED: usize = 10;

/// Counts of devices below this number are not shown.
const MIN_CELL: u64 = 10;

/// The name of a state in messages and listings.
pub(super) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "unspecified",
        TaskState::Draft => "draft",
        TaskState::Active => "active",
        TaskState::Paused => "paused",
        TaskState::Completed => "completed",
        TaskState::Halted => "halted",
    }
}

/// A task in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// Name of the task.
    pub name: String,
    /// Identifier of the task, in hexadecimal digits.
    pub id: String,
    /// Population of the task.
    pub population: String,
    /// Purpose of the task: `train` or `evaluate`.
    pub kind: String,
    /// State of the task, or `deleted`.
    pub state: String,
    /// Number of rounds of the task.
    pub rounds: u64,
    /// Number of released rounds.
    pub released: u64,
    /// SHA-256 of the last released model.
    pub model: String,
    /// SHA-256 of the last line of its ledger, or of its settings where there is none.
    pub chain: String,
    /// The release that boards name for predictions in place of the newest one: the number of releases that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<u64>,
    /// The warning that the noise leaves nothing of what the task learns, where the answer has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl TaskSummary {
    /// The summary of a row.
    #[must_use]
    pub fn new(row: &TaskRow) -> Self {
        let kind = match row.task.kind {
            TaskKind::Evaluate => "evaluate",
            _ => "train",
        };
        Self {
            name: row.task.name.clone(),
            id: row.task.id.to_string(),
            population: row.task.population.clone(),
            kind: kind.to_owned(),
            state: match row.deleted {
                true => "deleted",
                false => state_name(row.state),
            }
            .to_owned(),
            rounds: row.task.rounds,
            released: row.head_round,
            model: hex(&row.head_model),
            chain: row.chain.clone(),
            pinned: row.pinned.map(|(round, _)| round),
            warning: None,
        }
    }
}

/// A guarantee.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Upper bound on epsilon.
    pub epsilon: f64,
    /// Delta.
    pub delta: f64,
    /// The relation between neighbouring data sets.
    pub adjacency: String,
    /// The zero-concentrated cost (rho), where the guarantee rests on a participation schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
}

impl Figures {
    pub(super) fn new(record: &GuaranteeRecord) -> Self {
        Self {
            epsilon: record.epsilon,
            delta: record.delta,
            adjacency: record.adjacency.clone(),
            rho: record.schema.as_ref().map(|schema| schema.rho),
        }
    }
}

/// A released round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundView {
    /// Index of the round, from 0.
    pub round: u64,
    /// Number of devices in its sum.
    pub included: u64,
    /// L2 norm of the released average, noise included.
    pub release_norm: f64,
    /// Seconds from the opening of its attempt to its release.
    pub seconds: f64,
}

impl RoundView {
    /// The round in a line of the metrics; `None` for another line.
    ///
    /// # Errors
    /// [`ServiceError::Value`] for a line that this service did not write.
    pub fn read(line: &[u8]) -> Result<Option<Self>> {
        let damaged = |error: serde_json::Error| ServiceError::Value {
            key: "a line of the metrics in the store".to_owned(),
            expected: "one that this service wrote".to_owned(),
            got: error.to_string(),
        };
        Ok(match serde_json::from_slice(line).map_err(damaged)? {
            MetricsLine::Round(record) => Some(Self {
                round: record.round,
                included: record.survivors.unwrap_or(record.cohort_size as u64),
                release_norm: record.release_norm,
                seconds: record.seconds,
            }),
            _ => None,
        })
    }
}

/// The error of a ledger line that cannot be read.
pub(super) fn damaged_ledger(error: &serde_json::Error) -> ServiceError {
    ServiceError::Value {
        key: "a line of the ledger in the store".to_owned(),
        expected: "one that this service wrote".to_owned(),
        got: error.to_string(),
    }
}

/// The claims of a task by its ledger as it stands.
pub(super) fn report(shared: &Shared, task: &Task) -> Result<PrivacyReport> {
    let counts = undertone_run_directory::task::counts(&task.file, task.vocab.len())?;
    let claims = Claims::of_task(&task.file, counts, &task.privacy)?;
    let (mut entries, mut end): (Vec<LedgerEntry>, _) = (Vec::new(), None);
    for line in shared.store.ledger(task.id, 0)? {
        match LedgerLine::read(&line).map_err(|error| damaged_ledger(&error))? {
            LedgerLine::Round(entry) => entries.push(*entry),
            LedgerLine::End(found) => end = Some(found),
        }
    }
    Ok(claims.report(&entries, end.as_ref())?)
}

/// The description of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDetails {
    /// The task as in a list.
    #[serde(flatten)]
    pub summary: TaskSummary,
    /// The identity level that its subjects need.
    pub identity: String,
    /// `secagg` where the server learns sums alone, else `plain`.
    pub sum: String,
    /// Report goal of a round.
    pub goal: u64,
    /// Min number of devices in a sum that is released.
    pub floor: u64,
    /// Sessions of an attempt that may be open or reported at one time.
    pub sessions: u64,
    /// Min distance in rounds of two participations of one subject.
    pub min_sep: u64,
    /// Max number of participations of one subject.
    pub max_part: u64,
    /// Number of trained parameters.
    pub parameters: u64,
    /// The max epsilon of the task file, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// The guarantee of all rounds, by the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Figures>,
    /// The guarantee of the rounds so far, by the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Figures>,
    /// Number of subjects that took part, abandoned attempts included; `None` below 10.
    pub subjects: Option<u64>,
    /// The sentence about a released model that says one word nearly always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_word: Option<String>,
    /// Number of attempts that were abandoned since the last release.
    pub abandoned: usize,
    /// The last rounds.
    pub last_rounds: Vec<RoundView>,
}

impl TaskDetails {
    pub(super) fn new(shared: &Shared, row: &TaskRow, task: &Task) -> Result<Self> {
        let file = &task.file;
        let report = report(shared, task)?;
        let counts = undertone_run_directory::task::counts(file, task.vocab.len())?;
        let parameters = counts.trained as u64;
        let mut rounds = Vec::new();
        for line in shared.store.metrics(row.task.id)? {
            rounds.extend(RoundView::read(&line)?);
        }
        let schema = row.task.participation;
        let subjects = shared.store.observed(row.task.id)?.users;
        Ok(Self {
            summary: TaskSummary {
                warning: task.warning()?,
                ..TaskSummary::new(row)
            },
            identity: file.service.identity.name().to_owned(),
            sum: if task.is_secure() { "secagg" } else { "plain" }.to_owned(),
            goal: file.goal(),
            floor: file.floor(),
            sessions: file.sessions(),
            min_sep: schema.gap().get(),
            max_part: schema.max_participation(),
            parameters,
            max_epsilon: file.task.privacy.as_ref().and_then(|privacy| privacy.max_epsilon),
            planned: report.planned.as_ref().map(Figures::new),
            observed: report.observed.as_ref().map(Figures::new),
            subjects: (subjects >= MIN_CELL).then_some(subjects),
            one_word: one_word(shared, row, task),
            abandoned: shared.store.abandoned_since_release(row.task.id)?.len(),
            last_rounds: rounds.split_off(rounds.len().saturating_sub(LISTED)),
        })
    }
}

/// The sentence about a released model that says one word nearly always. A task that only evaluates has no model. A model that was released
/// this moment may not stand under its name yet, and a look at a task does not fail for it.
pub(super) fn one_word(shared: &Shared, row: &TaskRow, task: &Task) -> Option<String> {
    if row.head_round == 0 || matches!(task.file.purpose, TaskPurpose::Evaluate { .. }) {
        return None;
    }
    let parameters = task.released(row, shared.blobs.as_ref()).ok()?;
    undertone_run_directory::one_word(task.model.as_ref(), &parameters, &task.vocab)
}

/// A directory that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    /// The directory.
    pub folder: PathBuf,
    /// The name of the task.
    pub task: String,
    /// Number of its released rounds.
    pub rounds: u64,
    /// The guarantee by the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Figures>,
    /// The guarantee by the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Figures>,
    /// The guarantee that the task may claim: after a stop by the operator that of all rounds, otherwise the one by the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Figures>,
    /// All that the guarantee does not cover. The model of the directory states the same list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
    /// The warning that the noise leaves nothing of what the task learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The sentence about a model that says one word nearly always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_word: Option<String>,
}

/// The public keys of a service, which an app compiles in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicKeys {
    /// The key that signs boards, in hexadecimal digits.
    pub board: String,
    /// The keys that sign plans.
    pub plans: KeyList,
    /// The keys that sign certificates.
    pub issuer: KeyList,
}

/// One public key, or two of them while a service replaces one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyList {
    /// One key.
    One(String),
    /// Each of these keys counts.
    Several(Vec<String>),
}

impl KeyList {
    fn of(keys: &[Digest32]) -> Self {
        let mut digits: Vec<String> = keys.iter().map(|key| hex(key)).collect();
        match digits.len() {
            1 => Self::One(digits.remove(0)),
            _ => Self::Several(digits),
        }
    }

    /// The keys, in hexadecimal digits.
    #[must_use]
    pub fn digits(&self) -> &[String] {
        match self {
            Self::One(digits) => std::slice::from_ref(digits),
            Self::Several(all) => all,
        }
    }
}

impl PublicKeys {
    /// The public halves of these keys.
    #[must_use]
    pub fn of(keys: &Keys) -> Self {
        Self {
            board: hex(&keys.board().public()),
            plans: KeyList::of(&keys.plan_keys()),
            issuer: KeyList::of(&keys.issuer_keys()),
        }
    }
}
