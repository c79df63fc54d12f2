//! Transactions on subjects: those that take part no more, and the keys of pseudonyms.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::TaskState;

use super::facts::{note, task};
use super::{Bits, Sql, Time, Tx, change, first};
use crate::{Millis, TaskId, rules};

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
    let state: TaskState = task(conn, id)?.facts.state;
    rules::may_forget(id, state)?;
    let gone = change(conn, "DELETE FROM pseudonym_keys WHERE task = ?1", [id.0])? == 1;
    if gone {
        note(conn, now, actor, "forget", &rules::forgotten(id))?;
    }
    Ok(gone)
}
