//! `ledger.public.jsonl`: the lines of a ledger without anything that only insiders may see.
//!
//! PRIVACY: a line of the private ledger says who was in a round, how many they were, and how many examples they gave. Where the
//! guarantee rests on sampling, nobody may know who was drawn, so none of that is published. Where it rests on a participation
//! schema, the guarantee holds for any participation, and a stranger needs the participation to compute the observed figure. The
//! number of examples is a statistic of what people wrote, and is published in neither case.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_coordinator::participation::{ParticipantId, Salt};
use undertone_coordinator::record::{
    AbandonedAttempt, Issuer, LedgerEnd, LedgerEntry, LedgerLine, LedgerMode, NoiseLabel,
};
use undertone_coordinator::task::TaskConfig;
use undertone_present::numbers::hex;

use crate::entropy::fresh_bytes;
use crate::error::{DirectoryError, Result};
use crate::files::names::{
    CONFIG_FILE, INITIAL_MODEL_FILE, LANE_FILE, LANE_VALUES_FILE, MECHANISM_FILE, MODEL_FILE, PRIVACY_FILE,
    PRIVACY_PAGE, PUBLIC_LEDGER_FILE, REPLAYS_FILE, SERVICE_FILE, SOURCE_FILE, SWEEP_FILE, TASK_FILE,
    TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE, VOCAB_PRIVACY_FILE,
};
use crate::files::{self, Line, Lines};
use crate::ledger::Ledger;

/// The files of a published run, which its manifest covers.
pub const PUBLIC_FILES: [&str; 16] = [
    CONFIG_FILE,
    INITIAL_MODEL_FILE,
    LANE_FILE,
    LANE_VALUES_FILE,
    PUBLIC_LEDGER_FILE,
    MECHANISM_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    PRIVACY_PAGE,
    REPLAYS_FILE,
    SOURCE_FILE,
    SWEEP_FILE,
    TOKENIZER_FILE,
    TOKENIZER_PRIVACY_FILE,
    VOCAB_FILE,
    VOCAB_PRIVACY_FILE,
];

/// The files of a published task of the service.
pub const PUBLIC_TASK_FILES: [&str; 9] = [
    TASK_FILE,
    INITIAL_MODEL_FILE,
    PUBLIC_LEDGER_FILE,
    MECHANISM_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    PRIVACY_PAGE,
    SERVICE_FILE,
    VOCAB_FILE,
];

/// `true` for a folder that `undertone publish` made.
#[must_use]
pub fn is_published(folder: &Path) -> bool {
    files::exists(&folder.join(PUBLIC_LEDGER_FILE))
}

/// `true` if the guarantee of a task rests on a participation schema. Then it holds even if everybody knows who took part.
#[must_use]
pub fn by_schema(task: &TaskConfig) -> bool {
    task.encoding_is_noisy() || (task.privacy.as_ref()).is_some_and(|privacy| privacy.mechanism.is_some())
}

/// One round of a published ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicEntry {
    round: u64,
    sampling: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<LedgerMode>,
    sampling_probability: f64,
    population: u64,
    total_weight: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_size: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    quarantined: bool,
    #[serde(
        rename = "summed_on_device",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    summed_on_gpu: bool,
    clip_norm: Option<f64>,
    sensitivity: Option<f64>,
    noise_std: f64,
    noise_multiplier: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise_domain: Option<NoiseLabel>,
    /// The participation, where the guarantee rests on a participation schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participation: Option<PublicParticipation>,
    /// The issuer that vouched for the users of the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issuer: Option<Issuer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters_sha256: Option<String>,
    /// The average that a session gave out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released_sha256: Option<String>,
    previous_sha256: String,
}

/// The participation of a round, by names of this publication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicParticipation {
    cohort_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    survivors: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    abandoned: bool,
    participants: Vec<ParticipantId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<ParticipantId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AbandonedAttempt>,
}

impl PublicEntry {
    /// The public part of a round.
    fn of(entry: &LedgerEntry, names: Option<&Names>, previous_sha256: &str) -> Self {
        Self {
            round: entry.round,
            sampling: entry.sampling.clone(),
            mode: entry.mode,
            sampling_probability: entry.sampling_probability,
            population: entry.population,
            total_weight: entry.total_weight,
            group_size: entry.group_size,
            quarantined: entry.quarantined,
            summed_on_gpu: entry.summed_on_gpu,
            clip_norm: entry.clip_norm,
            sensitivity: entry.sensitivity,
            noise_std: entry.noise_std,
            noise_multiplier: entry.noise_multiplier,
            noise_domain: entry.noise_domain,
            participation: names.map(|names| PublicParticipation {
                cohort_size: entry.cohort_size,
                survivors: entry.survivors,
                abandoned: entry.abandoned,
                participants: names.of(&entry.participants),
                lost: names.of(&entry.lost),
                attempts: names.of_attempts(&entry.attempts),
            }),
            issuer: entry.issuer.clone(),
            parameters_sha256: entry.parameters_sha256.clone(),
            released_sha256: entry.released_sha256.clone(),
            previous_sha256: previous_sha256.to_owned(),
        }
    }

