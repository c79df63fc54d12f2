//! Starting a run from parameters that were trained before, such as on public text.

mod adapters;
mod file;
pub mod huggingface;
mod source;

use std::path::Path;

use rand_core::Rng;
use serde::{Deserialize, Serialize};
use undertone_models::{ModelSpec, SequenceModel};
use undertone_text::{Vocab, VocabProvenance, WordRule};

use crate::error::{DirectoryError, Result};
pub use adapters::add_adapters;
pub use adapters::{AdapterFolder, start_says_words_of_people, trainings};
use file::ModelFile;
pub use file::{GPT2_CONFIG, description_of, trainings_of};
pub use source::{SourceName, SourceRecord};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::task::check_initial_model;
pub use undertone_coordinator::trainings::Training;

/// The description of a model in the header of its `model.safetensors`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model; `None` for one that another program trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// Number of rounds (or steps of pre-training) that the model was trained for.
    pub rounds: u64,
    /// Name of the vocabulary file beside the model: `vocab.txt` or `tokenizer.json`. `None` for a session, which knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<String>,
    /// Digest of that file; files written before it was recorded have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary_sha256: Option<String>,
    /// The origin of the words, where they are not private. Without it, a run file declares them public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary_provenance: Option<VocabProvenance>,
    /// The rule of words that the model was trained by. Files of earlier versions name none, which is the rule of English.
    #[serde(default, skip_serializing_if = "WordRule::is_english")]
    pub words: WordRule,
    /// The trainings of the model, first to last; empty in files written before they were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trained_on: Vec<Training>,
    /// All that the guarantee of the last training does not cover; empty in files written before it was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
}

impl Description {
    /// The description of a model trained with these words, by these trainings.
    #[must_use]
    pub fn new(model: &ModelSpec, rounds: u64, vocab: &Vocab, trained_on: Vec<Training>) -> Self {
        let provenance = Some(vocab.provenance());
        Self {
            model: Some(model.clone()),
            vocabulary: Some(vocab.file_name().to_owned()),
            vocabulary_sha256: Some(vocab.digest()),
            vocabulary_provenance: provenance.filter(|&origin| origin == VocabProvenance::TrainingData),
            words: vocab.rule(),
            ..Self::of_session(rounds, trained_on)
        }
    }

    /// The description of a model that another program trained by a session. What the program started from is not known.
    #[must_use]
    pub fn of_session(rounds: u64, trained_on: Vec<Training>) -> Self {
        Self {
            model: None,
            rounds,
            vocabulary: None,
            vocabulary_sha256: None,
            vocabulary_provenance: None,
            words: WordRule::English,
            trained_on,
            obstacles: Vec::new(),
        }
    }

    /// `true` if the file says that these words are not private.
    fn is_of_people(&self, vocab: &Vocab) -> bool {
        self.vocabulary_provenance == Some(VocabProvenance::TrainingData)
            && self
                .vocabulary_sha256
                .as_ref()
                .is_none_or(|own| *own == vocab.digest())
    }

    /// The description as the JSON text of the header.
    ///
    /// # Errors
    /// Values that JSON cannot hold.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| DirectoryError::value("model", "values that JSON can hold", error))
    }
}

/// The trainings of the model in a file, as the file describes them. A file without a description has one training that
/// nothing is known of.
///
/// # Errors
/// [`DirectoryError::Io`], [`DirectoryError::InitialModel`] for a different kind of file, [`DirectoryError::Damaged`] for a description that
/// cannot be understood, or that states values that are no guarantee.
pub fn trained_on(file: &Path) -> Result<Vec<Training>> {
    ModelFile::read(file)?.trained_on()
}

/// `true` if the model in a file was trained over these words, and the file says that they are not private.
///
/// # Errors
/// The errors of [`trained_on`].
pub(crate) fn words_are_of_people(file: &Path, vocab: &Vocab) -> Result<bool> {
    let description = file::description_at(file)?;
    Ok(description.is_some_and(|own| own.is_of_people(vocab)))
}

/// The reason for which a model is not public, as its file tells it; `None` where the person who chose it declares it public.
///
/// # Errors
/// The errors of [`trained_on`].
pub fn not_public(file: &Path) -> Result<Option<&'static str>> {
    let Some(own) = file::description_at(file)? else {
        return Ok(None);
    };
    if own.vocabulary_provenance == Some(VocabProvenance::TrainingData) {
        return Ok(Some("has words that are not private"));
    }
    let why = trainings_of(Some(&own), file)?
        .iter()
        .find_map(|training| match training {
            Training::NotPrivate {
                from_people: true, ..
            } => Some("was trained without privacy on people's text"),
            Training::Private { .. } => Some("was trained on people's text, with a guarantee of its own"),
            Training::NotPrivate { .. } | Training::Undescribed {} => None,
        });
    Ok(why)
}

/// The model of a run. Adapters are added to the parameters of the file, relative to `base`, which stay as they are: those of
/// a model without adapters, or those that the file's own adapters are added to. A model without adapters needs no file.
///
/// # Errors
/// [`DirectoryError::Coordinator`] for adapters without a file; as [`starting_parameters`].
pub fn model(
    spec: &ModelSpec,
    file: Option<&Path>,
    base: &Path,
    vocab: &Vocab,
) -> Result<Box<dyn SequenceModel>> {
    check_initial_model(spec, file.is_some())?;
    match (spec.lora(), file) {
        (Some(_), Some(file)) => Ok(ModelFile::read(&base.join(file))?.load(spec, vocab)?.model),
        _ => Ok(spec.build(vocab.len())?),
    }
}

/// The initial parameters of a new run: those of the file, relative to `base`, or without a file random ones. Adapters are
/// random, too, where the file has none; where the file has some and the run's model none, they are merged.
///
/// Names, shapes, types and finiteness of all tensors are checked, and where the file records them the vocabulary (equal
/// shapes do not make equal words), attention heads and adapters. Files written by other programs are accepted with the
/// layout alone, those of GPT-2 in its own, with the `config.json` beside them where there is one.
///
/// # Guarantee
/// PRIVACY: none of its own. The text that the file was trained on is outside the guarantee of the run that starts from it. The
/// run composes the private trainings on its own source that the file describes, and warns of others: see [`trained_on`].
///
/// # Errors
/// [`DirectoryError::Io`], [`DirectoryError::InitialModel`] naming file and tensor, [`DirectoryError::InitialSetting`],
/// [`DirectoryError::InitialVocabulary`], [`DirectoryError::Damaged`] for a description that is there and cannot be understood.
///
/// # Source
/// \[Gboard\] section 2.3: private training starts from a model trained on public text.
pub fn starting_parameters(
    spec: &ModelSpec,
    file: Option<&Path>,
    base: &Path,
    model: &dyn SequenceModel,
    vocab: &Vocab,
    randomness: &Randomness,
) -> Result<Vec<f32>> {
    let parameters = match file {
        Some(file) => ModelFile::read(&base.join(file))?.load(spec, vocab)?.parameters,
        None => None,
    };
    let Some(mut parameters) = parameters else {
        let mut generator = randomness.generator(Purpose::Initialisation, 0, 0);
        return Ok(model.initial_params(generator.next_u64()));
    };
    model.constrain(&mut parameters);
    Ok(parameters)
}

#[cfg(test)]
mod tests;
