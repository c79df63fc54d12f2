//! The SQLite file of a device, its sealed columns and its cache of blobs.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};
use undertone_protocol::{Digest32, digest_of};
use zeroize::Zeroizing;

use crate::error::{DeviceError, Result};
use crate::keystore::{
    Counter, KeyStore, SecretKey, fresh, make_private_folder, overwrite, sync_folder, write_private,
};
use crate::memory::PLAN_BACKOFF;

/// The version of the tables. A change of them adds a migration and raises it.
const SCHEMA: i64 = 3;

const TABLES: &str = "
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
-- Texts of the person, sealed under the key `examples` of the key store.
CREATE TABLE examples (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,          -- when the text was collected
    expires_ms INTEGER NOT NULL,     -- when it is deleted
    withheld INTEGER NOT NULL,       -- 1 if evaluations alone may read it
    bytes INTEGER NOT NULL,          -- length of the text
    examples INTEGER NOT NULL,       -- number of sentences that can be examples by the rule of English
    sealed BLOB NOT NULL,
    broadest INTEGER                 -- their number by the broadest rule; NULL for texts that were not counted by it
);
CREATE INDEX examples_by_age ON examples (withheld, at_ms);
CREATE TABLE participation (
    seq INTEGER PRIMARY KEY,
    task BLOB NOT NULL,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    progress INTEGER NOT NULL        -- 0 begun, 1 committed, 10 + verdict at the end
);
-- The highest round of each task that was offered, with the head of its ledger.
CREATE TABLE heads (
    task BLOB PRIMARY KEY,
    round INTEGER NOT NULL,
    chain BLOB NOT NULL
) WITHOUT ROWID;
-- The planned cost (zCDP) of each task that the device took part in.
CREATE TABLE spent (
    task BLOB PRIMARY KEY,
    rho REAL NOT NULL
) WITHOUT ROWID;
-- Session keys that were not used, sealed.
CREATE TABLE stock (
    public BLOB PRIMARY KEY,
    not_after_ms INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    certificate BLOB NOT NULL
) WITHOUT ROWID;
-- Plans whose training used up its processor time.
CREATE TABLE plan_backoff (
    plan BLOB PRIMARY KEY,
    until_ms INTEGER NOT NULL
) WITHOUT ROWID;
-- Blobs in files of the folder `cache`, named by their digests.
CREATE TABLE cache (
    digest BLOB PRIMARY KEY,
    bytes INTEGER NOT NULL,
    used INTEGER NOT NULL            -- a number that grows with each use
) WITHOUT ROWID;
";

const NONCE: usize = 12;
const TAG: usize = 16;

/// The open file of one device.
pub(crate) struct Database {
    pub(crate) connection: Connection,
    folder: PathBuf,
    cipher: Aes256Gcm,
    /// The cipher's key, for values that only need a keyed digest.
    key: SecretKey,
}

