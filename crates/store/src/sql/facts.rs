//! The rows that transactions check, as values.

use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::participation::policy::Last;
use undertone_protocol::Digest32;

use super::value::Params;
use super::{Bits, Found, Name, Row, Sql, Time, Tx, all, change, digest, first};
use crate::audit::AuditRow;
use crate::rules::{AttemptFacts, TaskFacts, missing};
use crate::{AttemptId, AttemptState, Lease, Millis, NewTask, StoreError, TaskHolder, TaskId, TaskRow};

/// A task with the number of its row.
pub(crate) struct FoundTask {
    pub(crate) row: i64,
    pub(crate) facts: TaskFacts,
}

const TASK: &str = "SELECT id, digest, state, spacing, min_sep, max_part, rounds, floor, head_round, chain, fence, \
     lease_owner, lease_until FROM tasks WHERE digest = ?1";

fn task_facts(row: &Row<'_>) -> Found<(FoundTask, Schema)> {
    let schema = Schema::read(row)?;
    let Name(state) = row.get("state")?;
    let facts = TaskFacts {
        id: TaskId(digest(row, "digest")?),
        state,
        // Replaced by the caller, where an error of its own can be given.
        participation: Participation::single(),
        rounds: row.get::<Bits>("rounds")?.0,
        min_included: row.get::<Bits>("floor")?.0,
        head_round: row.get::<Bits>("head_round")?.0,
        chain: row.get("chain")?,
        fence: row.get::<Bits>("fence")?.0,
        owner: row.get("lease_owner")?,
        until: row.get::<Time>("lease_until")?.0,
    };
    let row = row.get("id")?;
    Ok((FoundTask { row, facts }, schema))
}

/// The columns of a participation schema.
pub(crate) struct Schema {
    spacing: Spacing,
    gap: u64,
    max: u64,
}

impl Schema {
    pub(crate) fn read(row: &Row<'_>) -> Found<Self> {
        let Name(spacing) = row.get("spacing")?;
        Ok(Self {
            spacing,
            gap: row.get::<Bits>("min_sep")?.0,
            max: row.get::<Bits>("max_part")?.0,
        })
    }

    pub(crate) fn participation(&self) -> Tx<Participation> {
        let made = Gap::new(self.gap).and_then(|gap| match self.spacing {
            Spacing::AtLeast => Participation::at_least(gap, self.max),
            Spacing::Exactly => Participation::fixed_epochs(gap, self.max),
        });
        Ok(made.map_err(|error| StoreError::Damaged {
            what: "the participation schema of a task".to_owned(),
            reason: error.to_string(),
        })?)
    }
}

/// A task by its identifier.
pub(crate) fn task(conn: &dyn Sql, id: TaskId) -> Tx<FoundTask> {
    let found = first(conn, TASK, [id.0], task_facts)?;
    let (mut task, schema) = found.ok_or_else(|| missing("task", id.to_string()))?;
    task.facts.participation = schema.participation()?;
    Ok(task)
}

/// The number of a task's row; `None` where there is no task.
pub(crate) fn task_row(conn: &dyn Sql, id: TaskId) -> Tx<Option<i64>> {
    let sql = "SELECT id FROM tasks WHERE digest = ?1";
    Ok(first(conn, sql, [id.0], |row| row.get(0))?)
}

/// The task of a lease, if the lease is the last one.
pub(crate) fn led_task(conn: &dyn Sql, lease: &Lease) -> Tx<FoundTask> {
    let task = task(conn, lease.task)?;
    task.facts.led_by(lease)?;
    Ok(task)
}

const ATTEMPT: &str = "SELECT a.id, t.digest, a.round, a.state, a.fence, a.start FROM attempts a \
     JOIN tasks t ON t.id = a.task WHERE a.id = ?1";

/// An attempt by its number.
pub(crate) fn attempt(conn: &dyn Sql, id: AttemptId) -> Tx<AttemptFacts> {
    let found = first(conn, ATTEMPT, [Bits(id.0)], |row| {
        let Name(state) = row.get("state")?;
        Ok(AttemptFacts {
            id,
            task: TaskId(digest(row, "digest")?),
            round: row.get::<Bits>("round")?.0,
            state,
            fence: row.get::<Bits>("fence")?.0,
            start: row.get::<Bits>("start")?.0,
        })
    })?;
    Ok(found.ok_or_else(|| missing("attempt", id.to_string()))?)
}

/// The task of a lease, with an attempt of that task.
pub(crate) fn led(conn: &dyn Sql, lease: &Lease, id: AttemptId) -> Tx<(FoundTask, AttemptFacts)> {
    let task = led_task(conn, lease)?;
    let attempt = attempt(conn, id)?;
    attempt.of_task(lease.task)?;
    Ok((task, attempt))
}

