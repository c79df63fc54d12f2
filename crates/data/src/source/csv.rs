//! Separated values with a header line.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use csv::{ErrorKind, ReaderBuilder, StringRecord};

use crate::error::{DataError, Place, Result, bad_value, empty, quoted};
use crate::limits::{MAX_LINE_BYTES, MAX_TEXT_BYTES};
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::source::coded::Coded;
use crate::spec::Columns;
use crate::time::parse_date;

/// Bytes that the reader takes from the file at a time.
const BUFFER_BYTES: usize = 1 << 18;
/// Maximum length of the header line.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// A file of which no byte beyond `end` is read: `end` moves on with every record, so an open quote cannot gather the whole
/// file in memory.
struct Bounded<'a> {
    file: Coded<'a>,
    read: u64,
    bound: Rc<Bound>,
}

#[derive(Default)]
struct Bound {
    end: Cell<u64>,
    exceeded: Cell<bool>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.bound.end.get().saturating_sub(self.read);
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..length])?;
        self.read += read as u64;
        if length == 0 && !buffer.is_empty() && self.file.read(&mut [0])? > 0 {
            self.bound.exceeded.set(true);
            return Err(std::io::Error::other("the record is too long"));
        }
        Ok(read)
    }
}

pub(crate) fn read(
    content: Coded<'_>,
    columns: Columns<'_>,
    delimiter: char,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    content.refuse_markup()?;
    let path = &content.path().to_owned();
    let bound = Rc::new(Bound::default());
    bound.end.set(MAX_HEADER_BYTES);
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter as u8)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(Bounded {
            file: content,
            read: 0,
            bound: bound.clone(),
        });
    let too_long = |line: u64, max: u64| {
        bad_value(
            path,
            Place::Line(line),
            "record",
            format!("at most {max} bytes (max_line_bytes)"),
            "a longer one (is a quote not closed?)",
        )
    };
    let header = reader.headers().map_err(|error| match bound.exceeded.get() {
        true => too_long(1, MAX_HEADER_BYTES),
        false => translate(path, error),
    });
    let header = header?.clone();
    if header.is_empty() {
        return Err(empty(path, "header line"));
    }
    let find = |key, column: &str| {
        let position = header
            .iter()
            .position(|name| name.trim_start_matches('\u{feff}') == column);
        position.ok_or_else(|| DataError::MissingColumn {
            file: path.to_owned(),
            key,
            column: column.to_owned(),
            found: header.iter().map(str::to_owned).collect(),
        })
    };
    let user = columns
        .user
        .map(|name| find("data.source.user", name).map(|found| (name, found)))
        .transpose()?;
    let text = find("data.source.text", columns.text)?;
    let time = columns
        .time
        .map(|name| find("data.source.time", name).map(|found| (name, found)))
        .transpose()?;
    let split = columns
        .split
        .map(|name| find("data.source.split", name))
        .transpose()?;

    let mut rows = Rows::of_lines(path, columns);
    let mut record = StringRecord::new();
    let mut records = 0_u64;
    loop {
        let start = reader.position().clone();
        let ahead = (MAX_LINE_BYTES + BUFFER_BYTES) as u64;
        bound.end.set(start.byte().saturating_add(ahead));
        let more = reader
            .read_record(&mut record)
            .map_err(|error| match bound.exceeded.get() {
                true => too_long(start.line(), MAX_LINE_BYTES as u64),
                false => translate(path, error),
            })?;
        if !more {
            break;
        }
        records += 1;
        let line = record.position().map_or(0, csv::Position::line);
        let bad = |what: &str, expected: &str, got: &str| {
            bad_value(
                path,
                Place::Line(line),
                format!("column {}", quoted(what)),
                expected,
                got,
            )
        };
        let bounded = |name: &str, value: &str| match value.len() > MAX_TEXT_BYTES {
            true => Err(bad(
                name,
                &format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)"),
                &format!("{} bytes", value.len()),
            )),
            false => Ok(()),
        };
        // The reader has checked that every record has as many fields as the header.
        let field = |column: usize| record.get(column).unwrap_or("");
        if let Some((name, column)) = user {
            if field(column).is_empty() {
                return Err(bad(name, "a user", "\"\""));
            }
            bounded(name, field(column))?;
            rows.users.push(field(column));
        }
        bounded(columns.text, field(text))?;
        rows.texts.push(field(text));
        rows.times.push(match time {
            None => NO_TIME,
            Some((name, column)) => {
                let value = field(column).trim();
                let seconds = value.parse().ok().or_else(|| parse_date(value));
                match seconds.filter(|&seconds| seconds != NO_TIME) {
                    Some(seconds) => seconds,
                    None if value.is_empty() => NO_TIME,
                    None => {
                        return Err(bad(name, "unix seconds or an ISO date in UTC", &quoted(value)));
                    }
                }
            }
        });
        if let Some(column) = split {
            rows.splits.push(field(column));
        }
        rows.places.push(line);
        rows.hand_over(on_rows, None)?;
    }
    if records == 0 {
        return Err(empty(path, "rows below its header line"));
    }
    on_rows(&rows, None)
}

fn translate(path: &Path, error: csv::Error) -> DataError {
    let bad = |line: u64, what: &str, expected: String, got: String| {
        bad_value(path, Place::Line(line), what, expected, got)
    };
    match error.into_kind() {
        ErrorKind::Io(source) => DataError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        },
        ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => {
            let line = pos.map_or(0, |pos| pos.line());
            bad(
                line,
                "number of fields",
                format!("{expected_len} as in the header"),
                len.to_string(),
            )
        }
        ErrorKind::Utf8 { pos, err } => bad(
            pos.map_or(0, |pos| pos.line()),
            "text",
            "UTF-8".to_owned(),
            format!("other bytes in field {}", err.field() + 1),
        ),
        other => bad(0, "table", "readable records".to_owned(), format!("{other:?}")),
    }
}