impl Database {
    /// Opens the file of a folder, or makes it. `now_ms` is the time from which a new file is trusted.
    ///
    /// PRIVACY: a file that lacks participations which the key store has counted is a restored one. It is trusted from
    /// now on. The missing participations count for every task, and their cost stays spent.
    pub(crate) fn open(
        folder: &Path,
        population: &str,
        keystore: &mut dyn KeyStore,
        now_ms: u64,
    ) -> Result<Self> {
        make_private_folder(folder)?;
        make_private_folder(&folder.join("cache"))?;
        let path = folder.join("device.sqlite");
        create_private(&path)?;
        let key = keystore.key("examples")?;
        let connection = Connection::open(&path)?;
        let busy = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                DeviceError::Busy(folder.to_owned())
            }
            _ => error.into(),
        };
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(busy)?;
        // PRIVACY: a row is on the disk before the call returns, and a deleted row is overwritten.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "secure_delete", "ON")?;
        connection
            .execute_batch("BEGIN EXCLUSIVE; COMMIT;")
            .map_err(busy)?;
        let database = Self {
            connection,
            folder: folder.to_owned(),
            cipher: Aes256Gcm::new((&*key).into()),
            key,
        };
        database.check_schema(population, now_ms)?;
        database.check_counters(keystore, now_ms)?;
        Ok(database)
    }

    fn check_schema(&self, population: &str, now_ms: u64) -> Result<()> {
        let got: i64 = self
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))?;
        let key_id = self.keyed_digest(b"key-id", &[]);
        match got {
            0 => {
                let transaction = self.connection.unchecked_transaction()?;
                transaction.execute_batch(TABLES)?;
                transaction.pragma_update(None, "user_version", SCHEMA)?;
                self.set_meta("population", population.as_bytes())?;
                self.set_meta("key", &key_id)?;
                self.set_number("created_ms", now_ms)?;
                self.set_number("trusted_from_ms", now_ms)?;
                self.set_number("latest_ms", now_ms)?;
                transaction.commit()?;
                return Ok(());
            }
            1 | 2 => {
                let transaction = self.connection.unchecked_transaction()?;
                if got == 1 {
                    // Version 1 counted examples by the rule of English alone.
                    transaction.execute_batch("ALTER TABLE examples ADD COLUMN broadest INTEGER;")?;
                }
                transaction.execute_batch("ALTER TABLE dear RENAME TO plan_backoff;")?;
                transaction.pragma_update(None, "user_version", SCHEMA)?;
                transaction.commit()?;
            }
            SCHEMA => {}
            got => {
                return Err(DeviceError::Schema {
                    expected: SCHEMA,
                    got,
                });
            }
        }
        if self.meta("key")?.as_deref() != Some(&key_id[..]) {
            return Err(DeviceError::OtherKey);
        }
        let stored = self.meta("population")?.unwrap_or_default();
        if stored != population.as_bytes() {
            let expected = format!("`{}`, that of the folder", String::from_utf8_lossy(&stored));
            return Err(DeviceError::value("the population", expected, population));
        }
        Ok(())
    }

    /// Compares the file with the counters of the key store.
    fn check_counters(&self, keystore: &mut dyn KeyStore, now_ms: u64) -> Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut restored = false;
        for counter in [Counter::Participations, Counter::Cost] {
            let (stored, kept) = (self.number(counter.name())?, keystore.counter(counter)?);
            if kept <= stored {
                // A crash between the row and the counter leaves the counter behind.
                keystore.raise(counter, stored)?;
                continue;
            }
            restored = true;
            let lost = lost(counter);
            self.set_number(lost, self.number(lost)?.saturating_add(kept - stored))?;
            self.set_number(counter.name(), kept)?;
        }
        if restored {
            self.set_number("trusted_from_ms", now_ms)?;
            tracing::warn!("the store of this device is an older copy; it waits before it takes part again");
        }
        transaction.commit()?;
        Ok(())
    }

    pub(crate) fn meta(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let found = self
            .connection
            .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
            .optional()?;
        Ok(found)
    }

    pub(crate) fn set_meta(&self, name: &str, value: &[u8]) -> Result<()> {
        self.connection.execute(
            "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value",
            params![name, value],
        )?;
        Ok(())
    }

    /// A number of the table `meta`; 0 where there is none.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        let bytes = self.meta(name)?.unwrap_or_default();
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    pub(crate) fn set_number(&self, name: &str, value: u64) -> Result<()> {
        self.set_meta(name, &value.to_le_bytes())
    }

    /// Notes a time that a signed board has confirmed, as [`Memory::confirm`](crate::memory::Memory::confirm) does.
    pub(crate) fn confirm(&self, now_ms: u64) -> Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        self.set_number("latest_ms", now_ms)?;
        self.set_number("trusted_from_ms", self.number("trusted_from_ms")?.min(now_ms))?;
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let plan_backoff = i64::try_from(now_ms.saturating_add(PLAN_BACKOFF)).unwrap_or(i64::MAX);
        transaction.execute("UPDATE participation SET at_ms = ?1 WHERE at_ms > ?1", [now])?;
        transaction.execute(
            "UPDATE plan_backoff SET until_ms = ?1 WHERE until_ms > ?1",
            [plan_backoff],
        )?;
        Ok(transaction.commit()?)
    }

    /// The latest time that a signed board has confirmed, but not more than that of the clock. Rows are deleted by it: a clock that is
    /// wrong deletes nothing.
    pub(crate) fn sure_ms(&self, now_ms: u64) -> Result<u64> {
        Ok(self.number("latest_ms")?.min(now_ms))
    }

    /// A digest that nobody without the key can compute.
    pub(crate) fn keyed_digest(&self, label: &[u8], bytes: &[u8]) -> Digest32 {
        let mut hash = Sha256::new();
        for part in [b"undertone/1/device".as_slice(), &*self.key, label, bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Seals bytes for a table, with a fresh nonce in front. `bound` must be the same when they are opened.
    pub(crate) fn seal(&self, table: &'static str, bound: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
        let random = fresh()?;
        let mut nonce = [0; NONCE];
        nonce.copy_from_slice(&random[..NONCE]);
        let mut text = Zeroizing::new(plain.to_vec());
        let tag = self
            .cipher
            .encrypt_inout_detached(
                &Nonce::from(nonce),
                &label(table, bound),
                text.as_mut_slice().into(),
            )
            .map_err(|_| DeviceError::Sealed(table))?;
        Ok([&nonce[..], &text, &tag].concat())
    }

    /// Opens sealed bytes.
    pub(crate) fn unseal(
        &self,
        table: &'static str,
        bound: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let failed = || DeviceError::Sealed(table);
        let (nonce, rest) = sealed.split_first_chunk::<NONCE>().ok_or_else(failed)?;
        let (text, tag) = rest.split_last_chunk::<TAG>().ok_or_else(failed)?;
        let mut plain = Zeroizing::new(text.to_vec());
        self.cipher
            .decrypt_inout_detached(
                &Nonce::from(*nonce),
                &label(table, bound),
                plain.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| failed())?;
        Ok(plain)
    }

    fn cached(&self, digest: &Digest32) -> PathBuf {
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join("cache").join(name)
    }

    /// A blob of the cache, if it is there unchanged.
    pub(crate) fn blob(&self, digest: &Digest32) -> Result<Option<Vec<u8>>> {
        let bytes: Option<i64> = self
            .connection
            .query_row(
                "UPDATE cache SET used = 1 + (SELECT max(used) FROM cache) WHERE digest = ?1 RETURNING bytes",
                [digest],
                |row| row.get(0),
            )
            .optional()?;
        let path = self.cached(digest);
        let Some(length) = bytes.and_then(|bytes| u64::try_from(bytes).ok()) else {
            return Ok(None);
        };
        let fits = fs::metadata(&path).is_ok_and(|found| found.len() == length);
        let found = fits
            .then(|| fs::read(&path).ok())
            .flatten()
            .filter(|found| digest_of(found) == *digest);
        if found.is_none() {
            self.connection
                .execute("DELETE FROM cache WHERE digest = ?1", [digest])?;
        }
        Ok(found)
    }

    /// Puts a blob into the cache, and deletes the ones that were used longest ago beyond `max_bytes`.
    pub(crate) fn keep_blob(&self, digest: &Digest32, bytes: &[u8], max_bytes: u64) -> Result<()> {
        if bytes.len() as u64 > max_bytes {
            return Ok(());
        }
        write_private(&self.folder.join("cache"), &self.cached(digest), bytes)?;
        self.connection.execute(
            "INSERT INTO cache (digest, bytes, used) VALUES (?1, ?2, 1 + ifnull((SELECT max(used) FROM cache), 0))
             ON CONFLICT DO UPDATE SET used = excluded.used",
            params![digest, bytes.len() as i64],
        )?;
        loop {
            let total: i64 =
                self.connection
                    .query_row("SELECT ifnull(sum(bytes), 0) FROM cache", [], |row| row.get(0))?;
            if u64::try_from(total).unwrap_or(u64::MAX) <= max_bytes {
                return Ok(());
            }
            let oldest: Digest32 = self.connection.query_row(
                "DELETE FROM cache WHERE digest = (SELECT digest FROM cache ORDER BY used LIMIT 1) RETURNING digest",
                [],
                |row| row.get(0),
            )?;
            let path = self.cached(&oldest);
            fs::remove_file(&path).map_err(|source| DeviceError::io("delete", &path, source))?;
        }
    }

    /// Deletes the whole folder.
    pub(crate) fn forget(self) -> Result<()> {
        let Self {
            connection, folder, ..
        } = self;
        connection.close().map_err(|(_, error)| error)?;
        for name in ["device.sqlite", "device.sqlite-wal", "device.sqlite-shm"] {
            let path = folder.join(name);
            if path.exists() {
                overwrite(&path);
                fs::remove_file(&path).map_err(|source| DeviceError::io("delete", &path, source))?;
            }
        }
        let cache = folder.join("cache");
        fs::remove_dir_all(&cache).map_err(|source| DeviceError::io("delete", &cache, source))?;
        sync_folder(&folder)
    }
}

/// The name of the number in `meta` that holds how far a restored store was behind a counter, over all restorations.
pub(crate) fn lost(counter: Counter) -> &'static str {
    match counter {
        Counter::Participations => "lost_participations",
        Counter::Cost => "lost_cost",
    }
}

