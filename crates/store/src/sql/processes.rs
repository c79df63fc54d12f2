//! Transactions on the processes of a service.

use super::{Bits, Found, Row, Sql, Time, Tx, all, change, one};
use crate::rules::KEEP_PROCESSES;
use crate::{Millis, NewProcess, ProcessRow};

pub(crate) fn register(conn: &dyn Sql, new: &NewProcess, now: Millis) -> Tx<u64> {
    let sql = "INSERT INTO processes VALUES (?1, ?2, ?3, ?4, ?2) ON CONFLICT (name) DO UPDATE SET \
         epoch = CASE WHEN processes.epoch >= excluded.epoch THEN processes.epoch + 1 ELSE excluded.epoch END, \
         url = excluded.url, roles = excluded.roles, beat = excluded.beat RETURNING epoch";
    let epoch: Bits = one(conn, sql, (&new.name, Time(now), &new.url, &new.roles))?;
    Ok(epoch.0)
}

pub(crate) fn beat(conn: &dyn Sql, name: &str, epoch: u64, roles: &str, now: Millis) -> Tx<bool> {
    let sql = "UPDATE processes SET beat = ?4, roles = ?3 WHERE name = ?1 AND epoch = ?2";
    Ok(change(conn, sql, (name, Bits(epoch), roles, Time(now)))? == 1)
}

pub(crate) fn retire(conn: &dyn Sql, name: &str, epoch: u64) -> Tx<()> {
    let sql = "DELETE FROM processes WHERE name = ?1 AND epoch = ?2";
    change(conn, sql, (name, Bits(epoch)))?;
    Ok(())
}

pub(crate) fn rows(conn: &dyn Sql) -> Tx<Vec<ProcessRow>> {
    let read = |row: &Row<'_>| -> Found<ProcessRow> {
        Ok(ProcessRow {
            name: row.get("name")?,
            epoch: row.get::<Bits>("epoch")?.0,
            url: row.get("url")?,
            roles: row.get("roles")?,
            beat: row.get::<Time>("beat")?.0,
        })
    };
    let sql = "SELECT name, epoch, url, roles, beat FROM processes ORDER BY name";
    let mut rows = all(conn, sql, (), read)?;
    // Databases compare texts by rules of their own.
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rows)
}

/// Deletes processes that gave no sign of life for long.
pub(crate) fn sweep(conn: &dyn Sql, now: Millis) -> Tx<()> {
    if let Some(until) = now.checked_sub(KEEP_PROCESSES) {
        change(conn, "DELETE FROM processes WHERE beat <= ?1", [Time(until)])?;
    }
    Ok(())
}
