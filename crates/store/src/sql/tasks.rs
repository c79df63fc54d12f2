//! Transactions on tasks, leases, ledgers and models.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

use super::facts::{led_task, note, open_attempt, task, task_row};
use super::subjects::forget_users;
use super::{Bits, Name, Sql, Time, Tx, all, change, digest, one};
use crate::clock::after;
use crate::failpoint::failpoint;
use crate::{
    AbandonReason, AbandonedRow, AttemptId, AttemptState, Histograms, Lease, Millis, NewTask, TaskId,
    Unpublished, rules,
};

pub(crate) fn create(conn: &dyn Sql, new: &NewTask) -> Tx<()> {
    let sql = "SELECT count(*) FROM tasks WHERE digest = ?1 OR (population = ?2 AND name = ?3)";
    let taken: i64 = one(conn, sql, (new.id.0, &new.population, &new.name))?;
    rules::is_new(taken > 0, new)?;
    let schema = new.participation;
    let row: i64 = one(
        conn,
        "INSERT INTO tasks (digest, population, name, kind, config, plan, genesis, spacing, min_sep, max_part, rounds, \
         floor, model, state, head_round, head_model, head_state, chain, fence, lease_owner, lease_until) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 0, ?13, NULL, ?7, 0, NULL, 0) RETURNING id",
        (
            new.id.0,
            &new.population,
            &new.name,
            Name(new.kind),
            &new.config,
            new.plan,
            &new.genesis,
            Name(schema.spacing()),
            Bits(schema.gap().get()),
            Bits(schema.max_participation()),
            Bits(new.rounds),
            Bits(new.min_included),
            new.model,
            Name(TaskState::Draft),
        ),
    )?;
    change(conn, "INSERT INTO models VALUES (?1, 0, ?2, 1)", (row, new.model))?;
    Ok(())
}

pub(crate) fn set_state(
    conn: &dyn Sql,
    id: TaskId,
    (from, to): (TaskState, TaskState),
    (actor, text): (&str, &str),
    now: Millis,
) -> Tx<()> {
    let found = task(conn, id)?;
    found.facts.may_move(from, to, text)?;
    change(
        conn,
        "UPDATE tasks SET state = ?2 WHERE id = ?1",
        (found.row, Name(to)),
    )?;
    note(conn, now, actor, "set_state", &rules::moved(id, from, to, text))
}

pub(crate) fn lease(
    conn: &dyn Sql,
    id: TaskId,
    process: &str,
    ttl: Millis,
    now: Millis,
) -> Tx<Option<Lease>> {
    let found = task(conn, id)?;
    if !found.facts.is_free_for(process, now) {
        return Ok(None);
    }
    let lease = Lease {
        task: id,
        process: process.to_owned(),
        fence: found.facts.fence + 1,
        until: after(now, ttl),
    };
    change(
        conn,
        "UPDATE tasks SET fence = ?2, lease_owner = ?3, lease_until = ?4 WHERE id = ?1",
        (found.row, Bits(lease.fence), process, Time(lease.until)),
    )?;
    failpoint!("lease: after the fence");
    if let Some((attempt, AttemptState::Releasing)) = open_attempt(conn, found.row)? {
        let facts = super::facts::attempt(conn, attempt)?;
        super::attempts::close_abandoned(
            conn,
            found.row,
            &facts,
            lease.fence,
            AbandonReason::Crash,
            &[],
            now,
        )?;
    }
    Ok(Some(lease))
}

pub(crate) fn renew(conn: &dyn Sql, lease: &Lease, until: Millis) -> Tx<()> {
    let found = led_task(conn, lease)?;
    let sql = "UPDATE tasks SET lease_until = ?2 WHERE id = ?1";
    change(conn, sql, (found.row, Time(until)))?;
    Ok(())
}

pub(crate) fn hand_back(conn: &dyn Sql, lease: &Lease) -> Tx<()> {
    let found = led_task(conn, lease)?;
    let sql = "UPDATE tasks SET lease_owner = NULL, lease_until = 0 WHERE id = ?1";
    change(conn, sql, [found.row])?;
    Ok(())
}

/// A line at the end of a ledger.
pub(crate) struct Line<'a> {
    /// The round; `None` for the last line of a task.
    pub(crate) round: Option<u64>,
    pub(crate) bytes: &'a [u8],
    pub(crate) digest: &'a str,
    pub(crate) previous: &'a str,
}

