//! Grouping a source by user, in bounded memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::index::{IndexWriter, UserEntry, hash_user};
use super::manifest::{FORMAT, GroupedManifest, INDEX, MANIFEST, Shard, VERSION};
use super::shard::{Extra, ShardWriter};
use super::spill::{NO_SPLIT, Spill, SpillRow, SpillWriter};
use crate::count::assign;
use crate::error::{DataError, Result, io};
use crate::file;
use crate::progress::{Progress, Stage};
use crate::source::Source;
use crate::spec::{CorpusSpec, SourceSpec, SplitSpec};
use crate::split::Splitter;

/// How to group.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// Bytes of rows and buffers to hold in memory, at least [`GroupOptions::LEAST_MEMORY`]. The program itself and the
    /// reader's current batch come on top.
    pub memory: usize,
    /// Writes a split column by this rule; without one, the source's split column is copied, if it has one.
    pub split: Option<SplitSpec>,
    /// Replaces an existing folder.
    pub overwrite: bool,
}

impl GroupOptions {
    /// Least [`GroupOptions::memory`].
    pub const LEAST_MEMORY: usize = 16 << 20;
}

/// Most partitions: each is a file that is open while the source is read.
const MOST_PARTITIONS: u64 = 512;
/// Most shards that are sorted and written at once.
const MOST_WORKERS: usize = 4;
const LEAST_BUFFER: usize = 1 << 14;
const MOST_BUFFER: usize = 1 << 18;

/// Groups the rows of `source` by user in the new folder `output`: Parquet shards in which the rows of a user are
/// contiguous, an index of users, and a manifest. See [`Grouped`](crate::Grouped) for reading it.
///
/// Rows are partitioned by a hash of the user into temporary files in one pass over the source; then each partition is
/// sorted by user and time (stable: equal times keep the source's order) and written as a shard, several at a time. What does not
/// fit in memory, such as one user with more rows than that, is sorted in runs on disk. All rows are kept, those without
/// text too. The temporary files take about the size of the source's text beside the output.
///
/// The folder is built beside its place and moved there when it is whole.
///
/// # Errors
/// [`DataError::OutputExists`] unless overwriting is asked for, [`DataError::InvalidSetting`] for too little memory, any error
/// of the source or of writing.
pub fn group(
    source: &SourceSpec,
    base_dir: &Path,
    output: &Path,
    options: &GroupOptions,
    progress: &dyn Progress,
) -> Result<GroupedManifest> {
    let budget = Budget {
        // Workers that sort at once hold half of the memory in rows; the rest is the sort's order and what writers have not
        // compressed yet. Not by the threads at hand, so that the shards are the same on every machine.
        rows: options.memory / (2 * MOST_WORKERS),
        buffers: options.memory / 4,
    };
    if options.memory < GroupOptions::LEAST_MEMORY {
        return Err(DataError::InvalidSetting {
            key: "memory",
            expected: format!("at least {} bytes", GroupOptions::LEAST_MEMORY),
            got: options.memory.to_string(),
        });
    }
    build(source, (base_dir, output), options, budget, progress)
}

/// Bytes of rows that a worker sorts in memory, and of all buffers before partitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) rows: usize,
    pub(super) buffers: usize,
}

