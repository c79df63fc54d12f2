//! Sources that this build does not read.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;

use super::Identity;
use crate::columns::{Columns, Keys};
use crate::error::{DataError, Result};
use crate::progress::Progress;
use crate::rows::OnRows;
use undertone_settings::SourceSpec;

/// No table can be opened.
#[derive(Debug)]
pub(crate) struct Table<'a>(Infallible, PhantomData<&'a ()>);

impl<'a> Table<'a> {
    pub(super) fn open(spec: &'a SourceSpec, _: &Path, _: &dyn Progress) -> Result<(Table<'a>, Identity)> {
        let what = match spec {
            SourceSpec::Arrow(_) => "Arrow files",
            SourceSpec::Grouped(_) => "text that is grouped by user",
            SourceSpec::Memory(_) => "tables in memory",
            _ => "Parquet files",
        };
        Err(DataError::NotInThisBuild { path: None, what })
    }

    pub(super) fn text_bytes(&self) -> Result<u64> {
        match self.0 {}
    }

    pub(super) fn read(&self, _: &mut OnRows<'_>) -> Result<()> {
        match self.0 {}
    }
}

pub(super) fn read(path: &Path, _: Columns<'_>, _: &mut OnRows<'_>) -> Result<()> {
    Err(DataError::NotInThisBuild {
        path: Some(path.to_owned()),
        what: "Parquet and Arrow files",
    })
}

pub(super) fn columns(path: &Path) -> Result<Vec<String>> {
    read(path, Columns::texts("", Keys::SOURCE), &mut |_, _| Ok(())).map(|()| Vec::new())
}

/// Exports of people are not known, so that an error says nothing of them.
pub(super) fn explained(_: &Path, error: DataError) -> DataError {
    error
}
