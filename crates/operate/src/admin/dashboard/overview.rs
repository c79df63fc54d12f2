//! The overview: the state of every task in a few figures, with a sentence for each task that needs a person.

use serde::Serialize;
use undertone_protocol::TaskState;
use undertone_service::Result;
use undertone_service::metrics::in_steps;
use undertone_store::{AttemptState, LeaseRow, Millis, ProcessRow, TaskRow};

use super::{Dashboard, acts};
use crate::admin::TaskSummary;

/// Attempts that are read to find the last release.
const ATTEMPTS: u32 = 32;

/// A process is alive for this long after its last sign of life, in milliseconds.
const ALIVE: Millis = 10_000;

/// An overview with the time at which it was made.
#[derive(Serialize)]
pub(super) struct Timed {
    now: Millis,
    overview: Overview,
}

/// The service and its tasks.
#[derive(Serialize)]
pub(super) struct Overview {
    service: ServiceView,
    tasks: Vec<Brief>,
    leases: Vec<LeaseView>,
    /// The processes of a service of several; empty for a service of one.
    processes: Vec<ProcessView>,
}

/// One of several processes.
#[derive(Serialize)]
struct ProcessView {
    name: String,
    /// The roles that it takes new work for, with commas in between.
    roles: String,
    /// `true` if it gave a sign of life in the last ten seconds.
    alive: bool,
}

/// The process that answers.
#[derive(Serialize)]
struct ServiceView {
    process: String,
    version: &'static str,
    started: Millis,
    identity: &'static str,
}

/// A lease.
#[derive(Serialize)]
struct LeaseView {
    task: String,
    process: String,
    fence: u64,
}

/// A task in a few figures.
#[derive(Serialize)]
pub(super) struct Brief {
    #[serde(flatten)]
    summary: TaskSummary,
    /// The time of the last release.
    last_release: Option<Millis>,
    /// The bound on epsilon of the released rounds, with the number of rounds that it speaks of.
    epsilon: Option<(u64, f64)>,
    /// The bound on epsilon of all rounds, by the plan.
    planned: Option<f64>,
    delta: Option<f64>,
    attempt: Option<AttemptView>,
    /// Expected seconds per round, by the rounds so far.
    round_seconds: Option<f64>,
    alert: Option<Alert>,
    /// The acts that are possible now.
    acts: &'static [&'static str],
}

/// The open attempt.
#[derive(Serialize, PartialEq)]
pub(super) struct AttemptView {
    round: u64,
    /// The number within the round, from 0.
    attempt: u32,
    /// `selecting`, `reporting` or `releasing`.
    state: &'static str,
    opened: Millis,
    /// The end of this state, if nothing else ends it before.
    until: Option<Millis>,
    goal: u64,
    /// Sessions that reached each stage, in steps of ten; `null` below ten.
    stages: Vec<(&'static str, Option<u64>)>,
}

/// A sentence for a person.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Alert {
    /// `halted`, `paused`, `waiting` or `draft`.
    pub(super) level: &'static str,
    /// The event, in one sentence.
    pub(super) happened: String,
    /// The next step of the reader.
    pub(super) advice: String,
    /// The time.
    pub(super) at: Option<Millis>,
}

impl Timed {
    /// The overview now, with guarantees that were computed before.
    ///
    /// # Errors
    /// From the store.
    pub(super) fn now(dashboard: &Dashboard) -> Result<Self> {
        let (overview, _) = Overview::new(dashboard)?;
        Ok(Self {
            now: dashboard.now(),
            overview,
        })
    }
}

/// The overview as JSON, and the tasks whose guarantee is to be computed anew.
pub(super) fn look(dashboard: &Dashboard) -> Result<(String, Vec<TaskRow>)> {
    let (overview, stale) = Overview::new(dashboard)?;
    let text =
        serde_json::to_string(&overview).map_err(|error| super::super::views::damaged_ledger(&error))?;
    Ok((text, stale))
}

impl Overview {
    fn new(dashboard: &Dashboard) -> Result<(Self, Vec<TaskRow>)> {
        let shared = dashboard.service.shared();
        let leases = shared.store.leases()?;
        let (mut tasks, mut stale) = (Vec::new(), Vec::new());
        for row in shared.store.tasks()?.into_iter().filter(|row| !row.deleted) {
            tasks.push(Brief::new(dashboard, &row, &leases)?);
            let last = dashboard.guarantees.last(row.task.id);
            if last.is_none_or(|last| last.chain != row.chain) {
                stale.push(row);
            }
        }
        let overview = Self {
            service: ServiceView {
                process: shared.process.clone(),
                version: env!("CARGO_PKG_VERSION"),
                started: dashboard.started,
                identity: dashboard.service.identity().name(),
            },
            tasks,
            leases: leases
                .into_iter()
                .map(|lease| LeaseView {
                    task: lease.task.to_string(),
                    process: lease.process,
                    fence: lease.fence,
                })
                .collect(),
            processes: processes(shared.store.processes()?, dashboard.now()),
        };
        Ok((overview, stale))
    }
}

