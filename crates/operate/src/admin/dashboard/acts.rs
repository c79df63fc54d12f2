//! Pause, resume and stop, each with a note that the audit log keeps.

use std::sync::Arc;

use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use undertone_service::{Result, ServiceError};

use super::Dashboard;
use crate::admin::listener::refused;
use crate::admin::{ACTOR, Admin, Answer, Operation, TaskSummary, views};

/// Max number of characters of a note.
const MAX_NOTE: usize = 500;

/// The body of an act.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Act {
    /// The reason, for the audit log.
    note: String,
    /// The name of the task once more; a stop needs it.
    #[serde(default)]
    confirm: String,
}

/// Performs an act on a task.
pub(super) async fn act(
    State(dashboard): State<Arc<Dashboard>>,
    Segment((task, act)): Segment<(String, String)>,
    body: axum::body::Bytes,
) -> Response {
    let asked: Act = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => {
            return refused(
                StatusCode::BAD_REQUEST,
                format!("the body must be {{\"note\": TEXT, \"confirm\": NAME}}: {error}"),
            );
        }
    };
    super::answer(move || perform(&dashboard, &task, &act, &asked)).await
}

fn perform(dashboard: &Dashboard, task: &str, act: &str, asked: &Act) -> Result<TaskSummary> {
    let row = dashboard.find(task)?;
    let note = checked(&asked.note)?;
    let admin: Admin<'_> = dashboard.admin();
    let task = row.task.id.to_string();
    let operation = match act {
        "pause" => Operation::Pause { task, note },
        "resume" => Operation::Resume { task, note },
        "stop" => {
            if asked.confirm != row.task.name {
                return Err(value(
                    "confirm",
                    &format!("the name of the task, {}", row.task.name),
                    &asked.confirm,
                ));
            }
            let store = &dashboard.service.shared().store;
            // A stop that is refused leaves a row, too: it says who asked for it.
            store.note_act(row.task.id, ACTOR, "stop", &note)?;
            Operation::Stop { task }
        }
        other => return Err(value("the act", "pause, resume or stop", other)),
    };
    match admin.perform(&operation)? {
        Answer::Task(summary) => Ok(summary),
        _ => Ok(TaskSummary::new(
            &dashboard.service.shared().store.task(row.task.id)?,
        )),
    }
}

/// The acts that the state of a task allows.
pub(super) fn allowed(row: &undertone_store::TaskRow) -> &'static [&'static str] {
    match views::state_name(row.state) {
        "active" => &["pause", "stop"],
        "paused" | "halted" => &["resume", "stop"],
        _ => &[],
    }
}

fn checked(note: &str) -> Result<String> {
    let note = note.trim();
    let length = note.chars().count();
    match (1..=MAX_NOTE).contains(&length) && !note.chars().any(char::is_control) {
        true => Ok(note.to_owned()),
        false => Err(value(
            "the note",
            &format!("1 to {MAX_NOTE} characters in one line"),
            &format!("{length} characters"),
        )),
    }
}

fn value(key: &str, expected: &str, got: &str) -> ServiceError {
    ServiceError::Value {
        key: key.to_owned(),
        expected: expected.to_owned(),
        got: format!("{:?}", super::super::shortened(got)),
    }
}
