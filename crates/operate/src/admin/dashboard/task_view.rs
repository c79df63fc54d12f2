//! One task: its settings, its funnel, its rounds, its attempts and the acts of people.

use serde::Serialize;
use undertone_coordinator::task::TaskPurpose;
use undertone_run_directory::metrics::{MetricsLine, RoundRecord};
use undertone_service::{Result, ServiceError};
use undertone_store::{AttemptState, Millis, TaskRow};

use super::Dashboard;
use super::overview::Brief;

/// Attempts that are listed, the last ones.
const ATTEMPTS: u32 = 60;

/// Acts that are listed, the last ones.
const ACTS: u32 = 12;

/// Max number of rounds in a chart.
const CHARTED: usize = 400;

/// The answer about one task.
#[derive(Serialize)]
pub(super) struct TaskView {
    task: Brief,
    settings: SettingsView,
    funnel: Funnel,
    /// Seconds and users of rounds: at most 400, with equal steps between them, and the last one.
    rounds: Vec<RoundPoint>,
    attempts: Vec<AttemptLine>,
    /// Number of abandoned attempts by their reason, by the ledger.
    abandoned: Vec<(String, u64)>,
    quarantined: u64,
    acts: Vec<ActLine>,
}

#[derive(Serialize)]
struct SettingsView {
    /// `secagg` where the server learns sums alone, else `plain`.
    sum: &'static str,
    identity: &'static str,
    goal: u64,
    floor: u64,
    sessions: u64,
    min_sep: u64,
    max_part: u64,
    parameters: u64,
    /// The training that an evaluation measures.
    of: Option<String>,
}

