//! Text grouped by user on disk, for corpora that do not fit in memory.
//!
//! A folder holds Parquet shards (zstd; rows of a user contiguous, by time or in the order of the source), `users.index` (32
//! bytes per user, mapped) and `manifest.json`. Users are in the order of a hash of their names, which is as good as random but
//! is the same in every build. Pages hold 256 rows, and the Parquet page index says where each begins, so that the rows of
//! one user are read without those of the others around.

mod build;
mod grouper;
mod index;
mod manifest;
mod read;
mod shard;
mod spill;
mod stream;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use read::OpenShard;

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Result, bad_grouped};
use crate::hash::{hash_bytes, hex};
use index::{UserEntry, UserIndex, hash_user};
use undertone_settings::TimeUnit;

pub use build::{GroupOptions, group};
pub use grouper::{GroupedRow, Grouper, GrouperOptions};
pub use manifest::{GroupedManifest, Shard};
pub use read::UserRows;
pub use stream::{StreamOptions, UserStream};

/// An opened folder of grouped text. Shards are opened when they are first read.
///
/// The user index is memory-mapped: no other program may write or truncate the files of the folder while it is open.
///
/// # Example
/// ```
/// use undertone_data::{GroupOptions, Grouped, NoProgress, StreamOptions};
/// use undertone_settings::{SourceSpec, SyntheticSource};
///
/// let folder = tempfile::tempdir()?;
/// let source = SourceSpec::Synthetic(SyntheticSource { users: 50, ..SyntheticSource::default() });
/// let options = GroupOptions { memory: 64 << 20, split: None, public: false, overwrite: false };
/// let path = folder.path().join("grouped");
/// undertone_data::group(&source, folder.path(), &path, &options, &NoProgress)?;
///
/// let grouped = Grouped::open(&path)?;
/// assert_eq!(grouped.num_users(), 50);
/// let mut rows = 0;
/// for user in grouped.stream(7, &StreamOptions::default()) {
///     rows += user?.len() as u64;
/// }
/// assert_eq!(rows, grouped.num_rows());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Grouped {
    folder: PathBuf,
    manifest: GroupedManifest,
    digest: String,
    index: UserIndex,
    shards: Vec<OnceLock<OpenShard>>,
}

impl Grouped {
    /// Opens a folder that [`group`] wrote. The manifest, the index and the sizes of the shards are checked; the shards' own
    /// contents where they are read.
    ///
    /// # Errors
    /// [`DataError::BadGrouped`] for a folder of another kind or a damaged one, [`DataError::Io`].
    pub fn open(folder: &Path) -> Result<Grouped> {
        let (manifest, bytes) = GroupedManifest::read(folder)?;
        let index = UserIndex::open(
            &folder.join(manifest::INDEX),
            &manifest.index_sha256,
            manifest.users,
        )?;
        let grouped = Grouped {
            folder: folder.to_owned(),
            digest: hex(&hash_bytes(&bytes)),
            index,
            shards: manifest.shards.iter().map(|_| OnceLock::new()).collect(),
            manifest,
        };
        grouped.check_entries()?;
        Ok(grouped)
    }

    /// Entries cover every row of every shard, once and in order.
    fn check_entries(&self) -> Result<()> {
        if self.num_users() > u32::MAX as usize {
            return Err(self.bad(format!("expected at most 2^32 users, got {}", self.num_users())));
        }
        let mut at = (0, 0);
        for entry in self.entries() {
            let here = (entry.shard, entry.first_row);
            let shard = self.manifest.shards.get(entry.shard as usize);
            let end = entry.first_row.checked_add(entry.rows);
            let next = shard.zip(end).and_then(|(shard, end)| match end {
                end if end < shard.rows => Some((entry.shard, end)),
                end if end == shard.rows => Some((entry.shard + 1, 0)),
                _ => None,
            });
            match next.filter(|_| here == at && entry.rows > 0) {
                Some(next) => at = next,
                None => return Err(self.bad("its index does not cover its shards".to_owned())),
            }
        }
        match at == (self.shards.len() as u32, 0) {
            true => Ok(()),
            false => Err(self.bad("its index does not cover its shards".to_owned())),
        }
    }

    /// The manifest of the folder.
    #[must_use]
    pub fn manifest(&self) -> &GroupedManifest {
        &self.manifest
    }

    /// SHA-256 of the manifest, which holds the digests of all other files.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Number of users.
    #[must_use]
    pub fn num_users(&self) -> usize {
        self.entries().len()
    }

    /// Number of rows of all users.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.manifest.rows
    }

    /// The number of rows per user, by index. Reading it reads no text.
    #[must_use]
    pub fn user_sizes(&self) -> impl ExactSizeIterator<Item = u64> {
        self.entries().iter().map(|entry| entry.rows)
    }

    /// Index of the user of this name, if there is one.
    ///
    /// # Errors
    /// From reading the shard: the index holds hashes, so the name itself is compared there.
    pub fn find(&self, name: &str) -> Result<Option<usize>> {
        let hash = hash_user(name);
        let first = self.entries().partition_point(|entry| entry.hash < hash);
        for index in first..self.num_users() {
            if self.entries()[index].hash != hash {
                break;
            }
            if self.name(index)? == name {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn entries(&self) -> &[UserEntry] {
        self.index.entries()
    }

    fn bad(&self, detail: String) -> DataError {
        bad_grouped(&self.folder, detail)
    }

    /// The shards' paths and the columns they have, for reading everything in order.
    pub(crate) fn files(folder: &Path) -> Result<(Vec<PathBuf>, Columns<'static>, String)> {
        let (manifest, bytes) = GroupedManifest::read(folder)?;
        let files = manifest.shards.iter().map(|shard| folder.join(&shard.file));
        let columns = Columns {
            user: Some(shard::USER),
            text: shard::TEXT,
            time: manifest.has_time.then_some(shard::TIME),
            split: manifest.has_split.then_some(shard::SPLIT),
            // They were judged when the folder was written.
            time_unit: Some(TimeUnit::Seconds),
            keys: Keys::SOURCE,
        };
        Ok((files.collect(), columns, hex(&hash_bytes(&bytes))))
    }
}
