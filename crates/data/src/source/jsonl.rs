//! JSON objects, one a line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{DataError, Place, Result, io};
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::spec::Columns;
use crate::time::parse_date;

pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 18, File::open(path).map_err(io("read", path))?);
    let mut rows = Rows::of_lines(path);
    let mut line = Vec::new();
    let (mut number, mut objects) = (0_u64, 0_u64);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(io("read", path))? == 0 {
            break;
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        objects += 1;
        let at = Line { path, number };
        let value: Value = serde_json::from_slice(&line)
            .map_err(|error| at.bad("line", "a JSON object", format!("invalid JSON ({error})")))?;
        let Value::Object(object) = value else {
            return Err(at.bad("line", "a JSON object", kind(Some(&value)).to_owned()));
        };
        if let Some(user) = columns.user {
            rows.users.push(&at.user(&object, user)?);
        }
        match object.get(columns.text) {
            Some(Value::String(text)) => rows.texts.push(text),
            Some(Value::Null) => rows.texts.push(""),
            other => return Err(at.bad(columns.text, "a string", kind(other).to_owned())),
        }
        rows.times
            .push(columns.time.map_or(Ok(NO_TIME), |time| at.time(&object, time))?);
        if let Some(split) = columns.split {
            match object.get(split) {
                Some(Value::String(name)) => rows.splits.push(name),
                other => return Err(at.bad(split, "a string", kind(other).to_owned())),
            }
        }
        rows.places.push(number);
        if rows.is_full() {
            on_rows(&rows, None)?;
            rows.clear();
        }
    }
    if objects == 0 {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "JSON objects",
        });
    }
    on_rows(&rows, None)
}

struct Line<'a> {
    path: &'a Path,
    number: u64,
}

impl Line<'_> {
    fn bad(&self, what: &str, expected: &str, got: String) -> DataError {
        let (file, place) = (self.path.to_owned(), Place::Line(self.number));
        DataError::BadValue {
            file,
            place,
            what: format!("\"{what}\""),
            expected: expected.to_owned(),
            got,
        }
    }

    fn user(&self, object: &Map<String, Value>, field: &str) -> Result<String> {
        match object.get(field) {
            Some(Value::String(user)) if !user.is_empty() => Ok(user.clone()),
            Some(Value::Number(user)) if user.is_i64() || user.is_u64() => Ok(user.to_string()),
            other => Err(self.bad(field, "a non-empty string or an integer", kind(other).to_owned())),
        }
    }

    fn time(&self, object: &Map<String, Value>, field: &str) -> Result<i64> {
        let expected = "unix seconds or an ISO date in UTC";
        match object.get(field) {
            Some(Value::Number(seconds)) => {
                let float = || {
                    seconds
                        .as_f64()
                        .filter(|value| value.abs() < 9e15)
                        .map(|value| value.floor() as i64)
                };
                seconds
                    .as_i64()
                    .or_else(float)
                    .ok_or_else(|| self.bad(field, expected, seconds.to_string()))
            }
            Some(Value::String(text)) => {
                parse_date(text).ok_or_else(|| self.bad(field, expected, format!("\"{text}\"")))
            }
            other => Err(self.bad(field, expected, kind(other).to_owned())),
        }
    }
}

fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "no such field",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(text)) if text.is_empty() => "an empty string",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "an array",
        Some(Value::Object(_)) => "an object",
    }
}