    /// The entry that an account reads. What was not published is absent or empty in it.
    fn into_entry(self) -> LedgerEntry {
        let shown = self.participation.unwrap_or(PublicParticipation {
            cohort_size: 0,
            survivors: None,
            abandoned: false,
            participants: Vec::new(),
            lost: Vec::new(),
            attempts: Vec::new(),
        });
        LedgerEntry {
            round: self.round,
            sampling: self.sampling,
            mode: self.mode,
            sampling_probability: self.sampling_probability,
            population: self.population,
            total_weight: self.total_weight,
            cohort_size: shown.cohort_size,
            group_size: self.group_size,
            examples: None,
            survivors: shown.survivors,
            abandoned: shown.abandoned,
            quarantined: self.quarantined,
            summed_on_gpu: self.summed_on_gpu,
            participants: shown.participants,
            lost: shown.lost,
            attempts: shown.attempts,
            issuer: self.issuer,
            clip_norm: self.clip_norm,
            sensitivity: self.sensitivity,
            noise_std: self.noise_std,
            noise_multiplier: self.noise_multiplier,
            noise_key: None,
            noise_domain: self.noise_domain,
            parameters_sha256: self.parameters_sha256,
            released_sha256: self.released_sha256,
            previous_sha256: self.previous_sha256,
        }
    }
}

/// The names of users in one publication.
///
/// PRIVACY: the key is drawn for the publication and kept nowhere. So nobody can join two publications of a run, or a publication and
/// the ledger that it was made from, by the names.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the salt joins the names of a publication with people"
)]
pub struct Names(Salt);

impl Names {
    /// The names under a new key.
    ///
    /// # Errors
    /// [`DirectoryError::Entropy`].
    pub fn fresh() -> Result<Self> {
        Ok(Self(Salt::from_bytes(fresh_bytes()?)))
    }

    /// The names of these users, in order of the names.
    fn of(&self, users: &[ParticipantId]) -> Vec<ParticipantId> {
        let mut names: Vec<_> = users.iter().map(|user| self.0.pseudonym(user.get())).collect();
        names.sort_unstable();
        names
    }

    fn of_attempts(&self, attempts: &[AbandonedAttempt]) -> Vec<AbandonedAttempt> {
        let renamed = |attempt: &AbandonedAttempt| AbandonedAttempt {
            participants: self.of(&attempt.participants),
            ..attempt.clone()
        };
        attempts.iter().map(renamed).collect()
    }
}

/// The lines of the public ledger of a private one, chained anew from the public settings, and the digest of the last line. It has names of
/// users where the guarantee rests on a participation schema.
pub fn public_lines(ledger: &Ledger, names: Option<&Names>, genesis: &str) -> Result<(Vec<u8>, String)> {
    let (mut text, mut head) = (Vec::new(), genesis.to_owned());
    let mut add = |line: serde_json::Result<Vec<u8>>| -> Result<String> {
        let line =
            line.map_err(|error| DirectoryError::value("ledger", "values that JSON can hold", error))?;
        let digest = hex(&Sha256::digest(&line));
        text.extend_from_slice(&line);
        text.push(b'\n');
        Ok(digest)
    };
    for entry in &ledger.entries {
        head = add(serde_json::to_vec(&PublicEntry::of(entry, names, &head)))?;
    }
    if let Some(end) = &ledger.end {
        let mut end = LedgerEnd {
            previous_sha256: head,
            ..end.clone()
        };
        end.attempts = names.map_or_else(Vec::new, |names| names.of_attempts(&end.attempts));
        head = add(serde_json::to_vec(&end))?;
    }
    Ok((text, head))
}

/// Reads a public ledger.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] naming the first line that is no line of a public ledger, is of a different round than
/// its place says, or does not follow the line before it.
pub fn read(path: &Path, genesis: &str) -> Result<Ledger> {
    let mut head = genesis.to_owned();
    let (mut entries, mut end): (Vec<LedgerEntry>, Option<LedgerEnd>) = (Vec::new(), None);
    let mut lines = Lines::open(path)?;
    while let Some(Line { number, bytes, .. }) = lines.next()? {
        let damaged = |message: String| DirectoryError::damaged(path, format!("line {number}: {message}"));
        if end.is_some() {
            return Err(damaged("expected nothing after the end of the task".to_owned()));
        }
        let is_end = LedgerLine::is_end(bytes).map_err(|error| damaged(error.to_string()))?;
        let (got, previous) = match is_end {
            true => {
                let read: LedgerEnd =
                    serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
                let place = (read.rounds, read.previous_sha256.clone());
                end = Some(read);
                place
            }
            false => {
                let read: PublicEntry =
                    serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
                let place = (read.round, read.previous_sha256.clone());
                entries.push(read.into_entry());
                place
            }
        };
        let expected = entries.len() as u64 - u64::from(!is_end);
        if got != expected {
            return Err(damaged(format!("expected round {expected}, got {got}")));
        }
        if previous != head {
            return Err(damaged(format!(
                "expected to follow the published settings or the line before (previous_sha256 {head}), got {previous}"
            )));
        }
        head = hex(&Sha256::digest(bytes));
    }
    Ok(Ledger { entries, end, head })
}
