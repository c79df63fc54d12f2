//! Plain text: every line is a row without a user.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::error::{DataError, Place, Result, io};
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;

pub(crate) fn read(path: &Path, on_rows: &mut OnRows<'_>) -> Result<()> {
    let mut reader = BufReader::new(File::open(path).map_err(io("read", path))?);
    let mut rows = Rows::of_lines(path);
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(io("read", path))? == 0 {
            break;
        }
        number += 1;
        let text = std::str::from_utf8(&line).map_err(|_| DataError::BadValue {
            file: path.to_owned(),
            place: Place::Line(number),
            what: "text".to_owned(),
            expected: "UTF-8".to_owned(),
            got: "other bytes".to_owned(),
        })?;
        rows.texts.push(text);
        rows.times.push(NO_TIME);
        rows.places.push(number);
        if rows.is_full() {
            on_rows(&rows, None)?;
            rows.clear();
        }
    }
    if number == 0 {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "text",
        });
    }
    on_rows(&rows, None)
}
