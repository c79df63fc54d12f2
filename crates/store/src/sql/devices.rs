//! Transactions on devices and certificates.

use sha2::{Digest, Sha256};
use undertone_protocol::Digest32;

use super::facts::note;
use super::{Bits, Row, Sql, Time, Tx, change, digest, first, one};
use crate::audit::hex;
use crate::rules::{KEEP_COUNTERS, enrolled, missing};
use crate::{DeviceRow, Millis};

pub(crate) fn device(conn: &dyn Sql, key: &Digest32) -> Tx<Option<DeviceRow>> {
    let sql = "SELECT key, population, enrolled_day, revoked FROM devices WHERE key = ?1";
    let read = |row: &Row<'_>| {
        Ok(DeviceRow {
            key: digest(row, "key")?,
            population: row.get("population")?,
            enrolled_day: row.get::<Bits>("enrolled_day")?.0,
            revoked: row.get("revoked")?,
        })
    };
    Ok(first(conn, sql, [key], read)?)
}

pub(crate) fn enrol(conn: &dyn Sql, key: &Digest32, population: &str, now: Millis) -> Tx<DeviceRow> {
    if let Some(found) = device(conn, key)? {
        return Ok(found);
    }
    let row = enrolled(key, population, now);
    change(
        conn,
        "INSERT INTO devices VALUES (?1, ?2, ?3, 0)",
        (key, population, Bits(row.enrolled_day)),
    )?;
    Ok(row)
}

pub(crate) fn revoke(conn: &dyn Sql, key: &Digest32, actor: &str, now: Millis) -> Tx<()> {
    let name = hex(key);
    if change(conn, "UPDATE devices SET revoked = 1 WHERE key = ?1", [key])? == 0 {
        return Err(missing("device", name).into());
    }
    note(conn, now, actor, "revoke", &format!("device {name}"))
}

pub(crate) fn spend(conn: &dyn Sql, session_key: &Digest32, until: Millis) -> Tx<bool> {
    let sql = "INSERT INTO spent VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Ok(change(conn, sql, (session_key, Time(until)))? == 1)
}

pub(crate) fn issue(
    conn: &dyn Sql,
    subject: &Digest32,
    window: u64,
    (number, limit): (u32, u32),
    now: Millis,
) -> Tx<bool> {
    // PRIVACY: no subject is in the file, and the rows of its windows cannot be linked without it.
    let salt: Vec<u8> = one(conn, "SELECT salt FROM database", ())?;
    let key: Digest32 = Sha256::new()
        .chain_update(b"undertone issued")
        .chain_update(&salt)
        .chain_update(window.to_le_bytes())
        .chain_update(subject)
        .finalize()
        .into();
    let before: Option<i64> = first(conn, "SELECT number FROM issued WHERE key = ?1", [key], |row| {
        row.get(0)
    })?;
    let total = before.unwrap_or(0) + i64::from(number);
    let fits = total <= i64::from(limit);
    if fits {
        change(
            conn,
            "INSERT INTO issued VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET number = excluded.number, at = excluded.at",
            (key, total, Time(now)),
        )?;
    }
    Ok(fits)
}

/// Deletes spent certificates and counters whose time has passed.
pub(crate) fn sweep(conn: &dyn Sql, now: Millis) -> Tx<()> {
    change(conn, "DELETE FROM spent WHERE until <= ?1", [Time(now)])?;
    if let Some(until) = now.checked_sub(KEEP_COUNTERS) {
        change(conn, "DELETE FROM issued WHERE at <= ?1", [Time(until)])?;
    }
    Ok(())
}
