//! Grouping a source by user, in bounded memory.

use crate::made_from::people_of_source;
use std::path::Path;

use rayon::prelude::*;

use super::grouper::{Budget, GroupedRow, Grouper, GrouperOptions, MIN_MEMORY, refuse_other};
use super::index::hash_user;
use super::manifest::GroupedManifest;
use crate::error::Result;
use crate::progress::{Progress, Stage};
use crate::source::Source;
use crate::splitter::{Splitter, assign};
use undertone_settings::time::NO_TIME;
use undertone_settings::{CorpusSpec, SourceSpec, SplitSpec};

/// Options of [`group`].
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// Bytes of rows and buffers to hold in memory, at least [`GroupOptions::MIN_MEMORY`]. The program itself and the
    /// reader's current batch come on top.
    pub memory: usize,
    /// Writes a split column by this rule; without one, the source's split column is copied, if it has one.
    pub split: Option<SplitSpec>,
    /// Declares that the text is public. Without it, or where the record of the source says otherwise, a record in the folder says that it
    /// was made from people's text.
    pub public: bool,
    /// Replaces an existing folder.
    pub overwrite: bool,
}

impl GroupOptions {
    /// Minimum of [`GroupOptions::memory`].
    pub const MIN_MEMORY: usize = MIN_MEMORY;
}

/// Groups the rows of `source` by user in the new folder `output`: Parquet shards in which the rows of a user are
/// contiguous, an index of users, and a manifest. See [`Grouped`](crate::Grouped) for reading it.
///
/// Rows are partitioned by a hash of the user into temporary files in one pass over the source; then partitions are
/// sorted by user and time (stable: equal times keep the source's order) and written as shards, several at a time. What does not
/// fit in memory, such as one user with more rows than that, is sorted in runs on disk. All rows are kept, those without
/// text too. The temporary files take about the size of the source's text beside the output.
///
/// The folder is built beside its place and moved there when it is whole.
///
/// # Errors
/// [`DataError::OutputExists`](crate::DataError::OutputExists) unless overwriting is asked for, [`DataError::Setting`](crate::DataError::Setting) for too little memory, any error
/// of the source or of writing.
pub fn group(
    source: &SourceSpec,
    base_dir: &Path,
    output: &Path,
    options: &GroupOptions,
    progress: &dyn Progress,
) -> Result<GroupedManifest> {
    let budget = Budget::of(options.memory)?;
    build(source, (base_dir, output), options, budget, progress)
}

pub(super) fn build(
    source: &SourceSpec,
    (base_dir, output): (&Path, &Path),
    options: &GroupOptions,
    budget: Budget,
    progress: &dyn Progress,
) -> Result<GroupedManifest> {
    // Identifying a large source takes a while: what can be refused is refused before.
    refuse_other(output, options.overwrite)?;
    let spec = CorpusSpec {
        split: options.split.clone(),
        ..CorpusSpec::new(source.clone(), None)
    };
    spec.validate_split()?;
    let splitter = Splitter::new(&spec.split_in_force())?;
    let has_split = options.split.is_some() || source.has_split();
    let (reader, identity) = Source::open(source, base_dir, progress)?;
    let wanted = GrouperOptions {
        has_time: source.has_time(),
        has_split,
        ordered: true,
        expected_bytes: Some(reader.text_bytes()?),
        memory: options.memory,
        public: options.public,
        overwrite: options.overwrite,
    };
    let mut grouper = Grouper::within(output, &wanted, budget)?;
    grouper.people = people_of_source(source, base_dir, options.public)?;
    reader.read(&mut |rows, total| {
        let hashes: Vec<u64> = (0..rows.len())
            .into_par_iter()
            .with_min_len(1024)
            .map(|row| hash_user(rows.users.get(row)))
            .collect();
        for (row, hash) in hashes.into_iter().enumerate() {
            let split = has_split.then(|| assign(&splitter, rows, row)).transpose()?;
            grouper.push_hashed(
                hash,
                &GroupedRow {
                    user: rows.users.get(row),
                    text: rows.texts.get(row),
                    time: Some(rows.times[row]).filter(|&time| time != NO_TIME),
                    split,
                },
            )?;
        }
        progress.update(Stage::Partitioning, grouper.rows(), total);
        Ok(())
    })?;
    grouper.finish(identity, progress)
}
