//! Models from run directories, exported tasks, exported folders and files.

use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;

use serde::{Deserialize, Serialize};
use undertone_coordinator::task::TaskPurpose;
use undertone_data::{Examples, Vocab};
use undertone_models::weights::{self, gpt2, peft};
use undertone_models::{Loaded, ModelError, ModelSpec, Positions, SequenceModel};
use undertone_settings::CorpusSpec;

use super::LanguageModel;
use super::special_tokens::{self, SpecialTokens};
use crate::checkpoint::{self, Checkpoint};
use crate::driver::workspace::RunDirectory;
use crate::error::{Result, RunError};
use crate::run_file::vocabulary_of;
use undertone_run_directory::files::names::{CONFIG_FILE, MODEL_FILE, TOKENIZER_FILE};
use undertone_run_directory::files::{self, vocabulary_file};
use undertone_run_directory::initial_model::huggingface::{self, Weights};
use undertone_run_directory::initial_model::{self, Description, GPT2_CONFIG};
use undertone_run_directory::plan_inputs::trained_model;

/// The kind of folder that a model came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// A finished run.
    Run,
    /// The checkpoint of a run that has not ended.
    Checkpoint,
    /// A task of the service that was exported.
    Task,
    /// A folder that `undertone export` or another program wrote.
    Export,
}

impl ModelSource {
    /// The source as words of a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "a finished run",
            Self::Checkpoint => "the checkpoint of a run",
            Self::Task => "an exported task",
            Self::Export => "an exported model",
        }
    }
}

/// The part of a run's configuration that its model and its words need.
#[derive(Debug, Deserialize)]
struct Setting {
    data: CorpusSpec,
    model: ModelSpec,
    #[serde(default)]
    initial_model: Option<PathBuf>,
}

