//! The memory that decoding a Parquet file would take, computed before it is decoded.
//!
//! A few hundred bytes of Parquet can stand for gigabytes: a page names its own size, compression hides zeros, and an index of
//! a few bytes repeats one value of a dictionary thousands of times. The decoder allocates what these say. So every page
//! header is looked at first, and rows are then decoded in batches that fit in [`BATCH_BYTES`] whatever the pages hold.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

use super::header::{self, DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, Header};
use super::{delta, max_expanded, too_large};
use crate::error::quoted;
use undertone_text::guard::caught;

/// Rows decoded at once where they are small.
pub(crate) const BATCH_ROWS: usize = 8192;
/// Bytes of values decoded at once.
const BATCH_BYTES: u64 = 128 << 20;
/// Bytes of pages that lie in memory at once, of all columns together.
const PAGES_BYTES: u64 = 256 << 20;
/// Bytes of lists that are decoded for one row group, of all columns together.
const LISTS_BYTES: u64 = 256 << 20;
/// Maximum number of pages of a file.
const MAX_PAGES: usize = 1_000_000;
/// Numbers of delta-encoded values that a page may have.
const DELTA_VALUES: u64 = 16 << 20;

/// Codes of encodings in page headers.
const PLAIN_DICTIONARY: i64 = 2;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

/// The pages of the wanted columns of a file.
pub(crate) struct Pages {
    /// Rows that may be decoded at once: a power of two.
    pub(crate) batch_rows: usize,
    /// Locations of the data pages, by row group and wanted column.
    pub(crate) locations: Vec<Vec<Vec<PageLocation>>>,
}

/// The cost of one column.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Bytes per row of a batch.
    row: u64,
    /// Bytes of the largest dictionary and of the largest data page.
    dictionary: u64,
    data: u64,
    /// Bytes of the lists of the row group that holds most.
    lists: u64,
}

/// Looks at the pages of the `wanted` leaf columns of all row groups.
///
/// The error is what is wrong, in words.
pub(crate) fn inspect(
    file: &File,
    metadata: &ParquetMetaData,
    wanted: &dyn Fn(usize) -> bool,
) -> Result<Pages, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let mut costs = vec![Cost::default(); metadata.file_metadata().schema_descr().num_columns()];
    let mut locations = Vec::new();
    let mut left = Left {
        stored: size,
        expanded: max_expanded(size),
        pages: MAX_PAGES,
    };
    for group in metadata.row_groups() {
        let mut of_group = Vec::new();
        for (leaf, chunk) in group
            .columns()
            .iter()
            .enumerate()
            .filter(|(leaf, _)| wanted(*leaf))
        {
            let name = || quoted(&chunk.column_path().string());
            let seen = Chunk::open(file, size, chunk, &mut left).and_then(|found| {
                let cost = found.cost(file, group.num_rows())?;
                Ok((cost, found.locations()))
            });
            let (cost, pages) = seen.map_err(|detail| format!("column {}: {detail}", name()))?;
            if let Some(max) = costs.get_mut(leaf) {
                max.row = max.row.max(cost.row);
                max.dictionary = max.dictionary.max(cost.dictionary);
                max.data = max.data.max(cost.data);
                max.lists = max.lists.max(cost.lists);
            }
            of_group.push(pages);
        }
        locations.push(of_group);
    }
    let sum = |of: fn(&Cost) -> u64| costs.iter().map(of).fold(0, u64::saturating_add);
    let pages = sum(|cost| cost.dictionary.saturating_add(cost.data));
    if pages > PAGES_BYTES {
        return Err(format!(
            "its largest pages need {pages} bytes at once, and at most {PAGES_BYTES} are read; write it with smaller pages"
        ));
    }
    let lists = sum(|cost| cost.lists);
    if lists > LISTS_BYTES {
        return Err(format!(
            "the lists of a row group may need {lists} bytes, and at most {LISTS_BYTES} are read"
        ));
    }
    let rows = (BATCH_BYTES / sum(|cost| cost.row).max(1)).clamp(1, BATCH_ROWS as u64);
    Ok(Pages {
        batch_rows: 1 << rows.ilog2(),
        locations,
    })
}

/// The bytes of a file that may still be examined. Columns of an honest file do not overlap, so together they are no larger than it.
struct Left {
    stored: u64,
    expanded: u64,
    pages: usize,
}

/// A column of a row group with its page headers.
struct Chunk<'a> {
    metadata: &'a ColumnChunkMetaData,
    /// Offset of each page in the file, and its header.
    pages: Vec<(u64, Header)>,
}

