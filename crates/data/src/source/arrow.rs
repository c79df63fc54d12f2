//! Arrow's own files and streams, and folders of them as the library `datasets` of Hugging Face writes them.
//!
//! A message of Arrow names its own lengths. The framing is read here, so that no length is believed before it fits the file, and the
//! library decodes one message at a time, with all of its checks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{
    Block, BodyCompression, CompressionType, MessageHeader, MetadataVersion, root_as_footer, root_as_message,
};
use arrow_schema::{ArrowError, Schema};
use serde::Deserialize;

use crate::columns::Columns;
use crate::error::{DataError, Place, Result, bad_value, empty, io, quoted};
use crate::file::read_bounded;
use crate::rows::{OnRows, Rows};
use crate::source::columns::{Wanted, text_bytes};
use crate::source::expansion::{max_expanded, too_large};
use crate::source::files;
use crate::source::parquet::ROW_BYTES;
use undertone_text::guard::caught;

/// Maximum size of the description of a message.
const MAX_METADATA_BYTES: u64 = 16 << 20;
/// Maximum size of the values of a message.
const MAX_BODY_BYTES: u64 = 256 << 20;
/// Maximum size of all dictionaries that are in use at a time.
const MAX_DICTIONARY_BYTES: u64 = 256 << 20;
/// Maximum size of `state.json`.
const MAX_STATE_BYTES: u64 = 16 << 20;
/// Bytes to a multiple of which writers fill up the values of a column.
const ALIGNMENTS: [u64; 4] = [8, 16, 32, 64];
/// Rows, and bytes of their texts, that are handed over at once.
const PART_ROWS: usize = 8192;
const PART_BYTES: u64 = 64 << 20;

/// The first bytes of a file. A stream begins with a message.
const MAGIC: &[u8; 6] = b"ARROW1";
/// The first bytes of a file of an older kind.
const FEATHER_1: &[u8; 4] = b"FEA1";
/// The mark before the length of a message.
const CONTINUATION: u32 = u32::MAX;

/// The files of a table: the one that is named, or those of a folder.
///
/// A folder with `state.json` is a data set as `datasets.save_to_disk` writes it, and its files are those that this list names. Files
/// that `datasets` keeps beside a data set as a cache hold rows of it once more, and are passed over.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = files::files(path, files::ARROW)?;
    if !path.is_dir() {
        return Ok(found);
    }
    let folders: HashSet<PathBuf> = found
        .iter()
        .filter_map(|file| Some(file.parent()?.to_owned()))
        .collect();
    for folder in folders {
        let own = |file: &Path| file.parent() == Some(&folder);
        let state = folder.join("state.json");
        if state.is_file() {
            let listed = State::read(&state)?;
            if let Some(lost) = listed.iter().find(|file| !found.contains(file)) {
                return Err(DataError::Io {
                    action: "read",
                    path: lost.clone(),
                    source: std::io::Error::new(
                        std::io::ErrorKind::NotFound,
                        "it is missing, though state.json names it",
                    ),
                });
            }
            found.retain(|file| !own(file) || listed.contains(file));
        } else if folder.join("dataset_info.json").is_file() {
            let is_cache = |file: &Path| {
                let name = file.file_name().unwrap_or_default();
                name.as_encoded_bytes().starts_with(b"cache-")
            };
            found.retain(|file| !own(file) || !is_cache(file));
        }
    }
    match found.is_empty() {
        true => Err(empty(path, "files of a data set")),
        false => Ok(found),
    }
}

/// The list of the files of a data set.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    data: Vec<StateFile>,
    /// Early versions kept the order of the rows in a file of its own.
    #[serde(rename = "_indices_data_files", default)]
    indices: Option<Vec<StateFile>>,
}

#[derive(Deserialize)]
struct StateFile {
    filename: String,
}

impl State {
    fn read(path: &Path) -> Result<HashSet<PathBuf>> {
        let bad =
            |expected: &str, got: String| bad_value(path, Place::Line(1), "list of files", expected, got);
        let bytes = read_bounded(path, MAX_STATE_BYTES, "read")?;
        let state: State = serde_json::from_slice(&bytes).map_err(|error| {
            bad(
                "what datasets.save_to_disk writes",
                format!("invalid JSON ({error})"),
            )
        })?;
        if state.indices.is_some_and(|files| !files.is_empty()) {
            return Err(bad(
                "rows in their own order: load the data set with a newer version of datasets and save it again",
                "a file of indices".to_owned(),
            ));
        }
        let beside = |StateFile { filename }: StateFile| {
            let is_name = Path::new(&filename)
                .file_name()
                .is_some_and(|name| *name == *filename);
            match is_name {
                true => Ok(path.with_file_name(filename)),
                false => Err(bad("names of files in the folder", quoted(&filename))),
            }
        };
        state.data.into_iter().map(beside).collect()
    }
}

