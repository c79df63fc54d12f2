//! The tables of the database, their version and their migrations.

use super::dialect;
use super::driver::PostgresDriver;
use crate::audit::hex;
use crate::rules::DEVICE;
use crate::sql::SqlError;
use crate::sql::writer::Driver as _;
use crate::sqlite::{HASHED, MIGRATIONS, VERSION};
use crate::{Result, StoreError};

/// Two processes that open an empty database at once take turns by this number: "UDT1".
const LOCK: u32 = 0x5544_5431;

/// The version that the database names; `None` for one without tables.
fn version(driver: &mut PostgresDriver, place: &str) -> Result<Option<u32>> {
    let at = |error: SqlError| error.at(place);
    let sql = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()";
    let tables = driver.batch(sql).map_err(at)?;
    if tables.first().is_some_and(|number| number == "0") {
        return Ok(None);
    }
    let sql = "SELECT count(*) FROM information_schema.tables \
         WHERE table_schema = current_schema() AND table_name = 'undertone_schema'";
    let marked = driver.batch(sql).map_err(at)?;
    let foreign = || StoreError::Damaged {
        what: place.to_owned(),
        reason: "expected an empty database or one of Undertone's service, got another program's tables"
            .to_owned(),
    };
    if marked.first().is_none_or(|number| number != "1") {
        return Err(foreign());
    }
    let told = driver.batch("SELECT version FROM undertone_schema").map_err(at)?;
    let version = told.first().and_then(|version| version.parse().ok());
    version.map(Some).ok_or_else(foreign)
}

fn other(place: &str, got: u32) -> StoreError {
    StoreError::Schema {
        place: place.to_owned(),
        expected: VERSION,
        got,
        hint: match got < VERSION {
            true => "keep a copy of it, then migrate it",
            false => "it was written by a newer program; use that one",
        },
    }
}

/// Creates the tables in an empty database, and refuses every database of another schema.
pub(super) fn open(driver: &mut PostgresDriver, place: &str) -> Result<()> {
    match version(driver, place)? {
        None => steps(driver, place, true),
        Some(VERSION) => Ok(()),
        Some(got) => Err(other(place, got)),
    }
}

/// Refuses a database of another schema, and one without tables.
pub(super) fn check(driver: &mut PostgresDriver, place: &str) -> Result<()> {
    match version(driver, place)? {
        Some(VERSION) => Ok(()),
        Some(got) => Err(other(place, got)),
        None => Err(crate::rules::missing("database", place)),
    }
}

/// Brings an older database to the present schema.
pub(super) fn migrate(driver: &mut PostgresDriver, place: &str) -> Result<()> {
    match version(driver, place)? {
        Some(got) if got > VERSION => Err(other(place, got)),
        Some(_) => steps(driver, place, false),
        None => Err(crate::rules::missing("database", place)),
    }
}

/// Makes the steps that the database lacks, all in one transaction.
fn steps(driver: &mut PostgresDriver, place: &str, create: bool) -> Result<()> {
    let at = |error: SqlError| error.at(place);
    driver
        .batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})::text"))
        .map_err(at)?;
    let made = version(driver, place).and_then(|found| {
        let done = match found {
            None => {
                driver
                    .batch("CREATE TABLE undertone_schema (version BIGINT NOT NULL)")
                    .and_then(|_| driver.batch("INSERT INTO undertone_schema VALUES (0)"))
                    .map_err(at)?;
                0
            }
            // Another process was first.
            Some(version) if create && version == VERSION => version,
            Some(version) => version,
        };
        for step in MIGRATIONS.iter().skip(done as usize) {
            driver.batch(&dialect::tables(step)).map_err(at)?;
        }
        if done > 0 && done < HASHED {
            // PRIVACY: the keys of devices are replaced by their hashes.
            let prefix = hex(DEVICE);
            let hashed = format!("UPDATE devices SET key = sha256(decode('{prefix}', 'hex') || key)");
            driver.batch(&hashed).map_err(at)?;
        }
        if done == 0 {
            let salt = "INSERT INTO database VALUES (1, 1, \
                 decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'))";
            driver.batch(salt).map_err(at)?;
        }
        let mark = format!("UPDATE undertone_schema SET version = {VERSION}");
        driver.batch(&mark).map(drop).map_err(at)
    });
    match made {
        Ok(()) => driver.commit().map_err(at),
        Err(error) => {
            // The first error is the one to report.
            let _ = driver.undo();
            Err(error)
        }
    }
}
