//! Separated values with a header line.

use std::fs::File;
use std::path::Path;

use csv::{ErrorKind, ReaderBuilder, StringRecord};

use crate::error::{DataError, Place, Result, io};
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::spec::Columns;
use crate::time::parse_date;

pub(crate) fn read(
    path: &Path,
    columns: Columns<'_>,
    delimiter: char,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    let file = File::open(path).map_err(io("read", path))?;
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter as u8)
        .buffer_capacity(1 << 18)
        .from_reader(file);
    let header = reader.headers().map_err(|error| translate(path, error))?.clone();
    if header.is_empty() {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "header line",
        });
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

    let mut rows = Rows::of_lines(path);
    let mut record = StringRecord::new();
    let mut records = 0_u64;
    while reader
        .read_record(&mut record)
        .map_err(|error| translate(path, error))?
    {
        records += 1;
        let line = record.position().map_or(0, csv::Position::line);
        let bad = |what: &str, expected: &str, got: &str| DataError::BadValue {
            file: path.to_owned(),
            place: Place::Line(line),
            what: format!("column \"{what}\""),
            expected: expected.to_owned(),
            got: format!("\"{got}\""),
        };
        // The reader has checked that every record has as many fields as the header.
        let field = |column: usize| record.get(column).unwrap_or("");
        if let Some((name, column)) = user {
            if field(column).is_empty() {
                return Err(bad(name, "a user", ""));
            }
            rows.users.push(field(column));
        }
        rows.texts.push(field(text));
        rows.times.push(match time {
            None => NO_TIME,
            Some((name, column)) => {
                let value = field(column).trim();
                let seconds = value.parse().ok().or_else(|| parse_date(value));
                seconds.ok_or_else(|| bad(name, "unix seconds or an ISO date in UTC", value))?
            }
        });
        if let Some(column) = split {
            rows.splits.push(field(column));
        }
        rows.places.push(line);
        if rows.is_full() {
            on_rows(&rows, None)?;
            rows.clear();
        }
    }
    if records == 0 {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "rows below its header line",
        });
    }
    on_rows(&rows, None)
}

fn translate(path: &Path, error: csv::Error) -> DataError {
    let bad = |line: u64, what: &str, expected: String, got: String| DataError::BadValue {
        file: path.to_owned(),
        place: Place::Line(line),
        what: what.to_owned(),
        expected,
        got,
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
