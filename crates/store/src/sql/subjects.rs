//! Transactions on subjects: those that take part no more, and the keys of pseudonyms.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

use super::facts::{note, task};
use super::{Bits, Name, Sql, Time, Tx, change, first};
use crate::{Departure, Millis, TaskId, rules};

pub(crate) fn bar(conn: &dyn Sql, id: TaskId, user: ParticipantId, actor: &str, now: Millis) -> Tx<bool> {
    let task = task(conn, id)?;
    let sql = "INSERT INTO barred VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let new = change(conn, sql, (task.row, Bits(user.get()), Time(now)))? == 1;
    if new {
        // PRIVACY: the log names nobody, and outlives the key of the pseudonyms.
        note(conn, now, actor, "bar", &rules::barred(id))?;
    }
    Ok(new)
}

pub(crate) fn departure(conn: &dyn Sql, population: &str, person: &Digest32) -> Tx<Option<Departure>> {
    let sql = "SELECT how FROM departed WHERE population = ?1 AND person = ?2";
    let found = first(conn, sql, (population, person), |row| row.get(0))?;
    Ok(found.map(|Name(how)| how))
}

pub(crate) fn depart(
    conn: &dyn Sql,
    population: &str,
    person: &Digest32,
    how: Departure,
    actor: &str,
    now: Millis,
) -> Tx<bool> {
    if departure(conn, population, person)? >= Some(how) {
        return Ok(false);
    }
    let sql = "INSERT INTO departed VALUES (?1, ?2, ?3) ON CONFLICT (population, person) DO UPDATE SET how = excluded.how";
    change(conn, sql, (population, person, Name(how)))?;
    // PRIVACY: the log names nobody, and outlives the wish to be forgotten.
    let (action, detail) = rules::departed(population, how);
    note(conn, now, actor, action, &detail)?;
    Ok(true)
}

pub(crate) fn pseudonym_key(conn: &dyn Sql, id: TaskId) -> Tx<Option<Vec<u8>>> {
    let sql = "SELECT sealed FROM pseudonym_keys WHERE task = ?1";
    Ok(first(conn, sql, [id.0], |row| row.get(0))?)
}

pub(crate) fn keep_pseudonym_key(conn: &dyn Sql, id: TaskId, sealed: &[u8]) -> Tx<Vec<u8>> {
    let sql = "INSERT INTO pseudonym_keys VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    change(conn, sql, (id.0, sealed.to_vec()))?;
    Ok(pseudonym_key(conn, id)?.unwrap_or_default())
}

pub(crate) fn forget_pseudonym_key(conn: &dyn Sql, id: TaskId, actor: &str, now: Millis) -> Tx<bool> {
    let found = task(conn, id)?;
    let state: TaskState = found.facts.state;
    rules::may_forget(id, state)?;
    let rows = forget_users(conn, found.row)?;
    let gone = change(conn, "DELETE FROM pseudonym_keys WHERE task = ?1", [id.0])? == 1;
    if gone {
        note(conn, now, actor, "forget", &rules::forgotten(id))?;
    }
    Ok(gone || rows)
}

/// Deletes the rows about users and sessions of a task that has ended; `false` where there were none. Its histogram stays.
///
/// PRIVACY: the time of a row of `barred` stands beside a pseudonym, and a session stands beside a device and a check-in.
pub(super) fn forget_users(conn: &dyn Sql, task: i64) -> Tx<bool> {
    change(
        conn,
        "INSERT INTO histograms SELECT task, participations, count(*) FROM users \
         WHERE task = ?1 AND last_round IS NOT NULL GROUP BY task, participations \
         ON CONFLICT (task, participations) DO NOTHING",
        [task],
    )?;
    let mut rows = 0;
    for sql in [
        "DELETE FROM users WHERE task = ?1",
        "DELETE FROM barred WHERE task = ?1",
        "DELETE FROM abandoned WHERE attempt IN (SELECT id FROM attempts WHERE task = ?1)",
        "DELETE FROM sessions WHERE attempt IN (SELECT id FROM attempts WHERE task = ?1)",
    ] {
        rows += change(conn, sql, [task])?;
    }
    change(conn, "UPDATE attempts SET swept = 1 WHERE task = ?1", [task])?;
    Ok(rows > 0)
}
