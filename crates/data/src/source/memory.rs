//! Tables in memory, as Arrow batches.

use std::path::Path;

use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::Schema;
use sha2::{Digest, Sha256};

use crate::columns::Columns;
use crate::error::{DataError, Result, empty};
use crate::hash::hex;
use crate::progress::{Progress, Stage, proceed};
use crate::rows::{OnRows, Rows};
use crate::source::columns::Wanted;
use undertone_settings::{MemorySource, SourceSpec};

/// Rows that are read at a time.
const ROWS: usize = 4096;

/// Name of the table in errors.
const NAME: &str = "table";

/// A table in memory that a corpus can be made from: the columns that its source names, and a digest of their rows.
///
/// The digest covers users, texts, times and splits in the order of the rows. It depends neither on the types of the columns
/// nor on the borders of batches, so the same rows have the same digest whichever library holds them.
#[derive(Clone)]
pub struct MemoryTable {
    batches: Vec<RecordBatch>,
    schema: Schema,
    source: MemorySource,
}

impl std::fmt::Debug for MemoryTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: it holds the text of people.
        f.debug_struct("MemoryTable")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl MemoryTable {
    /// Takes the columns that `source` names, and reads every row once. The rows and the digest of `source` are ignored and
    /// replaced by those of the table.
    ///
    /// # Errors
    /// A missing column, a column of a wrong type, a row without a user, a text that is too long; arrays that are no valid
    /// Arrow, such as text that is not UTF-8; the reader's own errors; a table without rows.
    pub fn new(
        reader: impl RecordBatchReader,
        source: &MemorySource,
        progress: &dyn Progress,
    ) -> Result<MemoryTable> {
        let path = Path::new(NAME);
        let given = reader.schema();
        let wanted = Wanted::find(path, &given, Columns::from(source))?;
        let positions: Vec<usize> = wanted.positions().collect();
        let schema = given.project(&positions).map_err(|error| unreadable(&error))?;
        let (mut batches, mut rows) = (Vec::new(), 0_u64);
        for batch in reader {
            let batch = batch.map_err(|error| unreadable(&error))?;
            let batch = batch.project(&positions).map_err(|error| unreadable(&error))?;
            for (index, array) in batch.columns().iter().enumerate() {
                check(schema.field(index).name(), array)?;
            }
            rows += batch.num_rows() as u64;
            batches.push(batch);
            proceed(progress)?;
        }
        if rows == 0 {
            return Err(empty(path, "rows"));
        }
        let mut table = MemoryTable {
            batches,
            schema,
            source: MemorySource {
                rows,
                sha256: String::new(),
                ..source.clone()
            },
        };
        let (mut hash, mut done) = (Sha256::new(), 0);
        hash.update(b"undertone table\0");
        let columns = Columns::from(&table.source);
        hash.update([
            u8::from(columns.time.is_some()),
            u8::from(columns.split.is_some()),
        ]);
        table.read(&mut |read, total| {
            for row in 0..read.len() {
                let texts = [
                    read.users.get(row),
                    read.texts.get(row),
                    read.split(row).unwrap_or(""),
                ];
                for text in texts {
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text);
                }
                hash.update(read.times[row].to_le_bytes());
            }
            done += read.len() as u64;
            progress.update(Stage::Hashing, done, total);
            proceed(progress)
        })?;
        table.source.sha256 = hex(&hash.finalize());
        Ok(table)
    }

    /// The source of a corpus that is made from this table.
    #[must_use]
    pub fn source(&self) -> &MemorySource {
        &self.source
    }

    /// Bytes of users and texts, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |batch: &RecordBatch| batch.get_array_memory_size() as u64;
        self.batches.iter().map(of).sum()
    }

    /// Refuses settings that name a different table.
    pub(crate) fn check(&self, spec: &SourceSpec) -> Result<()> {
        match spec {
            SourceSpec::Memory(source) if *source == self.source => Ok(()),
            SourceSpec::Memory(source) => Err(DataError::Memory {
                expected: source.in_words(),
                got: self.source.in_words(),
            }),
            other => Err(DataError::Memory {
                expected: other.describe(),
                got: self.source.in_words(),
            }),
        }
    }

    /// Reads all rows in order.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        let path = Path::new(NAME);
        let columns: Columns<'_> = Columns::from(&self.source);
        let wanted = Wanted::find(path, &self.schema, columns)?;
        let total = Some(self.source.rows);
        let mut rows = Rows::of_table(path, columns);
        let mut first_row = 1_u64;
        for batch in &self.batches {
            for start in (0..batch.num_rows()).step_by(ROWS) {
                let part = batch.slice(start, ROWS.min(batch.num_rows() - start));
                wanted.take(&part, first_row, &mut rows)?;
                first_row += part.num_rows() as u64;
                rows.hand_over(on_rows, total)?;
            }
        }
        match rows.len() {
            0 => Ok(()),
            _ => on_rows(&rows, total),
        }
    }
}

/// Refuses an array whose offsets or texts are not those of valid Arrow: arrays from other programs were never checked.
fn check(name: &str, array: &ArrayRef) -> Result<()> {
    array
        .to_data()
        .validate_full()
        .map_err(|error| DataError::BadTable {
            column: name.to_owned(),
            detail: error.to_string(),
        })
}

fn unreadable(error: &arrow_schema::ArrowError) -> DataError {
    DataError::BadTable {
        column: String::new(),
        detail: error.to_string(),
    }
}
