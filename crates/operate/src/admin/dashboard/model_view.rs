//! The models of a task: the size of each release beside its noise, and the accuracy that private evaluations found.

use std::collections::BTreeMap;

use serde::Serialize;
use undertone_protocol::{Digest32, Head, Signed, TaskKind, read};
use undertone_service::identity::hex;
use undertone_service::room::ReleasedScores;
use undertone_service::{Result, ServiceError};
use undertone_store::{MAX_HEAD, TaskId, TaskRow};

use super::Dashboard;
use super::task_view::{RoundPoint, rounds};

/// Max number of points of an evaluation, the last ones.
const POINTS: u64 = 200;

/// Max number of released models whose digests are read to place the points of an evaluation.
const MODELS: u64 = 4000;

/// The answer about the models of a task.
#[derive(Serialize)]
pub(super) struct ModelView {
    /// The digest of the last released model.
    model: String,
    released: u64,
    rounds: Vec<RoundPoint>,
    evaluations: Vec<EvaluationView>,
    /// A curve that the caller of the service measured on text of its own.
    curve: Option<CurveView>,
}

/// A private evaluation task, with the rates that it released.
#[derive(Serialize)]
struct EvaluationView {
    id: String,
    name: String,
    /// `true` where the evaluation is the task itself.
    own: bool,
    points: Vec<PointView>,
}

#[derive(Serialize)]
struct PointView {
    /// Number of released rounds of the model that was measured; `null` where it is not known any more.
    round: Option<u64>,
    /// The round of the evaluation.
    evaluation: u64,
    top1: f64,
    in_vocabulary_top1: f64,
    capped_loss: f64,
    /// The standard deviation of the noise in each fraction, at most.
    standard_error: f64,
    included: u64,
}

#[derive(Serialize)]
struct CurveView {
    about: String,
    points: Vec<(u64, f64)>,
    levels: Vec<(String, f64)>,
}

impl ModelView {
    /// The models of the task of this identifier or name.
    ///
    /// # Errors
    /// A task that does not exist; from the store and the blobs.
    pub(super) fn of(dashboard: &Dashboard, task: &str) -> Result<Self> {
        let row = dashboard.find(task)?;
        let mut evaluations = Vec::new();
        for other in dashboard.service.shared().store.tasks()? {
            if other.task.kind == TaskKind::Evaluate && !other.deleted {
                let measured = dashboard.guarantees.task(&dashboard.service, &other)?.of;
                let own = other.task.id == row.task.id;
                if own || measured == Some(row.task.id) {
                    evaluations.push(evaluation(dashboard, &other, measured, own)?);
                }
            }
        }
        Ok(Self {
            model: hex(&row.head_model),
            released: row.head_round,
            rounds: rounds(dashboard, &row)?,
            evaluations,
            curve: dashboard
                .service
                .metrics()
                .curve_of(row.task.id)
                .map(|curve| CurveView {
                    about: curve.about,
                    points: curve.points,
                    levels: curve.levels,
                }),
        })
    }
}

fn evaluation(
    dashboard: &Dashboard,
    row: &TaskRow,
    measured: Option<TaskId>,
    own: bool,
) -> Result<EvaluationView> {
    let shared = dashboard.service.shared();
    let released = released_models(dashboard, measured)?;
    let first = row.head_round.saturating_sub(POINTS);
    let mut points = Vec::new();
    for round in first..row.head_round {
        let Some(digest) = model_after(dashboard, row.task.id, round + 1)? else {
            continue;
        };
        let bytes = undertone_service::storage::blobs::read(shared.blobs.as_ref(), &digest)?;
        // A quarantined round keeps the bytes before it, which are none at the start.
        let Ok(rates) = serde_json::from_slice::<ReleasedScores>(&bytes) else {
            continue;
        };
        points.push(PointView {
            round: released.get(&rates.model).copied(),
            evaluation: round,
            top1: rates.top1,
            in_vocabulary_top1: rates.in_vocabulary_top1,
            capped_loss: rates.capped_loss,
            standard_error: rates.standard_error,
            included: rates.included,
        });
    }
    Ok(EvaluationView {
        id: row.task.id.to_string(),
        name: row.task.name.clone(),
        own,
        points,
    })
}

/// The number of released rounds of each model of a training, by the model's digest.
fn released_models(dashboard: &Dashboard, training: Option<TaskId>) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    let Some(training) = training else {
        return Ok(found);
    };
    let row = dashboard.service.shared().store.task(training)?;
    found.insert(hex(&row.task.model), 0);
    for round in row.head_round.saturating_sub(MODELS)..row.head_round {
        if let Some(digest) = model_after(dashboard, training, round + 1)? {
            found.insert(hex(&digest), round + 1);
        }
    }
    Ok(found)
}

/// The digest of the model after a number of rounds, by its published head; `None` while it is not published.
fn model_after(dashboard: &Dashboard, task: TaskId, rounds: u64) -> Result<Option<Digest32>> {
    let Some(bytes) = dashboard.service.shared().blobs.head(task, rounds)? else {
        return Ok(None);
    };
    let damaged = |error: &dyn std::fmt::Display| ServiceError::Value {
        key: format!("the published head of {rounds} rounds"),
        expected: "one that this service wrote".to_owned(),
        got: error.to_string(),
    };
    let signed = read::<Signed>("the head", &bytes, MAX_HEAD).map_err(|error| damaged(&error))?;
    let head = read::<Head>("the head", &signed.body, MAX_HEAD).map_err(|error| damaged(&error))?;
    Ok(head.model_sha256.try_into().ok())
}

#[cfg(test)]
mod tests;
