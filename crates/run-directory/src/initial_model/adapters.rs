//! Adapters that another program or an export wrote in the layout of `peft`, as a part of what a run starts from.

use std::path::{Path, PathBuf};

use undertone_models::weights;
use undertone_models::weights::peft::{CONFIG_FILE, MODEL_FILE, PeftAdapters};
use undertone_models::{ModelError, ModelSpec, SequenceModel};
use undertone_text::Vocab;

use super::file::{check_words, description_of, trainings_of};
use undertone_coordinator::trainings::Training;

use super::Description;
use crate::error::Result;
use crate::files;
use crate::initial_model::huggingface::{MAX_CONFIG, read_plain, unusable};

/// The files of a folder with adapters.
pub struct AdapterFolder {
    path: PathBuf,
    config: Vec<u8>,
    tensors: Vec<u8>,
    /// The description; files of other programs have none.
    description: Option<Description>,
}

impl std::fmt::Debug for AdapterFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl AdapterFolder {
    /// Reads the files of the folder.
    ///
    /// # Errors
    /// A file that cannot be read; an error of the description.
    pub fn read(path: &Path) -> Result<Self> {
        let config = read_plain(&path.join(CONFIG_FILE), MAX_CONFIG)?;
        let file = path.join(MODEL_FILE);
        let tensors = read_plain(&file, files::MAX_MODEL)?;
        let text = weights::description(&tensors).map_err(|source| unusable(&file, source))?;
        Ok(Self {
            path: path.to_owned(),
            config,
            tensors,
            description: description_of(text, &file)?,
        })
    }

    /// The adapters for a model without any, over these words.
    fn of(&self, whole: &undertone_aggregation::ParamLayout, vocab: &Vocab) -> Result<PeftAdapters> {
        check_words(self.description.as_ref(), vocab, &self.path.join(MODEL_FILE))?;
        PeftAdapters::read(whole, &self.config, &self.tensors).map_err(|error| self.unusable(error))
    }

    /// Adds the adapters to the parameters of a model without any.
    pub fn merge(&self, model: &dyn SequenceModel, vocab: &Vocab, parameters: &mut [f32]) -> Result<()> {
        let adapters = self.of(model.layout(), vocab)?;
        let merged = adapters.merge(model.layout(), parameters);
        merged.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: ModelError) -> crate::error::DirectoryError {
        unusable(&self.path, error)
    }
}

/// Adds adapters in the layout of `peft`, from a folder relative to `base`, to the parameters that [`starting_parameters`] gave. A model
/// with `lora` starts from these adapters: its rank and targets must hold them, and what they leave open stays as it is. A model
/// without `lora` starts from the sum.
///
/// [`starting_parameters`]: super::starting_parameters
///
/// # Guarantee
/// PRIVACY: as there. The run accounts for the trainings that the files describe.
///
/// # Errors
/// [`DirectoryError`](crate::error::DirectoryError) for files that cannot be read, and for adapters of another kind, model or vocabulary; it names the
/// key or the tensor.
pub fn add_adapters(
    spec: &ModelSpec,
    folder: &Path,
    base: &Path,
    model: &dyn SequenceModel,
    vocab: &Vocab,
    parameters: &mut [f32],
) -> Result<()> {
    let folder = AdapterFolder::read(&base.join(folder))?;
    let Some(lora) = spec.lora() else {
        return folder.merge(model, vocab, parameters);
    };
    let whole = spec.transformer(vocab.len())?.ok_or(ModelError::NoBase)?;
    let adapters = folder.of(whole.layout(), vocab)?;
    let filled = adapters.fill(lora, model.layout(), parameters);
    filled.map_err(|error| folder.unusable(error))
}

/// The trainings of a run's start: those of its initial model, then those of its adapters.
///
/// # Guarantee
/// PRIVACY: the list is never too short. Adapters that were trained on this initial model name its trainings, too, so these count twice.
/// Two trainings with the same settings have equal records, so an equal record does not show that it is the same training.
///
/// # Errors
/// The errors of [`trained_on`](super::trained_on).
pub fn trainings(base: &Path, model: Option<&Path>, adapters: Option<&Path>) -> Result<Vec<Training>> {
    let mut all = match model {
        Some(file) => super::trained_on(&base.join(file))?,
        None => Vec::new(),
    };
    if let Some(folder) = adapters {
        let path = base.join(folder);
        let own = AdapterFolder::read(&path)?.description;
        all.extend(trainings_of(own.as_ref(), &path.join(MODEL_FILE))?);
    }
    Ok(all)
}

