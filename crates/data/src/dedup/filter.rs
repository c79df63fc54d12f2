//! Copying the rows of a file that were not removed, in the file's own format.

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tempfile::NamedTempFile;

use super::Removed;
use crate::error::{Result, invalid, io};
use crate::file;
use crate::limits::MAX_LINE_BYTES;
use crate::source::csv::Format;
use crate::source::csv::records::Records;
use crate::source::lines::Lines;
use crate::source::parquet::Opened;
use crate::source::{coded, files};
use undertone_settings::Dialect;

/// Returns the rows copied. The file appears when it is whole.
pub(super) fn copy(from: &Path, removed: &Removed, to: &Path, overwrite: bool) -> Result<u64> {
    let output = file::temporary_beside(to)?;
    let kept = match files::extension(from) {
        "parquet" => parquet(from, removed, &output, to)?,
        "csv" | "tsv" => csv(from, removed, &output, to)?,
        "jsonl" | "ndjson" | "json" => lines(from, removed, &output, false, to)?,
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
            if !blank && row == 0 && line.trim_ascii_start().starts_with(b"[") {
                let expected = "one JSON object per line, as `jq -c '.[]'` writes them";
                return Err(invalid("PUBLIC", expected, "an array"));
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

fn csv(from: &Path, removed: &Removed, output: &NamedTempFile, to: &Path) -> Result<u64> {
    let mut writer = BufWriter::with_capacity(1 << 18, output.as_file());
    let (mut row, mut kept) = (0, 0);
    coded::each(from, &[files::extension(from)], &mut |content| {
        let path = content.path().to_owned();
        let delimiter = Format::default().delimiter(content.extension());
        let mut records = Records::of(&path, content, delimiter, Dialect::Quoted);
        let mut header = true;
        while records.next(MAX_LINE_BYTES)? {
            // Of several tables of an archive the first header stands for all.
            let wanted = if header { row == 0 } else { !removed.contains(row) };
            if wanted {
                let record = records.bytes();
                writer.write_all(record).map_err(io("write", to))?;
                if !record.ends_with(b"\n") && !record.ends_with(b"\r") {
                    writer.write_all(b"\n").map_err(io("write", to))?;
                }
            }
            if !header {
                row += 1;
                kept += u64::from(wanted);
            }
            header = false;
        }
        Ok(())
    })?;
    writer.flush().map_err(io("write", to))?;
    Ok(kept)
}