impl LanguageModel {
    /// Opens the model of a run directory, of an exported task, of a folder with `model.safetensors` and its words or tokenizer, or of
    /// such a file in its folder. A run that has not ended gives the model of its last checkpoint.
    ///
    /// # Errors
    /// [`RunError`] for a path without a model, a file of another model, damaged files, and the folder of a session, which has no words.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &SpecialTokens::default())
    }

    /// Opens a model as [`open`](Self::open) does, with special tokens that the caller names. Only a folder that `transformers` or an
    /// export wrote takes them: a run has its own.
    ///
    /// # Errors
    /// Those of [`open`](Self::open). A token that the tokenizer does not have, and special tokens for a model that has its own, are errors, too.
    pub fn open_with(path: &Path, given: &SpecialTokens) -> Result<Self> {
        let folder = match path.is_file() {
            true => path.parent().unwrap_or(Path::new(".")),
            false => path,
        };
        let named = path.file_name().filter(|_| path.is_file());
        if named.is_some_and(|name| name != MODEL_FILE && name != huggingface::INDEX) {
            return Err(no_model(path, format!("a folder, or a file {MODEL_FILE}")));
        }
        let is_task = undertone_run_directory::task::is_exported(folder);
        if (is_task || files::exists(&folder.join(CONFIG_FILE))) && !given.is_empty() {
            return Err(own_tokens(folder));
        }
        if is_task {
            return Self::of_task(folder);
        }
        if files::exists(&folder.join(CONFIG_FILE)) {
            return Self::of_run(folder);
        }
        if files::exists(&folder.join(MODEL_FILE)) || files::exists(&folder.join(huggingface::INDEX)) {
            return Self::of_export(folder, path, given);
        }
        let expected = match files::exists(&folder.join(peft::CONFIG_FILE)) {
            true => {
                "the model that these adapters were trained on, and their folder as --adapters".to_owned()
            }
            false => {
                format!("the folder of a run or of an exported model, with {CONFIG_FILE} or {MODEL_FILE}")
            }
        };
        Err(no_model(path, expected))
    }

    fn of_task(folder: &Path) -> Result<Self> {
        let file = undertone_run_directory::task::exported(folder)?;
        if let TaskPurpose::Evaluate { of, .. } = &file.purpose {
            let expected = format!("a task that trains, such as {of}, which it measured");
            return Err(no_model(folder, expected));
        }
        let path = vocabulary_file(folder);
        let vocab =
            undertone_vocabulary::parse_words(&path, &files::read(&path)?)?.with_rule(file.text.words);
        let (model, parameters) = trained_model(folder, &file.task.model, &vocab)?;
        Ok(Self {
            source: ModelSource::Task,
            vocab,
            ends: Vec::new(),
            notes: Vec::new(),
            examples: file.text.examples,
            model,
            parameters,
            means: None,
        })
    }

    fn of_run(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG_FILE);
        let text = files::read_text(&path)?;
        undertone_run_directory::config::refuse_session(&text, &path)?;
        let setting: Setting = undertone_run_directory::config::parse_as(&text, &path, &[])?;
        let vocab = vocabulary_of(folder, &setting.data)?;
        let (source, (model, parameters)) = if files::exists(&folder.join(MODEL_FILE)) {
            (ModelSource::Run, trained_model(folder, &setting.model, &vocab)?)
        } else {
            (
                ModelSource::Checkpoint,
                from_checkpoint(folder, &setting, &vocab)?,
            )
        };
        Ok(Self {
            source,
            vocab,
            ends: Vec::new(),
            notes: Vec::new(),
            examples: setting.data.examples,
            model,
            parameters,
            means: None,
        })
    }

    fn of_export(folder: &Path, path: &Path, given: &SpecialTokens) -> Result<Self> {
        let path = huggingface::file_of(path);
        if huggingface::is_index(&path) {
            return Self::of_huggingface(folder, &Weights::of_index(&path)?, given);
        }
        let bytes = files::read_given(&path, files::MAX_MODEL)?;
        if huggingface::is(&path, &bytes)? {
            drop(bytes);
            return Self::of_huggingface(folder, &Weights::of_file(&path)?, given);
        }
        let unreadable = |error: ModelError| RunError::damaged(&path, error);
        let described = weights::description(&bytes).map_err(unreadable)?;
        let described: Option<Description> = described
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| RunError::damaged(&path, format!("its description: {error}")))?;
        let spec = match described.as_ref().and_then(|own| own.model.as_ref()) {
            Some(own) => own.without_lora(),
            None => gpt2_spec(folder, &path)?,
        };
        let Words {
            vocab,
            ends,
            notes,
            examples,
        } = words_beside(folder, described.as_ref(), given)?;
        let Loaded { model, parameters } = spec.load(vocab.len(), &bytes).map_err(unreadable)?;
        let parameters = parameters.ok_or_else(|| RunError::damaged(&path, "it lacks parameters"))?;
        Ok(Self {
            source: ModelSource::Export,
            vocab,
            ends,
            notes,
            examples,
            model,
            parameters,
            means: None,
        })
    }
}

impl LanguageModel {
    /// A model of Llama or a relative, as this program or another one wrote it.
    fn of_huggingface(folder: &Path, weights: &Weights, given: &SpecialTokens) -> Result<Self> {
        let described: Option<Description> = weights
            .description()?
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| RunError::damaged(folder, format!("its description: {error}")))?;
        let Words {
            vocab,
            ends,
            notes,
            examples,
        } = words_beside(folder, described.as_ref(), given)?;
        let mut spec = weights.config().spec().clone();
        if let ModelSpec::Llama(llama) = &mut spec {
            llama.context = llama.context.min(huggingface::LONGEST_CONTEXT);
        }
        let of_folder = |error| huggingface::unusable(folder, error);
        let whole = spec.transformer(vocab.len()).map_err(of_folder)?;
        let whole = whole.ok_or_else(|| of_folder(ModelError::NoBase))?;
        let parameters = weights.parameters(&whole)?;
        Ok(Self {
            source: ModelSource::Export,
            vocab,
            ends,
            notes,
            examples,
            model: Box::new(whole),
            parameters,
            means: None,
        })
    }
}

