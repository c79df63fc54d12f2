//! The figures of operators, in SQL.

use super::facts::{audit_rows, task_row};
use super::{Bits, Name, Sql, Time, Tx, all, digest};
use crate::audit::AuditRow;
use crate::oversight::about;
use crate::{AttemptRow, LeaseRow, Millis, TaskId};

pub(crate) fn attempts(conn: &dyn Sql, id: TaskId, limit: u32) -> Tx<Vec<AttemptRow>> {
    let Some(task) = task_row(conn, id)? else {
        return Ok(Vec::new());
    };
    let sql = "SELECT round, attempt, state, reason, opened, closed, included FROM attempts WHERE task = ?1 \
         ORDER BY id DESC LIMIT ?2";
    Ok(all(conn, sql, (task, limit), |row| {
        let Name(state) = row.get("state")?;
        let reason: Option<Name<_>> = row.get("reason")?;
        let closed: Option<Time> = row.get("closed")?;
        let included: Option<Bits> = row.get("included")?;
        Ok(AttemptRow {
            round: row.get::<Bits>("round")?.0,
            attempt_of_round: row.get("attempt")?,
            state,
            reason: reason.map(|Name(reason)| reason),
            opened: row.get::<Time>("opened")?.0,
            closed: closed.map(|Time(closed)| closed),
            included: included.map(|Bits(included)| included),
        })
    })?)
}

pub(crate) fn leases(conn: &dyn Sql, now: Millis) -> Tx<Vec<LeaseRow>> {
    let sql = "SELECT digest, fence, lease_owner, lease_until FROM tasks WHERE lease_owner IS NOT NULL \
         AND lease_until > ?1 ORDER BY id";
    Ok(all(conn, sql, [Time(now)], |row| {
        Ok(LeaseRow {
            task: TaskId(digest(row, "digest")?),
            process: row.get("lease_owner")?,
            fence: row.get::<Bits>("fence")?.0,
            until: row.get::<Time>("lease_until")?.0,
        })
    })?)
}

pub(crate) fn enrolments(conn: &dyn Sql, population: &str, from: u64) -> Tx<Vec<(u64, u64)>> {
    let sql = "SELECT enrolled_day, count(*) FROM devices WHERE population = ?1 AND enrolled_day >= ?2 \
         GROUP BY enrolled_day ORDER BY enrolled_day";
    Ok(all(conn, sql, (population, Bits(from)), |row| {
        Ok((row.get::<Bits>(0)?.0, row.get::<Bits>(1)?.0))
    })?)
}

pub(crate) fn acts(conn: &dyn Sql, task: TaskId, limit: u32) -> Tx<Vec<AuditRow>> {
    let about = about(task);
    // Postgres takes no 64-bit parameter as a length.
    let rows = format!(
        "WHERE substr(detail, 1, {}) = ?1 ORDER BY seq DESC LIMIT ?2",
        about.len()
    );
    audit_rows(conn, &rows, (about, limit))
}
