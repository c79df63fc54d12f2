//! Conformance: Undertone's numbers against reference files computed by other software, `vectors/*.json`.
//!
//! The tests of this package check the files of the repository. `conformance` of the laboratory checks any file of their formats. A check
//! prints every failure with both numbers.
//!
//! ```
//! use undertone_conformance::{Kind, check};
//!
//! let file = serde_json::json!([
//!     { "id": "a", "family": "gaussian", "source": "none", "inputs": { "sigma": 1.0 }, "outputs": { "epsilon": 3.0 } },
//! ]);
//! let tally = check(Kind::Accounting, &file)?;
//! assert!(tally.failed());
//! # Ok::<(), anyhow::Error>(())
//! ```

mod accounting;
mod case;
mod mechanisms;
mod models;
mod tally;

use serde_json::Value;

pub use tally::Tally;

/// A kind of reference file.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Losses, predictions, gradients and client updates of the language models: `vectors/models.json`.
    Models,
    /// Guarantees, divergences, sensitivities and calibrated parameters of the privacy accounting: `vectors/accounting.json`.
    Accounting,
    /// Sensitivities, errors, losses and optima of the noise mechanisms: `vectors/mechanisms.json`.
    Mechanisms,
}

/// Checks every case of a reference file.
///
/// # Errors
/// The file does not have the format of its kind.
pub fn check(kind: Kind, file: &Value) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    match kind {
        Kind::Models => models::check(file, &mut tally)?,
        Kind::Accounting => accounting::check(file, &mut tally)?,
        Kind::Mechanisms => mechanisms::check(file, &mut tally)?,
    }
    Ok(tally)
}