/// The model of the last checkpoint of a run.
fn from_checkpoint(
    folder: &Path,
    setting: &Setting,
    vocab: &Vocab,
) -> Result<(Box<dyn SequenceModel>, Vec<f32>)> {
    if !files::exists(&checkpoint::path(folder)) {
        return Err(no_model(folder, format!("{MODEL_FILE} or a checkpoint")));
    }
    let initial = match setting.model.lora() {
        None => None,
        Some(_) => setting.initial_model.as_deref(),
    };
    let base = match initial {
        None => PathBuf::new(),
        Some(_) => RunDirectory::existing(folder)?.base(None, &setting.data)?,
    };
    let model = initial_model::model(&setting.model, initial, &base, vocab)?;
    let checkpoint = Checkpoint::read(folder, model.layout().len())?;
    Ok((model, checkpoint.parameters))
}

/// The words or the tokenizer of an exported model.
struct Words {
    vocab: Vocab,
    /// Further tokens that end a text.
    ends: Vec<u32>,
    notes: Vec<String>,
    /// The unit of text that fits them.
    examples: Examples,
}

fn words_beside(folder: &Path, described: Option<&Description>, given: &SpecialTokens) -> Result<Words> {
    let path = vocabulary_file(folder);
    let bytes = files::read_given(&path, files::MAX_GIVEN)?;
    let words = match path.ends_with(TOKENIZER_FILE) {
        true => {
            let found = special_tokens::beside(folder, &bytes, given)?;
            let (bos, eos) = (found.bos.as_deref(), found.eos.first().map(String::as_str));
            let vocab = undertone_vocabulary::parse_tokenizer(&path, bytes, bos, eos)?;
            Words {
                ends: ends_of(&vocab, &found.eos),
                notes: found.notes,
                examples: Examples::Windows,
                vocab,
            }
        }
        false if !given.is_empty() => return Err(own_tokens(folder)),
        false => Words {
            vocab: undertone_vocabulary::parse_words(&path, &bytes)?
                .with_rule(described.map(|own| own.words).unwrap_or_default()),
            ends: Vec::new(),
            notes: Vec::new(),
            examples: Examples::Sentences,
        },
    };
    if let Some(expected) = described.and_then(|own| own.vocabulary_sha256.as_ref())
        && *expected != words.vocab.digest()
    {
        return Err(DirectoryError::InitialVocabulary {
            path: folder.join(MODEL_FILE),
            expected: words.vocab.digest(),
            found: expected.clone(),
        }
        .into());
    }
    Ok(words)
}

/// The further ends of a text. A name that the tokenizer does not have would be unknown text.
fn ends_of(vocab: &Vocab, names: &[String]) -> Vec<u32> {
    let ids = names.iter().skip(1).filter_map(|name| vocab.id(name));
    ids.filter(|&id| Some(id) != vocab.special().unk).collect()
}

fn own_tokens(folder: &Path) -> RunError {
    RunError::Option {
        option: "--bos or --eos",
        expected: "the folder of a model with a tokenizer that is no run: a run and a list of words have their own tokens",
        got: folder.display().to_string(),
    }
}

/// The model that a `config.json` of GPT-2 describes.
fn gpt2_spec(folder: &Path, model: &Path) -> Result<ModelSpec> {
    let path = folder.join(GPT2_CONFIG);
    if !files::exists(&path) {
        let message = format!("it describes no model, and there is no {GPT2_CONFIG} beside it");
        return Err(RunError::damaged(model, message));
    }
    let config: gpt2::Gpt2Config = serde_json::from_slice(&files::read_given(&path, files::MAX_GIVEN)?)
        .map_err(|error| RunError::damaged(&path, error))?;
    config.check(config.n_head)?;
    let inner = config.n_inner.unwrap_or(config.n_embd.saturating_mul(4));
    if config.n_embd == 0 || !inner.is_multiple_of(config.n_embd) {
        let message = format!(
            "n_inner: expected a multiple of n_embd = {}, got {inner}",
            config.n_embd
        );
        return Err(RunError::damaged(&path, message));
    }
    Ok(ModelSpec::Transformer {
        layers: config.n_layer,
        width: config.n_embd,
        heads: config.n_head,
        context: config.n_positions,
        positions: Positions::Learned,
        feed_forward: inner / config.n_embd,
        recompute: false,
        lora: None,
    })
}

fn no_model(path: &Path, expected: String) -> RunError {
    RunError::NoModel {
        path: path.to_owned(),
        expected,
    }
}
