//! Plain text: every line is a row without a user.

use crate::columns::Columns;
use crate::error::{Place, Result, bad_value, empty};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{OnRows, Rows};
use crate::source::coded::Coded;
use crate::source::lines::Lines;
use undertone_settings::time::NO_TIME;

pub(crate) fn read(content: Coded<'_>, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let path = &content.path().to_owned();
    let mut lines = Lines::of(content);
    let mut rows = Rows::of_lines(path, columns);
    let mut found = false;
    while let Some((number, line)) = lines.next()? {
        found = true;
        let bad = |expected: String, got: String| bad_value(path, Place::Line(number), "text", expected, got);
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
        rows.hand_over(on_rows, None)?;
    }
    if !found {
        return Err(empty(path, "text"));
    }
    on_rows(&rows, None)
}