/// The attempt of a task that has not ended, with its state.
pub(crate) fn open_attempt(conn: &dyn Sql, task: i64) -> Found<Option<(AttemptId, AttemptState)>> {
    let sql = "SELECT id, state FROM attempts WHERE task = ?1 AND closed IS NULL";
    first(conn, sql, [task], |row| {
        let (Bits(id), Name(state)) = (row.get(0)?, row.get(1)?);
        Ok((AttemptId(id), state))
    })
}

/// The last participation of a user, and the end of the hold.
pub(crate) fn user(conn: &dyn Sql, task: i64, user: ParticipantId) -> Found<(Option<Last>, Option<Millis>)> {
    let sql = "SELECT last_round, participations, holds_until FROM users WHERE task = ?1 AND user = ?2";
    let found = first(conn, sql, (task, Bits(user.get())), |row| {
        let last: Option<Bits> = row.get(0)?;
        let participations = row.get::<Bits>(1)?.0;
        let hold: Option<Time> = row.get(2)?;
        let last = last.map(|Bits(round)| Last {
            round,
            participations,
        });
        Ok((last, hold.map(|Time(hold)| hold)))
    })?;
    Ok(found.unwrap_or((None, None)))
}

fn holder(process: Option<String>, until: Millis) -> Option<TaskHolder> {
    process.map(|process| TaskHolder { process, until })
}

/// The release that boards name: its number, and its model.
fn pinned(row: &Row<'_>) -> Found<Option<(u64, Digest32)>> {
    let round: Option<Bits> = row.get("pinned")?;
    let model: Option<Digest32> = row.get("pinned_model")?;
    Ok(round.map(|round| round.0).zip(model))
}

/// A task as its callers see it.
pub(crate) fn rows(conn: &dyn Sql, id: Option<TaskId>) -> Tx<Vec<TaskRow>> {
    let read = |row: &Row<'_>| -> Found<(TaskRow, Schema)> {
        let (Name(kind), Name(state)) = (row.get("kind")?, row.get("state")?);
        let task = NewTask {
            id: TaskId(digest(row, "digest")?),
            population: row.get("population")?,
            name: row.get("name")?,
            kind,
            config: row.get("config")?,
            plan: digest(row, "plan")?,
            genesis: row.get("genesis")?,
            participation: Participation::single(),
            rounds: row.get::<Bits>("rounds")?.0,
            min_included: row.get::<Bits>("floor")?.0,
            model: digest(row, "model")?,
        };
        let found = TaskRow {
            task,
            state,
            head_round: row.get::<Bits>("head_round")?.0,
            head_model: digest(row, "head_model")?,
            head_state: row.get("head_state")?,
            chain: row.get("chain")?,
            fence: row.get::<Bits>("fence")?.0,
            holder: holder(row.get("lease_owner")?, row.get::<Time>("lease_until")?.0),
            deleted: row.get("deleted")?,
            pinned: pinned(row)?,
        };
        Ok((found, Schema::read(row)?))
    };
    let columns =
        "t.*, (SELECT m.digest FROM models m WHERE m.task = t.id AND m.round = t.pinned) AS pinned_model";
    let found = match id {
        Some(id) => all(
            conn,
            &format!("SELECT {columns} FROM tasks t WHERE t.digest = ?1"),
            [id.0],
            read,
        )?,
        None => all(
            conn,
            &format!("SELECT {columns} FROM tasks t ORDER BY t.id"),
            (),
            read,
        )?,
    };
    found
        .into_iter()
        .map(|(mut row, schema)| {
            row.task.participation = schema.participation()?;
            Ok(row)
        })
        .collect()
}

/// Appends a row to the audit log.
pub(crate) fn note(conn: &dyn Sql, at: Millis, actor: &str, action: &str, detail: &str) -> Tx<()> {
    let sql = "SELECT seq, digest FROM audit ORDER BY seq DESC LIMIT 1";
    let last = first(conn, sql, (), |row| Ok((row.get::<Bits>(0)?.0, row.get(1)?)))?;
    let row = AuditRow::following(last, at, actor, action, detail);
    change(
        conn,
        "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (
            Bits(row.seq),
            Time(row.at),
            row.actor,
            row.action,
            row.detail,
            row.previous,
            row.digest,
        ),
    )?;
    Ok(())
}

/// The audit log, in its order.
pub(crate) fn audit(conn: &dyn Sql) -> Tx<Vec<AuditRow>> {
    audit_rows(conn, "ORDER BY seq", ())
}

/// The rows of the audit log that a clause selects.
pub(crate) fn audit_rows(conn: &dyn Sql, clause: &str, params: impl Params) -> Tx<Vec<AuditRow>> {
    let sql = format!("SELECT seq, at, actor, action, detail, previous, digest FROM audit {clause}");
    Ok(all(conn, &sql, params, |row| {
        Ok(AuditRow {
            seq: row.get::<Bits>(0)?.0,
            at: row.get::<Time>(1)?.0,
            actor: row.get(2)?,
            action: row.get(3)?,
            detail: row.get(4)?,
            previous: row.get(5)?,
            digest: row.get(6)?,
        })
    })?)
}
