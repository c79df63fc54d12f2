//! A file of trained parameters: its description, and the checks that a run's model can start from it.

use std::path::{Path, PathBuf};

use undertone_models::weights::{self, gpt2};
use undertone_models::{Loaded, LoraSpec, ModelSpec};
use undertone_text::Vocab;

use super::{Description, Training};
use crate::error::{DirectoryError, Result};
use crate::files;
use crate::initial_model::huggingface::{self, Weights, unusable};
use undertone_coordinator::trainings;

/// The file beside weights in GPT-2's layout.
pub const GPT2_CONFIG: &str = "config.json";

pub(super) struct ModelFile {
    path: PathBuf,
    content: Content,
    /// The description; files of other programs have none.
    description: Option<Description>,
}

enum Content {
    /// A file in our own layout or in GPT-2's.
    Bytes(Vec<u8>),
    /// Files of Llama or a relative, which are read later.
    HuggingFace(Box<Weights>),
}

impl ModelFile {
    /// Reads a file, or the files that a folder or an index stands for.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let path = &huggingface::file_of(path);
        let (content, text) = if huggingface::is_index(path) {
            let weights = Weights::of_index(path)?;
            let text = weights.description()?;
            (Content::HuggingFace(Box::new(weights)), text)
        } else {
            let bytes = files::read_given(path, files::MAX_MODEL)?;
            let text = weights::description(&bytes).map_err(|source| unusable(path, source))?;
            match huggingface::is(path, &bytes)? {
                true => (Content::HuggingFace(Box::new(Weights::of_file(path)?)), text),
                false => (Content::Bytes(bytes), text),
            }
        };
        Ok(Self {
            path: path.clone(),
            content,
            description: description_of(text, path)?,
        })
    }

    pub(super) fn trained_on(&self) -> Result<Vec<Training>> {
        trainings_of(self.description.as_ref(), &self.path)
    }

    /// The model that the file describes; other programs describe none.
    fn own(&self) -> Option<&ModelSpec> {
        self.description.as_ref()?.model.as_ref()
    }

    /// The run's model with the parameters of the file; its adapters are `None` where the file has none.
    pub(super) fn load(&self, spec: &ModelSpec, vocab: &Vocab) -> Result<Loaded> {
        check_words(self.description.as_ref(), vocab, &self.path)?;
        let bytes = match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::HuggingFace(weights) => return self.load_huggingface(weights, spec, vocab),
        };
        self.check_heads(spec, bytes)?;
        let of_file = |error| unusable(&self.path, error);
        let adapted = self.own().and_then(ModelSpec::lora);
        match (adapted, spec.lora()) {
            (Some(found), Some(expected)) => self.check_adapters(expected, found)?,
            (Some(_), None) => return self.merged(spec, vocab, bytes),
            (None, _) => {}
        }
        spec.load(vocab.len(), bytes).map_err(of_file)
    }

    fn load_huggingface(&self, weights: &Weights, spec: &ModelSpec, vocab: &Vocab) -> Result<Loaded> {
        let of_file = |error| unusable(&self.path, error);
        weights.config().check(spec, vocab.len()).map_err(of_file)?;
        let Some(whole) = spec.transformer(vocab.len()).map_err(of_file)? else {
            return Err(of_file(undertone_models::ModelError::NoBase));
        };
        let bytes = weights.rewritten(&whole)?;
        spec.load(vocab.len(), &bytes).map_err(of_file)
    }

    /// The run's model without adapters, from a file with some.
    fn merged(&self, spec: &ModelSpec, vocab: &Vocab, bytes: &[u8]) -> Result<Loaded> {
        let of_file = |error| unusable(&self.path, error);
        let own = self.own().unwrap_or(spec);
        let Loaded { model, parameters } = own.load(vocab.len(), bytes).map_err(of_file)?;
        let adapters = parameters
            .ok_or_else(|| DirectoryError::damaged(&self.path, "it lacks the adapters that it describes"))?;
        let merged = model
            .write_merged(&adapters, "read back at once")
            .map_err(of_file)?;
        spec.load(vocab.len(), &merged).map_err(of_file)
    }

    /// Checks the number of heads, which stands in no tensor's shape.
    fn check_heads(&self, spec: &ModelSpec, bytes: &[u8]) -> Result<()> {
        let expected = match *spec {
            ModelSpec::Transformer { heads, .. } => heads,
            ModelSpec::Llama(_) => return self.check_llama(spec),
            _ => return Ok(()),
        };
        if let Some(own) = self.own() {
            return match *own {
                ModelSpec::Transformer { heads: found, .. } if found != expected => {
                    Err(self.other_setting("heads", &expected, &found))
                }
                _ => Ok(()),
            };
        }
        let beside = self.path.with_file_name(GPT2_CONFIG);
        let of_file = |error| unusable(&self.path, error);
        if !beside.exists() || !gpt2::is(bytes).map_err(of_file)? {
            return Ok(());
        }
        let text = files::read_given(&beside, files::MAX_GIVEN)?;
        let config: gpt2::Gpt2Config =
            serde_json::from_slice(&text).map_err(|error| DirectoryError::damaged(&beside, error))?;
        config.check(expected).map_err(of_file)
    }

    /// Checks the settings of Llama's family that stand in no tensor's shape, against those that the file describes.
    fn check_llama(&self, spec: &ModelSpec) -> Result<()> {
        let Some(own) = self.own() else {
            return Ok(());
        };
        let of_file = |error| unusable(&self.path, error);
        let expected = spec.settings().map_err(of_file)?;
        let found = own.settings().map_err(of_file)?;
        for ((key, expected), (_, found)) in expected.iter().zip(&found) {
            if expected != found {
                return Err(self.other_setting(key, expected, found));
            }
        }
        Ok(())
    }

    /// Checks that the adapters have the shape and scale of the run's.
    fn check_adapters(&self, expected: &LoraSpec, found: &LoraSpec) -> Result<()> {
        if found.rank != expected.rank {
            return Err(self.other_setting("lora.rank", &expected.rank, &found.rank));
        }
        if found.alpha != expected.alpha {
            return Err(self.other_setting("lora.alpha", &expected.alpha, &found.alpha));
        }
        let names = |lora: &LoraSpec| {
            let mut names: Vec<_> = lora.targets.iter().map(|target| target.name()).collect();
            names.sort_unstable();
            names.join(", ")
        };
        if names(found) != names(expected) {
            return Err(self.other_setting("lora.targets", &names(expected), &names(found)));
        }
        Ok(())
    }

    fn other_setting(
        &self,
        key: &'static str,
        expected: &impl ToString,
        found: &impl ToString,
    ) -> DirectoryError {
        DirectoryError::InitialSetting {
            path: self.path.clone(),
            key,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// The description of a model, from the headers of its files.
pub(super) fn description_at(path: &Path) -> Result<Option<Description>> {
    let path = &huggingface::file_of(path);
    if huggingface::is_index(path) {
        return description_of(Weights::of_index(path)?.description()?, path);
    }
    match huggingface::description_of(path) {
        Ok(text) => description_of(text, path),
        // The reader of the whole file names what is wrong with it.
        Err(_) => Ok(ModelFile::read(path)?.description),
    }
}

/// The description in the header of a file, from its text.
pub fn description_of(text: Option<String>, path: &Path) -> Result<Option<Description>> {
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| DirectoryError::damaged(path, format!("its description: {error}")))
}

/// The trainings that a description tells of. A file without one has a training that nothing is known of.
pub fn trainings_of(description: Option<&Description>, path: &Path) -> Result<Vec<Training>> {
    let said = description.map_or(&[][..], |own| &own.trained_on[..]);
    trainings::check(said)
        .map_err(|error| DirectoryError::damaged(path, format!("its description: {error}")))?;
    Ok(match said {
        [] => vec![Training::Undescribed {}],
        said => said.to_vec(),
    })
}

/// Refuses a file that was trained with other words than these, or with words that another rule cut.
pub(super) fn check_words(description: Option<&Description>, vocab: &Vocab, path: &Path) -> Result<()> {
    let Some(own) = description else {
        return Ok(());
    };
    let expected = vocab.digest();
    if let Some(found) = own.vocabulary_sha256.as_ref().filter(|found| **found != expected) {
        return Err(DirectoryError::InitialVocabulary {
            path: path.to_owned(),
            expected,
            found: found.clone(),
        });
    }
    let has_words = own.vocabulary.as_deref() == Some(Vocab::WORDS_FILE);
    match has_words && own.words != vocab.rule() {
        true => Err(DirectoryError::InitialWords {
            path: path.to_owned(),
            expected: vocab.rule().name(),
            found: own.words.name(),
        }),
        false => Ok(()),
    }
}