/// The bytes that a sealed value is bound to: its table and its place in it.
fn label(table: &str, bound: &[u8]) -> Vec<u8> {
    [b"undertone/1/sealed/", table.as_bytes(), b"\0", bound].concat()
}

/// Makes an empty file that only its owner can read. SQLite gives its other files the same mode.
fn create_private(path: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
        .open(path)
        .map(drop)
        .map_err(|source| DeviceError::io("open", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{ExampleCaps, ExampleStore};
    use crate::keystore::MemoryKeyStore;

    #[test]
    fn a_sealed_value_opens_at_its_place_alone_and_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        let sealed = database.seal("examples", b"1", b"a text").unwrap();
        assert_eq!(*database.unseal("examples", b"1", &sealed).unwrap(), b"a text");
        assert!(database.unseal("examples", b"2", &sealed).is_err());
        assert!(database.unseal("stock", b"1", &sealed).is_err());
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(database.unseal("examples", b"1", &changed).is_err(), "{place}");
            assert!(
                database.unseal("examples", b"1", &sealed[..place]).is_err(),
                "{place}"
            );
        }
        assert_ne!(
            sealed,
            database.seal("examples", b"1", b"a text").unwrap(),
            "a nonce serves once"
        );
    }

    #[test]
    #[ignore = "slow"]
    fn a_folder_opens_once_with_its_own_key_and_population() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let open = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        assert!(matches!(
            Database::open(folder.path(), "p", &mut keys, 1),
            Err(DeviceError::Busy(_))
        ));
        drop(open);
        assert!(Database::open(folder.path(), "p", &mut keys, 1).is_ok());
        assert!(Database::open(folder.path(), "q", &mut keys, 1).is_err());
        let mut others = MemoryKeyStore::default();
        assert!(matches!(
            Database::open(folder.path(), "p", &mut others, 1),
            Err(DeviceError::OtherKey)
        ));
    }

    #[test]
    fn a_store_of_the_first_schema_keeps_its_texts_and_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        database
            .connection
            .execute_batch(
                "ALTER TABLE examples DROP COLUMN broadest; ALTER TABLE plan_backoff RENAME TO dear; PRAGMA user_version = 1;
                 INSERT INTO examples (at_ms, expires_ms, withheld, bytes, examples, sealed)
                 VALUES (1, 900, 0, 4, 3, x'00'), (1, 900, 1, 4, 2, x'00');",
            )
            .unwrap();
        drop(database);
        for _ in 0..2 {
            let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
            let store = ExampleStore {
                database: &database,
                caps: ExampleCaps::default(),
                now_ms: 1,
            };
            assert_eq!(store.counts().unwrap(), (3, 2));
        }
    }

    #[test]
    fn a_store_of_the_second_schema_keeps_the_plans_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        let old = "ALTER TABLE plan_backoff RENAME TO dear; PRAGMA user_version = 2; INSERT INTO dear VALUES (x'01', 7);";
        database.connection.execute_batch(old).unwrap();
        drop(database);
        for _ in 0..2 {
            let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
            let kept = database
                .connection
                .query_row("SELECT until_ms FROM plan_backoff", [], |row| {
                    row.get::<_, i64>(0)
                });
            assert_eq!(kept.unwrap(), 7);
        }
    }

    #[test]
    fn another_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        database
            .connection
            .pragma_update(None, "user_version", 99)
            .unwrap();
        drop(database);
        assert!(matches!(
            Database::open(folder.path(), "p", &mut keys, 1),
            Err(DeviceError::Schema { got: 99, .. })
        ));
    }

    #[test]
    fn the_cache_keeps_the_blobs_that_were_used_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let database = Database::open(folder.path(), "p", &mut keys, 1).unwrap();
        let blobs: Vec<Vec<u8>> = (0..4u8).map(|value| vec![value; 100]).collect();
        let names: Vec<Digest32> = blobs.iter().map(|blob| digest_of(blob)).collect();
        for place in 0..3 {
            database.keep_blob(&names[place], &blobs[place], 300).unwrap();
        }
        assert_eq!(database.blob(&names[0]).unwrap().as_ref(), Some(&blobs[0]));
        database.keep_blob(&names[3], &blobs[3], 300).unwrap();
        let there: Vec<bool> = names
            .iter()
            .map(|name| database.blob(name).unwrap().is_some())
            .collect();
        assert_eq!(there, [true, false, true, true]);
        // A damaged file is no blob.
        fs::write(database.cached(&names[2]), [9; 100]).unwrap();
        assert_eq!(database.blob(&names[2]).unwrap(), None);
    }

    #[cfg(unix)]
    #[test]
    fn no_file_of_the_folder_is_readable_by_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut keys = MemoryKeyStore::default();
        let inner = folder.path().join("inner");
        let database = Database::open(&inner, "p", &mut keys, 1).unwrap();
        database.keep_blob(&digest_of(b"x"), b"x", 10).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o077;
        assert_eq!(mode(&inner), 0);
        for entry in fs::read_dir(&inner).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0);
        }
    }
}