pub(super) fn build(
    source: &SourceSpec,
    (base_dir, output): (&Path, &Path),
    options: &GroupOptions,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<GroupedManifest> {
    file::refuse_existing(output, options.overwrite)?;
    if output.exists() && !output.join(MANIFEST).exists() {
        return Err(DataError::BadGrouped {
            path: output.to_owned(),
            detail: format!("it has no {MANIFEST}, so it is not replaced"),
        });
    }
    let spec = CorpusSpec {
        split: options.split.clone(),
        ..CorpusSpec::new(source.clone(), None)
    };
    spec.validate_split()?;
    if matches!(source, SourceSpec::Git(git) if git.salt.is_none()) {
        // PRIVACY: the salt that a corpus derives is no secret, and here the hashes of authors are written down.
        return Err(DataError::InvalidSetting {
            key: "data.source.salt",
            expected: "a secret salt for the hashes of authors (or the file of an import, which draws one)"
                .to_owned(),
            got: "none".to_owned(),
        });
    }
    let extra = Extra {
        time: source.has_time(),
        split: options.split.is_some() || source.has_split(),
    };
    let (reader, identity) = Source::open(source, base_dir, None, progress)?;

    let building = file::FolderBuilder::beside(output)?;
    let partitions = partitions(reader.text_bytes()?, budget.rows);
    let buffer = (budget.buffers / partitions).clamp(LEAST_BUFFER, MOST_BUFFER);
    let partitioned = partition(
        &reader,
        &spec,
        extra,
        (partitions, buffer),
        building.path(),
        progress,
    )?;

    let done = AtomicU64::new(0);
    let workers = rayon::current_num_threads().clamp(1, MOST_WORKERS);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
    let pool = pool.map_err(|error| io("start threads for", output)(std::io::Error::other(error)))?;
    let rows = partitioned.rows;
    let entries_of = |number: usize| building.path().join(format!("users-{number:05}"));
    let shards: Vec<Shard> = pool.install(|| {
        partitioned
            .spills
            .into_par_iter()
            .enumerate()
            .map(|(number, spill)| {
                let mut shard = ShardWriter::create(building.path(), number as u32, extra)?;
                let mut sorted = 0;
                spill.sorted(budget.rows, &mut |row| {
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

    let mut index = IndexWriter::create(&building.path().join(INDEX))?;
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
        has_time: extra.time,
        has_split: extra.split,
        source: identity,
        index_sha256: index.finish()?,
        shards,
    };
    let path = building.path().join(MANIFEST);
    // Plain data with string keys serialises.
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
    file::write(&path, text.as_bytes(), false)?;
    building.persist(output, options.overwrite)?;
    Ok(manifest)
}

/// So many that a partition of hashed users is likely to fit in a worker's share: a third more than needed.
fn partitions(bytes: u64, share: usize) -> usize {
    let wanted = (bytes + bytes / 3).div_ceil(share as u64);
    wanted.clamp(1, MOST_PARTITIONS) as usize
}

struct Partitioned {
    spills: Vec<Spill>,
    rows: u64,
}

fn partition(
    reader: &Source<'_>,
    spec: &CorpusSpec,
    extra: Extra,
    (partitions, buffer): (usize, usize),
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Partitioned> {
    let splitter = Splitter::new(&spec.split_in_force())?;
    let mut writers = (0..partitions)
        .map(|number| SpillWriter::create(folder.join(format!("spill-{number:05}")), buffer))
        .collect::<Result<Vec<_>>>()?;
    let mut done = 0;
    reader.read(&mut |rows, total| {
        let hashes: Vec<u64> = (0..rows.len())
            .into_par_iter()
            .with_min_len(1024)
            .map(|row| hash_user(rows.users.get(row)))
            .collect();
        for (row, hash) in hashes.into_iter().enumerate() {
            let split = if extra.split {
                assign(&splitter, rows, row, spec)?.index() as u32
            } else {
                NO_SPLIT
            };
            // By the leading bits: partitions are ranges of hashes, so the shards together are in their order.
            let partition = ((u128::from(hash) * partitions as u128) >> 64) as usize;
            writers[partition].push(&SpillRow {
                hash,
                user: rows.users.get(row),
                time: rows.times[row],
                split,
                text: rows.texts.get(row),
            })?;
        }
        done += rows.len() as u64;
        progress.update(Stage::Partitioning, done, total);
        Ok(())
    })?;
    let spills = writers
        .into_iter()
        .filter_map(|writer| writer.finish().transpose())
        .collect::<Result<_>>()?;
    Ok(Partitioned { spills, rows: done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_fit_or_are_as_many_as_can_be_open() {
        assert_eq!(partitions(0, 1 << 20), 1);
        assert_eq!(partitions(3 << 20, 1 << 20), 4);
        assert_eq!(partitions(5 << 30, 128 << 20), 54);
        assert_eq!(partitions(u64::MAX / 4, 1 << 20), 512);
    }
}
