//! Attacks on the model of a run, as their figures are kept beside it.
//!
//! PRIVACY: the figures are exact statistics of users. They stand in `audit-private.json`, which is no part of any release, and on the
//! page for those who run the training.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::record::GuaranteeRecord;

use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{AUDIT_PRIVATE_FILE, LEDGER_FILE};
use undertone_run_directory::ledger::{self, genesis_of};

/// The schema of the figures of one attack.
pub const SCHEMA: &str = "undertone.audit-private/1";

/// One attack by loss, with 95 % intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// Number of users of the training partition.
    pub members: usize,
    /// Number of held-out users.
    pub others: usize,
    /// Median number of tokens of a member and of a held-out user: an attack must not find lengths.
    pub median_tokens: (usize, usize),
    /// The probability that a member has the smaller loss, with the interval of DeLong.
    pub auc: f64,
    /// The ends of that interval.
    pub auc_interval: (f64, f64),
    /// Members found above the smallest threshold with at most 1 % false alarms among the held-out users, as a fraction.
    pub found: f64,
    /// The interval of Clopper and Pearson.
    pub found_interval: (f64, f64),
    /// False alarms among the held-out users at that threshold, as a fraction.
    pub false_alarms: f64,
}

/// The limits that a guarantee sets to every attack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Largest area of any attack.
    pub auc: f64,
    /// Largest area, if the trade-off is Gaussian.
    pub auc_gaussian: f64,
    /// The rate of false alarms that the threshold of the attack has in the mean: one more than its false alarms, over one more than the
    /// held-out users. With few of them it is far above 1 %.
    #[serde(default = "one_percent")]
    pub false_alarms: f64,
    /// Largest fraction found at that rate by any attack.
    pub found: f64,
    /// Largest fraction found at that rate, if the trade-off is Gaussian.
    pub found_gaussian: f64,
}

fn one_percent() -> f64 {
    0.01
}

/// The users who took part in the rounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TookPart {
    /// Number of users who took part in a round.
    pub users: usize,
    /// Number of users that the cohorts are drawn from.
    pub population: u64,
}

/// The users who took part in a round, by the ledger of a run. The others of its training partition were never trained on.
///
/// # Errors
/// From the ledger.
pub fn took_part(run_dir: &Path) -> Result<TookPart> {
    let entries = ledger::read(&run_dir.join(LEDGER_FILE), &genesis_of(run_dir)?)?.entries;
    let names: HashSet<_> = entries.iter().flat_map(|entry| &entry.participants).collect();
    Ok(TookPart {
        users: names.len(),
        population: entries.first().map_or(0, |entry| entry.population),
    })
}

/// An attack on a run as `audit-private.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attack {
    /// `undertone.audit-private/1`.
    pub schema: String,
    /// The kind of attack: `membership` or `user-inference`.
    pub kind: String,
    /// The name of the run.
    pub run: String,
    /// The claim of the run, where it makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// The limits of that claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The attack on the model.
    pub attack: Membership,
    /// User inference: the same attack with whole texts as units in place of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_texts: Option<Membership>,
    /// Rounds of the positive control, and the same attack on its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<(u64, Membership)>,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

/// `audit-private.json`: the last attack of each kind on one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attacks {
    /// SHA-256 of the configuration of the run.
    pub config_sha256: String,
    /// The attacks, one per kind.
    pub attacks: Vec<Attack>,
}

/// The attacks that were recorded beside a run; `None` where there are none.
///
/// # Errors
/// [`DirectoryError::Line`] naming the file and the line that is not as it should be.
pub fn read(run_dir: &Path) -> Result<Option<Attacks>> {
    files::document(&run_dir.join(AUDIT_PRIVATE_FILE), "attacks on a run")
}

/// Records an attack in the directory of its run, whose configuration has this digest, in the place of an earlier one of its kind.
///
/// # Errors
/// Attacks on another configuration; a file that holds no attacks; from the file system.
pub fn record(run_dir: &Path, config_sha256: &str, attack: &Attack) -> Result<()> {
    let mut all = read(run_dir)?.unwrap_or_else(|| Attacks {
        config_sha256: config_sha256.to_owned(),
        attacks: Vec::new(),
    });
    let file = run_dir.join(AUDIT_PRIVATE_FILE);
    if all.config_sha256 != config_sha256 {
        let message = "it holds attacks on another configuration; move it away";
        return Err(DirectoryError::damaged(&file, message));
    }
    all.attacks.retain(|earlier| earlier.kind != attack.kind);
    all.attacks.push(attack.clone());
    let bytes =
        serde_json::to_vec_pretty(&all).map_err(|error| DirectoryError::io("write", &file, error.into()))?;
    files::write_secret_with(&file, |out| {
        use std::io::Write;
        out.write_all(&bytes)
            .map_err(|error| DirectoryError::io("write", &file, error))
    })
}
