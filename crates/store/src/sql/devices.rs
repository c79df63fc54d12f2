//! Transactions on devices and certificates.

use sha2::{Digest, Sha256};
use undertone_protocol::Digest32;

use super::facts::note;
use super::subjects::{depart, departure};
use super::{Bits, Name, Sql, Time, Tx, change, digest, first, one};
use crate::audit::hex;
use crate::rules::{KEEP_COUNTERS, device_name, enrolled, may_enrol, missing};
use crate::{Departure, DeviceRow, Enrolled, Enrolment, Membership, Millis, Quota};

pub(crate) fn device(conn: &dyn Sql, key: &Digest32) -> Tx<Option<DeviceRow>> {
    let sql = "SELECT population, enrolled_day, revoked FROM devices WHERE key = ?1";
    Ok(first(conn, sql, [device_name(key)], |row| {
        Ok(DeviceRow {
            population: row.get("population")?,
            enrolled_day: row.get::<Bits>("enrolled_day")?.0,
            revoked: row.get("revoked")?,
        })
    })?)
}

pub(crate) fn membership(
    conn: &dyn Sql,
    key: &Digest32,
    population: &str,
    person: &Digest32,
) -> Tx<Membership> {
    // Both in one statement, since each statement is a message to a server and back.
    let sql = "SELECT d.population, d.enrolled_day, d.revoked, \
         (SELECT p.how FROM departed p WHERE p.population = ?2 AND p.person = ?3) AS how \
         FROM (SELECT 1 AS one) o LEFT JOIN devices d ON d.key = ?1";
    let found = first(conn, sql, (device_name(key), population, person), |row| {
        let of: Option<String> = row.get("population")?;
        let device = match of {
            None => None,
            Some(population) => Some(DeviceRow {
                population,
                enrolled_day: row.get::<Bits>("enrolled_day")?.0,
                revoked: row.get("revoked")?,
            }),
        };
        let departure: Option<Name<Departure>> = row.get("how")?;
        Ok(Membership {
            device,
            departure: departure.map(|Name(how)| how),
        })
    })?;
    Ok(found.unwrap_or_default())
}

pub(crate) fn enrol(conn: &dyn Sql, enrolment: &Enrolment, now: Millis) -> Tx<Enrolled> {
    let (name, population, person) = (
        device_name(&enrolment.key),
        &enrolment.population,
        enrolment.person,
    );
    if let Some(found) = device(conn, &enrolment.key)? {
        // It enrolled before devices were counted by subject.
        let sql = "UPDATE devices SET person = ?2 WHERE key = ?1 AND person IS NULL";
        change(conn, sql, (name, person))?;
        return Ok(Enrolled::Device(found));
    }
    if let Some(how) = departure(conn, population, &person)? {
        return Ok(Enrolled::Departed(how));
    }
    let sql = "SELECT count(*), count(CASE WHEN revoked = 0 THEN 1 END) FROM devices WHERE population = ?1 AND person = ?2";
    let counted = first(conn, sql, (population, person), |row| {
        Ok((row.get::<Bits>(0)?.0, row.get::<Bits>(1)?.0))
    })?;
    let (ever, devices) = counted.unwrap_or_default();
    if let Some(refused) = may_enrol(enrolment, ever, devices) {
        return Ok(refused);
    }
    let Quota {
        counter,
        window,
        limit,
    } = enrolment.day;
    if !issue(conn, &counter, window, (1, limit), now)? {
        return Ok(Enrolled::Day);
    }
    let row = enrolled(population, now);
    change(
        conn,
        "INSERT INTO devices (key, population, enrolled_day, revoked, person) VALUES (?1, ?2, ?3, 0, ?4)",
        (name, population, Bits(row.enrolled_day), person),
    )?;
    Ok(Enrolled::Device(row))
}

pub(crate) fn revoke(conn: &dyn Sql, key: &Digest32, actor: &str, now: Millis) -> Tx<()> {
    let name = device_name(key);
    let sql = "UPDATE devices SET revoked = 1 WHERE key = ?1";
    if change(conn, sql, [name])? == 0 {
        return Err(missing("device", hex(key)).into());
    }
    note(conn, now, actor, "revoke", &format!("device {}", hex(&name)))?;
    let sql = "SELECT population, person FROM devices WHERE key = ?1 AND person IS NOT NULL";
    let person = first(conn, sql, [name], |row| {
        Ok((row.get::<String>(0)?, digest(row, "person")?))
    })?;
    if let Some((population, person)) = person {
        depart(conn, &population, &person, Departure::Withdrawn, actor, now)?;
    }
    Ok(())
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
