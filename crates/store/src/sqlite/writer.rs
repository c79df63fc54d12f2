//! The writer: one thread that makes all changes, several waiting transactions in one commit.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::tx::{Tx, sql_error};
use crate::failpoint::failpoint;
use crate::{Result, StoreError};

/// Max number of transactions in one commit.
const MAX_GROUP: usize = 256;

/// Max time for which a transaction that was run waits for others before the commit begins.
const MAX_WAIT: Duration = Duration::from_millis(3);

/// The durability of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// The transaction survives a loss of power once its caller has the answer.
    Full,
    /// The transaction survives the end of the process. A loss of power may undo it, with all later ones.
    Normal,
}

/// A handle of the thread. Dropping it ends the thread after the waiting transactions.
pub(super) struct Writer {
    sender: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    place: String,
}

impl Writer {
    /// Starts the thread on a connection, which no other thread writes by.
    pub(super) fn start(conn: Connection, place: &str) -> Result<Self> {
        let (sender, receiver) = channel();
        let mut engine = Engine {
            conn,
            synchronous: None,
            failed: None,
            place: place.to_owned(),
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || engine.serve(&receiver))
            .map_err(|error| unavailable(place, format!("starting the writer: {error}")))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            place: place.to_owned(),
        })
    }

    /// Runs a transaction and waits for its commit.
    pub(super) fn run<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tx<T> + Send + 'static,
    {
        let (reply, answer) = sync_channel(1);
        let job = Box::new(Transaction {
            durability,
            run: Some(run),
            result: None,
            reply,
        });
        let sent = self
            .sender
            .as_ref()
            .is_some_and(|sender| sender.send(job).is_ok());
        let ended = || unavailable(&self.place, "the thread that writes has ended");
        if !sent {
            return Err(ended());
        }
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic itself.
            let _ = thread.join();
        }
    }
}

fn unavailable(place: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        place: place.to_owned(),
        reason: reason.into(),
    }
}

/// A transaction that waits for the thread.
trait Job: Send {
    fn durability(&self) -> Durability;

    /// Runs it; `false` where its changes must be undone.
    fn run(&mut self, conn: &Connection, place: &str) -> bool;

    /// Answers the caller. `lost` says why nothing of the commit was made.
    fn answer(self: Box<Self>, lost: Option<StoreError>);
}

struct Transaction<T, F> {
    durability: Durability,
    run: Option<F>,
    result: Option<Result<T>>,
    reply: SyncSender<Result<T>>,
}

