//! Separated values, with a header line or with names from the settings.

pub(crate) mod records;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::columns::Columns;
use crate::error::{DataError, Place, Result, bad_value, empty, quoted};
use crate::limits::{MAX_LINE_BYTES, MAX_TEXT_BYTES};
use crate::rows::{OnRows, Rows};
use crate::source::coded::Coded;
use records::Records;
use undertone_settings::time::NO_TIME;
use undertone_settings::{CsvSource, Dialect, time};

/// Maximum length of the header line.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// The way in which a file separates values.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Format<'a> {
    /// `,` stands for the separator that the file's name tells.
    delimiter: Option<char>,
    dialect: Dialect,
    /// The names of the columns of files without a header line.
    header: Option<&'a [String]>,
}

impl<'a> Format<'a> {
    pub(crate) fn of(source: &'a CsvSource) -> Self {
        Self {
            delimiter: Some(source.delimiter).filter(|&delimiter| delimiter != ','),
            dialect: source.dialect,
            header: source.header.as_deref(),
        }
    }

    /// The separator of files whose names have this ending.
    pub(crate) fn delimiter(self, extension: &str) -> u8 {
        match self.delimiter {
            Some(delimiter) => delimiter as u8,
            None if extension == "tsv" || self.dialect == Dialect::Dump => b'\t',
            None => b',',
        }
    }
}

/// The columns of a file, by their places.
struct Places<'a> {
    user: Option<(&'a str, usize)>,
    text: usize,
    time: Option<(&'a str, usize)>,
    split: Option<(&'a str, usize)>,
}

pub(crate) fn read(
    content: Coded<'_>,
    columns: Columns<'_>,
    format: Format<'_>,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    content.refuse_markup()?;
    let path = &content.path().to_owned();
    let delimiter = format.delimiter(content.extension());
    let mut records = Records::of(path, content, delimiter, format.dialect);
    let mut scratch = Vec::new();
    let header = match format.header {
        Some(names) => names.to_vec(),
        None => header(path, &mut records)?,
    };
    let places = find(path, columns, &header, delimiter)?;
    let mut reader = Reader {
        path,
        columns,
        places,
        line: 0,
    };
    let mut rows = Rows::of_lines(path, columns);
    let mut any = false;
    while records.next(MAX_LINE_BYTES)? {
        any = true;
        reader.line = records.line();
        if records.len() != header.len() {
            let of = if format.header.is_some() {
                "data.source.header"
            } else {
                "the header"
            };
            let expected = format!("{} as in {of}", header.len());
            return Err(bad_value(
                path,
                Place::Line(records.line()),
                "number of fields",
                expected,
                records.len().to_string(),
            ));
        }
        reader.row(&records, &mut scratch, &mut rows)?;
        rows.hand_over(on_rows, None)?;
    }
    if !any {
        return Err(empty(path, "rows below its header line"));
    }
    on_rows(&rows, None)
}

/// The names in the header line.
fn header<R: std::io::Read>(path: &Path, records: &mut Records<R>) -> Result<Vec<String>> {
    if !records.next(MAX_HEADER_BYTES)? {
        return Err(empty(path, "header line"));
    }
    let mut scratch = Vec::new();
    let names = (0..records.len()).map(|index| {
        let name = String::from_utf8_lossy(records.field(index, &mut scratch).unwrap_or_default());
        // Some programs mark a text twice.
        name.trim_start_matches('\u{feff}').to_owned()
    });
    Ok(names.collect())
}

/// The names of the columns of a file. Nothing below its header line is read.
pub(crate) fn columns(content: Coded<'_>, format: Format<'_>) -> Result<Vec<String>> {
    content.refuse_markup()?;
    if let Some(names) = format.header {
        return Ok(names.to_vec());
    }
    let path = content.path().to_owned();
    let delimiter = format.delimiter(content.extension());
    header(&path, &mut Records::of(&path, content, delimiter, format.dialect))
}

fn find<'a>(path: &Path, columns: Columns<'a>, header: &[String], delimiter: u8) -> Result<Places<'a>> {
    let place = |key: &'static str, column: &str| {
        let found = header.iter().position(|name| name == column);
        found.ok_or_else(|| DataError::MissingColumn {
            file: path.to_owned(),
            key,
            column: column.to_owned(),
            found: header.to_vec(),
            hint: hint(header, column, delimiter).into(),
        })
    };
    let of = |key, name: Option<&'a str>| {
        name.map(|name| place(key, name).map(|place| (name, place)))
            .transpose()
    };
    Ok(Places {
        user: of(columns.keys.user, columns.user)?,
        text: place(columns.keys.text, columns.text)?,
        time: of(columns.keys.time, columns.time)?,
        split: of(columns.keys.split, columns.split)?,
    })
}

