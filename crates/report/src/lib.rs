#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it does |
//! |---|---|
//! | [`write()`] | writes `report.html` and the pictures into a run directory |
//! | [`read`], [`RunData`] | read a run directory, finished or not |
//! | [`html`], [`plots`], [`Picture`], [`summary()`] | the parts of a report |
//! | [`story`] | the result in four rows and one sentence |
//! | [`registry()`], [`Record`], [`REGISTRY_FILE`] | the record of a run for a public registry |
//! | [`personalization()`] | the picture of a personalisation |
#![forbid(unsafe_code)]

mod audits;
mod error;
mod page;
mod personalization;
mod pictures;
mod registry;
pub mod story;
mod summary;

use std::path::Path;

pub use error::ReportError;
use undertone_run_directory::files::{self, write_atomic};

use audits::Audits;
pub use personalization::personalization;
pub use pictures::Picture;
pub use registry::{REGISTRY_FILE, Record, registry};
pub use summary::summary;

pub use undertone_run_directory::read::{RunData, read};

/// Result of this module's functions.
pub type Result<T, E = ReportError> = std::result::Result<T, E>;

/// Draws every picture that the run has data for.
///
/// # Errors
/// [`ReportError::Picture`].
pub fn plots(run: &RunData) -> Result<Vec<Picture>> {
    pictures::all(run)
}

/// The whole report as one HTML document that needs no other file and no script. The audits are read from the run's directory.
///
/// # Errors
/// [`ReportError::Picture`]; an audit that cannot be read.
pub fn html(run: &RunData) -> Result<String> {
    Ok(page::page(run, &Audits::beside(run)?, &plots(run)?))
}

/// Reads a run directory and writes `report.html` and `plots/*.svg` into it, each file at once.
///
/// # Errors
/// Files that cannot be read, understood or written; the message names the file, and the line where there is one.
pub fn write(run_dir: &Path) -> Result<()> {
    let run = read(run_dir)?;
    let plots = plots(&run)?;
    let folder = run_dir.join("plots");
    files::folder(&folder)?;
    for plot in &plots {
        write_atomic(&folder.join(format!("{}.svg", plot.name)), plot.svg.as_bytes())?;
    }
    Ok(write_atomic(
        &run_dir.join("report.html"),
        page::page(&run, &Audits::beside(&run)?, &plots).as_bytes(),
    )?)
}

#[cfg(test)]
mod tests;