impl<'a> Chunk<'a> {
    fn open(
        file: &File,
        size: u64,
        metadata: &'a ColumnChunkMetaData,
        left: &mut Left,
    ) -> Result<Chunk<'a>, String> {
        let start = metadata
            .dictionary_page_offset()
            .unwrap_or(metadata.data_page_offset());
        let range = u64::try_from(start)
            .ok()
            .zip(u64::try_from(metadata.compressed_size()).ok());
        let end = range.and_then(|(start, length)| start.checked_add(length));
        let (Some((start, _)), Some(end)) = (range, end.filter(|&end| end <= size)) else {
            return Err("its place lies outside the file".to_owned());
        };
        left.stored = left
            .stored
            .checked_sub(end - start)
            .ok_or("it overlaps other columns")?;
        let mut pages = Vec::new();
        let (mut at, mut headers) = (start, BufReader::with_capacity(1 << 12, file));
        while at < end {
            headers
                .seek(SeekFrom::Start(at))
                .map_err(|error| error.to_string())?;
            let header = header::read(headers.by_ref().take(end - at)).filter(|header| {
                let sizes = [header.compressed, header.uncompressed, header.values];
                let known = [DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2].contains(&header.kind);
                // A dictionary comes first, or not at all.
                let placed = header.kind != DICTIONARY_PAGE || at == start;
                known && placed && sizes.iter().all(|size| (0..=i64::from(i32::MAX)).contains(size))
            });
            let Some(header) = header else {
                return Err(format!("there is no usable page at byte {at}"));
            };
            let next = at
                .saturating_add(header.header)
                .saturating_add(header.compressed as u64);
            if next > end {
                return Err(format!("its page at byte {at} lies outside it"));
            }
            left.pages = left
                .pages
                .checked_sub(1)
                .ok_or_else(|| format!("the file has more than {MAX_PAGES} pages"))?;
            left.expanded = left
                .expanded
                .checked_sub(header.uncompressed as u64)
                .ok_or_else(too_large)?;
            pages.push((at, header));
            at = next;
        }
        let chunk = Chunk { metadata, pages };
        chunk.check_sizes(file)?;
        Ok(chunk)
    }

    /// Refuses pages that are larger than they say, which the decoder would notice after decompressing them.
    fn check_sizes(&self, file: &File) -> Result<(), String> {
        let codec = self.metadata.compression();
        for (at, header) in &self.pages {
            let uncompressed = header.uncompressed as u64;
            if uncompressed > PAGES_BYTES {
                return Err(format!(
                    "its page at byte {at} holds {uncompressed} bytes, and at most {PAGES_BYTES} are read"
                ));
            }
            if header.stored {
                continue;
            }
            let stored = header.levels.min(header.compressed) as u64;
            let start = at + header.header + stored;
            let mut file = file;
            file.seek(SeekFrom::Start(start))
                .map_err(|error| error.to_string())?;
            let mut page = BufReader::new(file.take(header.compressed as u64 - stored));
            // The other decompressors stop at the size that the header says.
            let bytes: Box<dyn Read + '_> = match codec {
                Compression::GZIP(_) => Box::new(MultiGzDecoder::new(page)),
                Compression::BROTLI(_) => Box::new(brotli::Decompressor::new(page, 1 << 12)),
                Compression::LZ4 if starts_lz4_frame(&mut page) => {
                    return Err(format!(
                        "its page at byte {at} holds frames of lz4, as no writer of today makes them; write it with LZ4_RAW"
                    ));
                }
                _ => continue,
            };
            let mut bytes = bytes.take(uncompressed + 1);
            let length = std::io::copy(&mut bytes, &mut std::io::sink());
            // What cannot be decompressed is told by the decoder.
            if length.is_ok_and(|length| length + stored > uncompressed) {
                return Err(format!("its page at byte {at} is larger than it says"));
            }
        }
        Ok(())
    }

    /// Locations of the data pages. A flat column has a row per value.
    fn locations(&self) -> Vec<PageLocation> {
        let mut rows = 0;
        let data = self
            .pages
            .iter()
            .filter(|(_, header)| header.kind != DICTIONARY_PAGE);
        data.map(|(at, header)| {
            let first_row_index = rows;
            rows += header.values;
            PageLocation {
                offset: *at as i64,
                compressed_page_size: (header.header as i64 + header.compressed) as i32,
                first_row_index,
            }
        })
        .collect()
    }

    fn cost(&self, file: &File, rows: i64) -> Result<Cost, String> {
        let column = self.metadata.column_descr();
        let variable = column.physical_type() == Type::BYTE_ARRAY;
        let longest = match variable {
            true => self.contents(file, rows, column)?,
            false => 0,
        };
        let mut cost = Cost::default();
        for (_, header) in &self.pages {
            let (bytes, values) = (header.uncompressed as u64, header.values as u64);
            if header.kind == DICTIONARY_PAGE {
                cost.dictionary = bytes;
                continue;
            }
            cost.data = cost.data.max(bytes);
            let indexed = matches!(header.encoding, PLAIN_DICTIONARY | RLE_DICTIONARY);
            // Bytes per value: exact where values are spread over the page, else those of the longest possible.
            let value = match (variable, header.encoding) {
                (true, _) if indexed => longest,
                (true, DELTA_BYTE_ARRAY) => bytes,
                (true, _) => bytes.div_ceil(values.max(1)),
                (false, _) if column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY => {
                    let length = u64::try_from(column.type_length()).unwrap_or(0);
                    length.min(cost.dictionary.max(bytes))
                }
                (false, _) => 16,
            };
            let value = value.saturating_add(16);
            match column.max_rep_level() {
                0 => cost.row = cost.row.max(value),
                _ => cost.lists = cost.lists.saturating_add(values.saturating_mul(value)),
            }
        }
        Ok(cost)
    }

    /// Looks into dictionaries and delta-encoded pages of text. Returns the length of the longest value of the dictionary.
    fn contents(&self, file: &File, rows: i64, column: &ColumnDescriptor) -> Result<u64, String> {
        let delta = |header: &Header| {
            matches!(header.encoding, DELTA_LENGTH_BYTE_ARRAY | DELTA_BYTE_ARRAY)
                && header.kind != DICTIONARY_PAGE
        };
        let telling = |(_, header): &(u64, Header)| header.kind == DICTIONARY_PAGE || delta(header);
        let Some(last) = self.pages.iter().rposition(telling) else {
            return Ok(0);
        };
        let failed = |error: parquet::errors::ParquetError| error.to_string();
        let file = Arc::new(file.try_clone().map_err(|error| error.to_string())?);
        let rows = usize::try_from(rows).map_err(|_| "its row group has a negative number of rows")?;
        let mut reader =
            caught(|| SerializedPageReader::new(file, self.metadata, rows, None))?.map_err(failed)?;
        let mut longest = 0;
        for page in &self.pages[..=last] {
            if !telling(page) {
                caught(|| reader.skip_next_page())?.map_err(failed)?;
                continue;
            }
            match caught(|| reader.get_next_page())?.map_err(failed)? {
                Some(Page::DictionaryPage { buf, .. }) => longest = longest_plain(&buf),
                Some(data) => check_delta(&data, column)?,
                None => return Err("it has fewer pages than headers".to_owned()),
            }
        }
        Ok(longest)
    }
}

