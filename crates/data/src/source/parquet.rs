//! Parquet files, read in batches of rows and only the columns named.

mod delta;
mod header;
pub(crate) mod pages;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use parquet::file::metadata::RowGroupMetaData;

use crate::columns::Columns;
use crate::error::{DataError, Result, empty, io};
use crate::rows::{OnRows, Rows};
use crate::source::columns::{Wanted, text_bytes as bytes_of_texts};
use crate::source::expansion::{max_expanded, too_large};
use undertone_text::guard::caught;

/// Maximum size of the description at a file's end.
const MAX_FOOTER_BYTES: u64 = 16 << 20;
/// Bytes that every row costs, beside its text.
pub(super) const ROW_BYTES: u64 = 40;

/// A file whose description was read.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) metadata: ArrowReaderMetadata,
    size: u64,
}

impl Opened {
    /// The error is what is wrong, in words.
    fn load(mut file: File) -> Result<Opened, String> {
        let failed = |error: std::io::Error| error.to_string();
        let size = file.metadata().map_err(failed)?.len();
        // The library reads a description of any length, and believes the counts in it.
        if size >= 8 {
            let mut end = [0; 8];
            file.seek(SeekFrom::Start(size - 8)).map_err(failed)?;
            file.read_exact(&mut end).map_err(failed)?;
            let [length @ .., _, _, _, _] = end;
            let length = u64::from(u32::from_le_bytes(length));
            if end[4..] == *b"PAR1" && length > MAX_FOOTER_BYTES {
                return Err(format!(
                    "its description has {length} bytes, and at most {MAX_FOOTER_BYTES} are read"
                ));
            }
        }
        let metadata = caught(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        let metadata = metadata.map_err(|error| error.to_string())?;
        Ok(Opened { file, metadata, size })
    }

    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let file = File::open(path).map_err(io("read", path))?;
        Opened::load(file).map_err(damaged(path))
    }

    /// A reader of the wanted columns (of all rows, or of those of `selection`), in batches that fit in memory whatever the file holds.
    pub(crate) fn reader(
        &self,
        path: &Path,
        mask: ProjectionMask,
        selection: Option<RowSelection>,
    ) -> Result<Batches> {
        let pages = pages::inspect(&self.file, self.metadata.metadata(), &|leaf| {
            mask.leaf_included(leaf)
        })
        .map_err(|detail| match is_encrypted(&self.file, self.size) {
            true => "its columns are encrypted; write it without encryption".to_owned(),
            false => detail,
        })
        .map_err(damaged(path))?;
        let file = self.file.try_clone().map_err(io("read", path))?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(mask)
            .with_batch_size(pages.batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        Batches::build(path, builder, self.size)
    }
}

/// `true` for a file whose description can be read and whose columns cannot.
fn is_encrypted(mut file: &File, size: u64) -> bool {
    let mut end = [0; 8];
    let start = size.checked_sub(8).and_then(|at| {
        file.seek(SeekFrom::Start(at)).ok()?;
        file.read_exact(&mut end).ok()?;
        let [length @ .., _, _, _, _] = end;
        at.checked_sub(u64::from(u32::from_le_bytes(length)))
    });
    start.is_some_and(|start| {
        let found = file.seek(SeekFrom::Start(start)).is_ok();
        found && header::is_encrypted(BufReader::new(file.take(MAX_FOOTER_BYTES)))
    })
}

fn damaged(path: &Path) -> impl Fn(String) -> DataError {
    let file = path.to_owned();
    move |detail| DataError::BadParquet {
        file: file.clone(),
        detail,
    }
}

/// The batches of a file, which is given up where it expands beyond what an honest one does.
pub(crate) struct Batches {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    left: u64,
}

impl Batches {
    /// `size`: bytes of the file.
    pub(crate) fn build(
        path: &Path,
        builder: ParquetRecordBatchReaderBuilder<File>,
        size: u64,
    ) -> Result<Batches> {
        let reader = caught(|| builder.build()).map_err(damaged(path))?;
        Ok(Batches {
            path: path.to_owned(),
            reader: reader.map_err(|error| damaged(path)(error.to_string()))?,
            left: max_expanded(size),
        })
    }

    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        let damaged = damaged(&self.path);
        let batch = caught(|| self.reader.next()).map_err(&damaged)?;
        let Some(batch) = batch else { return Ok(None) };
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let bytes = ROW_BYTES * batch.num_rows() as u64 + expanded(&batch);
        self.left = self.left.checked_sub(bytes).ok_or_else(|| damaged(too_large()))?;
        Ok(Some(batch))
    }
}

/// Bytes of the values of a batch, repeated ones each time.
fn expanded(batch: &RecordBatch) -> u64 {
    let of = |array: &ArrayRef| match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value_data().len() as u64,
        DataType::LargeUtf8 => array.as_string::<i64>().value_data().len() as u64,
        // Other dictionaries than those of text are counted as they lie.
        DataType::Utf8View | DataType::BinaryView | DataType::Dictionary(..) => {
            bytes_of_texts(array).unwrap_or(array.get_buffer_memory_size() as u64)
        }
        _ => array.get_buffer_memory_size() as u64,
    };
    batch.columns().iter().map(of).sum()
}

pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let file = File::open(path).map_err(io("read", path))?;
    if file.metadata().map_err(io("read", path))?.len() == 0 {
        return Err(empty(path, "bytes: it is an empty file"));
    }
    let damaged = damaged(path);
    let opened = Opened::load(file).map_err(&damaged)?;
    let metadata = opened.metadata.metadata();
    let total = u64::try_from(metadata.file_metadata().num_rows()).ok();
    if total == Some(0) {
        return Err(empty(path, "rows"));
    }

    let wanted = Wanted::find(path, opened.metadata.schema(), columns)?;
    let mask = ProjectionMask::roots(opened.metadata.parquet_schema(), wanted.positions());
    let mut batches = opened.reader(path, mask, None)?;

    let mut rows = Rows::of_table(path, columns);
    let mut first_row = 1_u64;
    while let Some(batch) = batches.next()? {
        let count = batch.num_rows();
        wanted.take(&batch, first_row, &mut rows)?;
        first_row += count as u64;
        rows.hand_over(on_rows, total)?;
    }
    match rows.len() {
        0 => Ok(()),
        _ => on_rows(&rows, total),
    }
}

/// Rows, as the file tells.
pub(crate) fn num_rows(path: &Path) -> Result<u64> {
    let rows = Opened::open(path)?.metadata.metadata().file_metadata().num_rows();
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// Bytes of users and texts before compression, as the file tells.
pub(crate) fn text_bytes(path: &Path, columns: Columns<'_>) -> Result<u64> {
    let Opened { metadata, size, .. } = Opened::open(path)?;
    let wanted = [columns.user, Some(columns.text)];
    let groups = metadata.metadata().row_groups().iter();
    let bytes = groups
        .flat_map(RowGroupMetaData::columns)
        .filter(|chunk| wanted.contains(&Some(chunk.column_path().string().as_str())))
        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0))
        .fold(0, u64::saturating_add);
    Ok(bytes.min(max_expanded(size)))
}
