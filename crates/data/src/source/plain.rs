//! Plain text: every line is a row without a user.

use std::path::Path;

use crate::error::{DataError, Place, Result};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::source::lines::Lines;
use crate::spec::Columns;

pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let mut lines = Lines::open(path)?;
    let mut rows = Rows::of_lines(path, columns);
    let mut empty = true;
    while let Some((number, line)) = lines.next()? {
        empty = false;
        let bad = |expected: String, got: String| DataError::BadValue {
            file: path.to_owned(),
            place: Place::Line(number),
            what: "text".to_owned(),
            expected,
            got,
        };
        let text =
            std::str::from_utf8(line).map_err(|_| bad("UTF-8".to_owned(), "other bytes".to_owned()))?;
        if text.len() > MAX_TEXT_BYTES {
            return Err(bad(
                format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)"),
                format!("{} bytes", text.len()),
            ));
        }
        rows.texts.push(text);
        rows.times.push(NO_TIME);
        rows.places.push(number);
        if rows.is_full() {
            on_rows(&rows, None)?;
            rows.clear();
        }
    }
    if empty {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "text",
        });
    }
    on_rows(&rows, None)
}