/// `true` for a page that an early version of this library wrote, with the frames of lz4 in the place of Hadoop's. They do not say how
/// large they are.
fn starts_lz4_frame(page: &mut impl Read) -> bool {
    let mut start = [0; 4];
    let read = page.read_exact(&mut start).is_ok();
    let magic = u32::from_le_bytes(start);
    read && (matches!(magic, 0x184d_2204 | 0x184c_2102) || magic & 0xffff_fff0 == 0x184d_2a50)
}

/// Length of the longest value of a dictionary: each has its length before it. What is no value counts as the whole rest.
fn longest_plain(mut bytes: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*head) as usize;
        longest = longest.max(length.min(rest.len()) as u64);
        bytes = rest.get(length..).unwrap_or(&[]);
    }
    longest
}

/// Refuses a page whose text claims to have more values than the page.
fn check_delta(page: &Page, column: &ColumnDescriptor) -> Result<(), String> {
    let bad = || "a delta-encoded page is damaged".to_owned();
    let (bytes, prefixes) = match page {
        Page::DataPage {
            buf,
            encoding,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let mut bytes = buf.as_ref();
            for (levels, encoding) in [
                (column.max_rep_level(), rep_level_encoding),
                (column.max_def_level(), def_level_encoding),
            ] {
                if levels == 0 {
                    continue;
                }
                let (head, rest) = bytes.split_first_chunk().ok_or_else(bad)?;
                if *encoding != Encoding::RLE {
                    return Err(bad());
                }
                bytes = rest.get(u32::from_le_bytes(*head) as usize..).ok_or_else(bad)?;
            }
            (bytes, *encoding == Encoding::DELTA_BYTE_ARRAY)
        }
        Page::DataPageV2 {
            buf,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            let bytes = buf.get(levels..).ok_or_else(bad)?;
            (bytes, *encoding == Encoding::DELTA_BYTE_ARRAY)
        }
        Page::DictionaryPage { .. } => return Err(bad()),
    };
    let max = u64::from(page.num_values()).min(DELTA_VALUES);
    // A page of nulls has no values at all.
    if bytes.is_empty() {
        return Ok(());
    }
    let end = delta::end(bytes, max).ok_or_else(bad)?;
    if prefixes {
        delta::end(&bytes[end..], max).ok_or_else(bad)?;
    }
    Ok(())
}
