//! The files of a run directory against its manifest and against its configuration.

use std::path::Path;

use undertone_coordinator::task::{TaskConfig, TaskFile, TaskPurpose};
use undertone_settings::VocabularySpec;

use super::same::exactly;
use super::subject::Subject;
use super::{Check, published};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    CONFIG_FILE, FINISHED_FILES, INITIAL_MODEL_FILE, LANE_FILE, LANE_VALUES_FILE, LEDGER_FILE,
    MECHANISM_FILE, MODEL_FILE, PRIVACY_FILE, PRIVACY_PAGE, PUBLIC_LEDGER_FILE, REPLAYS_FILE, SOURCE_FILE,
    SWEEP_FILE, TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE, VOCAB_PRIVACY_FILE,
};
use undertone_run_directory::initial_model::SourceName;
use undertone_run_directory::manifest::{MANIFEST_FILE, Manifest, sha256_of};
use undertone_run_directory::public_ledger::{PUBLIC_FILES, PUBLIC_TASK_FILES};
use undertone_run_directory::task::TASK_FILES;

/// The files that a directory may have.
pub(super) struct Files<'a> {
    names: &'static [&'static str],
    /// `true` for a published folder, which holds nothing else.
    published: bool,
    /// The subject, where its settings can be read.
    subject: Option<&'a Subject>,
}

impl<'a> Files<'a> {
    /// The files of a run, or of a task of the service.
    pub(super) fn of(task: bool, published: bool, subject: Option<&'a Subject>) -> Self {
        Self {
            names: match (task, published) {
                (false, false) => &FINISHED_FILES,
                (true, false) => &TASK_FILES,
                (false, true) => &PUBLIC_FILES,
                (true, true) => &PUBLIC_TASK_FILES,
            },
            published,
            subject,
        }
    }

    fn is_expected(&self, name: &str) -> bool {
        match self.subject {
            Some(Subject::Run(config)) => is_expected(name, config),
            Some(Subject::Session(config)) => is_expected_of_session(name, &config.task),
            Some(Subject::Task { file, .. }) => is_expected_of_task(name, file),
            None => true,
        }
    }
}

/// Checks that each file is unchanged since the run ended, and that exactly the files of the configuration are there.
pub(super) fn as_when_it_ended(folder: &Path, expected_files: &Files<'_>) -> Check {
    let mut check = Check::new("files");
    let read = files::read(&folder.join(MANIFEST_FILE));
    let manifest = match read.map(|bytes| exactly::<Manifest>(MANIFEST_FILE, &bytes)) {
        Ok(Ok(manifest)) => manifest,
        Ok(Err(problems)) => {
            check.problems(problems);
            return check;
        }
        Err(error) => {
            check.problem(error);
            check.problem(format!(
                "{MANIFEST_FILE}: without it the run has not ended, or it was removed"
            ));
            return check;
        }
    };
    if manifest.version != 1 {
        check.wrong(format!("{MANIFEST_FILE}, version"), 1, manifest.version);
    }
    let strangers = manifest
        .files
        .keys()
        .filter(|name| !expected_files.names.contains(&name.as_str()));
    for name in strangers {
        check.problem(format!("{MANIFEST_FILE}, files.{name}: the run has no such file"));
    }
    for &name in expected_files.names {
        let path = folder.join(name);
        let expected = expected_files.is_expected(name);
        match (manifest.files.get(name), files::exists(&path)) {
            (Some(_), true) | (None, true) if !expected => {
                check.problem(format!("{name}: the configuration asks for no such file"));
            }
            (Some(expected), true) => {
                if let Some(got) = check.keep(sha256_of(&path))
                    && got != *expected
                {
                    check.problem(format!(
                        "{name}: changed since the run ended (SHA-256 {got}, {MANIFEST_FILE} says {expected})"
                    ));
                }
            }
            (Some(_), false) => check.problem(format!("{name}: missing")),
            (None, true) => check.problem(format!("{name}: not in {MANIFEST_FILE}")),
            // Only a run that a private sweep chose has one; its ledger follows it.
            // Earlier versions wrote no name of a text. Where there is one, the ledger follows it as well.
            (None, false) if name == SWEEP_FILE || name == SOURCE_FILE => {}
            // Words that a run file declares public have none, and in directories of earlier versions all but private ones.
            (None, false) if is_optional(name, expected_files.subject) => {}
            (None, false) if expected && expected_files.subject.is_some() => {
                check.problem(format!("{name}: missing, and not in {MANIFEST_FILE}"));
            }
            (None, false) => {}
        }
    }
    match expected_files.published {
        true => published::nothing_else(folder, expected_files.names, &mut check),
        false => left_over(folder, &mut check),
    }
    check.found = match expected_files.published {
        true => format!("{} files as published, and no others", manifest.files.len()),
        false => format!("{} files as when the run ended", manifest.files.len()),
    };
    check
}

