//! A published folder: what a stranger can check in it, and what must hold before it is published.

use std::fs;
use std::path::Path;

use super::subject::{self, Subject};
use super::{Check, Run, Verification, checked};
use crate::driver::LEDGER_FILE;
use crate::error::{Result, RunError};
use crate::files::names::{CONFIG_FILE, MANIFEST_FILE, PUBLIC_LEDGER_FILE, TASK_FILE};
use undertone_coordinator::record::PrivacyReport;
use undertone_coordinator::task::{Algorithm, TaskConfig};
use undertone_text::VocabProvenance;

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
    let entries = fs::read_dir(folder).map_err(|source| RunError::io("read", folder, source));
    for entry in check.keep(entries).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != MANIFEST_FILE && !names.contains(&&*name) {
            check.problem(format!("{name}: no file of a release"));
        }
    }
}

/// The task of a folder and the digest that the first line of its ledger follows.
pub(crate) fn settings_of(folder: &Path, of_task: bool) -> Result<(TaskConfig, String)> {
    let (check, subject) = subject::read(folder, of_task);
    let file = if of_task { TASK_FILE } else { CONFIG_FILE };
    let subject = subject.ok_or_else(|| RunError::damaged(&folder.join(file), check.problems.join("; ")))?;
    Ok((subject.task().clone(), subject.genesis(folder)?))
}

/// The obstacle of a folder of an earlier version whose training was stopped.
const CLAIMS_ROUNDS_SO_FAR: &str = "privacy.json: after a stop it claims the epsilon of the rounds that were made, and the round of the \
    stop may depend on a release; train anew with this version, which claims that of all rounds";

/// Verifies a folder that is about to be published, and names all that its guarantee would not cover.
pub(crate) fn release(folder: &Path) -> Result<(Verification, Vec<String>)> {
    let (verification, found) = checked(folder)?;
    let obstacles = match found {
        Some((run, made)) => {
            let mut obstacles = obstacles(&run, &made.report)?;
            // A copy would state the smaller claim to strangers.
            obstacles.extend(made.earlier.is_some().then(|| CLAIMS_ROUNDS_SO_FAR.to_owned()));
            obstacles
        }
        None => Vec::new(),
    };
    Ok((verification, obstacles))
}

/// PRIVACY: a folder is published as a whole. Each of these would publish something about people that the stated guarantee does not
/// bound.
fn obstacles(run: &Run<'_>, report: &PrivacyReport) -> Result<Vec<String>> {
    let claims = run.claims()?;
    let mut found = Vec::new();
    if !report.private {
        found.push("privacy: expected a run that adds noise, got one without a guarantee".to_owned());
        return Ok(found);
    }
    if run.plan.selection().is_some() && report.selected.is_none() {
        found.push("privacy.json, selected: no guarantee of the private sweep can be stated".to_owned());
    }
    if report.alone().is_none() {
        found
            .push("privacy.json, observed: the noise is too small for any guarantee to be stated".to_owned());
    }
    if claims.seeded {
        let file = run.subject.file_name();
        found.push(format!(
            "{file}, seed: everybody who reads the seed can subtract the noise; train without a seed"
        ));
    }
    if claims.vocabulary == VocabProvenance::TrainingData {
        found.push(
            "data.vocabulary: the words were counted on the text of the users, without noise; take public words, or words of \
             `undertone data vocab --private`"
                .to_owned(),
        );
    }
    if let Some(why) = run.plan.vocabulary_warning() {
        found.push(format!("data.vocabulary: {why}"));
    }
    if let Some(why) = run.plan.start().and_then(|start| start.uncountable()) {
        found.push(format!("initial_model: {why}"));
    }
    let task = run.task();
    // The expected number of users per round is then that number times the probability, and no statement takes it as public.
    if !matches!(run.subject, Subject::Task { .. })
        && task.user_update.algorithm == Algorithm::Els
        && task.cohort.sampling_probability.is_some()
    {
        found.push(
            "cohort.sampling_probability: with example-level sampling, privacy.json and the ledger then tell the number of examples, \
             which is not taken as public; give cohort.examples_per_round"
                .to_owned(),
        );
    }
    Ok(found)
}
