//! Participations, heads, costs and certificates in the file of the device: written ahead, and never forgotten.

use rusqlite::{OptionalExtension, params};
use undertone_protocol::{Digest32, RetryWindow, Signed, Verdict, limits, read, write};
use undertone_text::WordRule;
use zeroize::Zeroizing;

use crate::database::{Database, lost};
use crate::error::{DeviceError, Result};
use crate::examples::ExampleStore;
use crate::keystore::{Counter, KeyStore};
use crate::memory::{Memory, Participation, Progress, Row, StockedKey};

fn code(progress: Progress) -> i64 {
    match progress {
        Progress::Begun => 0,
        Progress::Committed => 1,
        Progress::Ended(verdict) => 10 + i64::from(verdict as i32),
    }
}

fn progress(code: i64) -> Progress {
    match code {
        0 => Progress::Begun,
        1 => Progress::Committed,
        code => {
            let verdict = i32::try_from(code - 10)
                .ok()
                .and_then(|code| Verdict::try_from(code).ok());
            Progress::Ended(verdict.unwrap_or(Verdict::Unspecified))
        }
    }
}

/// Rounds travel as `u64` and are stored as `i64`; a plan has at most `2^40`.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A cost in millionths, rounded up.
fn millionths(rho: f64) -> u64 {
    (rho * 1e6).ceil() as u64
}

