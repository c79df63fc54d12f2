//! Writing one shard: rows in the order of users, as Parquet with pages small enough to read a user's alone.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use sha2::{Digest, Sha256};

use super::index::UserEntry;
use super::manifest::Shard;
use super::spill::SpillRow;
use crate::error::{DataError, Result, io};
use crate::hash::{Hash, hex};
use crate::split::Split;
use undertone_settings::time::NO_TIME;

pub(super) const USER: &str = "user_id";
pub(super) const TEXT: &str = "text";
pub(super) const TIME: &str = "timestamp";
pub(super) const SPLIT: &str = "split";

/// Rows of a page, which is what one look at a user decompresses; of a batch; of a row group, and its encoded bytes.
const PAGE_ROWS: usize = 256;
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 4 << 20;
const GROUP_ROWS: usize = 65_536;
const GROUP_BYTES: usize = 16 << 20;

/// Columns that a shard has beside user and text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extra {
    pub(super) time: bool,
    /// Some row has no time: the column then holds nulls.
    pub(super) untimed: bool,
    pub(super) split: bool,
}

/// Writes rows in order and notes where users begin.
pub(super) struct ShardWriter {
    number: u32,
    name: String,
    extra: Extra,
    schema: Arc<Schema>,
    writer: ArrowWriter<Hashing>,
    users: StringBuilder,
    texts: StringBuilder,
    times: Int64Builder,
    splits: StringBuilder,
    batch: (usize, usize),
    rows: u64,
    group: (u32, usize),
    current: Option<(UserEntry, String)>,
    entries: Vec<UserEntry>,
}

/// A file whose contents are hashed as they are written.
struct Hashing {
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl ShardWriter {
    pub(super) fn create(folder: &Path, number: u32, extra: Extra) -> Result<ShardWriter> {
        let name = format!("shard-{number:05}.parquet");
        let path = folder.join(&name);
        let file = File::create(&path).map_err(io("write the shard", &path))?;
        let mut fields = vec![
            Field::new(USER, DataType::Utf8, false),
            Field::new(TEXT, DataType::Utf8, false),
        ];
        if extra.time {
            fields.push(Field::new(TIME, DataType::Int64, extra.untimed));
        }
        if extra.split {
            fields.push(Field::new(SPLIT, DataType::Utf8, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(None)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            // A dictionary of texts is a second copy of them.
            .set_column_dictionary_enabled(ColumnPath::from(TEXT), false)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let output = Hashing {
            file,
            hasher: Sha256::new(),
            bytes: 0,
        };
        let writer = ArrowWriter::try_new(output, schema.clone(), Some(properties)).map_err(failed(&name))?;
        Ok(ShardWriter {
            number,
            name,
            extra,
            schema,
            writer,
            users: StringBuilder::new(),
            texts: StringBuilder::new(),
            times: Int64Builder::new(),
            splits: StringBuilder::new(),
            batch: (0, 0),
            rows: 0,
            group: (0, 0),
            current: None,
            entries: Vec::new(),
        })
    }

    /// Adds a row; those of a user follow each other.
    pub(super) fn push(&mut self, row: &SpillRow<'_>) -> Result<()> {
        match &mut self.current {
            Some((entry, name)) if *name == row.user => entry.rows += 1,
            current => {
                let entry = UserEntry {
                    hash: row.hash,
                    first_row: self.rows,
                    rows: 1,
                    shard: self.number,
                    row_group: self.group.0,
                };
                self.entries.extend(
                    current
                        .replace((entry, row.user.to_owned()))
                        .map(|(entry, _)| entry),
                );
            }
        }
        self.users.append_value(row.user);
        self.texts.append_value(row.text);
        if self.extra.time {
            self.times
                .append_option(Some(row.time).filter(|&time| time != NO_TIME));
        }
        if self.extra.split {
            let split = Split::ALL
                .get(row.split as usize)
                .map_or("", |split| split.name());
            self.splits.append_value(split);
        }
        self.rows += 1;
        self.batch.0 += 1;
        self.batch.1 += row.user.len() + row.text.len();
        if self.batch.0 >= BATCH_ROWS || self.batch.1 >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<()> {
        let (rows, _) = std::mem::take(&mut self.batch);
        if rows == 0 {
            return Ok(());
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.users.finish()), Arc::new(self.texts.finish())];
        if self.extra.time {
            columns.push(Arc::new(self.times.finish()));
        }
        if self.extra.split {
            columns.push(Arc::new(self.splits.finish()));
        }
        let name = &self.name;
        let batch =
            RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| failed(name)(error.into()))?;
        self.writer.write(&batch).map_err(failed(name))?;
        self.group.1 += rows;
        if self.group.1 >= GROUP_ROWS || self.writer.in_progress_size() >= GROUP_BYTES {
            self.writer.flush().map_err(failed(name))?;
            self.group = (self.group.0 + 1, 0);
        }
        Ok(())
    }

    /// Ends the file; returns what it is and where its users lie.
    pub(super) fn finish(mut self) -> Result<(Shard, Vec<UserEntry>)> {
        self.write_batch()?;
        self.entries.extend(self.current.take().map(|(entry, _)| entry));
        let output = self.writer.into_inner().map_err(failed(&self.name))?;
        output
            .file
            .sync_all()
            .map_err(io("write the shard", &self.name))?;
        let hash: Hash = output.hasher.finalize().into();
        let shard = Shard {
            file: self.name,
            rows: self.rows,
            bytes: output.bytes,
            sha256: hex(&hash),
        };
        Ok((shard, self.entries))
    }
}

fn failed(name: &str) -> impl FnOnce(ParquetError) -> DataError {
    let path = name.to_owned();
    move |error| io("write the shard", path)(std::io::Error::other(error))
}
