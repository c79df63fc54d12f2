//! Exact random access: the rows of given users, and of nobody else.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::metadata::page_index::PageIndexBuilder;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use rayon::prelude::*;

use super::Grouped;
use super::shard::{SPLIT, TEXT, TIME, USER};
use crate::error::{DataError, Result, io};
use crate::rows::Strings;
use crate::source::parquet::{Batches, Opened, pages};
use crate::split::Split;
use undertone_settings::time::NO_TIME;

/// Rows decoded at once.
const BATCH_ROWS: usize = 1024;

/// The rows of one user, in order.
#[derive(Debug, Default)]
pub struct UserRows {
    index: usize,
    texts: Strings,
    times: Vec<i64>,
    splits: Vec<Split>,
}

impl UserRows {
    /// The user's index in the folder.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns `true` if there are no rows, which happens only if none were requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Text of a row.
    ///
    /// # Panics
    /// If `row` is not below [`UserRows::len`], as a slice does.
    #[must_use]
    pub fn text(&self, row: usize) -> &str {
        self.texts.get(row)
    }

    /// Texts in order.
    #[must_use]
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|row| self.text(row))
    }

    /// Time of a row, in unix seconds, where the folder has times and the row has one.
    #[must_use]
    pub fn time(&self, row: usize) -> Option<i64> {
        self.times.get(row).copied().filter(|&time| time != NO_TIME)
    }

    /// Split of a row, where the folder has splits.
    #[must_use]
    pub fn split(&self, row: usize) -> Option<Split> {
        self.splits.get(row).copied()
    }
}

/// A shard that was looked through.
#[derive(Debug, Clone)]
pub(super) struct OpenShard {
    metadata: ArrowReaderMetadata,
    /// Rows that may be decoded at once.
    batch_rows: usize,
}

/// Rows of one shard that are wanted of one user: increasing ranges.
pub(super) struct Wanted {
    /// Place in the answer.
    pub(super) place: usize,
    pub(super) user: usize,
    pub(super) ranges: Vec<Range<u64>>,
}

