//! The numbers of a task that its size depends on.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::task::TaskFile;
use undertone_service::Result;
use undertone_service::task::{self, graph_of, upload_bytes};

use super::DeviceWork;

/// Bytes of a signed plan.
const PLAN_BYTES: u64 = 4_096;

/// The numbers of a task that its size depends on. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskShape {
    /// Number of rounds.
    pub rounds: u64,
    /// Report goal of a round.
    pub goal: u64,
    /// Sessions that may be open or reported at one time.
    pub sessions: u64,
    /// Min distance in rounds of two participations of one subject.
    pub min_sep: u64,
    /// Max number of participations of one subject.
    pub max_part: u64,
    /// Number of trained parameters.
    pub parameters: u64,
    /// Number of coordinates of an update as it travels: the parameters, or those of its encoding.
    pub coordinates: u64,
    /// Bytes of the model that a device loads.
    pub model_bytes: u64,
    /// Bytes of the signed plan.
    pub plan_bytes: u64,
    /// Bytes of an update.
    pub upload_bytes: u64,
    /// Buffers of the noise, each with a number per parameter.
    pub noise_buffers: u32,
    /// The groups of a secure sum; `None` for a plain one.
    pub groups: Option<Groups>,
    /// Time of a selection.
    pub select_s: f64,
    /// Time of a session.
    pub report_s: f64,
    /// Time of an attempt.
    pub attempt_s: f64,
    /// Min time between two participations of a device.
    pub timer_s: f64,
    /// Min time between two check-ins of a device.
    pub min_interval_s: f64,
    /// Check-ins that are invited, over those that are needed.
    pub checkins_per_needed: f64,
    /// Passes over the examples of a device.
    pub epochs: u64,
    /// Min number of examples of a device.
    pub min_examples: u64,
    /// Max number of examples that a round reads.
    pub max_examples: u64,
    /// Max processor time of a device.
    pub cpu_limit_s: f64,
    /// Min upload rate in kbit/s.
    pub upload_kbps_min: f64,
}

/// The groups of a secure sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// Devices of a full group.
    pub size: u32,
    /// Neighbours of a device in its group.
    pub neighbours: u32,
    /// Time that the phases take where each waits for a lost device.
    pub phases_s: f64,
}

impl Groups {
    /// Bytes of the messages of one device: to it, and from it.
    #[must_use]
    pub(crate) fn message_bytes(&self) -> (f64, f64) {
        let (size, neighbours) = (f64::from(self.size), f64::from(self.neighbours));
        let roster = neighbours * (164.0 + 32.0 * size.log2().ceil());
        let down = roster + 40.0 + 100.0 * neighbours + size / 8.0 + 32.0;
        let up = 194.0 + 74.0 + 100.0 * neighbours + 42.0 + 45.0 * neighbours;
        (down, up)
    }
}

/// A task file with its plan and its shape.
pub struct SizedTask {
    /// The shape.
    pub shape: TaskShape,
    /// The plan: the one that `activate` checks.
    pub privacy: PrivacyPlan,
    /// Training and encoding of one device, to be measured.
    pub work: DeviceWork,
    /// The warning that the noise leaves nothing of what the task learns.
    pub warning: Option<String>,
}

impl std::fmt::Debug for SizedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SizedTask")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl SizedTask {
    /// Plans a task file as [`task::create`] does, without storing anything. `base` is the folder of the file.
    ///
    /// # Errors
    /// The errors of [`task::create`] up to its plan.
    pub fn of(file: &TaskFile, base: &Path, population: &str) -> Result<Self> {
        let planned = task::plan(file, base, population)?;
        let model = task::build(file, &planned.vocab)?;
        let counts = undertone_run_directory::task::counts(file, planned.vocab.len())?;
        let shape = shape(
            file,
            &planned.privacy,
            4 * model.layout().len() as u64,
            counts.trained as u64,
        )?;
        let start = undertone_run_directory::task::start_record(file, &planned.privacy, planned.vocab.len())?;
        Ok(Self {
            warning: start.warning,
            work: DeviceWork::new(file, model, planned.vocab.len()),
            shape,
            privacy: planned.privacy,
        })
    }
}

fn shape(file: &TaskFile, privacy: &PrivacyPlan, model_bytes: u64, parameters: u64) -> Result<TaskShape> {
    let service = &file.service;
    let seconds = |span: undertone_coordinator::task::Span| span.millis() as f64 / 1000.0;
    let (gap, max_part) = privacy.participation().map_or((1, file.task.rounds), |schema| {
        (schema.gap().get(), schema.max_participation())
    });
    let deadlines = &service.deadlines;
    let groups = match privacy.encoding() {
        None => None,
        Some(_) => {
            let size = service.group.target.min(file.goal().max(2));
            let size = u32::try_from(size).unwrap_or(u32::MAX);
            let phases = [
                deadlines.lobby,
                deadlines.keys,
                deadlines.shares,
                deadlines.unmask,
            ];
            Some(Groups {
                size,
                neighbours: graph_of(file)?.topology(size)?.neighbours(),
                phases_s: phases.into_iter().map(seconds).sum(),
            })
        }
    };
    let rounds = usize::try_from(file.task.rounds).unwrap_or(usize::MAX);
    let strategy = privacy.bounded().map(|bounded| bounded.mechanism().strategy());
    let noise_buffers = strategy.map_or(0, |strategy| strategy.kept_vectors(rounds));
    Ok(TaskShape {
        rounds: file.task.rounds,
        goal: file.goal(),
        sessions: file.sessions(),
        min_sep: gap,
        max_part,
        parameters,
        coordinates: privacy
            .encoding()
            .map_or(privacy.layout().len() as u64, |encoding| {
                encoding.padded_dim() as u64
            }),
        model_bytes,
        plan_bytes: PLAN_BYTES,
        upload_bytes: upload_bytes(privacy),
        noise_buffers: u32::try_from(noise_buffers).unwrap_or(u32::MAX),
        groups,
        select_s: seconds(deadlines.select),
        report_s: seconds(deadlines.report),
        attempt_s: seconds(deadlines.attempt),
        timer_s: seconds(service.eligibility.timer),
        min_interval_s: seconds(service.pace.min_interval),
        checkins_per_needed: service.pace.checkins_per_needed,
        epochs: file.task.user_update.epochs as u64,
        min_examples: u64::from(service.eligibility.min_examples),
        max_examples: u64::from(service.eligibility.max_examples),
        cpu_limit_s: seconds(service.budget.cpu),
        upload_kbps_min: f64::from(service.budget.upload_kbps_min),
    })
}
