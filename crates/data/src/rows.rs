//! A batch of rows on its way from a source to the tokeniser.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::columns::Columns;
use crate::error::{DataError, Place, bad_value};
use crate::noted::Noted;
use undertone_settings::time::NO_TIME;

/// The number of a name, in the order in which the names come.
pub(crate) fn number(numbers: &mut HashMap<Box<str>, u32>, name: &str) -> u32 {
    if let Some(&number) = numbers.get(name) {
        return number;
    }
    let next = numbers.len() as u32;
    numbers.insert(name.into(), next);
    next
}

/// Strings in one allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strings {
    bytes: String,
    ends: Vec<usize>,
}

impl Strings {
    pub(crate) fn push(&mut self, value: &str) {
        self.bytes.push_str(value);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn get(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Rows in source order. `users` and `splits` are empty where the source was asked for none. `times` has one value per row,
/// [`NO_TIME`] where the row has no time.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) users: Strings,
    pub(crate) texts: Strings,
    pub(crate) times: Vec<i64>,
    pub(crate) splits: Strings,
    pub(crate) places: Vec<u64>,
    /// Counts of what the reader replaced, skipped or cut since the batch before.
    pub(crate) noted: Noted,
    /// Names of pieces that the reader skipped since the batch before, such as ids of commits: the first ones.
    pub(crate) skipped: Vec<String>,
    /// The file that they come from, if they come from one.
    pub(crate) file: Option<PathBuf>,
    /// Name of the time column, for errors.
    time_column: Option<String>,
    lines: bool,
}

/// Receives batches; the `Option<u64>` is the total number of rows, where the source knows it.
pub(crate) type OnRows<'a> = dyn FnMut(&Rows, Option<u64>) -> Result<(), DataError> + 'a;

impl Rows {
    /// Rows of a table: places are rows.
    pub(crate) fn of_table(file: &Path, columns: Columns<'_>) -> Rows {
        Rows {
            file: Some(file.to_owned()),
            time_column: columns.time.map(str::to_owned),
            ..Rows::default()
        }
    }

    /// Rows of a text file: places are lines.
    pub(crate) fn of_lines(file: &Path, columns: Columns<'_>) -> Rows {
        Rows {
            lines: true,
            ..Rows::of_table(file, columns)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns `true` if the batch is large enough to hand over.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= 8192 || self.texts.bytes.len() >= 8 << 20
    }

    pub(crate) fn split(&self, index: usize) -> Option<&str> {
        (self.splits.len() > 0).then(|| self.splits.get(index))
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        self.place_of(self.places[index])
    }

    /// A number as a place of this file.
    pub(crate) fn place_of(&self, number: u64) -> Place {
        if self.lines {
            Place::Line(number)
        } else {
            Place::Row(number)
        }
    }

    /// Hands over a full batch and begins another.
    pub(crate) fn hand_over(
        &mut self,
        on_rows: &mut OnRows<'_>,
        total: Option<u64>,
    ) -> Result<(), DataError> {
        if self.is_full() {
            on_rows(self, total)?;
            self.clear();
        }
        Ok(())
    }

    /// The error for a value of a row that cannot be used.
    pub(crate) fn bad(&self, row: usize, what: String, expected: String, got: String) -> DataError {
        let population = || "the synthetic population".into();
        let file = self.file.clone().unwrap_or_else(population);
        bad_value(file, self.place(row), what, expected, got)
    }

    /// Refuses a row without a time where `needed_by` cannot do without.
    pub(crate) fn need_time(&self, row: usize, needed_by: &str) -> Result<(), DataError> {
        if self.times[row] != NO_TIME {
            return Ok(());
        }
        let what = format!("column \"{}\"", self.time_column.as_deref().unwrap_or("time"));
        let expected = format!("a time, because {needed_by} needs the time of every row");
        Err(self.bad(row, what, expected, "no time".to_owned()))
    }

    /// These rows with values that stand for those of each row, where there are some.
    pub(crate) fn with(&self, user: Option<&str>, time: Option<i64>, split: Option<&str>) -> Rows {
        let repeated = |value: &str| {
            let mut all = Strings::default();
            (0..self.len()).for_each(|_| all.push(value));
            all
        };
        let timed = |&own: &i64| match time {
            Some(time) if own == NO_TIME => time,
            _ => own,
        };
        Rows {
            users: user.map_or_else(|| self.users.clone(), repeated),
            texts: self.texts.clone(),
            times: self.times.iter().map(timed).collect(),
            splits: split.map_or_else(|| self.splits.clone(), repeated),
            places: self.places.clone(),
            noted: self.noted.clone(),
            skipped: self.skipped.clone(),
            file: self.file.clone(),
            time_column: self.time_column.clone(),
            lines: self.lines,
        }
    }

    /// Bytes of users, texts and splits.
    #[cfg(feature = "sqlite")]
    pub(crate) fn bytes(&self) -> u64 {
        let of = |strings: &Strings| strings.bytes.len() as u64;
        of(&self.users) + of(&self.texts) + of(&self.splits)
    }

    pub(crate) fn clear(&mut self) {
        self.users.clear();
        self.texts.clear();
        self.times.clear();
        self.splits.clear();
        self.places.clear();
        self.noted.clear();
        self.skipped.clear();
    }
}