pub(crate) fn append_line(conn: &dyn Sql, task: i64, line: &Line<'_>) -> Tx<()> {
    change(
        conn,
        "INSERT INTO ledger VALUES (?1, (SELECT coalesce(max(seq) + 1, 0) FROM ledger WHERE task = ?1), ?2, ?3, ?4, ?5)",
        (task, line.round.map(Bits), line.bytes, line.digest, line.previous),
    )?;
    Ok(())
}

pub(crate) fn end(conn: &dyn Sql, lease: &Lease, line: &Line<'_>, now: Millis) -> Tx<()> {
    let found = led_task(conn, lease)?;
    let open = open_attempt(conn, found.row)?.map(|(attempt, _)| attempt);
    found
        .facts
        .may_end(open, line.bytes, line.digest, line.previous)?;
    append_line(conn, found.row, line)?;
    change(
        conn,
        "UPDATE tasks SET chain = ?2, state = ?3 WHERE id = ?1",
        (found.row, line.digest, Name(TaskState::Completed)),
    )?;
    let detail = rules::moved(lease.task, found.facts.state, TaskState::Completed, "");
    note(conn, now, &lease.process, "end", &detail)
}

pub(crate) fn ledger(conn: &dyn Sql, id: TaskId, from: u64) -> Tx<Vec<Vec<u8>>> {
    let Some(task) = task_row(conn, id)? else {
        return Ok(Vec::new());
    };
    let sql = "SELECT line FROM ledger WHERE task = ?1 AND seq >= ?2 ORDER BY seq";
    // No ledger has a line beyond the signed range.
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    Ok(all(conn, sql, (task, from), |row| row.get(0))?)
}

pub(crate) fn metrics(conn: &dyn Sql, id: TaskId) -> Tx<Vec<Vec<u8>>> {
    let sql = "SELECT line FROM metrics WHERE task = (SELECT id FROM tasks WHERE digest = ?1) ORDER BY seq";
    Ok(all(conn, sql, [id.0], |row| row.get(0))?)
}

pub(crate) fn append_metrics(conn: &dyn Sql, id: TaskId, line: &[u8]) -> Tx<()> {
    let task = task_row(conn, id)?.ok_or_else(|| rules::missing("task", id.to_string()))?;
    append_metrics_at(conn, task, line)
}

pub(crate) fn append_metrics_at(conn: &dyn Sql, task: i64, line: &[u8]) -> Tx<()> {
    let sql = "INSERT INTO metrics VALUES (?1, (SELECT coalesce(max(seq) + 1, 0) FROM metrics WHERE task = ?1), ?2)";
    change(conn, sql, (task, line))?;
    Ok(())
}

pub(crate) fn observed(conn: &dyn Sql, id: TaskId) -> Tx<Histograms> {
    let sql = "SELECT participations, count(*) FROM users WHERE task = (SELECT id FROM tasks WHERE digest = ?1) \
         AND last_round IS NOT NULL GROUP BY participations UNION ALL \
         SELECT participations, users FROM histograms WHERE task = (SELECT id FROM tasks WHERE digest = ?1) \
         ORDER BY participations";
    let participations = all(conn, sql, [id.0], |row| {
        Ok((row.get::<Bits>(0)?.0, row.get::<Bits>(1)?.0))
    })?;
    Ok(Histograms {
        users: participations.iter().map(|(_, users)| users).sum(),
        participations,
    })
}

pub(crate) fn unpublished(conn: &dyn Sql, id: TaskId) -> Tx<Vec<Unpublished>> {
    let sql = "SELECT m.round, r.attempt, a.attempt AS number, m.digest, r.state, r.line FROM tasks t \
         JOIN models m ON m.task = t.id AND m.published = 0 \
         JOIN releases r ON r.task = t.id AND r.round = m.round - 1 \
         JOIN attempts a ON a.id = r.attempt WHERE t.digest = ?1 ORDER BY m.round";
    Ok(all(conn, sql, [id.0], |row| {
        Ok(Unpublished {
            round: row.get::<Bits>(0)?.0,
            attempt: AttemptId(row.get::<Bits>(1)?.0),
            attempt_of_round: row.get(2)?,
            model: row.get(3)?,
            state: row.get(4)?,
            chain: row.get(5)?,
        })
    })?)
}

pub(crate) fn published(conn: &dyn Sql, id: TaskId, round: u64) -> Tx<()> {
    let task = task_row(conn, id)?.ok_or_else(|| rules::missing("task", id.to_string()))?;
    failpoint!("published: before the mark");
    let sql = "UPDATE models SET published = 1 WHERE task = ?1 AND round = ?2";
    match change(conn, sql, (task, Bits(round)))? {
        0 => Err(rules::no_model(id, round).into()),
        _ => Ok(()),
    }
}

