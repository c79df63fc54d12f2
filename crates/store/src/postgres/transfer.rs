//! Copies of a whole database between a server and a file, row by row: backups, and the way back.

use std::path::Path;
use std::sync::Arc;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::ToSql;
use rusqlite::Connection;

use super::driver::{self, PostgresDriver, ServerClock};
use super::{Postgres, schema, tls};
use crate::clock::Watch;
use crate::sql::Cell;
use crate::sql::value::Param;
use crate::{Result, Sqlite, StoreError, sqlite};

/// A table with its columns, in the order in which the schema makes them: a row that is named comes before those that name it.
struct Table {
    name: String,
    columns: Vec<String>,
}

impl Table {
    /// The names of its columns, each in quotes.
    fn list(&self) -> String {
        let quoted: Vec<String> = self.columns.iter().map(|name| format!("\"{name}\"")).collect();
        quoted.join(", ")
    }

    /// The statement that inserts a row, with places that begin with this mark.
    fn insert(&self, mark: char) -> String {
        let places: Vec<String> = (1..=self.columns.len()).map(|at| format!("{mark}{at}")).collect();
        format!(
            "INSERT INTO {} ({}) VALUES ({})",
            self.name,
            self.list(),
            places.join(", ")
        )
    }
}

/// The tables of a file, without those of SQLite itself.
fn tables(file: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut tables = file.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    )?;
    let names = tables.query_map([], |row| row.get::<_, String>(0))?;
    names
        .map(|name| {
            let name = name?;
            let mut columns = file.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
            let columns = columns.query_map([&name], |row| row.get(0))?;
            Ok(Table {
                columns: columns.collect::<rusqlite::Result<_>>()?,
                name,
            })
        })
        .collect()
}

/// A cell for a place of a statement of the other database.
fn param(cell: &Cell) -> Param<'_> {
    match cell {
        Cell::Null => Param::Null,
        Cell::Integer(number) => Param::Integer(*number),
        Cell::Text(text) => Param::Text(text),
        Cell::Bytes(bytes) => Param::Bytes(bytes),
    }
}

/// A connection whose database has the schema of this program.
fn connected(url: &str, create: bool) -> Result<(Client, String)> {
    let settings = tls::settings(url)?;
    let clock = ServerClock::default();
    let watch = Arc::new(Watch::new(Arc::new(clock.clone())));
    let (config, encryption) = (settings.config, settings.encryption);
    let mut driver = PostgresDriver::new(config.clone(), encryption.clone(), watch, Some(clock));
    match create {
        true => schema::open(&mut driver, &settings.place)?,
        false => schema::check(&mut driver, &settings.place)?,
    }
    drop(driver);
    let client = driver::connect(&config, &encryption).map_err(|error| error.at(&settings.place))?;
    Ok((client, settings.place))
}

impl Postgres {
    /// Writes the database of a server to a new file of SQLite, also while processes use the database. The file is one moment: whole
    /// transactions, and none of a later one.
    ///
    /// # Errors
    /// [`StoreError::Missing`] for a database without tables; [`StoreError::Schema`]; [`StoreError::Unavailable`], also for a file that
    /// exists.
    pub fn copy(url: &str, to: &Path) -> Result<()> {
        let (mut client, place) = connected(url, false)?;
        if to.exists() {
            return Err(StoreError::Unavailable {
                place: to.display().to_string(),
                reason: "expected a file that does not exist".to_owned(),
            });
        }
        // The file gets its tables as any other one.
        drop(Sqlite::open(to)?);
        let there = to.display().to_string();
        let of_file = |error: rusqlite::Error| sqlite::sql_error(&error, &there);
        let of_server = |error: postgres::Error| driver::failure(&error).at(&place);
        let mut file = Connection::open(to).map_err(of_file)?;
        file.pragma_update(None, "foreign_keys", false).map_err(of_file)?;
        let mut read = client
            .build_transaction()
            .isolation_level(postgres::IsolationLevel::RepeatableRead)
            .read_only(true)
            .start()
            .map_err(of_server)?;
        let write = file.transaction().map_err(of_file)?;
        for table in tables(&write).map_err(of_file)? {
            write
                .execute(&format!("DELETE FROM {}", table.name), [])
                .map_err(of_file)?;
            let mut insert = write.prepare(&table.insert('?')).map_err(of_file)?;
            let select = format!("SELECT {} FROM {}", table.list(), table.name);
            let none: [&str; 0] = [];
            let mut rows = read.query_raw(select.as_str(), none).map_err(of_server)?;
            while let Some(row) = rows.next().map_err(of_server)? {
                let cells = (0..row.len()).map(|at| driver::cell(&row, at));
                let cells: Vec<Cell> = cells.collect::<Result<_, _>>().map_err(of_server)?;
                insert
                    .execute(rusqlite::params_from_iter(cells.iter().map(param)))
                    .map_err(of_file)?;
            }
        }
        read.commit().map_err(of_server)?;
        write.commit().map_err(of_file)
    }

    /// Writes the rows of a file, which [`copy`](Self::copy) or [`Sqlite::copy`] has made, to an empty database of a server.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] for a database with rows; the errors of [`open_alone`](Self::open_alone) and of [`Sqlite::open`].
    pub fn fill(url: &str, from: &Path) -> Result<()> {
        let (mut client, place) = connected(url, true)?;
        // The schema of the file is checked as that of any other one.
        drop(Sqlite::open(from)?);
        let there = from.display().to_string();
        let of_file = |error: rusqlite::Error| sqlite::sql_error(&error, &there);
        let of_server = |error: postgres::Error| driver::failure(&error).at(&place);
        let file = Connection::open(from).map_err(of_file)?;
        let tables = tables(&file).map_err(of_file)?;
        let mut write = client.transaction().map_err(of_server)?;
        for table in &tables {
            if table.name == "database" {
                write.execute("DELETE FROM database", &[]).map_err(of_server)?;
                continue;
            }
            let filled = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            if write.query_one(&filled, &[]).map_err(of_server)?.get(0) {
                return Err(StoreError::Conflict {
                    what: place.clone(),
                    expected: "an empty database".to_owned(),
                    got: format!("rows in its table {}", table.name),
                });
            }
        }
        for table in &tables {
            let insert = write.prepare(&table.insert('$')).map_err(of_server)?;
            let select = format!("SELECT {} FROM {}", table.list(), table.name);
            let mut select = file.prepare(&select).map_err(of_file)?;
            let mut rows = select.query([]).map_err(of_file)?;
            while let Some(row) = rows.next().map_err(of_file)? {
                let mut cells = Vec::with_capacity(table.columns.len());
                for at in 0..table.columns.len() {
                    let value = row.get_ref(at).map_err(of_file)?;
                    cells.push(sqlite::cell(value).map_err(|error| error.at(&there))?);
                }
                let params: Vec<Param<'_>> = cells.iter().map(param).collect();
                let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param as _).collect();
                write.execute(&insert, &params).map_err(of_server)?;
            }
            // The next row gets a number above those that were copied.
            let counted = "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() \
                 AND table_name = $1 AND column_name = 'id' AND is_identity = 'YES'";
            if write
                .query_opt(counted, &[&table.name])
                .map_err(of_server)?
                .is_some()
            {
                let next = format!(
                    "SELECT setval(pg_get_serial_sequence('{0}', 'id'), coalesce(max(id), 1), max(id) IS NOT NULL) FROM {0}",
                    table.name
                );
                write.query_one(&next, &[]).map_err(of_server)?;
            }
        }
        write.commit().map_err(of_server)
    }
}