impl Grouped {
    /// The rows of a user.
    ///
    /// # Errors
    /// [`DataError::BadGrouped`], [`DataError::Io`].
    ///
    /// # Panics
    /// If `user` is not below [`Grouped::num_users`], as a slice does.
    pub fn read_user(&self, user: usize) -> Result<UserRows> {
        let mut rows = self.read_users(&[user])?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// The rows of any users, in the order given: exact random access, such as for a Poisson sample of users. They are read
    /// in the order of their places on disk, on all cores; only the pages with rows of theirs are decompressed.
    ///
    /// All of it is in memory at once: ask for as many as fit ([`Grouped::user_sizes`] tells).
    ///
    /// # Errors
    /// As [`Grouped::read_user`].
    ///
    /// # Panics
    /// If a user is not below [`Grouped::num_users`], as a slice does.
    pub fn read_users(&self, users: &[usize]) -> Result<Vec<UserRows>> {
        let whole = |(place, &user): (usize, &usize)| {
            let entry = self.entries()[user];
            Wanted {
                place,
                user,
                ranges: std::iter::once(entry.first_row..entry.first_row + entry.rows).collect(),
            }
        };
        self.read_wanted(users.iter().enumerate().map(whole).collect())
    }

    pub(super) fn read_wanted(&self, mut wanted: Vec<Wanted>) -> Result<Vec<UserRows>> {
        let count = wanted.len();
        let shard_of = |wanted: &Wanted| self.entries()[wanted.user].shard as usize;
        // A user asked for twice is read twice: ranges of a selection must not overlap.
        wanted.sort_by_key(|wanted| (wanted.user, wanted.place));
        let parts: Vec<Vec<(usize, UserRows)>> = wanted
            .par_chunk_by(|one, other| shard_of(one) == shard_of(other))
            .map(|wanted| self.read_shard(shard_of(&wanted[0]), wanted))
            .collect::<Result<_>>()?;
        let mut rows: Vec<UserRows> = Vec::new();
        rows.resize_with(count, UserRows::default);
        for (place, user) in parts.into_iter().flatten() {
            rows[place] = user;
        }
        Ok(rows)
    }

    /// Wanted rows of one shard, which are in the order of their places.
    fn read_shard(&self, shard: usize, wanted: &[Wanted]) -> Result<Vec<(usize, UserRows)>> {
        let mut done = Vec::with_capacity(wanted.len());
        let mut rest = wanted;
        while !rest.is_empty() {
            // Up to the first repetition.
            let distinct = 1 + rest
                .windows(2)
                .take_while(|pair| pair[0].user < pair[1].user)
                .count();
            let (now, later) = rest.split_at(distinct);
            self.read_distinct(shard, now, &mut done)?;
            rest = later;
        }
        Ok(done)
    }

    fn read_distinct(
        &self,
        shard: usize,
        wanted: &[Wanted],
        done: &mut Vec<(usize, UserRows)>,
    ) -> Result<()> {
        let ranges = wanted.iter().flat_map(|wanted| wanted.ranges.iter().cloned());
        let mut users = wanted.iter().map(|wanted| {
            let rows: u64 = wanted.ranges.iter().map(|range| range.end - range.start).sum();
            (wanted.place, wanted.user, rows)
        });
        let mut current: Option<(usize, u64, UserRows)> = None;
        self.select(shard, ranges, &[TEXT, TIME, SPLIT], &mut |batch| {
            let texts = self.column(shard, batch, TEXT)?.as_string::<i32>();
            let times = match self.manifest.has_time {
                true => Some(self.column(shard, batch, TIME)?.as_primitive::<Int64Type>()),
                false => None,
            };
            let splits = match self.manifest.has_split {
                true => Some(self.column(shard, batch, SPLIT)?.as_string::<i32>()),
                false => None,
            };
            for row in 0..batch.num_rows() {
                if current.is_none() {
                    let (place, index, rows) = users
                        .next()
                        .ok_or_else(|| self.bad_shard(shard, "more rows than asked for"))?;
                    let user = UserRows {
                        index,
                        ..UserRows::default()
                    };
                    current = Some((place, rows, user));
                }
                if let Some((place, left, mut user)) = current.take() {
                    user.texts.push(texts.value(row));
                    user.times.extend(times.map(|times| match times.is_null(row) {
                        true => NO_TIME,
                        false => times.value(row),
                    }));
                    if let Some(splits) = splits {
                        let split = Split::parse(splits.value(row));
                        user.splits.push(split.ok_or_else(|| {
                            self.bad_shard(shard, "a split that is not train, validation or test")
                        })?);
                    }
                    if left > 1 {
                        current = Some((place, left - 1, user));
                    } else {
                        done.push((place, user));
                    }
                }
            }
            Ok(())
        })?;
        match (current, users.next()) {
            (None, None) => Ok(()),
            _ => Err(self.bad_shard(shard, "fewer rows than the index says")),
        }
    }

    /// The name of a user, as in the source.
    ///
    /// # Errors
    /// As [`Grouped::read_user`].
    ///
    /// # Panics
    /// As [`Grouped::read_user`].
    pub fn name(&self, user: usize) -> Result<String> {
        let entry = self.entries()[user];
        let shard = entry.shard as usize;
        let mut name = String::new();
        let first = std::iter::once(entry.first_row..entry.first_row + 1);
        self.select(shard, first, &[USER], &mut |batch| {
            let names = self.column(shard, batch, USER)?.as_string::<i32>();
            if !names.is_empty() {
                names.value(0).clone_into(&mut name);
            }
            Ok(())
        })?;
        Ok(name)
    }

    /// Reads increasing ranges of rows of a shard, and of its row groups only those that they touch.
    fn select(
        &self,
        shard: usize,
        ranges: impl Iterator<Item = Range<u64>>,
        columns: &[&str],
        take: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let path = self.folder.join(&self.manifest.shards[shard].file);
        let file = File::open(&path).map_err(io("read the shard", &path))?;
        let OpenShard { metadata, batch_rows } = match self.shards[shard].get() {
            Some(open) => open.clone(),
            None => {
                let open = self.open_shard(shard, &path)?;
                // Two threads may load it at once; either result is the same.
                self.shards[shard].get_or_init(|| open).clone()
            }
        };
        let mut groups = Vec::new();
        let mut selected: Vec<Range<usize>> = Vec::new();
        // Rows before the row group at hand, in the file and among the groups that are read.
        let (mut before, mut read_before) = (0_u64, 0_usize);
        let mut sizes = metadata
            .metadata()
            .row_groups()
            .iter()
            .map(|group| group.num_rows() as u64)
            .enumerate();
        let mut group = sizes.next();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let Some((number, rows)) = group else {
                    return Err(self.bad_shard(shard, "fewer rows than the index says"));
                };
                if start >= before + rows {
                    if groups.last() == Some(&number) {
                        read_before += rows as usize;
                    }
                    before += rows;
                    group = sizes.next();
                    continue;
                }
                if groups.last() != Some(&number) {
                    groups.push(number);
                }
                let end = range.end.min(before + rows);
                let within = |row: u64| read_before + (row - before) as usize;
                selected.push(within(start)..within(end));
                start = end;
            }
        }
        let total = groups
            .iter()
            .map(|&group| metadata.metadata().row_group(group).num_rows() as usize)
            .sum();
        let mask = ProjectionMask::columns(metadata.parquet_schema(), columns.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(mask)
            .with_row_groups(groups)
            .with_row_selection(RowSelection::from_consecutive_ranges(selected.into_iter(), total))
            .with_batch_size(batch_rows.min(BATCH_ROWS));
        let mut batches = Batches::build(&path, builder, self.manifest.shards[shard].bytes)?;
        while let Some(batch) = batches.next()? {
            take(&batch)?;
        }
        Ok(())
    }

