//! The report of a run, made from the files of its run directory alone: one self-contained `report.html` with inline
//! SVG, the same pictures as files under `plots/`, and the privacy report alone as `privacy.md`.
//!
//! PRIVACY: a report shows exact statistics of cohorts (norms, losses, sizes). It is for whoever runs the training and
//! no part of the private release; it says so itself.

mod markdown;
mod page;
mod personalization;
mod pictures;
mod read;
mod summary;

use std::path::Path;

pub use crate::error::ReportError;
use crate::error::TrainingError;
use crate::files::{self, write_atomic};
use crate::record::PrivacyReport;

pub use personalization::personalization;
pub use pictures::Picture;
pub use read::{RunData, read};
pub use summary::summary;

/// Result of this module's functions.
pub type Result<T, E = ReportError> = std::result::Result<T, E>;

/// Draws every picture that the run has data for.
///
/// # Errors
/// [`ReportError::Picture`].
pub fn plots(run: &RunData) -> Result<Vec<Picture>> {
    pictures::all(run)
}

/// The whole report as one HTML document that needs no other file and no script.
///
/// # Errors
/// [`ReportError::Picture`].
pub fn html(run: &RunData) -> Result<String> {
    Ok(page::page(run, &plots(run)?))
}

/// The privacy report as Markdown, in the form of \[Gboard\] Appendix A; `None` where the run has no `privacy.json` yet.
#[must_use]
pub fn markdown(run: &RunData) -> Option<String> {
    let privacy = run.privacy.as_ref()?;
    Some(markdown::document(&run.start.run, privacy))
}

/// The privacy report of a run of this name as Markdown.
pub(crate) fn page_of(run: &str, privacy: &PrivacyReport) -> String {
    markdown::document(run, privacy)
}

/// Reads a run directory and writes `report.html`, `privacy.md` and `plots/*.svg` into it, each file at once.
///
/// # Errors
/// Files that cannot be read, understood or written; the message names the file, and the line where there is one.
pub fn write(run_dir: &Path) -> Result<()> {
    let run = read(run_dir)?;
    let plots = plots(&run)?;
    let folder = run_dir.join("plots");
    let failed = |error: TrainingError| ReportError::File(Box::new(error));
    files::folder(&folder).map_err(failed)?;
    for plot in &plots {
        write_atomic(&folder.join(format!("{}.svg", plot.name)), plot.svg.as_bytes()).map_err(failed)?;
    }
    if let Some(text) = markdown(&run) {
        write_atomic(&run_dir.join("privacy.md"), text.as_bytes()).map_err(failed)?;
    }
    write_atomic(&run_dir.join("report.html"), page::page(&run, &plots).as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests;