impl<T, F> Job for Transaction<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Tx<T> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, conn: &Connection, place: &str) -> bool {
        let result = self
            .run
            .take()
            .map(|run| run(conn).map_err(|error| error.at(place)));
        let made = matches!(result, Some(Ok(_)));
        self.result = result;
        made
    }

    fn answer(self: Box<Self>, lost: Option<StoreError>) {
        let answer = match (lost, self.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => result,
            // The thread runs a job before it answers it.
            (None, None) => return,
        };
        // A caller that is gone needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// The thread's own state.
struct Engine {
    conn: Connection,
    /// The setting of the connection; `None` before the first transaction.
    synchronous: Option<Durability>,
    /// Set for good after a failed sync: the file may then hold less than this process reads.
    failed: Option<String>,
    place: String,
}

impl Engine {
    fn serve(&mut self, receiver: &Receiver<Box<dyn Job>>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match receiver.recv() {
                    Ok(job) => waiting.push_back(job),
                    Err(_) => return,
                }
            }
            while waiting.len() < MAX_GROUP {
                match receiver.try_recv() {
                    Ok(job) => waiting.push_back(job),
                    Err(_) => break,
                }
            }
            self.commit_group(&mut waiting);
        }
    }

    /// Commits the first waiting transactions together, and answers them.
    fn commit_group(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        let durability = match waiting.iter().any(|job| job.durability() == Durability::Full) {
            true => Durability::Full,
            false => Durability::Normal,
        };
        let mut done = Vec::new();
        let outcome = self.begin(durability).and_then(|()| {
            let begun = Instant::now();
            while let Some(mut job) = waiting.pop_front() {
                let ran = self.run_one(job.as_mut());
                done.push(job);
                ran?;
                if begun.elapsed() >= MAX_WAIT {
                    break;
                }
            }
            self.commit()
        });
        if let Err(reason) = &outcome {
            tracing::warn!(place = %self.place, reason, "a group of transactions was not committed");
            if !self.conn.is_autocommit()
                && let Err(error) = self.conn.execute_batch("ROLLBACK")
            {
                self.failed
                    .get_or_insert(format!("undoing a transaction: {error}"));
            }
            if done.is_empty() {
                // The group did not begin; its first job must not wait for ever.
                done.extend(waiting.pop_front());
            }
        }
        for job in done {
            let lost = outcome.as_ref().err();
            job.answer(lost.map(|reason| unavailable(&self.place, reason)));
        }
    }

    fn begin(&mut self, durability: Durability) -> Result<(), String> {
        if let Some(reason) = &self.failed {
            return Err(format!("{reason}; open the database anew"));
        }
        let text = |error: rusqlite::Error| error.to_string();
        if self.synchronous != Some(durability) {
            // Outside a transaction, where alone it takes effect.
            self.synchronous = None;
            let setting = match durability {
                Durability::Full => "FULL",
                Durability::Normal => "NORMAL",
            };
            self.conn
                .pragma_update(None, "synchronous", setting)
                .map_err(text)?;
            self.synchronous = Some(durability);
        }
        failpoint!("writer: before begin");
        self.conn.execute_batch("BEGIN IMMEDIATE").map_err(text)
    }

    /// Runs a transaction in a savepoint of its own, so that its failure undoes nothing else.
    fn run_one(&mut self, job: &mut dyn Job) -> Result<(), String> {
        let text = |error: rusqlite::Error| error.to_string();
        let batch = |sql: &str| self.conn.prepare_cached(sql)?.execute([]);
        batch("SAVEPOINT one").map_err(text)?;
        let made = job.run(&self.conn, &self.place);
        failpoint!("writer: after a transaction");
        // A full disk ends the whole transaction, with the savepoint.
        if self.conn.is_autocommit() {
            return Err(
                "the database undid the transactions of this commit; the disk may be full".to_owned(),
            );
        }
        if !made {
            batch("ROLLBACK TO one").map_err(text)?;
        }
        batch("RELEASE one").map_err(text)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), String> {
        failpoint!("writer: before commit");
        let committed = self.conn.execute_batch("COMMIT");
        failpoint!("writer: after commit");
        committed.map_err(|error| {
            if is_failed_sync(&error) {
                self.failed = Some(format!("a sync of the database failed: {error}"));
            }
            match sql_error(&error, &self.place) {
                StoreError::Unavailable { reason, .. } | StoreError::Damaged { reason, .. } => reason,
                other => other.to_string(),
            }
        })
    }
}

/// `true` if the operating system could not make a file durable. A later sync may then succeed without the lost pages.
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_failed_sync_is_no_full_disk() {
        assert!(is_failed_sync(&failure(ffi::SQLITE_IOERR_FSYNC)));
        assert!(is_failed_sync(&failure(ffi::SQLITE_IOERR_DIR_FSYNC)));
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY] {
            assert!(!is_failed_sync(&failure(code)));
        }
    }

    #[test]
    fn nothing_is_written_after_a_failed_sync() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE rows (a)").unwrap();
        let mut engine = Engine {
            conn,
            synchronous: None,
            failed: Some("a sync of the database failed".to_owned()),
            place: "here".to_owned(),
        };
        let (reply, answer) = sync_channel(1);
        let mut waiting = VecDeque::<Box<dyn Job>>::new();
        waiting.push_back(Box::new(Transaction {
            durability: Durability::Full,
            run: Some(|conn: &Connection| Ok(conn.execute("INSERT INTO rows VALUES (1)", [])?)),
            result: None,
            reply,
        }));
        engine.commit_group(&mut waiting);
        let error = answer.recv().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("here: a sync of the database failed; open the database anew"),
            "{error}"
        );
        let rows: i64 = engine
            .conn
            .query_row("SELECT count(*) FROM rows", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 0);
    }
}
