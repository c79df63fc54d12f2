//! A store in a database of Postgres.

mod dialect;
mod driver;
mod schema;

use std::sync::Arc;

use postgres::Config;

use self::driver::{PostgresDriver, ServerClock};
use crate::audit::AuditRow;
use crate::clock::{Clock, Watch};
use crate::sql::database::{Connect, Database, OverSql};
use crate::sql::writer::Driver;
use crate::{Millis, Result, StoreError};

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
}

/// The connections to a server.
struct Server {
    config: Config,
    place: String,
    watch: Arc<Watch>,
    clock: Option<ServerClock>,
}

impl Connect for Server {
    fn reader(&self) -> Result<Box<dyn Driver>> {
        let driver = PostgresDriver::new(self.config.clone(), Arc::clone(&self.watch), self.clock.clone());
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
    /// `url` is a connection string such as `postgres://user@host/database`. Its password is in no message.
    ///
    /// # Errors
    /// [`StoreError::Schema`] for another version of the schema; [`StoreError::Damaged`] for a database of another program;
    /// [`StoreError::Unavailable`].
    pub fn open(url: &str) -> Result<Self> {
        Self::opened(url, None, false)
    }

    /// Opens a database for this process alone, by the clock of the server. A lock of the server keeps others of this kind out.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`StoreError::Locked`] while another process has it.
    pub fn open_alone(url: &str) -> Result<Self> {
        Self::opened(url, None, true)
    }

    /// Opens a database by this clock, for tests and simulations.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn with_clock(url: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::opened(url, Some(clock), false)
    }

    fn opened(url: &str, clock: Option<Arc<dyn Clock>>, alone: bool) -> Result<Self> {
        let (config, place) = settings(url)?;
        let server_clock = match clock {
            Some(_) => None,
            None => Some(ServerClock::default()),
        };
        let watch = Arc::new(Watch::new(match (&server_clock, clock) {
            (Some(server), _) => Arc::new(server.clone()),
            (None, Some(clock)) => clock,
            (None, None) => Arc::new(ServerClock::default()),
        }));
        let mut driver = PostgresDriver::new(config.clone(), Arc::clone(&watch), server_clock.clone());
        driver.alone = alone;
        schema::open(&mut driver, &place)?;
        let server = Server {
            config,
            place: place.clone(),
            watch,
            clock: server_clock,
        };
        Ok(Self {
            database: Database::start(Box::new(driver), Box::new(server))?,
            place,
        })
    }

    /// Brings a database of an older version to the present schema. Keep a copy of the database before.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). [`StoreError::Schema`] comes for a newer version alone.
    pub fn migrate(url: &str) -> Result<()> {
        let (config, place) = settings(url)?;
        let clock = ServerClock::default();
        let watch = Arc::new(Watch::new(Arc::new(clock.clone())));
        schema::migrate(&mut PostgresDriver::new(config, watch, Some(clock)), &place)
    }

    /// The audit log, in its order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn audit(&self) -> Result<Vec<AuditRow>> {
        self.database.audit()
    }
}

/// The settings of a connection string, and the database's name for messages.
fn settings(url: &str) -> Result<(Config, String)> {
    let refused = |reason: String| StoreError::Unavailable {
        place: "the connection string of the store".to_owned(),
        reason,
    };
    let config: Config = url.parse().map_err(|error: postgres::Error| {
        // PRIVACY: the text of the error may hold a part of the string, and so of its password.
        let _ = error;
        refused("expected postgres://USER@HOST/DATABASE, got another form".to_owned())
    })?;
    if config.get_ssl_mode() == postgres::config::SslMode::Require {
        return Err(refused(
            "expected sslmode=disable or prefer, got require; reach the server by a Unix socket or a tunnel"
                .to_owned(),
        ));
    }
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            postgres::config::Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            postgres::config::Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let place = format!(
        "the database {} of Postgres at {}",
        config.get_dbname().unwrap_or("of the user"),
        hosts.join(", ")
    );
    Ok((config, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_message() {
        let secret = "postgres://me:hunter2@/x?host=/nowhere";
        let (_, place) = settings(secret).unwrap();
        assert_eq!(place, "the database x of Postgres at /nowhere");
        for text in [Postgres::open(secret), Postgres::open("postgres://me:hunter2@[")] {
            let text = format!("{:?} {}", text, text.as_ref().unwrap_err());
            assert!(!text.contains("hunter2"), "{text}");
        }
        let error = settings("postgres://me@host/x?sslmode=require")
            .unwrap_err()
            .to_string();
        assert!(error.contains("got require"), "{error}");
    }
}
