//! JSON objects: one per line, or in one array of a document.

mod document;
mod record;
mod scan;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Place, Result, bad_value, empty, invalid, list, missing_column, quoted};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{OnRows, Rows};
use crate::source::coded::{BYTE_ORDER_MARK, Coded};
use document::{Document, is_cut_off};
use record::{Field, Found, Record, Wanted, names};
use scan::Fault;
use undertone_settings::time::NO_TIME;
use undertone_settings::{Pointer, time};

/// The kind under which absent texts are counted.
pub(crate) const NO_TEXT: &str = "rows without the text field, read as empty texts";

/// Max number of fields whose names are kept.
const MAX_FIELDS: usize = 1000;

/// Objects at the start of a source whose fields are named together: some may lack the text.
const NAMED_OBJECTS: usize = 100;

/// The fields that some object of a source has. A name that none has is a mistake.
#[derive(Default)]
pub(crate) struct Seen {
    /// The fields of the first objects.
    fields: Vec<String>,
    objects: usize,
    text: bool,
    time: bool,
}

impl Seen {
    /// Enters the names of the fields of an object.
    fn add(&mut self, object: &[u8]) {
        self.objects += 1;
        if self.objects > NAMED_OBJECTS {
            return;
        }
        for name in names(object, MAX_FIELDS) {
            if self.fields.len() < MAX_FIELDS && !self.fields.contains(&name) {
                self.fields.push(name);
            }
        }
    }

    /// Refuses a name that no object has. `path` names the source; `given`: the names of folders give the time.
    pub(crate) fn check(self, path: &Path, columns: Columns<'_>, given: bool) -> Result<()> {
        if self.objects == 0 {
            return Ok(());
        }
        if !self.text {
            return Err(missing_column(path, columns.keys.text, columns.text, self.fields));
        }
        match columns.time.filter(|_| !self.time && !given) {
            Some(time) => Err(invalid(
                columns.keys.time,
                "a field that some object has",
                format!("{}, which no object of the source has", quoted(time)),
            )),
            None => Ok(()),
        }
    }
}

/// The names of the fields of the first objects. No value of them is kept.
pub(crate) fn fields(content: Coded<'_>) -> Result<Vec<String>> {
    let mut seen = Seen::default();
    // No field has this place, so the objects are only looked at. Reading ends at the first rows.
    let columns = Columns::texts("//", Keys::SOURCE);
    match read(content, columns, None, &mut seen, &mut |_, _| {
        Err(DataError::Interrupted)
    }) {
        Ok(()) | Err(DataError::Interrupted) => Ok(seen.fields),
        Err(error) => Err(error),
    }
}

/// Reads the objects of a file: those of its lines, or those of the array at `records`. A file that begins with `[` is an array.
pub(crate) fn read(
    content: Coded<'_>,
    columns: Columns<'_>,
    records: Option<&str>,
    seen: &mut Seen,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    content.refuse_markup()?;
    let path = content.path().to_owned();
    let mut document = Document::of(path.clone(), content);
    let reader = Reader {
        path: &path,
        columns,
        wanted: Wanted::of(columns),
    };
    match (records, document.peek()?) {
        (Some(place), _) => reader.array(document, Some(place), seen, on_rows),
        (None, Some(b'[')) => reader.array(document, None, seen, on_rows),
        (None, _) => reader.lines(document, seen, on_rows),
    }
}

struct Reader<'a> {
    path: &'a Path,
    columns: Columns<'a>,
    wanted: Wanted,
}

impl Reader<'_> {
    fn lines(&self, document: Document<impl Read>, seen: &mut Seen, on_rows: &mut OnRows<'_>) -> Result<()> {
        let mut lines = document.into_lines();
        let mut rows = Rows::of_lines(self.path, self.columns);
        let mut any = false;
        while let Some((number, line)) = lines.next()? {
            // Files that were joined have such marks in their midst.
            let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
            let (line, goes_on) = match line.strip_suffix(b"\n") {
                Some(line) => (line.strip_suffix(b"\r").unwrap_or(line), true),
                None => (line, false),
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let at = At {
                reader: self,
                place: Place::Line(number),
                text: line,
            };
            let mut found = Found::default();
            match self.wanted.parse(line, &mut found) {
                Ok(Record::Object) => at.row(&found, seen, &mut rows)?,
                Ok(Record::Other(kind)) => return Err(at.bad("line", "a JSON object", kind.to_owned())),
                Err(fault) if !any && is_cut_off(fault.what) && goes_on => {
                    let got = "the first line of a longer document; --records /NAME (records = \"/NAME\") names the array in it \
                               that holds the rows, and `jq -c .` writes objects one per line";
                    return Err(at.bad("line", "a JSON object", got.to_owned()));
                }
                Err(fault) => {
                    let got = format!("invalid JSON ({} at column {})", fault.what, column(line, fault));
                    return Err(at.bad("line", "a JSON object", got));
                }
            }
            any = true;
            rows.places.push(number);
            rows.hand_over(on_rows, None)?;
        }
        if !any {
            return Err(empty(self.path, "JSON objects"));
        }
        on_rows(&rows, None)
    }

    fn array(
        &self,
        mut document: Document<impl Read>,
        records: Option<&str>,
        seen: &mut Seen,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        let place = records.map(Pointer::of_records);
        document.enter(place.transpose()?.as_ref())?;
        let mut rows = Rows::of_table(self.path, self.columns);
        let mut number = 0;
        while let Some(element) = document.next(number == 0)? {
            number += 1;
            let text = document.bytes(&element);
            let at = At {
                reader: self,
                place: Place::Row(number),
                text,
            };
            let mut found = Found::default();
            match self.wanted.parse(text, &mut found) {
                Ok(Record::Object) => at.row(&found, seen, &mut rows)?,
                Ok(Record::Other(kind)) => return Err(at.bad("record", "a JSON object", kind.to_owned())),
                Err(fault) => {
                    let before = text.get(..fault.at).unwrap_or(text);
                    let line = element.line + before.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    let got = format!("invalid JSON ({} at line {line} of the file)", fault.what);
                    return Err(at.bad("record", "a JSON object", got));
                }
            }
            rows.places.push(number);
            rows.hand_over(on_rows, None)?;
        }
        if number == 0 {
            return Err(empty(self.path, "JSON objects"));
        }
        on_rows(&rows, None)
    }
}

