//! Copying the rows of a file that were not removed, in the file's own format.

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, WriterBuilder};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tempfile::NamedTempFile;

use super::Removed;
use crate::error::{Result, io};
use crate::file;
use crate::source::coded;
use crate::source::lines::Lines;
use crate::source::parquet::Opened;

/// Returns the rows copied. The file appears when it is whole.
pub(super) fn copy(from: &Path, removed: &Removed, to: &Path, overwrite: bool) -> Result<u64> {
    let output = file::temporary_beside(to)?;
    let kept = match from.extension().and_then(|extension| extension.to_str()) {
        Some("parquet") => parquet(from, removed, &output, to)?,
        Some("csv") => csv(from, removed, &output, b',', to)?,
        Some("tsv") => csv(from, removed, &output, b'\t', to)?,
        Some("jsonl" | "ndjson") => lines(from, removed, &output, false, to)?,
        _ => lines(from, removed, &output, true, to)?,
    };
    file::persist(output, to, overwrite)?;
    Ok(kept)
}

/// Rows that are kept, as ranges.
fn kept_ranges(removed: &Removed) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in (0..removed.rows).filter(|&row| !removed.contains(row)) {
        let row = row as usize;
        match ranges.last_mut() {
            Some(range) if range.end == row => range.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

fn parquet(from: &Path, removed: &Removed, output: &NamedTempFile, to: &Path) -> Result<u64> {
    let failed = |error: parquet::errors::ParquetError| io("write", to)(std::io::Error::other(error));
    let opened = Opened::open(from)?;
    let schema = opened.metadata.schema().clone();
    let ranges = kept_ranges(removed).into_iter();
    let selection = RowSelection::from_consecutive_ranges(ranges, removed.rows as usize);
    let mut batches = opened.reader(from, ProjectionMask::all(), Some(selection))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(65_536))
        .build();
    let mut writer = ArrowWriter::try_new(output.as_file(), schema, Some(properties)).map_err(failed)?;
    let mut kept = 0;
    while let Some(batch) = batches.next()? {
        kept += batch.num_rows() as u64;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(kept)
}

/// `blank`: whether a line without content is a row.
fn lines(from: &Path, removed: &Removed, output: &NamedTempFile, blank: bool, to: &Path) -> Result<u64> {
    let mut writer = BufWriter::with_capacity(1 << 18, output.as_file());
    let (mut row, mut kept) = (0, 0);
    coded::each(from, &[], &mut |content| {
        let mut lines = Lines::of(content);
        while let Some((_, line)) = lines.next()? {
            if !blank && line.trim_ascii().is_empty() {
                continue;
            }
            if !removed.contains(row) {
                writer.write_all(line).map_err(io("write", to))?;
                kept += 1;
            }
            row += 1;
        }
        Ok(())
    })?;
    writer.flush().map_err(io("write", to))?;
    Ok(kept)
}

fn csv(from: &Path, removed: &Removed, output: &NamedTempFile, delimiter: u8, to: &Path) -> Result<u64> {
    let failed = |error: csv::Error| io("write", to)(std::io::Error::other(error));
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .from_path(from)
        .map_err(failed)?;
    let mut writer = WriterBuilder::new()
        .delimiter(delimiter)
        .from_writer(output.as_file());
    let header = reader.byte_headers().map_err(failed)?;
    writer.write_byte_record(header).map_err(failed)?;
    let mut record = ByteRecord::new();
    let (mut row, mut kept) = (0, 0);
    while reader.read_byte_record(&mut record).map_err(failed)? {
        if !removed.contains(row) {
            writer.write_byte_record(&record).map_err(failed)?;
            kept += 1;
        }
        row += 1;
    }
    writer.flush().map_err(io("write", to))?;
    Ok(kept)
}