/// The way of devices, from the board to a release. Counts are in steps of ten; `null` stands for fewer than ten.
#[derive(Serialize)]
struct Funnel {
    /// Attempts that have ended since the start of the process.
    attempts: u64,
    boards: Option<u64>,
    stages: Vec<(&'static str, Option<u64>)>,
    lost: Vec<(&'static str, Option<u64>)>,
    /// Check-ins that asked for this task, by their result.
    results: Vec<(&'static str, Option<u64>)>,
}

/// A released round.
#[derive(Serialize)]
pub(super) struct RoundPoint {
    round: u64,
    included: u64,
    seconds: f64,
    /// L2 norm of the released average, noise included.
    release_norm: f64,
    /// L2 norm of the noise in it, at most, as its mean square is.
    noise_norm: f64,
    /// The norm of the signal over that of the noise, estimated from the release alone.
    signal_to_noise: Option<f64>,
    clip_norm: Option<f64>,
}

#[derive(Serialize)]
struct AttemptLine {
    round: u64,
    attempt: u32,
    state: &'static str,
    reason: Option<&'static str>,
    opened: Millis,
    closed: Option<Millis>,
    included: Option<u64>,
}

#[derive(Serialize)]
struct ActLine {
    at: Millis,
    actor: String,
    act: String,
    note: String,
}

impl TaskView {
    /// The task of this identifier or name.
    ///
    /// # Errors
    /// A task that does not exist; from the store.
    pub(super) fn of(dashboard: &Dashboard, task: &str) -> Result<Self> {
        let row = dashboard.find(task)?;
        let id = row.task.id;
        let store = &dashboard.service.shared().store;
        let task = dashboard.guarantees.task(&dashboard.service, &row)?;
        let file = &task.file;
        let counts = undertone_run_directory::task::counts(file, task.vocab.len())?;
        let metrics = dashboard.service.metrics();
        let passed = metrics.passage_of(id);
        let arrived = metrics.arrivals_of(&row.task.population, dashboard.now());
        let known = dashboard.guarantees.last(id);
        let known = known.as_ref();
        Ok(Self {
            task: Brief::new(dashboard, &row, &store.leases()?)?,
            settings: SettingsView {
                sum: if task.is_secure() { "secagg" } else { "plain" },
                identity: file.service.identity.name(),
                goal: file.goal(),
                floor: file.floor(),
                sessions: file.sessions(),
                min_sep: row.task.participation.gap().get(),
                max_part: row.task.participation.max_participation(),
                parameters: counts.trained as u64,
                of: match &file.purpose {
                    TaskPurpose::Evaluate { of, .. } => Some(of.clone()),
                    TaskPurpose::Train { .. } => None,
                },
            },
            funnel: Funnel {
                attempts: passed.attempts,
                boards: arrived.boards,
                stages: passed.stages,
                lost: passed.lost,
                results: metrics.check_ins_of(id),
            },
            rounds: rounds(dashboard, &row)?,
            attempts: store.attempts(id, ATTEMPTS)?.iter().map(line).collect(),
            abandoned: known.map_or_else(Vec::new, |known| {
                known
                    .abandoned
                    .iter()
                    .map(|(reason, number)| (reason.clone(), *number))
                    .collect()
            }),
            quarantined: known.map_or(0, |known| known.quarantined),
            acts: store
                .acts(id, ACTS)?
                .into_iter()
                .map(|act| ActLine {
                    at: act.at,
                    act: match act.moved() {
                        Some((from, to)) => format!(
                            "{} to {}",
                            super::super::views::state_name(from),
                            super::super::views::state_name(to)
                        ),
                        None => act.action.clone(),
                    },
                    note: act.note().unwrap_or_default().to_owned(),
                    actor: act.actor,
                })
                .collect(),
        })
    }
}

fn line(row: &undertone_store::AttemptRow) -> AttemptLine {
    AttemptLine {
        round: row.round,
        attempt: row.attempt_of_round,
        state: match row.state {
            AttemptState::Selecting => "selecting",
            AttemptState::Reporting => "reporting",
            AttemptState::Releasing => "releasing",
            AttemptState::Committed => "released",
            AttemptState::Abandoned => "abandoned",
        },
        reason: row.reason.map(undertone_service::metrics::reason_name),
        opened: row.opened,
        closed: row.closed,
        included: row.included,
    }
}

/// The released rounds of a task, thinned out for charts.
///
/// # Errors
/// From the store.
pub(super) fn rounds(dashboard: &Dashboard, row: &TaskRow) -> Result<Vec<RoundPoint>> {
    let lines = dashboard.service.shared().store.metrics(row.task.id)?;
    let factor = dashboard.guarantees.noise_factor(&dashboard.service, row)?;
    let step = lines.len().div_ceil(CHARTED).max(1);
    let last = lines.len().saturating_sub(1);
    let mut rounds = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index % step == 0 || index == last {
            rounds.extend(round(line, factor)?);
        }
    }
    Ok(rounds)
}

fn round(line: &[u8], factor: f64) -> Result<Option<RoundPoint>> {
    let damaged = |error: serde_json::Error| ServiceError::Value {
        key: "a line of the metrics in the store".to_owned(),
        expected: "one that this service wrote".to_owned(),
        got: error.to_string(),
    };
    Ok(match serde_json::from_slice(line).map_err(damaged)? {
        MetricsLine::Round(record) => Some(point(&record, factor)),
        _ => None,
    })
}

/// The noise of a round is at most `factor` times the standard deviation of its draws. The signal's energy is that of the release
/// beyond the noise's.
fn point(record: &RoundRecord, factor: f64) -> RoundPoint {
    let noise = factor * record.noise_std;
    let signal = (record.release_norm.powi(2) - noise.powi(2)).max(0.0).sqrt();
    let ratio = (noise > 0.0).then(|| signal / noise);
    RoundPoint {
        round: record.round,
        included: record.survivors.unwrap_or(record.cohort_size as u64),
        seconds: record.seconds,
        release_norm: record.release_norm,
        noise_norm: noise,
        signal_to_noise: ratio.filter(|ratio| ratio.is_finite()),
        clip_norm: record.clip_norm,
    }
}

#[cfg(test)]
mod tests {
    use undertone_run_directory::metrics::MetricsLine;

    use super::*;

    #[test]
    fn the_signal_is_what_the_release_has_beyond_the_largest_noise() {
        let line = |norm: f64| {
            format!(
                r#"{{"kind":"round","round":3,"cohort_size":50,"cohort_weight":50.0,"clip_norm":1.5,"release_norm":{norm},
                "noise_std":0.5,"signal_to_noise":null,"epsilon":null,"seconds":2.5}}"#
            )
        };
        let point = |norm: f64| round(line(norm).as_bytes(), 6.0).unwrap().unwrap();
        assert!(matches!(
            serde_json::from_str(&line(5.0)).unwrap(),
            MetricsLine::Round(_)
        ));
        let found = point(5.0);
        assert_eq!((found.noise_norm, found.signal_to_noise), (3.0, Some(4.0 / 3.0)));
        assert_eq!((found.round, found.included, found.seconds), (3, 50, 2.5));
        // Chance makes a release smaller than its noise, too.
        assert_eq!(point(2.0).signal_to_noise, Some(0.0));
        assert!(round(b"{}", 6.0).is_err());
    }
}