/// The column of a fault, as an editor counts.
fn column(line: &[u8], fault: Fault) -> usize {
    let before = line.get(..fault.at).unwrap_or(line);
    String::from_utf8_lossy(before).chars().count() + 1
}

/// A record of a file, for errors.
struct At<'a> {
    reader: &'a Reader<'a>,
    place: Place,
    text: &'a [u8],
}

impl At<'_> {
    fn bad(&self, what: &str, expected: &str, got: String) -> DataError {
        bad_value(self.reader.path, self.place, quoted(what), expected, got)
    }

    /// Appends a row, except its place.
    fn row(&self, found: &Found<'_>, seen: &mut Seen, rows: &mut Rows) -> Result<()> {
        let columns = self.reader.columns;
        seen.add(self.text);
        if let Some(name) = columns.user {
            match found.user() {
                Some(Field::Text(user)) if !user.is_empty() => rows.users.push(self.bounded(name, user)?),
                Some(Field::Number(number)) if whole(number).is_some() => {
                    rows.users.push(&whole(number).unwrap_or_default());
                }
                None => return Err(self.absent(name, columns.keys.user, "a non-empty string or an integer")),
                other => {
                    let got = Field::kind(other).to_owned();
                    return Err(self.bad(name, "a non-empty string or an integer", got));
                }
            }
        }
        match found.text() {
            Some(Field::Text(text)) => rows.texts.push(self.bounded(columns.text, text)?),
            Some(Field::Null) => rows.texts.push(""),
            None => {
                rows.texts.push("");
                rows.noted.add(NO_TEXT, 1);
            }
            other => return Err(self.bad(columns.text, "a string", Field::kind(other).to_owned())),
        }
        seen.text |= found.text().is_some();
        rows.times.push(match columns.time {
            None => NO_TIME,
            Some(name) => {
                seen.time |= found.time().is_some();
                self.time(name, found.time())?
            }
        });
        if let Some(name) = columns.split {
            match found.split() {
                Some(Field::Text(split)) => rows.splits.push(split),
                None => return Err(self.absent(name, columns.keys.split, "a string")),
                other => return Err(self.bad(name, "a string", Field::kind(other).to_owned())),
            }
        }
        rows.noted
            .add("half emojis (lone surrogates) replaced", found.replaced);
        Ok(())
    }

    /// The error for a field that the record lacks, with those that it has.
    fn absent(&self, name: &str, key: &str, expected: &str) -> DataError {
        let names = list(&names(self.text, MAX_FIELDS), "no fields");
        let got = format!("no such field; its fields are {names}; set {key} to one of them");
        self.bad(name, expected, got)
    }

    fn bounded<'t>(&self, field: &str, text: &'t str) -> Result<&'t str> {
        if text.len() <= MAX_TEXT_BYTES {
            return Ok(text);
        }
        let expected = format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)");
        Err(self.bad(field, &expected, format!("{} bytes", text.len())))
    }

    /// Seconds, or [`NO_TIME`] where the field is absent, null or an empty string.
    fn time(&self, name: &str, field: Option<&Field<'_>>) -> Result<i64> {
        let unit = self.reader.columns.time_unit;
        let (seconds, got) = match field {
            None | Some(Field::Null) => return Ok(NO_TIME),
            Some(Field::Text(text)) => (time::of_text(text, unit), quoted(text)),
            Some(Field::Number(number)) => {
                let seconds = match number.parse().ok().filter(|_| number.contains(['e', 'E', 'I'])) {
                    Some(float) => time::of_float(float, unit),
                    None => time::of_text(number, unit),
                };
                (seconds, (*number).to_owned())
            }
            other => (Err(time::expected()), Field::kind(other).to_owned()),
        };
        let seconds = seconds.map_err(|expected| self.bad(name, &expected, got))?;
        Ok(seconds.unwrap_or(NO_TIME))
    }
}

/// The digits of a whole number, such as `12` or `12.0`. Programs that keep integers as floats write the second form.
fn whole(number: &str) -> Option<String> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(if digits == "0" { "0" } else { number }.to_owned());
    }
    let value: f64 = number.parse().ok()?;
    // From 2^53 on, neighbours share a number.
    let exact = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    exact.then(|| (value as i64).to_string())
}
