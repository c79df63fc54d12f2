//! A connection to a server of Postgres.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use postgres::error::SqlState;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement};
use sha2::{Digest, Sha256};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::dialect;
use super::tls::Encryption;
use crate::Millis;
use crate::clock::{Clock, Watch};
use crate::sql::value::Param;
use crate::sql::writer::{Driver, Durability};
use crate::sql::{Answer, Cell, Found, Sql, SqlError};

/// The clock of a server, by the clock of this machine and the difference that the last transaction saw.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerClock {
    /// The time of the server, less the milliseconds since `begun`.
    base: Arc<AtomicU64>,
    begun: Arc<OnceLock<Instant>>,
}

impl ServerClock {
    fn since(&self) -> u64 {
        self.begun.get_or_init(Instant::now).elapsed().as_millis() as u64
    }

    /// Notes the time that the server gave just now.
    fn set(&self, now: Millis) {
        self.base
            .store(now.saturating_sub(self.since()), Ordering::SeqCst);
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Millis {
        self.base.load(Ordering::SeqCst) + self.since()
    }
}

/// The lock that [`Postgres::open_alone`](super::Postgres::open_alone) takes for itself, and
/// [`Postgres::open_beside`](super::Postgres::open_beside) shares: "UDT2".
const ALONE: u32 = 0x5544_5432;

/// The statement that reads the time of the server.
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The other processes that may use the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// All: the connection takes no lock.
    Any,
    /// Processes of the same service.
    Beside,
    /// None.
    Alone,
}

impl Company {
    /// The statement that takes the lock; `None` where none is needed.
    fn lock(self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Beside => Some(format!("SELECT pg_try_advisory_lock_shared({ALONE})")),
            Self::Alone => Some(format!("SELECT pg_try_advisory_lock({ALONE})")),
        }
    }
}

/// A connection that is made when it is needed, and made anew after it was lost.
pub(super) struct PostgresDriver {
    /// The connection holds the lock that goes with it.
    pub(super) company: Company,
    config: Config,
    encryption: Encryption,
    watch: Arc<Watch>,
    clock: Option<ServerClock>,
    connection: RefCell<Option<Connection>>,
    open: bool,
}

struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
    start: u64,
}

impl PostgresDriver {
    pub(super) fn new(
        config: Config,
        encryption: Encryption,
        watch: Arc<Watch>,
        clock: Option<ServerClock>,
    ) -> Self {
        Self {
            company: Company::Any,
            config,
            encryption,
            watch,
            clock,
            connection: RefCell::new(None),
            open: false,
        }
    }

    /// Runs statements without values, and gives the texts of the rows' first columns.
    pub(super) fn batch(&mut self, sql: &str) -> Found<Vec<String>> {
        self.connect()?;
        self.with(|connection| {
            let messages = connection.client.simple_query(sql)?;
            let rows = messages.into_iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                _ => None,
            });
            Ok(rows.collect())
        })
    }

    /// Begins a transaction by these statements, on a new connection where the old one is lost.
    fn begin_with(&mut self, sql: &str) -> Found<Vec<String>> {
        let began = match self.batch(sql) {
            Err(_) if self.connection.get_mut().is_none() => self.batch(sql),
            other => other,
        };
        self.open = began.is_ok();
        began
    }

    fn note_time(&self, told: &[String]) {
        if let (Some(clock), Some(now)) = (&self.clock, told.first().and_then(|now| now.parse().ok())) {
            clock.set(now);
        }
    }

    fn connect(&mut self) -> Found<()> {
        if self.connection.get_mut().is_some() {
            return Ok(());
        }
        let mut client = connect(&self.config, &self.encryption)?;
        if let Some(lock) = self.company.lock() {
            let taken = client
                .query_one(&lock, &[])
                .and_then(|row| row.try_get::<_, bool>(0))
                .map_err(|error| failure(&error))?;
            if !taken {
                return Err(SqlError::Locked);
            }
        }
        // A restart, a failover and another cluster each give another number.
        let sql = "SELECT pg_postmaster_start_time()::text || ' ' || (pg_control_checkpoint()).timeline_id || ' ' \
             || (pg_control_system()).system_identifier";
        let told: String = client
            .query_one(sql, &[])
            .and_then(|row| row.try_get(0))
            .map_err(|error| failure(&error))?;
        let digest = Sha256::digest(told.as_bytes());
        let mut start = [0; 8];
        start.copy_from_slice(&digest[..8]);
        *self.connection.get_mut() = Some(Connection {
            client,
            statements: HashMap::new(),
            start: u64::from_le_bytes(start),
        });
        Ok(())
    }

    /// Uses the connection, and drops it where it is lost.
    fn with<T>(&self, run: impl FnOnce(&mut Connection) -> Result<T, postgres::Error>) -> Found<T> {
        let mut held = self.connection.borrow_mut();
        let Some(connection) = held.as_mut() else {
            return Err(SqlError::Failed("the connection is lost".to_owned()));
        };
        let result = run(connection);
        if connection.client.is_closed() {
            *held = None;
        }
        result.map_err(|error| failure(&error))
    }

    fn end(&mut self, sql: &str) -> Found<()> {
        self.open = false;
        self.with(|connection| connection.client.batch_execute(sql))
    }
}