/// Reads a file or a stream.
pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let mut messages = Messages::open(path)?;
    let schema = Arc::new(messages.schema()?);
    let wanted = Wanted::find(path, &schema, columns)?;
    let mut batches = Batches::new(messages, schema, &wanted);
    let mut rows = Rows::of_table(path, columns);
    let mut first_row = 1_u64;
    while let Some(batch) = batches.next()? {
        // The texts of a view may repeat one another, so parts are bounded by the bytes that they stand for.
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let count = part.num_rows();
            if count > PART_ROWS || (count > 1 && expanded(&part) > PART_BYTES) {
                let half = count / 2;
                parts.push(part.slice(half, count - half));
                parts.push(part.slice(0, half));
                continue;
            }
            wanted.take(&part, first_row, &mut rows)?;
            first_row += count as u64;
            rows.hand_over(on_rows, None)?;
        }
    }
    if first_row == 1 {
        return Err(empty(path, "rows"));
    }
    match rows.len() {
        0 => Ok(()),
        _ => on_rows(&rows, None),
    }
}

/// Bytes of the values of a batch, repeated ones each time.
fn expanded(batch: &RecordBatch) -> u64 {
    let of = |array: &ArrayRef| text_bytes(array).unwrap_or(0);
    ROW_BYTES * batch.num_rows() as u64 + batch.columns().iter().map(of).sum::<u64>()
}

fn damaged(path: &Path, detail: impl Into<String>) -> DataError {
    DataError::BadArrow {
        file: path.to_owned(),
        detail: detail.into(),
    }
}

/// The messages of a file, one after the other.
struct Messages {
    path: PathBuf,
    reader: BufReader<File>,
    size: u64,
    /// Place of the next byte.
    at: u64,
    /// The end of the messages, or of the one that is read.
    end: u64,
    /// The places of the messages of a file; a stream has none.
    blocks: Option<VecDeque<(u64, u64)>>,
    schema: Option<Schema>,
    /// The description and the values of the last message.
    head: Vec<u8>,
}

