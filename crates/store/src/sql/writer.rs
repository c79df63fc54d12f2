//! The writer: one thread that makes all changes, several waiting transactions in one commit.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Found, Sql, SqlError, Tx, TxError};
use crate::failpoint::failpoint;
use crate::{Result, StoreError};

/// Max number of transactions in one commit.
const MAX_GROUP: usize = 256;

/// Max time for which a transaction that was run waits for others before the commit begins.
const MAX_WAIT: Duration = Duration::from_millis(3);

/// Max number of times that a group is run, where transactions of other processes come between.
const MAX_RUNS: u32 = 20;

/// The durability of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The transaction survives a loss of power once its caller has the answer.
    Full,
    /// The transaction survives the end of the process. A loss of power may undo it, with all later ones.
    Normal,
}

/// A connection that makes transactions. Its thread begins one, runs a group in it, each in a savepoint, and commits it.
pub(crate) trait Driver: Sql + Send {
    /// Begins a transaction. It connects anew where the connection was lost.
    fn begin(&mut self, durability: Durability) -> Found<()>;

    /// Commits it.
    fn commit(&mut self) -> Found<()>;

    /// Undoes all of it.
    fn undo(&mut self) -> Found<()>;

    /// Begins a part of it that can be undone alone.
    fn begin_part(&mut self) -> Found<()>;

    /// Ends the part, which is kept or undone.
    fn end_part(&mut self, keep: bool) -> Found<()>;

    /// `true` while a transaction is open.
    fn is_open(&self) -> bool;

    /// Begins a transaction that sees one state of the database and writes nothing.
    fn begin_reading(&mut self) -> Found<()>;

    /// The connection as its statements see it.
    fn sql(&self) -> &dyn Sql;
}

/// A handle of the thread. Dropping it ends the thread after the waiting transactions.
pub(crate) struct Writer {
    sender: Option<Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    place: String,
}

impl Writer {
    /// Starts the thread on a connection, which no other thread writes by.
    pub(crate) fn start(driver: Box<dyn Driver>, place: &str) -> Result<Self> {
        let (sender, receiver) = channel();
        let mut engine = Engine {
            driver,
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
    pub(crate) fn run<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&dyn Sql) -> Tx<T> + Send + 'static,
    {
        let (reply, answer) = sync_channel(1);
        let job = Box::new(Transaction {
            durability,
            run,
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

    /// Runs it, perhaps not for the first time; `false` where its changes must be undone. An error ends the whole group.
    fn run(&mut self, conn: &dyn Sql, place: &str) -> Found<bool>;

    /// Answers the caller. `lost` says why nothing of the commit was made.
    fn answer(self: Box<Self>, lost: Option<StoreError>);
}

struct Transaction<T, F> {
    durability: Durability,
    run: F,
    result: Option<Result<T>>,
    reply: SyncSender<Result<T>>,
}

impl<T, F> Job for Transaction<T, F>
where
    T: Send,
    F: Fn(&dyn Sql) -> Tx<T> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, conn: &dyn Sql, place: &str) -> Found<bool> {
        let result = match (self.run)(conn) {
            Err(TxError::Sql(again @ SqlError::Again(_))) => return Err(again),
            other => other.map_err(|error| error.at(place)),
        };
        let made = result.is_ok();
        self.result = Some(result);
        Ok(made)
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
    driver: Box<dyn Driver>,
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
        let mut done = Vec::new();
        let mut runs = 1;
        let outcome = loop {
            let outcome = self.run_group(waiting, &mut done);
            if let Err(reason) = &outcome {
                // Each transaction gets the reason, and a store that is away fails many times a second.
                tracing::debug!(place = %self.place, ?reason, runs, "a group of transactions was not committed");
                self.undo();
            }
            match outcome {
                // Nothing of the group was made, so all of it can be run again.
                Err(SqlError::Again(_)) if runs < MAX_RUNS => {
                    runs += 1;
                    for job in done.drain(..).rev() {
                        waiting.push_front(job);
                    }
                }
                other => break other,
            }
        };
        if outcome.is_err() && done.is_empty() {
            // The group did not begin; its first job must not wait for ever.
            done.extend(waiting.pop_front());
        }
        for job in done {
            let lost = outcome.as_ref().err();
            job.answer(lost.map(|error| error.clone().at(&self.place)));
        }
    }

    /// Runs the first waiting transactions and commits them. `done` receives those that were run.
    fn run_group(&mut self, waiting: &mut VecDeque<Box<dyn Job>>, done: &mut Vec<Box<dyn Job>>) -> Found<()> {
        let durability = match waiting.iter().any(|job| job.durability() == Durability::Full) {
            true => Durability::Full,
            false => Durability::Normal,
        };
        failpoint!("writer: before begin");
        self.driver.begin(durability)?;
        let begun = Instant::now();
        while let Some(mut job) = waiting.pop_front() {
            let ran = self.run_one(job.as_mut());
            done.push(job);
            ran?;
            if begun.elapsed() >= MAX_WAIT {
                break;
            }
        }
        failpoint!("writer: before commit");
        let committed = self.driver.commit();
        failpoint!("writer: after commit");
        committed
    }

    /// Runs a transaction in a part of its own, so that its failure undoes nothing else.
    fn run_one(&mut self, job: &mut dyn Job) -> Found<()> {
        self.driver.begin_part()?;
        let made = job.run(self.driver.sql(), &self.place)?;
        failpoint!("writer: after a transaction");
        // A full disk ends the whole transaction, with the part.
        if !self.driver.is_open() {
            let reason = "the database undid the transactions of this commit; the disk may be full";
            return Err(SqlError::Failed(reason.to_owned()));
        }
        self.driver.end_part(made)
    }

    fn undo(&mut self) {
        if self.driver.is_open()
            && let Err(error) = self.driver.undo()
        {
            tracing::warn!(place = %self.place, ?error, "undoing a group of transactions failed");
        }
    }
}
