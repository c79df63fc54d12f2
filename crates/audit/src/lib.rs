#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`](mod@record), [`read()`], [`record()`] | the record of an audit beside a run |
//! | [`canaries`], [`final_model`] | bounds on epsilon from the scores of canaries |
//! | [`lane`] | the canaries that a run trains beside its model |
//! | [`exposure`] | the exposure of secrets in a model |
//! | [`noise`] | tests of the noise of releases |
//! | [`text`] | canaries as texts of users |
//! | [`attack`] | attacks on a model, in a private record |

#![forbid(unsafe_code)]

pub mod attack;
pub mod canaries;
pub mod exposure;
pub mod final_model;
pub mod lane;
pub mod noise;
pub mod record;
pub mod text;

use std::path::Path;

use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{AUDIT_FILE, CONFIG_FILE, LEDGER_FILE};
use undertone_run_directory::ledger::{self, genesis_of};

use record::Audit;

/// The audit beside a run; `None` where nobody has recorded one.
///
/// # Errors
/// [`DirectoryError::Line`] naming the file and the line that is not as it should be.
pub fn read(run_dir: &Path) -> Result<Option<Audit>> {
    files::document(&run_dir.join(AUDIT_FILE), "an audit")
}

/// Records an audit in the directory of its run, after the ones that are there.
///
/// # Errors
/// A positive control, or an audit of another configuration; a file that is not an audit; from the file system.
pub fn record(run_dir: &Path, mut audit: Audit) -> Result<Audit> {
    if audit.control.is_some() {
        let expected = "an audit of the run as it is";
        return Err(DirectoryError::value("--record", expected, "a positive control"));
    }
    files::read(&run_dir.join(CONFIG_FILE))?;
    let head = ledger::read(&run_dir.join(LEDGER_FILE), &genesis_of(run_dir)?)?.head;
    audit.run.ledger_head = Some(head);
    let audit = match read(run_dir)? {
        Some(earlier) if earlier.run == audit.run => audit.after(earlier),
        Some(_) => {
            let message = "it is an audit of another configuration or ledger; move it away";
            return Err(DirectoryError::damaged(&run_dir.join(AUDIT_FILE), message));
        }
        None => audit,
    };
    files::write_json(&run_dir.join(AUDIT_FILE), &audit)?;
    Ok(audit)
}