pub(crate) fn may_serve(conn: &dyn Sql, blob: &Digest32) -> Tx<bool> {
    let sql = "SELECT (SELECT count(*) FROM models WHERE digest = ?1 AND published = 1) \
         + (SELECT count(*) FROM tasks WHERE plan = ?1)";
    Ok(one(conn, sql, [blob])?)
}

/// The abandoned attempts after the last committed one, with their users.
pub(crate) fn abandoned_since_release(conn: &dyn Sql, id: TaskId) -> Tx<Vec<AbandonedRow>> {
    let Some(task) = task_row(conn, id)? else {
        return Ok(Vec::new());
    };
    let sql = "SELECT id, round, attempt, reason FROM attempts WHERE task = ?1 AND state = ?2 \
         AND id > (SELECT coalesce(max(attempt), 0) FROM releases WHERE task = ?1) ORDER BY id";
    let found = all(conn, sql, (task, Name(AttemptState::Abandoned)), |row| {
        let Name(reason) = row.get(3)?;
        let abandoned = AbandonedRow {
            round: row.get::<Bits>(1)?.0,
            attempt_of_round: row.get(2)?,
            reason,
            participants: Vec::new(),
        };
        Ok((row.get::<i64>(0)?, abandoned))
    })?;
    found
        .into_iter()
        .map(|(attempt, mut abandoned)| {
            let sql = "SELECT user FROM abandoned WHERE attempt = ?1";
            let mut users = all(conn, sql, [attempt], |row| {
                Ok(ParticipantId::new(row.get::<Bits>(0)?.0))
            })?;
            // The database sorts by the signed number.
            users.sort_unstable();
            abandoned.participants = users;
            Ok(abandoned)
        })
        .collect()
}

/// The blobs of a completed task that no other task and no plan names.
pub(crate) fn blobs_of(conn: &dyn Sql, id: TaskId) -> Tx<Vec<Digest32>> {
    let found = task(conn, id)?;
    rules::may_delete(id, found.facts.state)?;
    let sql = "SELECT n.digest FROM \
         (SELECT digest FROM models WHERE task = ?1 UNION SELECT state FROM releases WHERE task = ?1) n \
         WHERE n.digest IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM models m WHERE m.digest = n.digest AND m.task <> ?1) \
         AND NOT EXISTS (SELECT 1 FROM releases r WHERE r.state = n.digest AND r.task <> ?1) \
         AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.plan = n.digest)";
    Ok(all(conn, sql, [found.row], |row| digest(row, "digest"))?)
}

pub(crate) fn pin(conn: &dyn Sql, id: TaskId, round: Option<u64>, actor: &str, now: Millis) -> Tx<bool> {
    let found = task(conn, id)?;
    if let Some(round) = round {
        let sql = "SELECT count(*) FROM models WHERE task = ?1 AND round = ?2 AND published = 1";
        let models: i64 = one(conn, sql, (found.row, Bits(round)))?;
        if models == 0 {
            return Err(rules::not_released(id, round, found.facts.head_round).into());
        }
    }
    let sql = "UPDATE tasks SET pinned = ?2 WHERE id = ?1 AND pinned IS DISTINCT FROM ?2";
    if change(conn, sql, (found.row, round.map(Bits)))? == 0 {
        return Ok(false);
    }
    let (action, detail) = rules::pinned(id, round);
    note(conn, now, actor, action, &detail)?;
    Ok(true)
}

pub(crate) fn delete(conn: &dyn Sql, id: TaskId, actor: &str, now: Millis) -> Tx<bool> {
    let found = task(conn, id)?;
    rules::may_delete(id, found.facts.state)?;
    let sql = "UPDATE tasks SET deleted = 1, head_state = NULL, pinned = NULL WHERE id = ?1 AND deleted = 0";
    if change(conn, sql, [found.row])? == 0 {
        return Ok(false);
    }
    forget_users(conn, found.row)?;
    change(conn, "DELETE FROM pseudonym_keys WHERE task = ?1", [id.0])?;
    for table in [
        "histograms",
        "releases",
        "attempts",
        "ledger",
        "metrics",
        "models",
    ] {
        change(conn, &format!("DELETE FROM {table} WHERE task = ?1"), [found.row])?;
    }
    note(conn, now, actor, "delete", &rules::deleted(id))?;
    Ok(true)
}
