//! Rows in any order become a grouped folder: divided into files by a hash of their users as they come, then sorted.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use undertone_vocabulary::MadeFromPeople;

use super::index::{IndexWriter, UserEntry, hash_user};
use super::manifest::{FORMAT, GroupedManifest, INDEX, MANIFEST, Shard, VERSION};
use super::shard::{Extra, ShardWriter};
use super::spill::{NO_SPLIT, Spill, SpillRow, SpillWriter, Ties};
use crate::error::{Result, bad_grouped, invalid, io};
use crate::file;
use crate::made_from;
use crate::progress::{Progress, Stage};
use crate::split::Split;
use undertone_settings::time::NO_TIME;

/// Minimum memory of a [`Grouper`], in bytes.
pub(super) const MIN_MEMORY: usize = 16 << 20;
/// Maximum number of partitions: each is a file that is open while rows arrive.
const MAX_PARTITIONS: u64 = 512;
/// Maximum number of shards that are sorted and written at once.
const MAX_WORKERS: usize = 4;
const MIN_BUFFER: usize = 1 << 14;
const MAX_BUFFER: usize = 1 << 18;

/// Options of a [`Grouper`], which describe its input rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrouperOptions {
    /// Rows have a time, and those of a user are ordered by it. A row without a time comes before the others.
    pub has_time: bool,
    /// Every row has a split.
    pub has_split: bool,
    /// The order in which rows come means something: it is kept among rows of a user that have the same time, or no time.
    /// Otherwise their texts order them, so that the same rows in any order give the same bytes.
    pub ordered: bool,
    /// About how many bytes of users and text will come, where that is known. With an estimate there are as many temporary files as
    /// are likely to be needed, without one 512.
    pub expected_bytes: Option<u64>,
    /// Bytes of rows and buffers to hold in memory, at least 16 MiB: a quarter while rows come.
    pub memory: usize,
    /// Declares that the text is public. Otherwise a record in the folder says that it was made from people's text.
    pub public: bool,
    /// Replaces an existing folder.
    pub overwrite: bool,
}

/// A row for a [`Grouper`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupedRow<'a> {
    /// The user of the row.
    pub user: &'a str,
    /// The user's text; may be empty.
    pub text: &'a str,
    /// Unix seconds, if the time is known; ignored unless [`GrouperOptions::has_time`].
    pub time: Option<i64>,
    /// Ignored unless [`GrouperOptions::has_split`].
    pub split: Option<Split>,
}

/// Builds a folder of text grouped by user from rows that come one by one, in bounded memory; [`group`](crate::group) does so with a
/// source. The folder is built beside its place: dropped before [`Grouper::finish`], nothing is left.
///
/// # Example
/// ```
/// use undertone_data::{Grouped, GroupedRow, Grouper, GrouperOptions, NoProgress};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("grouped");
/// let options = GrouperOptions {
///     has_time: false,
///     has_split: false,
///     ordered: true,
///     expected_bytes: Some(100),
///     memory: 16 << 20,
///     public: false,
///     overwrite: false,
/// };
/// let mut grouper = Grouper::create(&path, &options)?;
/// for (user, text) in [("b", "one"), ("a", "two"), ("b", "three")] {
///     grouper.push(&GroupedRow { user, text, time: None, split: None })?;
/// }
/// grouper.finish("an example".to_owned(), &NoProgress)?;
///
/// let grouped = Grouped::open(&path)?;
/// let user = grouped.find("b")?.expect("there is one");
/// assert_eq!(grouped.read_user(user)?.text(1), "three");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Grouper {
    output: PathBuf,
    building: file::FolderBuilder,
    extra: Extra,
    ties: Ties,
    /// The names of the texts of people, if there are some.
    pub(super) people: Option<Vec<String>>,
    overwrite: bool,
    budget: Budget,
    partitions: Vec<SpillWriter>,
    rows: u64,
}

/// Bytes of rows that a worker sorts in memory, and of all buffers before partitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) rows: usize,
    pub(super) buffers: usize,
}

