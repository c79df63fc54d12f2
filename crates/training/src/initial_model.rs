//! Starting a run from parameters that were trained before, such as on public text.

use std::path::Path;

use rand_core::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_data::Vocab;
use undertone_models::{ModelSpec, SequenceModel, weights};

use crate::error::{Result, TrainingError};
use crate::figures::hex;
use crate::random::{Purpose, Randomness};

/// What a `model.safetensors` of ours says about itself in its header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model.
    pub model: ModelSpec,
    /// Rounds (or steps of pre-training) that it was trained for.
    pub rounds: u64,
    /// Name of the vocabulary file beside it: `vocab.txt` or `tokenizer.json`.
    pub vocabulary: String,
    /// Digest of that file; files written before it was recorded have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary_sha256: Option<String>,
}

impl Description {
    /// The description of a model trained with these words.
    #[must_use]
    pub fn new(model: &ModelSpec, rounds: u64, vocab: &Vocab) -> Self {
        Self {
            model: model.clone(),
            rounds,
            vocabulary: vocab.file_name().to_owned(),
            vocabulary_sha256: Some(vocab.digest()),
        }
    }

    /// As it stands in the header.
    ///
    /// # Errors
    /// Values that JSON cannot hold.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| TrainingError::value("model", "values that JSON can hold", error))
    }
}

/// Parameters to start from.
#[derive(Debug, Clone, PartialEq)]
pub struct InitialModel {
    /// In the order of the model's layout.
    pub parameters: Vec<f32>,
    /// Digest of the file, for the record.
    pub sha256: String,
}

/// Reads parameters for `model` from a safetensors file.
///
/// Names, shapes, types and finiteness of all tensors are checked, and the vocabulary where the file records one: equal
/// shapes do not make equal words. Files written by other programs are accepted with the layout alone, those of GPT-2 in
/// its own.
///
/// # Guarantee
/// PRIVACY: none of its own. What the file was trained on is outside the guarantee of the run that starts from it, so it
/// has to be public, or to be accounted for elsewhere.
///
/// # Errors
/// [`TrainingError::Io`], [`TrainingError::InitialModel`] naming file and tensor, [`TrainingError::InitialVocabulary`],
/// [`TrainingError::Damaged`] for a description that is there and cannot be understood.
///
/// # Source
/// \[Gboard\] section 2.3: private training starts from a model trained on public text.
pub fn read(path: &Path, model: &dyn SequenceModel, vocab: &Vocab) -> Result<InitialModel> {
    let bytes = crate::files::read(path)?;
    let unusable = |source| TrainingError::InitialModel {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let mut parameters = model.read_params(&bytes).map_err(unusable)?;
    if let Some(description) = weights::description(&bytes).map_err(unusable)? {
        let description: Description =
            serde_json::from_str(&description).map_err(|error| TrainingError::Damaged {
                path: path.to_owned(),
                message: format!("its description: {error}"),
            })?;
        let expected = vocab.digest();
        if let Some(found) = description.vocabulary_sha256
            && found != expected
        {
            return Err(TrainingError::InitialVocabulary {
                path: path.to_owned(),
                expected,
                found,
            });
        }
    }
    model.constrain(&mut parameters);
    Ok(InitialModel {
        parameters,
        sha256: hex(&Sha256::digest(&bytes)),
    })
}

/// What a new run starts from: the parameters of the file, relative to `base`, or without one drawn parameters.
///
/// # Errors
/// As [`read`].
pub fn starting_parameters(
    file: Option<&Path>,
    base: &Path,
    model: &dyn SequenceModel,
    vocab: &Vocab,
    randomness: &Randomness,
) -> Result<Vec<f32>> {
    match file {
        Some(file) => Ok(read(&base.join(file), model, vocab)?.parameters),
        None => {
            let mut generator = randomness.generator(Purpose::Initialisation, 0, 0);
            Ok(model.initial_params(generator.next_u64()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(words: &str) -> Vocab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        std::fs::write(&path, words).unwrap();
        Vocab::from_file(&path).unwrap()
    }

    fn cifg(cells: usize) -> ModelSpec {
        ModelSpec::Cifg {
            cells,
            embedding: 4,
            projection: 4,
            tied: true,
        }
    }

    /// Writes a model with a header and reads it as `cifg(5)` over the words `a b c`.
    fn check(spec: &ModelSpec, description: Option<&str>) -> Result<(Vec<f32>, InitialModel)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let words = vocab("a\nb\nc\n");
        let written = spec.build(words.len())?;
        let parameters = written.initial_params(1);
        let bytes = weights::to_safetensors(written.layout(), &parameters, description)?;
        std::fs::write(&path, bytes).unwrap();
        let model = cifg(5).build(words.len())?;
        read(&path, model.as_ref(), &words).map(|initial| (parameters, initial))
    }

    #[test]
    fn parameters_come_back_with_and_without_a_description() {
        let own = Description::new(&cifg(5), 7, &vocab("a\nb\nc\n"))
            .to_json()
            .unwrap();
        let older = r#"{"model":{"family":"dplm"},"rounds":3,"vocabulary":"vocab.txt"}"#;
        for description in [None, Some(own.as_str()), Some(older)] {
            let (expected, initial) = check(&cifg(5), description).unwrap();
            assert_eq!(initial.parameters, expected);
            assert_eq!(initial.sha256.len(), 64);
        }
    }

    #[test]
    fn other_models_and_other_words_are_refused_by_name() {
        let message = |result: Result<_>| {
            result
                .map(|_: (Vec<f32>, InitialModel)| ())
                .unwrap_err()
                .to_string()
        };
        let shape = message(check(&cifg(6), None));
        assert!(
            shape.contains("model.safetensors: tensor `wx`: expected shape [4, 15], got [4, 18]"),
            "{shape}"
        );
        let dplm = ModelSpec::Dplm {
            embed: 4,
            hidden: 5,
            unit_norm: true,
        };
        assert!(message(check(&dplm, None)).contains("unknown tensor `proj"));
        let words = Description::new(&cifg(5), 7, &vocab("a\nc\nb\n"))
            .to_json()
            .unwrap();
        let words = message(check(&cifg(5), Some(&words)));
        assert!(
            words.contains("has another vocabulary: expected SHA-256"),
            "{words}"
        );
        let torn = message(check(&cifg(5), Some("{")));
        assert!(torn.contains("is damaged: its description"), "{torn}");
        let missing = read(
            Path::new("no/such/file"),
            cifg(5).build(6).unwrap().as_ref(),
            &vocab("a\n"),
        );
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .starts_with("reading no/such/file")
        );
    }
}
