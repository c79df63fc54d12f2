#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it does |
//! |---|---|
//! | [`RunFile`], [`RunOptions`] | the settings of a run, and those of the machine |
//! | [`train`], [`resume`], [`Summary`] | a run from its file to its directory |
//! | [`Observer`], [`Silent`] | the observer of a run |
//! | [`evaluate`], [`Metrics`], [`report`] | the figures and the pages of a finished run |
//! | [`verify`], [`Verification`], [`PrivacyReport`] | the claims of a run |
//! | [`Accountant`], [`Event`] | the guarantee of rounds that are not made yet |
//! | [`enum@Error`] | a failure, which names a file, a key or a line |
//!
//! The records that an [`Observer`] receives are types of the crates `undertone-run` and `undertone-coordinator`. The parameters of
//! an [`Accountant`] are types of the crate `undertone-accounting`. A program that names one of them depends on that crate too.

#![forbid(unsafe_code)]

use std::path::Path;

pub use undertone_accounting::{Accountant, Event};
pub use undertone_coordinator::record::PrivacyReport;
pub use undertone_report::ReportError as Error;
pub use undertone_run::{Observer, RunFile, RunOptions, Silent, Summary};
pub use undertone_run_directory::metrics::Metrics;
pub use undertone_verify::Verification;

use undertone_run_directory::config::EvaluationSplit;
use undertone_text::EosTargets;

/// Trains the run of a run file and writes its run directory under `options.out`, with its report.
///
/// # Guarantee
/// Every released model parameter is made with the noise that the run's plan states. The guarantee in `privacy.json` is
/// recomputed from the ledger of the rounds that were made. It holds if that noise and the sampling of users were drawn on a
/// machine that the trainer trusts.
///
/// # Errors
/// [`Error`] names the file, key or line, the expected and the actual value. A run that fails after its first checkpoint can be
/// continued by [`resume`].
pub fn train(file: &RunFile, options: &RunOptions, observer: &dyn Observer) -> Result<Summary, Error> {
    let summary = undertone_run::train(file, options, observer)?;
    report(&summary.run_dir)?;
    Ok(summary)
}

/// Continues a run from its last checkpoint; otherwise like [`train`].
///
/// # Guarantee
/// The guarantee of [`train`]. No row of noise is used for two rounds.
///
/// # Errors
/// The errors of [`train`], and a run directory without a checkpoint, such as that of a finished run.
pub fn resume(file: &RunFile, options: &RunOptions, observer: &dyn Observer) -> Result<Summary, Error> {
    let options = RunOptions {
        resume: true,
        ..options.clone()
    };
    train(file, &options, observer)
}

/// Evaluates the released model of a finished run on the test users. The end of a sentence does not count as a target.
///
/// The figures are exact statistics of the test users; no guarantee covers them.
///
/// # Errors
/// [`Error`] names a file that cannot be read, or that belongs to a different model or vocabulary.
pub fn evaluate(run_dir: &Path, threads: usize) -> Result<Metrics, Error> {
    Ok(undertone_run::evaluate(
        run_dir,
        None,
        EvaluationSplit::Test,
        EosTargets::Excluded,
        threads,
        &Silent,
    )?)
}

/// Recomputes the claims of a run directory from its files. [`Verification::holds`] is `true` if each claim was confirmed.
///
/// # Errors
/// [`Error`] names a file that cannot be opened. Claims that fail are no errors; the verification lists them.
pub fn verify(run_dir: &Path) -> Result<Verification, Error> {
    Ok(undertone_verify::verify(run_dir)?)
}

/// Draws the report of a run again from the files of its directory: `report.html` and `plots/`.
///
/// # Errors
/// [`Error`] names a file that cannot be read, understood or written.
pub fn report(run_dir: &Path) -> Result<(), Error> {
    undertone_report::write(run_dir)
}

#[cfg(test)]
mod tests;