    /// Opens a shard with an index of its pages. The index is made from the pages themselves: the one in the file could say
    /// anything.
    fn open_shard(&self, shard: usize, path: &Path) -> Result<OpenShard> {
        let opened = Opened::open(path)?;
        self.check_shard(shard, &opened.metadata)?;
        let metadata = opened.metadata.metadata();
        let pages = pages::inspect(&opened.file, metadata, &|_| true).map_err(|detail| {
            let file = path.to_owned();
            DataError::BadParquet { file, detail }
        })?;
        for (group, columns) in metadata.row_groups().iter().zip(&pages.locations) {
            if columns.iter().any(|pages| {
                let last = pages.last().map_or(0, |page| page.first_row_index);
                last > group.num_rows()
            }) {
                return Err(self.bad_shard(shard, "pages that do not fit its rows"));
            }
        }
        let columns = metadata.file_metadata().schema_descr().num_columns();
        let mut index = PageIndexBuilder::new(pages.locations.len(), columns);
        for (group, columns) in pages.locations.into_iter().enumerate() {
            for (column, page_locations) in columns.into_iter().enumerate() {
                let pages = OffsetIndexMetaData {
                    page_locations,
                    unencoded_byte_array_data_bytes: None,
                };
                index.put_offset_index(pages, group, column);
            }
        }
        let metadata = ParquetMetaData::clone(metadata).into_builder();
        let metadata = metadata.set_page_index(Some(Arc::new(index.build()))).build();
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new());
        let damaged = |error: parquet::errors::ParquetError| self.bad_shard(shard, &error.to_string());
        Ok(OpenShard {
            metadata: metadata.map_err(damaged)?,
            batch_rows: pages.batch_rows,
        })
    }

    fn check_shard(&self, shard: usize, metadata: &ArrowReaderMetadata) -> Result<()> {
        let rows = metadata.metadata().file_metadata().num_rows();
        if u64::try_from(rows) != Ok(self.manifest.shards[shard].rows) {
            return Err(self.bad_shard(shard, "its number of rows differs from that of the manifest"));
        }
        let wanted = [
            (USER, true, "Utf8"),
            (TEXT, true, "Utf8"),
            (TIME, self.manifest.has_time, "Int64"),
            (SPLIT, self.manifest.has_split, "Utf8"),
        ];
        for (name, wanted, kind) in wanted {
            let field = metadata.schema().field_with_name(name).ok();
            // Times alone may be missing.
            let fits = field.is_some_and(|field| {
                field.data_type().to_string() == kind && (name == TIME || !field.is_nullable())
            });
            if wanted && !fits {
                return Err(self.bad_shard(shard, &format!("no column {name} of type {kind}")));
            }
        }
        Ok(())
    }

    fn column<'b>(&self, shard: usize, batch: &'b RecordBatch, name: &str) -> Result<&'b dyn Array> {
        let column = batch.column_by_name(name).map(|column| &**column);
        column.ok_or_else(|| self.bad_shard(shard, &format!("no column {name}")))
    }

    fn bad_shard(&self, shard: usize, detail: &str) -> DataError {
        self.bad(format!("{}: {detail}", self.manifest.shards[shard].file))
    }
}
