//! The inputs of a task beside its file: plan, mechanism, and the digest that its ledger follows.

use std::path::Path;

use sha2::{Digest, Sha256};
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::plan::{Bounded, PrivacyPlan};
use undertone_coordinator::task::{TaskFile, TaskPurpose};
use undertone_mechanisms::{Mechanism, Strategy};
use undertone_present::numbers::hex;
use undertone_text::Vocab;
use undertone_vocabulary::record_of;

use crate::error::{DirectoryError, Result};
use crate::files::names::MECHANISM_FILE;
use crate::initial_model::Training;
use crate::ledger::GenesisFiles;

/// The strategy of the file that `privacy.mechanism.file` of a new task names; relative paths start at `base`.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] for a file that holds no strategy.
pub fn named_strategy(file: &TaskFile, base: &Path) -> Result<Option<Strategy>> {
    crate::plan_inputs::named_strategy(&file.task, base)
}

/// Refuses words that are not public: devices are promised a guarantee that covers everything about their users. The record beside the
/// file is believed, and the model that the task starts from.
///
/// # Errors
/// [`DirectoryError::Coordinator`] for such words; [`DirectoryError::Vocabulary`] for a record that cannot be read; the errors of
/// [`trained_on`](crate::initial_model::trained_on).
pub fn check_words(path: &Path, vocab: &Vocab, initial_model: Option<&Path>) -> Result<()> {
    let recorded = record_of(path)?.is_some();
    let said = match initial_model {
        Some(file) => crate::initial_model::words_are_of_people(file, vocab)?,
        None => false,
    };
    let by = match (recorded, said) {
        (true, _) => "a privacy record beside them",
        (false, true) => "the model that the task starts from, which says that they are not private",
        (false, false) => return Ok(()),
    };
    let got = format!("the words of {} with {by}", path.display());
    Err(DirectoryError::value(
        "vocabulary",
        "public words, since the guarantee of a task has no part for its words",
        got,
    ))
}

/// The plan of a new task of a population, with the cost of its initial model. `read` is [`named_strategy`], and `trainings` are
/// those of the initial model.
///
/// # Errors
/// The errors of [`TaskFile::plan`].
pub fn new_plan(
    file: &TaskFile,
    read: Option<&Strategy>,
    vocab_len: usize,
    trainings: &[Training],
    population: &str,
) -> Result<PrivacyPlan> {
    let plan = file.plan(read, vocab_len)?;
    Ok(plan.with_start(trainings, &source_sha256(population)))
}

/// The plan of a task that was created with this mechanism: [`mechanism_of`] its `mechanism.json`.
///
/// # Errors
/// The errors of [`TaskFile::plan_with`].
pub fn plan_with(
    file: &TaskFile,
    mechanism: Option<&Mechanism>,
    vocab_len: usize,
    trainings: &[Training],
    population: &str,
) -> Result<PrivacyPlan> {
    let plan = file.plan_with(mechanism, vocab_len)?;
    Ok(plan.with_start(trainings, &source_sha256(population)))
}

/// The content of `mechanism.json` of a task with this plan; `None` where clients add the noise.
///
/// # Errors
/// Values that JSON cannot hold.
pub fn mechanism_json(plan: &PrivacyPlan) -> Result<Option<Vec<u8>>> {
    let mechanism = plan.bounded().map(Bounded::mechanism);
    mechanism
        .map(serde_json::to_vec)
        .transpose()
        .map_err(|error| DirectoryError::value("privacy.mechanism", "values that JSON can hold", error))
}

/// The mechanism that the content of a `mechanism.json` describes.
///
/// # Errors
/// [`DirectoryError::Damaged`] for bytes that are no mechanism.
pub fn mechanism_of(content: &[u8]) -> Result<Mechanism> {
    serde_json::from_slice(content).map_err(|error| DirectoryError::Damaged {
        path: MECHANISM_FILE.into(),
        message: error.to_string(),
    })
}

/// The numbers of parameters that a task releases: those of the model, or the rates of an evaluation.
///
/// # Errors
/// Sizes of the model that are out of range.
pub fn counts(file: &TaskFile, vocab_len: usize) -> Result<ParameterCounts> {
    Ok(match file.purpose {
        TaskPurpose::Train { .. } => ParameterCounts::of(&file.task.model, vocab_len)?,
        TaskPurpose::Evaluate { .. } => ParameterCounts {
            trained: file.layout(vocab_len)?.len(),
            frozen: 0,
        },
    })
}

/// The digest that the first line of a task's ledger follows: that of its identifier, its mechanism, its vocabulary and the
/// trainings of its initial model. `id` is [`TaskFile::id`], which covers population, name and canonical settings.
///
/// # Errors
/// Values that JSON cannot hold.
pub fn genesis(
    id: &[u8; 32],
    mechanism: Option<&[u8]>,
    vocabulary: &[u8],
    trainings: &[Training],
) -> Result<String> {
    let trainings = trainings_json(trainings)?;
    let label: Vec<u8> = b"undertone task\0".iter().chain(id).copied().collect();
    let files = GenesisFiles {
        config: &label,
        mechanism,
        vocabulary,
        initial_model: trainings.as_deref(),
        ..GenesisFiles::default()
    };
    Ok(files.digest())
}

/// The content of `initial_model.json`; `None` for a task that starts from random parameters.
pub(super) fn trainings_json(trainings: &[Training]) -> Result<Option<Vec<u8>>> {
    if trainings.is_empty() {
        return Ok(None);
    }
    let mut text = serde_json::to_vec_pretty(trainings)
        .map_err(|error| DirectoryError::value("initial_model", "values that JSON can hold", error))?;
    text.push(b'\n');
    Ok(Some(text))
}

/// The public name of the text of a population, in the descriptions of models that were trained on it.
#[must_use]
pub fn source_sha256(population: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"undertone population\0");
    hash.update(population);
    hex(&hash.finalize())
}