/// The next step where a column is missing: another separator that gives it.
fn hint(header: &[String], column: &str, delimiter: u8) -> String {
    let line = header.join(char::from(delimiter).to_string().as_str());
    let others = [(';', "';'"), ('\t', "'\\t'"), ('|', "'|'"), (',', "','")];
    let gives = |other: char| {
        let mut names = line
            .split(other)
            .map(|name| name.trim_matches([' ', '"', '\'', '\r']));
        other != char::from(delimiter) && names.any(|name| name == column)
    };
    let other = others.into_iter().find(|(other, _)| gives(*other));
    match other {
        Some((_, shown)) => format!("; with --delimiter {shown} (data.source.delimiter) it has that column"),
        None if line.starts_with("sep=") => "; its first line is a mark of Excel, to be removed".to_owned(),
        None => String::new(),
    }
}

struct Reader<'a> {
    path: &'a Path,
    columns: Columns<'a>,
    places: Places<'a>,
    line: u64,
}

impl Reader<'_> {
    fn bad(&self, column: &str, expected: impl Into<String>, got: impl Into<String>) -> DataError {
        let what = format!("column {}", quoted(column));
        bad_value(self.path, Place::Line(self.line), what, expected, got)
    }

    /// The value of a column; `None` for one that is marked as absent.
    fn value<'s, R: std::io::Read>(
        &self,
        records: &'s Records<R>,
        (name, place): (&str, usize),
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<&'s str>> {
        let Some(bytes) = records.field(place, scratch) else {
            return Ok(None);
        };
        if bytes.len() > MAX_TEXT_BYTES {
            let expected = format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)");
            return Err(self.bad(name, expected, format!("{} bytes", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| {
            let got =
                "other bytes; `iconv -f WINDOWS-1252 -t UTF-8` converts a file of older Windows programs";
            self.bad(name, "UTF-8", got)
        })?;
        Ok(Some(text))
    }

    fn row<R: std::io::Read>(
        &self,
        records: &Records<R>,
        scratch: &mut Vec<u8>,
        rows: &mut Rows,
    ) -> Result<()> {
        let Places {
            user,
            text,
            time,
            split,
        } = self.places;
        if let Some((name, place)) = user {
            match self.value(records, (name, place), scratch)? {
                Some(user) if !user.is_empty() => rows.users.push(user),
                Some(_) => return Err(self.bad(name, "a user", "\"\"")),
                None => return Err(self.bad(name, "a user", "\\N, the mark of an absent value")),
            }
        }
        let value = self.value(records, (self.columns.text, text), scratch)?;
        rows.texts.push(value.unwrap_or_default());
        rows.times.push(match time {
            None => NO_TIME,
            Some((name, place)) => {
                let value = self.value(records, (name, place), scratch)?.unwrap_or_default();
                let seconds = time::of_text(value, self.columns.time_unit);
                let seconds = seconds.map_err(|expected| self.bad(name, expected, quoted(value.trim())))?;
                seconds.unwrap_or(NO_TIME)
            }
        });
        if let Some((name, place)) = split {
            rows.splits
                .push(self.value(records, (name, place), scratch)?.unwrap_or_default());
        }
        rows.places.push(self.line);
        Ok(())
    }
}