impl Budget {
    pub(super) fn of(memory: usize) -> Result<Budget> {
        if memory < MIN_MEMORY {
            return Err(invalid("memory", format!("at least {MIN_MEMORY} bytes"), memory));
        }
        Ok(Budget {
            // Workers that sort at once hold half of the memory in rows; the rest is the sort's order and what writers have not
            // compressed yet. Not by the threads at hand, so that the shards are the same on every machine.
            rows: memory / (2 * MAX_WORKERS),
            buffers: memory / 4,
        })
    }
}

impl Grouper {
    /// Begins a new folder, which will stand at `output`.
    ///
    /// # Errors
    /// [`DataError::OutputExists`](crate::DataError::OutputExists) unless overwriting is asked for,
    /// [`DataError::BadGrouped`](crate::DataError::BadGrouped) where something else would be
    /// overwritten, [`DataError::Setting`](crate::DataError::Setting) for too little memory,
    /// [`DataError::Io`](crate::DataError::Io).
    pub fn create(output: &Path, options: &GrouperOptions) -> Result<Grouper> {
        Grouper::within(output, options, Budget::of(options.memory)?)
    }

    pub(super) fn within(output: &Path, options: &GrouperOptions, budget: Budget) -> Result<Grouper> {
        refuse_other(output, options.overwrite)?;
        let building = file::FolderBuilder::beside(output)?;
        let partitions = partitions(options.expected_bytes, budget.rows);
        let buffer = (budget.buffers / partitions).clamp(MIN_BUFFER, MAX_BUFFER);
        let partitions = (0..partitions)
            .map(|number| SpillWriter::create(building.path().join(format!("spill-{number:05}")), buffer))
            .collect::<Result<_>>()?;
        Ok(Grouper {
            output: output.to_owned(),
            building,
            extra: Extra {
                time: options.has_time,
                untimed: false,
                split: options.has_split,
            },
            ties: if options.ordered { Ties::Kept } else { Ties::ByText },
            people: (!options.public).then(Vec::new),
            overwrite: options.overwrite,
            budget,
            partitions,
            rows: 0,
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`DataError::Setting`](crate::DataError::Setting) for a row without the split that was promised,
    /// [`DataError::Io`](crate::DataError::Io).
    pub fn push(&mut self, row: &GroupedRow<'_>) -> Result<()> {
        self.push_hashed(hash_user(row.user), row)
    }

    /// Adds a row of a user whose hash is known.
    pub(super) fn push_hashed(&mut self, hash: u64, row: &GroupedRow<'_>) -> Result<()> {
        let promised = |key, expected: &str| {
            invalid(
                key,
                format!("{expected} with every row"),
                format!("row {} without it", self.rows + 1),
            )
        };
        let time = match row.time {
            _ if !self.extra.time => NO_TIME,
            time => time.unwrap_or(NO_TIME),
        };
        self.extra.untimed |= self.extra.time && time == NO_TIME;
        let split = match row.split {
            _ if !self.extra.split => NO_SPLIT,
            Some(split) => split.index() as u32,
            None => return Err(promised("has_split", "a split")),
        };
        // By the leading bits: partitions are ranges of hashes, so the shards together are in their order.
        let partition = ((u128::from(hash) * self.partitions.len() as u128) >> 64) as usize;
        self.rows += 1;
        self.partitions[partition].push(&SpillRow {
            hash,
            user: row.user,
            time,
            split,
            text: row.text,
        })
    }

    /// Number of rows added so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sorts the rows, writes the shards, the index and the manifest, and moves the folder to its place. `source` describes the rows in
    /// the manifest.
    ///
    /// # Errors
    /// [`DataError::Io`](crate::DataError::Io), [`DataError::BadParquet`](crate::DataError::BadParquet), and
    /// [`DataError::OutputExists`](crate::DataError::OutputExists) if something came to stand there meanwhile.
    pub fn finish(self, source: String, progress: &dyn Progress) -> Result<GroupedManifest> {
        let spills = self
            .partitions
            .into_iter()
            .filter_map(|writer| writer.finish().transpose())
            .collect::<Result<_>>()?;
        let spills = Spill::joined(spills, self.budget.rows as u64);
        let done = AtomicU64::new(0);
        let workers = rayon::current_num_threads().clamp(1, MAX_WORKERS);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let pool =
            pool.map_err(|error| io("start threads for", &self.output)(std::io::Error::other(error)))?;
        let (rows, folder) = (self.rows, self.building.path());
        let entries_of = |number: usize| folder.join(format!("users-{number:05}"));
        let shards: Vec<Shard> = pool.install(|| {
            spills
                .into_par_iter()
                .enumerate()
                .map(|(number, spill)| {
                    let mut shard = ShardWriter::create(folder, number as u32, self.extra)?;
                    let mut sorted = 0;
                    spill.sorted(self.budget.rows, self.ties, &mut |row| {
                        sorted += 1_u64;
                        if sorted % 65_536 == 0 {
                            let done = done.fetch_add(65_536, Ordering::Relaxed) + 65_536;
                            progress.update(Stage::Sorting, done.min(rows), Some(rows));
                        }
                        shard.push(row)
                    })?;
                    let (shard, entries) = shard.finish()?;
                    let path = entries_of(number);
                    std::fs::write(&path, bytemuck::cast_slice(&entries))
                        .map_err(io("write a temporary file", &path))?;
                    Ok(shard)
                })
                .collect::<Result<_>>()
        })?;
        progress.update(Stage::Sorting, rows, Some(rows));

        let mut index = IndexWriter::create(&folder.join(INDEX))?;
        for number in 0..shards.len() {
            let path = entries_of(number);
            let bytes = std::fs::read(&path).map_err(io("read a temporary file", &path))?;
            let entries: Vec<UserEntry> = bytemuck::pod_collect_to_vec(&bytes);
            index.push(&entries)?;
            std::fs::remove_file(&path).map_err(io("remove a temporary file", &path))?;
        }
        let manifest = GroupedManifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            rows,
            users: index.users,
            largest_user: index.largest,
            has_time: self.extra.time,
            has_split: self.extra.split,
            source,
            index_sha256: index.finish()?,
            shards,
        };
        let path = folder.join(MANIFEST);
        // Plain data with string keys serialises.
        let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
        file::write(&path, text.as_bytes(), false)?;
        if let Some(people) = self.people {
            made_from::write_beside(&path, &MadeFromPeople::text(people))?;
        }
        self.building.persist(&self.output, self.overwrite)?;
        Ok(manifest)
    }
}

/// Refuses to write where something stands, or where something else than a grouped folder would be replaced.
pub(super) fn refuse_other(output: &Path, overwrite: bool) -> Result<()> {
    file::refuse_existing(output, overwrite)?;
    if output.exists() && !output.join(MANIFEST).exists() {
        let detail = format!("it has no {MANIFEST}, so it is not replaced");
        return Err(bad_grouped(output, detail));
    }
    Ok(())
}

/// The number of partitions, so that one of them is likely to fit in a worker's part of the memory: a third more than needed.
fn partitions(bytes: Option<u64>, part: usize) -> usize {
    let wanted = bytes.map_or(MAX_PARTITIONS, |bytes| (bytes + bytes / 3).div_ceil(part as u64));
    wanted.clamp(1, MAX_PARTITIONS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_fit_or_are_as_many_as_can_be_open() {
        assert_eq!(partitions(Some(0), 1 << 20), 1);
        assert_eq!(partitions(Some(3 << 20), 1 << 20), 4);
        assert_eq!(partitions(Some(5 << 30), 128 << 20), 54);
        assert_eq!(partitions(Some(u64::MAX / 4), 1 << 20), 512);
        assert_eq!(partitions(None, 1 << 30), 512);
    }
}
