//! The columns of a table by the names that its settings give them, and the place of a source.

use std::path::{Path, PathBuf};

use undertone_settings::{CsvSource, MemorySource, SourceSpec, TableSource, TimeUnit};

use crate::error::Result;
use crate::path::expand;

/// Column names of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) text: &'a str,
    pub(crate) time: Option<&'a str>,
    pub(crate) split: Option<&'a str>,
    pub(crate) time_unit: Option<TimeUnit>,
    /// The settings that name the columns, for errors.
    pub(crate) keys: &'static Keys,
}

/// The settings that name columns, each with its flag.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) user: &'static str,
    pub(crate) text: &'static str,
    pub(crate) time: &'static str,
    pub(crate) split: &'static str,
}

impl Keys {
    /// The keys of the source of a corpus.
    pub(crate) const SOURCE: &'static Self = &Self {
        user: "data.source.user (--user-column)",
        text: "data.source.text (--text-column)",
        time: "data.source.time (--time-column)",
        split: "data.source.split (--split-column)",
    };
    /// The keys of a public text whose words are counted.
    pub(crate) const PUBLIC: &'static Self = &Self {
        text: "data.vocabulary.text (--public-text-column, or --text-column of `data vocab --public`)",
        ..*Self::SOURCE
    };
}

impl<'a> Columns<'a> {
    /// A column of texts alone.
    pub(crate) fn texts(text: &'a str, keys: &'static Keys) -> Self {
        Columns {
            user: None,
            text,
            time: None,
            split: None,
            time_unit: None,
            keys,
        }
    }
}

/// The columns that the settings of a table name.
macro_rules! columns_of {
    ($table:ty) => {
        impl<'a> From<&'a $table> for Columns<'a> {
            fn from(table: &'a $table) -> Self {
                Columns {
                    user: Some(&table.user),
                    text: &table.text,
                    time: table.time.as_deref(),
                    split: table.split.as_deref(),
                    time_unit: table.time_unit,
                    keys: Keys::SOURCE,
                }
            }
        }
    };
}

columns_of!(TableSource);
columns_of!(CsvSource);
columns_of!(MemorySource);

/// The file or folder of a source, relative to `base`; `None` where nothing is read from files.
pub(crate) fn path_of(source: &SourceSpec, base: &Path) -> Result<Option<PathBuf>> {
    match source.path() {
        Some(path) => expand("data.source.path", path, base).map(Some),
        None => Ok(None),
    }
}
