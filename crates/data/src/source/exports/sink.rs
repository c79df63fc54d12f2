//! Rows on their way from an export, with a count of what is left out.

use std::path::Path;

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Result, bad_value, empty};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{OnRows, Rows};
use undertone_settings::time::NO_TIME;

/// Names of the columns, for errors.
const COLUMNS: Columns<'static> = Columns {
    user: Some("account"),
    text: "text",
    time: Some("time"),
    split: None,
    time_unit: None,
    keys: Keys::SOURCE,
};

/// Receives the messages of an export.
pub(super) struct Sink<'a, 'r> {
    rows: Rows,
    on_rows: &'a mut OnRows<'r>,
    /// Messages of people, and what else was there.
    found: u64,
}

impl<'a, 'r> Sink<'a, 'r> {
    pub(super) fn new(on_rows: &'a mut OnRows<'r>) -> Self {
        Sink {
            rows: Rows::default(),
            on_rows,
            found: 0,
        }
    }

    /// Hands over the rows of the last file and begins another. Places are lines of it.
    pub(super) fn lines_of(&mut self, file: &Path) -> Result<()> {
        self.begin(Rows::of_lines(file, COLUMNS))
    }

    /// Hands over the rows of the last file and begins another. Places are the numbers of its messages.
    pub(super) fn messages_of(&mut self, file: &Path) -> Result<()> {
        self.begin(Rows::of_table(file, COLUMNS))
    }

    fn begin(&mut self, rows: Rows) -> Result<()> {
        self.hand_over()?;
        self.rows = rows;
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        (self.on_rows)(&self.rows, None)?;
        self.rows.clear();
        Ok(())
    }

    /// A message of a person. `time` is in unix seconds.
    pub(super) fn message(&mut self, place: u64, user: &str, text: &str, time: Option<i64>) -> Result<()> {
        for (what, value) in [("account", user), ("text", text)] {
            if value.len() > MAX_TEXT_BYTES {
                let expected = format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)");
                return Err(self.bad(place, what, expected, format!("{} bytes", value.len())));
            }
        }
        self.found += 1;
        self.rows.users.push(user);
        self.rows.texts.push(text);
        self.rows.times.push(time.unwrap_or(NO_TIME));
        self.rows.places.push(place);
        self.rows.hand_over(self.on_rows, None)
    }

    /// Something that no person wrote.
    pub(super) fn leave_out(&mut self, kind: &'static str) {
        self.leave_out_several(kind, 1);
    }

    pub(super) fn leave_out_several(&mut self, kind: &'static str, count: u64) {
        self.found += count;
        self.rows.noted.add(kind, count);
    }

    /// The error for a value of a message that cannot be used.
    pub(super) fn bad(
        &self,
        place: u64,
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> DataError {
        let file = self.rows.file.clone().unwrap_or_default();
        let place = self.rows.place_of(place);
        bad_value(file, place, what, expected, got)
    }

    /// Counts something inside of messages.
    pub(super) fn note(&mut self, kind: &'static str, count: u64) {
        self.rows.noted.add(kind, count);
    }

    /// Counts halves of characters that became U+FFFD.
    pub(super) fn note_halves(&mut self, count: u64) {
        self.rows.noted.add("lone surrogates replaced", count);
    }

    /// Hands over what is left. An export without anything is an error.
    pub(super) fn end(mut self, path: &Path) -> Result<()> {
        self.hand_over()?;
        match self.found {
            0 => Err(empty(path, "messages")),
            _ => Ok(()),
        }
    }
}