impl Database {
    /// Writes a row. When this returns, the row is on the disk, and for a participation the counters of the key store have grown.
    ///
    /// PRIVACY: the row comes before the counter. A crash between them leaves a counter that is too small, which the next opening
    /// mends; the other order would take an honest store for a restored one.
    pub(crate) fn persist(&self, row: &Row, keystore: &mut dyn KeyStore, cache_bytes: u64) -> Result<()> {
        match row {
            Row::Head { task, round, chain } => {
                self.connection.execute(
                    "INSERT INTO heads (task, round, chain) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET round = excluded.round, chain = excluded.chain
                     WHERE excluded.round >= heads.round",
                    params![task, integer(*round), chain],
                )?;
                Ok(())
            }
            Row::Stock(keys) => {
                let transaction = self.connection.unchecked_transaction()?;
                keys.iter().try_for_each(|key| self.put_key(key))?;
                transaction.commit()?;
                Ok(())
            }
            Row::Blob { digest, bytes } => self.keep_blob(digest, bytes, cache_bytes),
            Row::PlanBackoff { plan, until_ms } => {
                self.connection.execute(
                    "INSERT INTO plan_backoff (plan, until_ms) VALUES (?1, ?2)
                     ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms",
                    params![plan, integer(*until_ms)],
                )?;
                Ok(())
            }
            Row::Participation { row, rho, key } => {
                let transaction = self.connection.unchecked_transaction()?;
                transaction.execute(
                    "INSERT INTO participation (task, round, attempt, at_ms, progress) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![
                        row.task,
                        integer(row.round),
                        row.attempt,
                        integer(row.at_ms),
                        code(row.progress)
                    ],
                )?;
                let before: Option<f64> = transaction
                    .query_row("SELECT rho FROM spent WHERE task = ?1", [row.task], |row| {
                        row.get(0)
                    })
                    .optional()?;
                let before = before.unwrap_or(0.0);
                transaction.execute(
                    "INSERT INTO spent (task, rho) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET rho = excluded.rho",
                    params![row.task, rho.max(before)],
                )?;
                if let Some(key) = key {
                    transaction.execute("DELETE FROM stock WHERE public = ?1", [key])?;
                }
                let counters = [
                    (Counter::Participations, 1),
                    (Counter::Cost, millionths((rho - before).max(0.0))),
                ];
                let mut raised = Vec::new();
                for (counter, more) in counters {
                    let value = self.number(counter.name())?.saturating_add(more);
                    self.set_number(counter.name(), value)?;
                    raised.push((counter, value));
                }
                transaction.commit()?;
                raised
                    .into_iter()
                    .try_for_each(|(counter, value)| keystore.raise(counter, value))
            }
            Row::Progress {
                task,
                round,
                attempt,
                progress,
            } => {
                self.connection.execute(
                    "UPDATE participation SET progress = ?4 WHERE task = ?1 AND round = ?2 AND attempt = ?3",
                    params![task, integer(*round), attempt, code(*progress)],
                )?;
                Ok(())
            }
        }
    }

    fn put_key(&self, key: &StockedKey) -> Result<()> {
        let sealed = self.seal("stock", &key.public, key.seed.as_ref())?;
        self.connection.execute(
            "INSERT INTO stock (public, not_after_ms, sealed, certificate) VALUES (?1, ?2, ?3, ?4)",
            params![
                key.public,
                integer(key.not_after_ms),
                sealed,
                write(&key.certificate)
            ],
        )?;
        Ok(())
    }

    /// The certificate of the device, which names a subject and is therefore sealed.
    pub(crate) fn put_certificate(&self, certificate: &Signed) -> Result<()> {
        let sealed = self.seal("meta", b"certificate", &write(certificate))?;
        self.set_meta("certificate", &sealed)
    }

    /// The window after the last session that reached the service.
    pub(crate) fn put_window(&self, window: &RetryWindow) -> Result<()> {
        self.set_number("window_min_ms", window.min_ms)?;
        self.set_number("window_max_ms", window.max_ms)
    }

    fn window(&self) -> Result<Option<RetryWindow>> {
        let window = RetryWindow::between(self.number("window_min_ms")?, self.number("window_max_ms")?);
        Ok((window.max_ms > 0).then_some(window))
    }

    /// Everything that a session decides by. Session keys that have expired are deleted.
    pub(crate) fn memory(&self, examples: &ExampleStore<'_>) -> Result<Memory> {
        let certificate = match self.meta("certificate")? {
            None => None,
            Some(sealed) => {
                let bytes = self.unseal("meta", b"certificate", &sealed)?;
                Some(read("the certificate", &bytes, limits::MAX_MESSAGE)?)
            }
        };
        let (training_examples, withheld_examples) = examples.counts()?;
        let english_examples = Some(examples.counts_by(WordRule::English)?);
        let sure = integer(self.sure_ms(examples.now_ms)?);
        self.connection
            .execute("DELETE FROM plan_backoff WHERE until_ms <= ?1", [sure])?;
        self.connection
            .execute("DELETE FROM stock WHERE not_after_ms <= ?1", [sure])?;
        let mut memory = Memory {
            trusted_from_ms: self.number("trusted_from_ms")?,
            latest_ms: self.number("latest_ms")?,
            lost: self.number(lost(Counter::Participations))?,
            lost_rho: self.number(lost(Counter::Cost))? as f64 / 1e6,
            participations: self.participations()?,
            certificate,
            stock: self.stock()?,
            training_examples,
            withheld_examples,
            english_examples,
            window: self.window()?,
            ..Memory::default()
        };
        let mut statement = self.connection.prepare("SELECT task, round, chain FROM heads")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let round: i64 = row.get(1)?;
            memory
                .heads
                .insert(row.get(0)?, (round.unsigned_abs(), row.get(2)?));
        }
        let mut statement = self
            .connection
            .prepare("SELECT plan, until_ms FROM plan_backoff")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let until: i64 = row.get(1)?;
            memory.plan_backoff.insert(row.get(0)?, until.unsigned_abs());
        }
        let mut statement = self.connection.prepare("SELECT task, rho FROM spent")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            memory.spent.insert(row.get(0)?, row.get(1)?);
        }
        Ok(memory)
    }

    /// All participations, in the order in which they began.
    pub(crate) fn participations(&self) -> Result<Vec<Participation>> {
        let mut statement = self
            .connection
            .prepare("SELECT task, round, attempt, at_ms, progress FROM participation ORDER BY seq")?;
        let rows = statement.query_map([], |row| {
            let (round, at): (i64, i64) = (row.get(1)?, row.get(3)?);
            Ok(Participation {
                task: row.get(0)?,
                round: round.unsigned_abs(),
                attempt: row.get(2)?,
                at_ms: at.unsigned_abs(),
                progress: progress(row.get(4)?),
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn stock(&self) -> Result<Vec<StockedKey>> {
        let mut statement = self.connection.prepare(
            "SELECT public, not_after_ms, sealed, certificate FROM stock ORDER BY not_after_ms, public",
        )?;
        let mut rows = statement.query([])?;
        let mut stock = Vec::new();
        while let Some(row) = rows.next()? {
            let (public, not_after): (Digest32, i64) = (row.get(0)?, row.get(1)?);
            let (sealed, certificate): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
            let plain = self.unseal("stock", &public, &sealed)?;
            let seed: [u8; 32] = plain[..].try_into().map_err(|_| DeviceError::Sealed("stock"))?;
            stock.push(StockedKey {
                seed: Zeroizing::new(seed),
                public,
                certificate: read("a session certificate", &certificate, limits::MAX_MESSAGE)?,
                not_after_ms: not_after.unsigned_abs(),
            });
        }
        Ok(stock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::ExampleCaps;
    use crate::keystore::MemoryKeyStore;

    fn memory(database: &Database) -> Memory {
        let examples = ExampleStore {
            database,
            caps: ExampleCaps::default(),
            now_ms: 50,
        };
        database.memory(&examples).unwrap()
    }

    fn participation(round: u64) -> Row {
        Row::Participation {
            row: Participation {
                task: [1; 32],
                round,
                attempt: 0,
                at_ms: 100 + round,
                progress: Progress::Begun,
            },
            rho: 0.25,
            key: None,
        }
    }

    #[test]
    fn rows_come_back_as_the_memory_that_applied_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let key = |public: u8| StockedKey {
            seed: Zeroizing::new([public; 32]),
            public: [public; 32],
            certificate: Signed {
                body: vec![public],
                ..Signed::default()
            },
            not_after_ms: 1000 + u64::from(public),
        };
        let with_key = Row::Participation {
            row: Participation {
                task: [2; 32],
                round: 9,
                attempt: 3,
                at_ms: 7,
                progress: Progress::Begun,
            },
            rho: 0.5,
            key: Some([8; 32]),
        };
        let rows = [
            Row::Head {
                task: [1; 32],
                round: 4,
                chain: [7; 32],
            },
            Row::Head {
                task: [1; 32],
                round: 5,
                chain: [8; 32],
            },
            Row::Stock(vec![key(8), key(9)]),
            participation(4),
            with_key,
            Row::PlanBackoff {
                plan: [6; 32],
                until_ms: 500,
            },
            Row::Progress {
                task: [1; 32],
                round: 4,
                attempt: 0,
                progress: Progress::Ended(Verdict::Included),
            },
        ];
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        let mut expected = memory(&database);
        for row in &rows {
            database.persist(row, &mut keys, 0).unwrap();
            expected.apply(row);
        }
        drop(database);
        let database = Database::open(folder.path(), "p", &mut keys, 60).unwrap();
        let found = memory(&database);
        assert_eq!(found.participations, expected.participations);
        assert_eq!((found.heads, found.spent), (expected.heads, expected.spent));
        assert_eq!(
            (found.latest_ms, found.plan_backoff),
            (expected.latest_ms, expected.plan_backoff)
        );
        let stock = |memory: &Memory| -> Vec<_> {
            let all = memory.stock.iter();
            all.map(|key| (*key.seed, key.public, key.certificate.clone(), key.not_after_ms))
                .collect()
        };
        assert_eq!(found.stock.len(), 1);
        assert!(stock(&memory(&database)) == stock(&expected_stock(expected.stock)));
        assert_eq!(keys.counter(Counter::Participations).unwrap(), 2);
    }

    fn expected_stock(stock: Vec<StockedKey>) -> Memory {
        Memory {
            stock,
            ..Memory::default()
        }
    }

    /// A backup of the folder is put back after two more participations.
    #[test]
    fn a_restored_store_waits_again_and_counts_what_it_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (live, backup) = (folder.path().join("live"), folder.path().join("backup"));
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(&live, "p", &mut keys, 10).unwrap();
        database.persist(&participation(1), &mut keys, 0).unwrap();
        drop(database);
        std::fs::create_dir(&backup).unwrap();
        let copy = |from: &std::path::Path, to: &std::path::Path| {
            std::fs::copy(from.join("device.sqlite"), to.join("device.sqlite")).unwrap()
        };
        copy(&live, &backup);
        let database = Database::open(&live, "p", &mut keys, 20).unwrap();
        assert_eq!(
            (memory(&database).trusted_from_ms, memory(&database).lost),
            (10, 0)
        );
        for round in [2, 3] {
            database.persist(&participation(round), &mut keys, 0).unwrap();
        }
        drop(database);
        copy(&backup, &live);
        let database = Database::open(&live, "p", &mut keys, 30).unwrap();
        let restored = memory(&database);
        assert_eq!((restored.trusted_from_ms, restored.lost), (30, 2));
        assert_eq!(restored.count(&[1; 32]), 3);
        assert_eq!(
            restored.lost_rho.to_bits(),
            0f64.to_bits(),
            "the task's cost was in the backup"
        );
        drop(database);
        // It is noticed once, and a new participation does not hide it.
        let database = Database::open(&live, "p", &mut keys, 40).unwrap();
        database.persist(&participation(4), &mut keys, 0).unwrap();
        let again = memory(&database);
        assert_eq!((again.trusted_from_ms, again.count(&[1; 32])), (30, 4));
        drop(database);
        // The whole folder is gone, and the key store is not.
        std::fs::remove_file(live.join("device.sqlite")).unwrap();
        let _ = std::fs::remove_file(live.join("device.sqlite-wal"));
        let database = Database::open(&live, "p", &mut keys, 50).unwrap();
        let gone = memory(&database);
        assert_eq!(gone.count(&[1; 32]), 4);
        assert!(
            (gone.cost_with(&[9; 32], 0.5) - 0.75).abs() < 1e-5,
            "what was spent stays spent"
        );
    }

    #[test]
    fn a_crash_between_row_and_counter_is_mended_and_is_no_restored_store() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 10).unwrap();
        /// A store whose counter cannot be raised.
        struct Stuck<'a>(&'a mut MemoryKeyStore);
        impl KeyStore for Stuck<'_> {
            fn key(&mut self, name: &'static str) -> Result<crate::keystore::SecretKey> {
                self.0.key(name)
            }
            fn counter(&mut self, counter: Counter) -> Result<u64> {
                self.0.counter(counter)
            }
            fn raise(&mut self, _: Counter, _: u64) -> Result<()> {
                Err(DeviceError::KeyStore("stuck".to_owned()))
            }
            fn forget(&mut self) -> Result<()> {
                self.0.forget()
            }
        }
        assert!(
            database
                .persist(&participation(1), &mut Stuck(&mut keys), 0)
                .is_err()
        );
        drop(database);
        let database = Database::open(folder.path(), "p", &mut keys, 20).unwrap();
        let mended = memory(&database);
        assert_eq!(
            (mended.trusted_from_ms, mended.lost, mended.count(&[1; 32])),
            (10, 0, 1)
        );
        assert_eq!(keys.counter(Counter::Participations).unwrap(), 1);
    }

    #[test]
    fn progress_has_one_code_each() {
        let all = [
            Progress::Begun,
            Progress::Committed,
            Progress::Ended(Verdict::Included),
            Progress::Ended(Verdict::Late),
            Progress::Ended(Verdict::Abandoned),
        ];
        for each in all {
            assert_eq!(progress(code(each)), each);
        }
    }

    #[test]
    fn a_head_never_falls() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 10).unwrap();
        let head = |round| Row::Head {
            task: [1; 32],
            round,
            chain: [7; 32],
        };
        database.persist(&head(5), &mut keys, 0).unwrap();
        database.persist(&head(3), &mut keys, 0).unwrap();
        assert_eq!(memory(&database).heads[&[1; 32]].0, 5);
    }
}
