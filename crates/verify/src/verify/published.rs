//! A published folder: what a stranger can check in it, and what must hold before it is published.

use std::fs;
use std::path::Path;

use super::subject::{self, Subject};
use super::{Check, Run, Verification, checked, open};
use undertone_coordinator::outlet::{self, WITHOUT_NOISE};
use undertone_coordinator::record::PrivacyReport;
use undertone_coordinator::task::TaskConfig;
use undertone_run_directory::config::public::private_parts;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    CONFIG_FILE, LANE_FILE, LEDGER_FILE, MANIFEST_FILE, MODEL_FILE, PRIVACY_FILE, PUBLIC_LEDGER_FILE,
    SOURCE_FILE, TASK_FILE,
};
use undertone_run_directory::initial_model::SourceName;
use undertone_run_directory::lane::LaneRecord;

/// The claims that no stranger can check, for every published folder.
pub(super) const NOT_CHECKED: &[&str] = &[
    "Noise and data: no file proves that the noise was drawn as stated, that each user is one person, or that users were sampled as \
     stated. That is the word of the operator.",
    "ledger.public.jsonl was chained anew when the folder was published. That its rounds are those of the private ledger is the word \
     of the publisher.",
    "Accuracy: losses and evaluations are exact statistics of people and are not published, so nothing here states the model's quality.",
    "Attacks: this verification recomputes claims and attacks nothing.",
];

/// The claims about participation that no stranger can check where it is withheld.
pub(super) const WITHOUT_PARTICIPATION: &str = "Participation: the sizes of cohorts, the users in them and the numbers of their \
    examples are withheld. Amplification by sampling assumes that nobody sees them.";

/// The claim that no stranger can check where another program trained the model.
pub(super) const TRAINED_OUTSIDE: &str = "Model: another program trained model.safetensors. That the model was computed from the \
    released averages (released_sha256), and from nothing else about the users, is the word of that program.";

/// The name of the ledger.
pub(super) fn ledger_file(published: bool) -> &'static str {
    match published {
        true => PUBLIC_LEDGER_FILE,
        false => LEDGER_FILE,
    }
}

/// Checks that a published folder holds its files and no others: a file that came with them was not published by `publish`.
pub(super) fn nothing_else(folder: &Path, names: &[&str], check: &mut Check) {
    let entries = fs::read_dir(folder).map_err(|source| DirectoryError::io("read", folder, source));
    for entry in check.keep(entries).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != MANIFEST_FILE && !names.contains(&&*name) {
            check.problem(format!("{name}: no file of a release"));
        }
    }
}

/// The faults of a published folder that earlier versions made: values that were neither written for strangers nor computed from releases.
pub(super) fn faults(run: &Run<'_>) -> Result<Vec<String>> {
    let (folder, file) = (run.folder, run.subject.file_name());
    let path = folder.join(file);
    let mut found: Vec<String> = (private_parts(&files::read_text(&path)?, &path)?.iter())
        .map(|part| {
            let published = match part.key {
                "data.source.sha256" => "the digest of people's text",
                "data.source.rows" => "the number of rows of people's text",
                _ => "a path",
            };
            format!("{file}, {}: publishes {published}", part.key)
        })
        .collect();
    let lane = folder.join(LANE_FILE);
    if files::exists(&lane) && !files::read_json::<LaneRecord>(&lane)?.shadows.is_empty() {
        found.push(format!(
            "{LANE_FILE}, shadows: publishes names of users outside of the ledger"
        ));
    }
    if let Subject::Run(config) = &run.subject
        && SourceName::is_recorded(&config.data)
        && !files::exists(&folder.join(SOURCE_FILE))
    {
        found.push(format!(
            "{MODEL_FILE}, trained_on: names its text by a digest of a path, which can be guessed"
        ));
    }
    if !matches!(run.subject, Subject::Task { .. }) && outlet::counts_examples(run.task(), &run.plan) {
        found.push(format!(
            "{PUBLIC_LEDGER_FILE}, total_weight: publishes the number of examples, which was counted on people's text"
        ));
    }
    found
        .iter_mut()
        .for_each(|fault| fault.push_str("; publish the run again"));
    Ok(found)
}

/// The task of a folder and the digest that the first line of its ledger follows.
pub(crate) fn settings_of(folder: &Path, of_task: bool) -> Result<(TaskConfig, String)> {
    let (check, subject) = subject::read(folder, of_task);
    let file = if of_task { TASK_FILE } else { CONFIG_FILE };
    let subject =
        subject.ok_or_else(|| DirectoryError::damaged(&folder.join(file), check.problems.join("; ")))?;
    Ok((subject.task().clone(), subject.genesis(folder)?))
}

/// The obstacle of a folder of an earlier version whose training was stopped.
const CLAIMS_ROUNDS_SO_FAR: &str = "privacy.json: after a stop it claims the epsilon of the rounds that were made, and the round of the \
    stop may depend on a release; train anew with this version, which claims that of all rounds";

/// Verifies a folder, and names all that its guarantee does not cover: both stand between it and a statement that leaves the house.
///
/// # Errors
/// The errors of [`verify`](super::verify).
pub fn release(folder: &Path) -> Result<(Verification, Vec<String>)> {
    let (verification, found) = checked(folder)?;
    let obstacles = match found {
        Some((run, made)) => {
            let mut obstacles = outlet::obstacles(&run.claims()?, &made.report);
            // A copy would state the smaller claim to strangers.
            obstacles.extend(made.earlier.is_some().then(|| CLAIMS_ROUNDS_SO_FAR.to_owned()));
            obstacles
        }
        None => Vec::new(),
    };
    Ok((verification, obstacles))
}

/// Names all that the guarantee of a model does not cover, for an outlet that writes the list into what it makes. The report is taken as it
/// is written, and a folder whose settings cannot be read has that as an obstacle.
///
/// # Errors
/// [`DirectoryError`] for a report that cannot be read.
pub fn obstacles(folder: &Path) -> Result<Vec<String>> {
    let of_task = undertone_run_directory::task::is_exported(folder);
    let ledger = folder.join(ledger_file(undertone_run_directory::public_ledger::is_published(
        folder,
    )));
    if !files::exists(&ledger) {
        // A model of `undertone pretrain`.
        return Ok(vec![WITHOUT_NOISE.to_owned()]);
    }
    let mut verification = Verification::of(folder);
    match open(folder, of_task, &mut verification) {
        Some(run) => {
            let report: PrivacyReport = files::read_json(&folder.join(PRIVACY_FILE))?;
            Ok(outlet::obstacles(&run.claims()?, &report))
        }
        None => {
            let problems = verification.checks.into_iter().flat_map(|check| check.problems);
            Ok(problems
                .take(1)
                .map(|problem| format!("verify: {problem}"))
                .collect())
        }
    }
}