/// A new connection.
pub(super) fn connect(config: &Config, encryption: &Encryption) -> Found<Client> {
    let connected = match encryption {
        Encryption::None => config.connect(NoTls),
        Encryption::Tls(client) => {
            let tls = MakeRustlsConnect::new(rustls::ClientConfig::clone(client));
            config.connect(tls)
        }
    };
    connected.map_err(|error| failure(&error))
}

/// A failure of Postgres.
pub(super) fn failure(error: &postgres::Error) -> SqlError {
    let mut reason = error.to_string();
    // The first line says only that the database or the connection failed.
    if let Some(source) = error.source() {
        reason = format!("{reason}: {source}");
    }
    match error.code() {
        Some(code)
            if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED =>
        {
            SqlError::Again(reason)
        }
        Some(code) if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            SqlError::Damaged {
                what: "the database of Postgres".to_owned(),
                reason,
            }
        }
        _ => SqlError::Failed(reason),
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BYTEA].contains(ty)
    }

    to_sql_checked!();
}

/// The type of a place. That of a null is found from the statement.
fn kind(param: &Param<'_>) -> Type {
    match param {
        Param::Null => Type::UNKNOWN,
        Param::Integer(_) => Type::INT8,
        Param::Text(_) => Type::TEXT,
        Param::Bytes(_) => Type::BYTEA,
    }
}

pub(super) fn cell(row: &postgres::Row, place: usize) -> Result<Cell, postgres::Error> {
    Ok(match *row.columns()[place].type_() {
        Type::BYTEA => row
            .try_get::<_, Option<Vec<u8>>>(place)?
            .map_or(Cell::Null, Cell::Bytes),
        Type::INT4 => {
            let number = row.try_get::<_, Option<i32>>(place)?;
            number.map_or(Cell::Null, |number| Cell::Integer(number.into()))
        }
        Type::INT8 => row
            .try_get::<_, Option<i64>>(place)?
            .map_or(Cell::Null, Cell::Integer),
        _ => row
            .try_get::<_, Option<String>>(place)?
            .map_or(Cell::Null, Cell::Text),
    })
}

impl Sql for PostgresDriver {
    fn run(&self, sql: &str, params: &[Param<'_>]) -> Found<Answer> {
        self.with(|connection| {
            let statement = match connection.statements.get(sql) {
                Some(known) => known.clone(),
                None => {
                    let kinds: Vec<Type> = params.iter().map(kind).collect();
                    let made = connection
                        .client
                        .prepare_typed(&dialect::statement(sql), &kinds)?;
                    connection.statements.insert(sql.to_owned(), made.clone());
                    made
                }
            };
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
            if statement.columns().is_empty() {
                let changed = connection.client.execute(&statement, &params)?;
                return Ok(Answer {
                    changed,
                    ..Answer::default()
                });
            }
            let columns: Vec<String> = statement
                .columns()
                .iter()
                .map(|column| column.name().to_owned())
                .collect();
            let rows = connection.client.query(&statement, &params)?;
            let cells = |row| (0..columns.len()).map(|place| cell(row, place)).collect();
            let rows = rows.iter().map(cells).collect::<Result<Vec<Vec<Cell>>, _>>()?;
            Ok(Answer {
                changed: rows.len() as u64,
                columns,
                rows,
            })
        })
    }

    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn start(&self) -> u64 {
        // Without a connection no statement of the transaction succeeds.
        self.connection
            .borrow()
            .as_ref()
            .map_or(0, |connection| connection.start)
    }
}

impl Driver for PostgresDriver {
    fn begin(&mut self, durability: Durability) -> Found<()> {
        let commit = match durability {
            Durability::Full => "on",
            Durability::Normal => "off",
        };
        let told = self.begin_with(&format!(
            "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL synchronous_commit = {commit}; {TIME}"
        ))?;
        self.note_time(&told);
        Ok(())
    }

    fn commit(&mut self) -> Found<()> {
        self.end("COMMIT")
    }

    fn undo(&mut self) -> Found<()> {
        self.end("ROLLBACK")
    }

    fn begin_part(&mut self) -> Found<()> {
        self.with(|connection| connection.client.batch_execute("SAVEPOINT one"))
    }

    fn end_part(&mut self, keep: bool) -> Found<()> {
        let sql = match keep {
            true => "RELEASE one",
            false => "ROLLBACK TO one; RELEASE one",
        };
        self.with(|connection| connection.client.batch_execute(sql))
    }

    fn is_open(&self) -> bool {
        self.open && self.connection.borrow().is_some()
    }

    fn begin_reading(&mut self) -> Found<()> {
        // A process that only reads goes by the clock of the server, too.
        let told = self.begin_with(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {TIME}"
        ))?;
        self.note_time(&told);
        Ok(())
    }

    fn sql(&self) -> &dyn Sql {
        self
    }
}