fn processes(rows: Vec<ProcessRow>, now: Millis) -> Vec<ProcessView> {
    let view = |row: ProcessRow| ProcessView {
        alive: now.saturating_sub(row.beat) <= ALIVE,
        name: row.name,
        roles: row.roles,
    };
    rows.into_iter().map(view).collect()
}

impl Brief {
    pub(super) fn new(dashboard: &Dashboard, row: &TaskRow, leases: &[LeaseRow]) -> Result<Self> {
        let id = row.task.id;
        let store = &dashboard.service.shared().store;
        let attempts = store.attempts(id, ATTEMPTS)?;
        let committed = attempts
            .iter()
            .find(|attempt| attempt.state == AttemptState::Committed);
        let known = dashboard.guarantees.last(id);
        let room = dashboard.service.room(id);
        let report = known.as_ref().map(|known| &known.report);
        let observed = report.and_then(|report| report.observed.as_ref());
        let planned = report.and_then(|report| report.planned.as_ref());
        Ok(Self {
            summary: TaskSummary::new(row),
            last_release: committed.and_then(|attempt| attempt.closed),
            epsilon: observed
                .zip(known.as_ref())
                .map(|(observed, known)| (known.round, observed.epsilon)),
            planned: planned.map(|planned| planned.epsilon),
            delta: planned.or(observed).map(|record| record.delta),
            attempt: attempt(dashboard, row),
            round_seconds: room
                .filter(|_| row.head_round > 0)
                .map(|room| room.pace().round as f64 / 1000.0),
            alert: alert(dashboard, row, leases)?,
            acts: acts::allowed(row),
        })
    }
}

/// The open attempt of a task that this process leads.
fn attempt(dashboard: &Dashboard, row: &TaskRow) -> Option<AttemptView> {
    let room = dashboard.service.room(row.task.id)?;
    let goal = room.task().file.goal();
    if let Some(live) = room.live() {
        let (state, until) = match live.state {
            AttemptState::Selecting => ("selecting", Some(live.select_until)),
            AttemptState::Reporting => ("reporting", Some(live.report_until)),
            _ => ("releasing", None),
        };
        return Some(AttemptView {
            round: live.round,
            attempt: live.number,
            state,
            opened: live.opened,
            until,
            goal,
            stages: live.passage.shown().stages,
        });
    }
    let store = &dashboard.service.shared().store;
    let open = store.attempts(row.task.id, 1).ok()?.into_iter().next()?;
    (room.is_releasing() && open.closed.is_none()).then(|| AttemptView {
        round: open.round,
        attempt: open.attempt_of_round,
        state: "releasing",
        opened: open.opened,
        until: None,
        goal,
        stages: Vec::new(),
    })
}

/// The sentence for a task that needs a person.
fn alert(dashboard: &Dashboard, row: &TaskRow, leases: &[LeaseRow]) -> Result<Option<Alert>> {
    let name = &row.task.name;
    let store = &dashboard.service.shared().store;
    let level = match row.state {
        TaskState::Draft => {
            return Ok(Some(Alert {
                level: "draft",
                happened: "This task is a draft. No device sees it.".to_owned(),
                advice: format!("Start it with: undertone task activate {name}"),
                at: None,
            }));
        }
        TaskState::Active => {
            let led = leases.iter().any(|lease| lease.task == row.task.id);
            return Ok((!led).then(|| Alert {
                level: "waiting",
                happened: "No process leads this task now.".to_owned(),
                advice: "Wait half a minute for a process to take it over. If none does, read the log of the server.".to_owned(),
                at: None,
            }));
        }
        TaskState::Paused => "paused",
        TaskState::Halted => "halted",
        TaskState::Completed | TaskState::Unspecified => return Ok(None),
    };
    let moved = store
        .acts(row.task.id, ATTEMPTS)?
        .into_iter()
        .find(|act| act.moved().is_some_and(|(_, to)| to == row.state));
    let (at, note) = moved.map_or((None, String::new()), |act| {
        (Some(act.at), act.note().unwrap_or_default().to_owned())
    });
    let advice = match row.state {
        TaskState::Halted => {
            "Nothing is released until a person resumes this task with a note. Find the cause first: compare the database, the \
             folder of heads and the key file with their backups. If two states of one store were in use, start a new task instead."
        }
        _ if note.starts_with("starved") => {
            "Wait for more devices and resume. If the population is too small for this task, stop it and create one with a lower \
             goal, a shorter separation or more participations per subject, at a cost of its own."
        }
        _ if note.contains("were abandoned") => {
            "Look at the drop-outs of this task, mend their cause, and resume. Participants of abandoned attempts have counted."
        }
        _ => "No round opens. Resume to go on, or stop to end the task for good.",
    };
    let happened = match note.is_empty() {
        true => format!("This task is {level}."),
        false => format!("This task is {level}: {}", sentence(&note)),
    };
    Ok(Some(Alert {
        level,
        happened,
        advice: advice.to_owned(),
        at,
    }))
}

/// A note with a full stop.
fn sentence(note: &str) -> String {
    match note.ends_with(['.', '!', '?']) {
        true => note.to_owned(),
        false => format!("{note}."),
    }
}

/// A count of devices that may be shown.
pub(super) fn cell(number: u64) -> Option<u64> {
    in_steps(number)
}