/// `true` if a finished run of this configuration has the file.
fn is_expected(name: &str, config: &RunConfig) -> bool {
    let vocabulary = config.data.vocabulary.as_ref();
    let of_tokens = matches!(vocabulary, Some(VocabularySpec::Tokenizer { .. }));
    match name {
        INITIAL_MODEL_FILE => config.initial_model.is_some(),
        LANE_FILE | LANE_VALUES_FILE => config.has_lane(),
        SOURCE_FILE => SourceName::is_recorded(&config.data),
        REPLAYS_FILE => config.audit.is_some_and(|audit| audit.replay_every > 0),
        MECHANISM_FILE => has_mechanism(&config.task),
        TOKENIZER_FILE => of_tokens,
        VOCAB_FILE => !of_tokens,
        VOCAB_PRIVACY_FILE => vocabulary.is_some() && !of_tokens,
        TOKENIZER_PRIVACY_FILE => of_tokens,
        _ => true,
    }
}

/// `true` for the record of words whose configuration does not say that they have one.
fn is_optional(name: &str, subject: Option<&Subject>) -> bool {
    let Some(Subject::Run(config)) = subject else {
        return false;
    };
    let is_private = matches!(config.data.vocabulary, Some(VocabularySpec::Private { .. }));
    matches!(name, VOCAB_PRIVACY_FILE | TOKENIZER_PRIVACY_FILE) && !is_private
}

fn has_mechanism(task: &TaskConfig) -> bool {
    let privacy = task.privacy.as_ref();
    privacy.is_some_and(|privacy| privacy.mechanism.is_some())
}

/// `true` if a finished session has the file: it knows neither words nor metrics of the program that trained.
fn is_expected_of_session(name: &str, task: &TaskConfig) -> bool {
    match name {
        MECHANISM_FILE => has_mechanism(task),
        CONFIG_FILE | LEDGER_FILE | PUBLIC_LEDGER_FILE | MODEL_FILE | PRIVACY_FILE | PRIVACY_PAGE => true,
        _ => false,
    }
}

/// `true` if an exported task has the file.
fn is_expected_of_task(name: &str, file: &TaskFile) -> bool {
    match name {
        INITIAL_MODEL_FILE => matches!(
            &file.purpose,
            TaskPurpose::Train {
                initial_model: Some(_)
            }
        ),
        MECHANISM_FILE => has_mechanism(&file.task),
        MODEL_FILE => matches!(file.purpose, TaskPurpose::Train { .. }),
        _ => true,
    }
}

/// PRIVACY: a checkpoint holds the key of participation, which tells from the ledger which users were sampled, and the state of
/// correlated noise.
fn left_over(folder: &Path, check: &mut Check) {
    if files::exists(&folder.join("checkpoint")) {
        check.problem(
            "checkpoint: a finished run keeps none, because it tells who was sampled; `undertone train --resume` removes it",
        );
    }
}
