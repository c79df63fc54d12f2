//! A store in a database of Postgres.

mod dialect;
mod driver;
mod schema;
mod tls;
mod transfer;

use std::sync::Arc;

use postgres::Config;

use self::driver::{Company, PostgresDriver, ServerClock};
use self::tls::{Encryption, Settings};
use crate::audit::AuditRow;
use crate::clock::{Clock, Watch};
use crate::sql::database::{Connect, Database, OverSql};
use crate::sql::writer::Driver;
use crate::{Millis, Result};

/// A store in a database of Postgres, which several processes may share.
///
/// # Guarantee
/// Every transaction is serializable. One that another process disturbed is run again from its beginning. Transactions of the
/// durability table are committed with `synchronous_commit`; a restart of the server may undo the latest of the others. An attempt
/// remembers the server's start and its timeline, so one that was open across a restart or a failover can only be abandoned.
///
/// The clock is that of the server. Connections go to one server and to no pool that shares connections between transactions.
pub struct Postgres {
    database: Database,
    place: String,
    /// Connections of their own for what is no transaction.
    server: Server,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl OverSql for Postgres {
    fn database(&self) -> &Database {
        &self.database
    }

    fn scrub_files(&self) -> Result<()> {
        let server = &self.server;
        let mut driver = PostgresDriver::new(
            server.config.clone(),
            server.encryption.clone(),
            Arc::clone(&server.watch),
            server.clock.clone(),
        );
        scrub(&mut driver, &self.place)
    }
}

/// Writes the tables about people anew, so that no file of a table holds deleted rows. The server's log of changes is its own.
fn scrub(driver: &mut PostgresDriver, place: &str) -> Result<()> {
    let mut run = |sql: &str| driver.batch(sql).map(drop).map_err(|error| error.at(place));
    // A table is locked while it is written, so a transaction that lasts must not hold up all others.
    run("SET lock_timeout = '5s'")?;
    for table in [
        "sessions",
        "users",
        "abandoned",
        "barred",
        "pseudonym_keys",
        "devices",
    ] {
        run(&format!("VACUUM FULL {table}"))?;
    }
    Ok(())
}

/// The connections to a server.
#[derive(Clone)]
struct Server {
    config: Config,
    encryption: Encryption,
    place: String,
    watch: Arc<Watch>,
    clock: Option<ServerClock>,
}

impl Connect for Server {
    fn reader(&self) -> Result<Box<dyn Driver>> {
        let (config, encryption) = (self.config.clone(), self.encryption.clone());
        let driver = PostgresDriver::new(config, encryption, Arc::clone(&self.watch), self.clock.clone());
        Ok(Box::new(driver))
    }

    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn place(&self) -> &str {
        &self.place
    }
}

impl Postgres {
    /// Opens a database by the clock of the server, and creates the tables where there are none.
    ///
    /// `url` is a connection string such as `postgres://user@host/database`. Its password is in no message. With
    /// `?sslmode=require&sslrootcert=FILE` or `?sslmode=verify-full&sslrootcert=FILE` every connection is encrypted, and the server
    /// must show a certificate for its host name from the authority in that file. Without `sslmode` connections are not encrypted.
    ///
    /// # Errors
    /// [`StoreError::Schema`](crate::StoreError::Schema) for another version of the schema; [`StoreError::Damaged`](crate::StoreError::Damaged) for a database of another program;
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    pub fn open(url: &str) -> Result<Self> {
        Self::opened(url, None, Company::Any)
    }

    /// Opens a database for one of several processes of a service. A lock of the server keeps out a process that opens it
    /// [alone](Self::open_alone), and such a process keeps this one out.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`StoreError::Locked`](crate::StoreError::Locked) while another process has it alone.
    pub fn open_beside(url: &str) -> Result<Self> {
        Self::opened(url, None, Company::Beside)
    }

    /// Opens a database for this process alone, by the clock of the server. A lock of the server keeps others of this kind out.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`StoreError::Locked`](crate::StoreError::Locked) while another process has it.
    pub fn open_alone(url: &str) -> Result<Self> {
        Self::opened(url, None, Company::Alone)
    }

    /// Opens a database by this clock, for tests and simulations.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn with_clock(url: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::opened(url, Some(clock), Company::Any)
    }

    fn opened(url: &str, clock: Option<Arc<dyn Clock>>, company: Company) -> Result<Self> {
        let Settings {
            config,
            encryption,
            place,
        } = tls::settings(url)?;
        let server_clock = match clock {
            Some(_) => None,
            None => Some(ServerClock::default()),
        };
        let watch = Arc::new(Watch::new(match (&server_clock, clock) {
            (Some(server), _) => Arc::new(server.clone()),
            (None, Some(clock)) => clock,
            (None, None) => Arc::new(ServerClock::default()),
        }));
        let mut driver = PostgresDriver::new(
            config.clone(),
            encryption.clone(),
            Arc::clone(&watch),
            server_clock.clone(),
        );
        driver.company = company;
        schema::open(&mut driver, &place)?;
        let server = Server {
            config,
            encryption,
            place: place.clone(),
            watch,
            clock: server_clock,
        };
        Ok(Self {
            database: Database::start(Box::new(driver), Box::new(server.clone()))?,
            place,
            server,
        })
    }

    /// Brings a database of an older version to the present schema. Keep a copy of the database before.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). [`StoreError::Schema`](crate::StoreError::Schema) comes for a newer version alone.
    pub fn migrate(url: &str) -> Result<()> {
        let Settings {
            config,
            encryption,
            place,
        } = tls::settings(url)?;
        let clock = ServerClock::default();
        let watch = Arc::new(Watch::new(Arc::new(clock.clone())));
        let mut driver = PostgresDriver::new(config, encryption, watch, Some(clock));
        schema::migrate(&mut driver, &place)?;
        scrub(&mut driver, &place)
    }

    /// The audit log, in its order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    pub fn audit(&self) -> Result<Vec<AuditRow>> {
        self.database.audit()
    }
}