/// `true` if the initial model or the adapters say that these words are not private.
///
/// # Errors
/// The errors of [`trainings`].
pub fn start_says_words_of_people(
    base: &Path,
    model: Option<&Path>,
    adapters: Option<&Path>,
    vocab: &Vocab,
) -> Result<bool> {
    let model = match model {
        Some(file) => super::words_are_of_people(&base.join(file), vocab)?,
        None => false,
    };
    let own = match adapters {
        Some(folder) => AdapterFolder::read(&base.join(folder))?.description,
        None => None,
    };
    Ok(model || own.is_some_and(|own| own.is_of_people(vocab)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use undertone_models::weights::peft;
    use undertone_models::{BlockMatrix, LoraSpec, Transformer};

    use super::*;
    use crate::error::DirectoryError;
    use crate::initial_model::{model, starting_parameters};
    use undertone_coordinator::random::Randomness;

    fn words(text: &str) -> Vocab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.txt");
        fs::write(&path, text).unwrap();
        undertone_vocabulary::parse_words(&path, &std::fs::read(&path).unwrap()).unwrap()
    }

    fn spec(lora: Option<&LoraSpec>) -> ModelSpec {
        serde_json::from_value(serde_json::json!({
            "family": "llama", "layers": 2, "width": 8, "heads": 2, "inner": 6, "context": 6, "lora": lora,
        }))
        .unwrap()
    }

    fn lora(targets: &[BlockMatrix]) -> LoraSpec {
        LoraSpec {
            rank: 2,
            alpha: 4.0,
            targets: targets.to_vec(),
        }
    }

    /// A folder with a base, and adapters with a description in the folder `adapters`; the adapted model and its parameters.
    fn world(trained_on: Vec<Training>) -> (tempfile::TempDir, Transformer, Vec<f32>) {
        let folder = tempfile::tempdir().unwrap();
        let lora = lora(&[BlockMatrix::Qkv, BlockMatrix::Down]);
        let words = words("a\nb\nc\n");
        let whole = spec(None).transformer(words.len()).unwrap().unwrap();
        let base = whole.initial_params(3);
        fs::write(
            folder.path().join("base"),
            weights::tensors_alone(whole.layout(), &base).unwrap(),
        )
        .unwrap();
        let adapted = whole.with_lora(base, &lora).unwrap();
        let parameters: Vec<f32> = (0..adapted.layout().len())
            .map(|index| (index as f32 * 0.37).sin() / 4.0)
            .collect();
        let description = Description::new(&spec(None), 7, &words, trained_on)
            .to_json()
            .unwrap();
        let (config, tensors) = peft::write(&adapted, &parameters, &lora, &description).unwrap();
        let out = folder.path().join("adapters");
        fs::create_dir(&out).unwrap();
        fs::write(out.join(CONFIG_FILE), config).unwrap();
        fs::write(out.join(MODEL_FILE), tensors).unwrap();
        (folder, adapted, parameters)
    }

    /// The parameters that a run of `spec` starts from.
    fn started(folder: &Path, spec: &ModelSpec, words: &Vocab) -> Result<Vec<f32>> {
        let file = Some(Path::new("base"));
        let model = model(spec, file, folder, words)?;
        let randomness = Randomness::seeded(1);
        let mut parameters = starting_parameters(spec, file, folder, model.as_ref(), words, &randomness)?;
        let adapters = Path::new("adapters");
        add_adapters(spec, adapters, folder, model.as_ref(), words, &mut parameters)?;
        Ok(parameters)
    }

    #[test]
    fn runs_with_and_without_adapters_start_from_the_same_function() {
        let (folder, adapted, parameters) = world(Vec::new());
        let words = words("a\nb\nc\n");
        let own = lora(&[BlockMatrix::Qkv, BlockMatrix::Down]);
        let start = started(folder.path(), &spec(Some(&own)), &words).unwrap();
        assert_eq!(start, parameters);
        let sum = started(folder.path(), &spec(None), &words).unwrap();
        let (_, expected) = adapted.merged(&parameters).unwrap();
        let far = sum.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-6);
        assert!(!far && sum.len() == expected.len());
    }

    #[test]
    fn adapters_of_other_words_matrices_and_kinds_are_refused_by_name() {
        let (folder, ..) = world(Vec::new());
        let own = words("a\nb\nc\n");
        let refused = |spec: &ModelSpec, words: &Vocab| {
            let error = started(folder.path(), spec, words).unwrap_err();
            error.to_string()
        };
        let error = refused(&spec(None), &words("a\nc\nb\n"));
        let expected = format!("adapters/{MODEL_FILE} has a different vocabulary: expected SHA-256");
        assert!(error.contains(&expected), "{error}");
        let error = refused(&spec(Some(&lora(&[BlockMatrix::Qkv]))), &own);
        assert!(
            error.contains("adapters: `lora.targets`: expected `down` among them"),
            "{error}"
        );
        let lstm: ModelSpec =
            serde_json::from_str(r#"{"family": "tied_lstm", "embed": 4, "hidden": 4}"#).unwrap();
        let model = lstm.build(own.len()).unwrap();
        let mut parameters = model.initial_params(1);
        let adapters = Path::new("adapters");
        let error = add_adapters(
            &lstm,
            adapters,
            folder.path(),
            model.as_ref(),
            &own,
            &mut parameters,
        );
        assert!(error.unwrap_err().to_string().contains("are for a transformer"));

        let config = folder.path().join("adapters").join(CONFIG_FILE);
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text.replace("\"use_dora\": false", "\"use_dora\": true")).unwrap();
        let error = refused(&spec(None), &own);
        assert!(
            error.contains("adapters: `use_dora` in adapter_config.json: expected none"),
            "{error}"
        );
        fs::remove_file(&config).unwrap();
        assert!(matches!(
            started(folder.path(), &spec(None), &own).unwrap_err(),
            DirectoryError::Io { .. }
        ));
    }

    #[test]
    fn no_training_of_base_or_adapters_is_left_out() {
        let trained = |source: &str| Training::NotPrivate {
            source_sha256: source.repeat(64),
            from_people: false,
        };
        let (folder, ..) = world(vec![trained("a"), Training::Undescribed {}]);
        let (base, adapters) = (Some(Path::new("base")), Some(Path::new("adapters")));
        let of = |base, adapters| trainings(folder.path(), base, adapters).unwrap();
        assert_eq!(of(None, None), []);
        assert_eq!(of(base, None), [Training::Undescribed {}]);
        // The adapters name an equal training, which may be another one.
        let all = [Training::Undescribed {}, trained("a"), Training::Undescribed {}];
        assert_eq!(of(base, adapters), all);
    }
}
