//! JSON objects, one per line.

mod object;

use std::path::Path;

use crate::error::{DataError, Place, Result, bad_value, empty, quoted};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::source::coded::Coded;
use crate::source::lines::Lines;
use crate::spec::Columns;
use crate::time::parse_date;
use object::{Field, Line, Object};

/// Reads a file. `timed` becomes true where an object has the time field, be it null.
pub(crate) fn read(
    content: Coded<'_>,
    columns: Columns<'_>,
    timed: &mut bool,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    content.refuse_markup()?;
    let path = &content.path().to_owned();
    let mut lines = Lines::of(content);
    let mut rows = Rows::of_lines(path, columns);
    let mut object = Object::of([columns.user, Some(columns.text), columns.time, columns.split]);
    let mut found = false;
    while let Some((number, line)) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        found = true;
        let at = At { path, number };
        match object.parse(line) {
            Ok(Line::Object) => {}
            Ok(Line::Other(kind)) => return Err(at.bad("line", "a JSON object", kind.to_owned())),
            Err(error) => return Err(at.bad("line", "a JSON object", format!("invalid JSON ({error})"))),
        }
        if let Some(user) = columns.user {
            rows.users.push(&at.user(&object, user)?);
        }
        match object.get(columns.text) {
            Some(Field::Text(text)) => rows.texts.push(at.bounded(columns.text, text)?),
            Some(Field::Null) => rows.texts.push(""),
            other => return Err(at.bad(columns.text, "a string", Field::kind(other).to_owned())),
        }
        rows.times.push(match columns.time {
            None => NO_TIME,
            Some(time) => {
                *timed |= object.get(time).is_some();
                at.time(&object, time)?
            }
        });
        if let Some(split) = columns.split {
            match object.get(split) {
                Some(Field::Text(name)) => rows.splits.push(name),
                other => return Err(at.bad(split, "a string", Field::kind(other).to_owned())),
            }
        }
        rows.places.push(number);
        rows.hand_over(on_rows, None)?;
    }
    if !found {
        return Err(empty(path, "JSON objects"));
    }
    on_rows(&rows, None)
}

/// A line of a file, for errors.
struct At<'a> {
    path: &'a Path,
    number: u64,
}

impl At<'_> {
    fn bad(&self, what: &str, expected: &str, got: String) -> DataError {
        bad_value(self.path, Place::Line(self.number), quoted(what), expected, got)
    }

    fn bounded<'t>(&self, field: &str, text: &'t str) -> Result<&'t str> {
        if text.len() <= MAX_TEXT_BYTES {
            return Ok(text);
        }
        let expected = format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)");
        Err(self.bad(field, &expected, format!("{} bytes", text.len())))
    }

    fn user(&self, object: &Object<'_>, field: &str) -> Result<String> {
        match object.get(field) {
            Some(Field::Text(user)) if !user.is_empty() => Ok(self.bounded(field, user)?.to_owned()),
            Some(Field::Number(user)) if user.is_i64() || user.is_u64() => Ok(user.to_string()),
            other => Err(self.bad(
                field,
                "a non-empty string or an integer",
                Field::kind(other).to_owned(),
            )),
        }
    }

    /// Seconds, or [`NO_TIME`] where the field is absent, null or an empty string.
    fn time(&self, object: &Object<'_>, field: &str) -> Result<i64> {
        let expected = "unix seconds or an ISO date in UTC";
        let (seconds, got) = match object.get(field) {
            None | Some(Field::Null) => return Ok(NO_TIME),
            Some(Field::Text(text)) if text.trim().is_empty() => return Ok(NO_TIME),
            Some(Field::Number(number)) => {
                let float = || number.as_f64().filter(|value| value.abs() < 9e15);
                let seconds = number.as_i64().or_else(|| Some(float()?.floor() as i64));
                (seconds, number.to_string())
            }
            Some(Field::Text(text)) => (parse_date(text), quoted(text)),
            other => (None, Field::kind(other).to_owned()),
        };
        seconds
            .filter(|&seconds| seconds != NO_TIME)
            .ok_or_else(|| self.bad(field, expected, got))
    }
}