impl Messages {
    fn open(path: &Path) -> Result<Messages> {
        let mut file = File::open(path).map_err(io("read", path))?;
        let size = file.metadata().map_err(io("read", path))?.len();
        if size == 0 {
            return Err(empty(path, "bytes: it is an empty file"));
        }
        let mut start = Vec::new();
        file.by_ref()
            .take(8)
            .read_to_end(&mut start)
            .map_err(io("read", path))?;
        if start.starts_with(FEATHER_1) {
            return Err(damaged(
                path,
                "it is a Feather file of version 1; write version 2",
            ));
        }
        let mut messages = Messages {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 18, file),
            size,
            at: 0,
            end: size,
            blocks: None,
            schema: None,
            head: Vec::new(),
        };
        match start.starts_with(MAGIC) {
            true => messages.open_file()?,
            false => messages.go_to(0)?,
        }
        Ok(messages)
    }

    fn go_to(&mut self, at: u64) -> Result<()> {
        self.at = at;
        let found = self.reader.seek(SeekFrom::Start(at));
        found.map(drop).map_err(io("read", &self.path))
    }

    /// Reads the list at the end of a file, which holds the schema and the places of its messages.
    fn open_file(&mut self) -> Result<()> {
        const CUT_OFF: &str = "it has no end: it is cut off, or the program that writes it has not closed it";
        let cut_off = damaged(&self.path, CUT_OFF);
        let Some(at) = self.size.checked_sub(10).filter(|&at| at >= 8) else {
            return Err(cut_off);
        };
        self.go_to(at)?;
        let length = u64::from(self.number()?);
        if self.bytes(6, "the last bytes")? != MAGIC {
            return Err(cut_off);
        }
        let Some(start) = at.checked_sub(length).filter(|&start| start >= 8) else {
            return Err(cut_off);
        };
        if length > MAX_METADATA_BYTES {
            return Err(self.bad(format!(
                "a list of messages of {length} bytes, and at most {MAX_METADATA_BYTES} are read"
            )));
        }
        self.go_to(start)?;
        let list = self.bytes(length, "the list of messages")?;
        let read = || {
            let footer = root_as_footer(&list).map_err(|error| error.to_string())?;
            let schema = footer.schema().ok_or("its list of messages has no schema")?;
            let schema = try_fb_to_schema(schema).map_err(|error| error.to_string())?;
            let blocks = [footer.dictionaries(), footer.recordBatches()];
            let places: Option<VecDeque<_>> = blocks.into_iter().flatten().flatten().map(place).collect();
            Ok::<_, String>((schema, places.ok_or("a message outside the file")?))
        };
        let read = caught(read).and_then(|read| read);
        let (schema, places) = read.map_err(|detail| self.bad(detail))?;
        // Messages of an honest file do not overlap, so together they are no larger than it.
        let mut left = start;
        for &(from, to) in &places {
            if to > start {
                return Err(self.bad("a message outside the file"));
            }
            left = left
                .checked_sub(to - from)
                .ok_or_else(|| self.bad("messages overlap"))?;
        }
        (self.schema, self.blocks) = (Some(schema), Some(places));
        Ok(())
    }

    fn bad(&self, detail: impl std::fmt::Display) -> DataError {
        damaged(&self.path, format!("at byte {}: {detail}", self.at))
    }

    fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>> {
        if length > self.end.saturating_sub(self.at) {
            return Err(self.bad(format!(
                "{what} of {length} bytes, and only {} are left",
                self.end.saturating_sub(self.at)
            )));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        let read = self.reader.by_ref().take(length).read_to_end(&mut bytes);
        if read.map_err(io("read", &self.path))? as u64 != length {
            return Err(self.bad(format!("{what} is cut off")));
        }
        self.at += length;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u32> {
        let bytes = self.bytes(4, "a length")?;
        Ok(<[u8; 4]>::try_from(&*bytes).map_or(0, u32::from_le_bytes))
    }

    /// Reads the description of the next message; `false` at the end.
    fn advance(&mut self) -> Result<bool> {
        match &mut self.blocks {
            Some(blocks) => {
                let Some((from, to)) = blocks.pop_front() else {
                    return Ok(false);
                };
                self.end = to;
                self.go_to(from)?;
            }
            // Where a stream stops between two messages, nothing else tells of the lost rows.
            None if self.at >= self.end => {
                let detail = "it has no end: it is cut off, or the program that writes it has not closed it";
                return Err(self.bad(detail));
            }
            None => {}
        }
        let mut length = self.number()?;
        if length == CONTINUATION {
            length = self.number()?;
        }
        if length == 0 {
            let detail = "bytes follow its end, such as a second stream: write one stream per file";
            return match self.at < self.end {
                true => Err(self.bad(detail)),
                false => Ok(false),
            };
        }
        let length = u64::from(length);
        if length > MAX_METADATA_BYTES {
            return Err(self.bad(format!(
                "the description of a message of {length} bytes, and at most {MAX_METADATA_BYTES} are read"
            )));
        }
        self.head = self.bytes(length, "the description of a message")?;
        Ok(true)
    }

    fn schema(&mut self) -> Result<Schema> {
        if let Some(schema) = self.schema.take() {
            return Ok(schema);
        }
        let started = self.advance()?;
        let read = || {
            let message = root_as_message(&self.head).map_err(|error| error.to_string())?;
            let schema = message
                .header_as_schema()
                .ok_or("it does not begin with a schema")?;
            if message.bodyLength() != 0 {
                return Err("a schema with values".to_owned());
            }
            try_fb_to_schema(schema).map_err(|error| error.to_string())
        };
        let schema = match started {
            true => caught(read).and_then(|schema| schema),
            false => Err("it does not begin with a schema".to_owned()),
        };
        schema.map_err(|detail| self.bad(detail))
    }
}

/// The first and the last byte of a message of a file; `None` for one that ends before it begins.
fn place(block: &Block) -> Option<(u64, u64)> {
    let from = u64::try_from(block.offset()).ok()?;
    let head = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    Some((from, from.checked_add(head)?.checked_add(body)?))
}

/// The batches of a file, with the wanted columns alone.
struct Batches {
    messages: Messages,
    schema: Arc<Schema>,
    projection: Vec<usize>,
    /// Numbers of the dictionaries of wanted columns.
    wanted: HashSet<i64>,
    dictionaries: HashMap<i64, ArrayRef>,
    dictionary_bytes: HashMap<i64, u64>,
    /// Bytes to which the file may still expand.
    left: u64,
}

impl Batches {
    fn new(messages: Messages, schema: Arc<Schema>, wanted: &Wanted) -> Batches {
        let mut projection: Vec<usize> = wanted.positions().collect();
        projection.sort_unstable();
        projection.dedup();
        #[expect(deprecated, reason = "the library has no other way to number dictionaries")]
        let number = |&position: &usize| schema.field(position).dict_id();
        Batches {
            wanted: projection.iter().filter_map(number).collect(),
            left: max_expanded(messages.size),
            messages,
            schema,
            projection,
            dictionaries: HashMap::new(),
            dictionary_bytes: HashMap::new(),
        }
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.messages.advance()? {
            let head = std::mem::take(&mut self.messages.head);
            let message = root_as_message(&head).map_err(|error| self.messages.bad(error))?;
            let length = u64::try_from(message.bodyLength())
                .ok()
                .filter(|&length| length <= MAX_BODY_BYTES);
            let Some(length) = length else {
                return Err(self.messages.bad(format!(
                    "values of {} bytes, and at most {MAX_BODY_BYTES} are read; write it with smaller batches",
                    message.bodyLength()
                )));
            };
            let version = message.version();
            if version < MetadataVersion::V4 {
                return Err(self.messages.bad("a version of Arrow before 0.8"));
            }
            if let Some(batch) = message.header_as_record_batch() {
                self.refuse_compression(batch.compression())?;
                self.refuse_other_layout(batch, length)?;
                let body = self.messages.bytes(length, "values")?;
                let read = || {
                    read_record_batch(
                        &body.into(),
                        batch,
                        self.schema.clone(),
                        &self.dictionaries,
                        Some(&self.projection),
                        &version,
                    )
                };
                let batch = self.decoded(caught(read))?;
                self.spend(expanded(&batch))?;
                return Ok(Some(batch));
            }
            let Some(batch) = message.header_as_dictionary_batch() else {
                let kind = message.header_type();
                let name = kind.variant_name().unwrap_or("of an unknown kind");
                debug_assert_ne!(kind, MessageHeader::RecordBatch);
                return Err(self.messages.bad(format!("a message {name} among the batches")));
            };
            let (id, delta) = (batch.id(), batch.isDelta());
            self.refuse_compression(batch.data().and_then(|data| data.compression()))?;
            if let Some(data) = batch.data() {
                self.refuse_other_layout(data, length)?;
            }
            let body = self.messages.bytes(length, "values")?;
            if !self.wanted.contains(&id) {
                continue;
            }
            let kept = self.dictionary_bytes.get(&id).copied().unwrap_or(0);
            // An addition copies what is there.
            self.spend(if delta { kept } else { 0 })?;
            self.dictionary_bytes
                .insert(id, length + if delta { kept } else { 0 });
            if self.dictionary_bytes.values().sum::<u64>() > MAX_DICTIONARY_BYTES {
                return Err(self.messages.bad(format!(
                    "dictionaries of more than {MAX_DICTIONARY_BYTES} bytes in all"
                )));
            }
            let mut dictionaries = std::mem::take(&mut self.dictionaries);
            let read = || {
                read_dictionary(&body.into(), batch, &self.schema, &mut dictionaries, &version)
                    .map(|()| dictionaries)
            };
            self.dictionaries = self.decoded(caught(read))?;
        }
        Ok(None)
    }

    fn decoded<T>(&self, decoded: Result<Result<T, ArrowError>, String>) -> Result<T> {
        decoded
            .and_then(|decoded| decoded.map_err(|error| error.to_string()))
            .map_err(|detail| self.messages.bad(detail))
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| self.messages.bad(too_large()))?;
        Ok(())
    }

    /// Buffers follow one another in their order, each at the next multiple of the writer's alignment. No sum is kept over them, so a place
    /// that was damaged would give one user the letters of another.
    fn refuse_other_layout(&self, batch: arrow_ipc::RecordBatch<'_>, length: u64) -> Result<()> {
        let mut end = 0;
        for buffer in batch.buffers().into_iter().flatten() {
            let (at, bytes) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
            let (Ok(at), Ok(bytes)) = (at, bytes) else {
                return Err(self.messages.bad("values before the start of a batch"));
            };
            if bytes == 0 {
                continue;
            }
            let gap = at.checked_sub(end);
            let follows = gap.is_some_and(|gap| ALIGNMENTS.iter().any(|unit| at % unit == 0 && gap < *unit));
            end = at.saturating_add(bytes);
            if !follows || end > length {
                return Err(self.messages.bad(format!(
                    "values at bytes {at} to {end} of a batch of {length} bytes do not follow those before them"
                )));
            }
        }
        Ok(())
    }

    fn refuse_compression(&self, compression: Option<BodyCompression<'_>>) -> Result<()> {
        let Some(compression) = compression else {
            return Ok(());
        };
        let codec = match compression.codec() {
            CompressionType::LZ4_FRAME => "lz4",
            CompressionType::ZSTD => "zstd",
            _ => "an unknown codec",
        };
        Err(self.messages.bad(format!(
            "its batches are compressed ({codec}); write it without compression (in pyarrow, \
             feather.write_feather(table, path, compression=\"uncompressed\")) or as Parquet"
        )))
    }
}
