//! Exports of a run's model for other programs, or for a different run: adapters merged, words beside it.
//!
//! The export is computed only from the released model and the run's public settings, so the run's guarantee still applies.

mod tokenizer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use undertone_coordinator::task::TaskPurpose;
use undertone_data::{FolderBuilder, Vocab};
use undertone_models::weights::{self, gguf, gpt2, huggingface, onnx, peft};
use undertone_models::{ModelSpec, SequenceModel, Transformer};

use crate::driver::workspace::Trained;
use crate::error::{Result, RunError};
use crate::language::special_tokens::{self, TOKENIZER_SETTINGS};
use crate::run_file::vocabulary_of;
use undertone_run_directory::files::names::{
    CONFIG_FILE, MODEL_FILE, TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE, VOCAB_PRIVACY_FILE,
};
use undertone_run_directory::files::{read, read_if_there, vocabulary_file, write_atomic};
use undertone_run_directory::initial_model::huggingface::{CONFIG, INDEX};
use undertone_run_directory::initial_model::{Description, GPT2_CONFIG, description_of, trainings_of};
use undertone_run_directory::plan_inputs::trained_model;

pub use undertone_models::weights::gguf::TensorType;

/// Names and shapes of an exported model's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// GPT-2's names, as the Hugging Face hub has them, with the `config.json` that readers need. Only for transformers with
    /// learned positions.
    Gpt2,
    /// The layout of Llama, Mistral, Qwen2, Qwen3 or Gemma 1 to 3, whichever has the model's architecture, with the `config.json` that
    /// readers need. Only for the family `llama`.
    HuggingFace,
    /// The adapters alone, as the library `peft` reads them. Only for models with adapters.
    Peft,
    /// One file of llama.cpp and its relatives. Only for the family `llama`.
    Gguf,
    /// One file for onnxruntime and its relatives. Only for the recurrent families.
    Onnx,
    /// The names of a run's own `model.safetensors`.
    Undertone,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 6] = [
        Self::Gpt2,
        Self::HuggingFace,
        Self::Peft,
        Self::Gguf,
        Self::Onnx,
        Self::Undertone,
    ];

    /// Name of the layout on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::HuggingFace => "huggingface",
            Self::Peft => "peft",
            Self::Gguf => "gguf",
            Self::Onnx => "onnx",
            Self::Undertone => "undertone",
        }
    }
}

/// The file of a model in [`Layout::Gguf`].
const GGUF_FILE: &str = "model.gguf";

/// The file of a model in [`Layout::Onnx`], and the one that says how to call it.
const ONNX_FILE: &str = "model.onnx";
const ONNX_SETTINGS: &str = "model.json";

/// Maximum number of bytes of tensors per file, where the caller names none: as in `transformers`, and below every file system's limit.
const SHARD_BYTES: u64 = 5_000_000_000;

/// The settings of an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions {
    /// Names and shapes of the tensors.
    pub layout: Layout,
    /// `true` to replace the folder of an earlier export.
    pub overwrite: bool,
    /// Maximum number of bytes of tensors per file of [`Layout::HuggingFace`]; `None` for 5 GB. A larger tensor has a file of its own.
    pub shard_bytes: Option<u64>,
    /// The type of the matrices of [`Layout::Gguf`]; `None` for F32.
    pub tensor_type: Option<TensorType>,
}

impl ExportOptions {
    /// A layout, in a new folder.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            overwrite: false,
            shard_bytes: None,
            tensor_type: None,
        }
    }
}

/// The written export.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// The files in the folder.
    pub files: Vec<String>,
    /// Tensor names and shapes.
    pub layout: Layout,
    /// Number of parameters of the exported model.
    pub parameters: usize,
    /// Numbers of tensors by their type, in [`Layout::Gguf`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<BTreeMap<&'static str, usize>>,
    /// Rank of the adapters that were merged, where the run trained adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_lora_rank: Option<usize>,
    /// All that the guarantee of the run does not cover. The exported file states the same list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
}

/// Writes the final model of a run, its words or tokenizer, and the settings that readers of its layout need, into a new folder.
///
/// # Guarantee
/// PRIVACY: the export is computed only from the released model, so the run's guarantee still applies. Words are copied as they
/// are, and their cost is the one that the run states. The file and the result name all that the guarantee does not cover.
///
/// # Errors
/// [`RunError::Coordinator`] for a family or an architecture that the layout does not have, for a run without adapters in PEFT's layout
/// and for a model file of a different model. [`RunError::Data`] for a folder that exists; a folder that holds anything but an export is
/// never replaced. [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io).
pub fn export(run_dir: &Path, folder: &Path, options: ExportOptions) -> Result<Exported> {
    let ExportOptions {
        layout, overwrite, ..
    } = options;
    if let Some(bytes) = options.shard_bytes
        && (layout != Layout::HuggingFace || bytes == 0)
    {
        return Err(RunError::Option {
            option: "--shard-bytes",
            expected: "at least 1, and the layout huggingface, which alone has several files",
            got: bytes.to_string(),
        });
    }
    if let Some(kind) = options.tensor_type
        && layout != Layout::Gguf
    {
        return Err(RunError::Option {
            option: "--tensor-type",
            expected: "the layout gguf, which alone has several types of tensors",
            got: format!("{} with {}", kind.name(), layout.name()),
        });
    }
    let (spec, vocab) = model_and_words(run_dir)?;
    let (model, parameters) = trained_model(run_dir, &spec, &vocab)?;
    if overwrite && folder.exists() {
        check_replaceable(folder)?;
    }
    let own = weights::description(&read(&run_dir.join(MODEL_FILE))?)?;
    let obstacles = undertone_verify::obstacles(run_dir)?;
    let description = Description {
        obstacles: obstacles.clone(),
        ..described(own, &run_dir.join(MODEL_FILE), &spec.without_lora(), &vocab)?
    }
    .to_json()?;
    let words = read(&vocabulary_file(run_dir))?;
    let source = Source {
        spec: &spec,
        vocab: &vocab,
        model: model.as_ref(),
        parameters: &parameters,
        description: &description,
    };
    let mut tensors = None;
    let mut files = match layout {
        Layout::Gpt2 => source.gpt2()?,
        Layout::HuggingFace => source.huggingface(options.shard_bytes.unwrap_or(SHARD_BYTES))?,
        Layout::Peft => source.peft()?,
        Layout::Gguf => {
            let written = source.gguf(&words, options.tensor_type.unwrap_or_default())?;
            let counts = written.tensors.into_iter();
            tensors = Some(counts.map(|(kind, count)| (kind.name(), count)).collect());
            vec![(GGUF_FILE.to_owned(), written.bytes)]
        }
        Layout::Onnx => source.onnx()?,
        Layout::Undertone => {
            let bytes = model.write_merged(&parameters, &description)?;
            vec![(MODEL_FILE.to_owned(), bytes)]
        }
    };
    if vocab.file_name() == TOKENIZER_FILE {
        files.extend(special_tokens::settings(&vocab, &words));
    }
    files.push((vocab.file_name().to_owned(), words));
    // Words that are not public take their record along.
    let record = vocabulary_file(run_dir);
    let record = record.with_file_name(format!("{}.privacy.json", vocab.file_name()));
    if let (Some(bytes), Some(name)) = (read_if_there(&record)?, record.file_name()) {
        files.push((name.to_string_lossy().into_owned(), bytes));
    }
    let building = FolderBuilder::beside(folder)?;
    for (name, bytes) in &files {
        write_atomic(&building.path().join(name), bytes)?;
    }
    // Temporary folders are their owner's alone; an exported model is an ordinary folder.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(building.path(), fs::Permissions::from_mode(0o755));
    }
    building.persist(folder, overwrite)?;
    Ok(Exported {
        folder: folder.to_owned(),
        files: files.into_iter().map(|(name, _)| name).collect(),
        layout,
        parameters: spec.without_lora().layout(vocab.len())?.len(),
        tensors,
        merged_lora_rank: spec
            .lora()
            .filter(|_| layout != Layout::Peft)
            .map(|lora| lora.rank),
        obstacles,
    })
}

/// The description of the exported model, from that of the run's own model.
fn described(own: Option<String>, path: &Path, spec: &ModelSpec, vocab: &Vocab) -> Result<Description> {
    let own = description_of(own, path)?;
    // PRIVACY: the model of an early version is not taken for one that was never trained.
    let trained_on = trainings_of(own.as_ref(), path)?;
    let rounds = own.as_ref().map_or(0, |own| own.rounds);
    let made = Description::new(spec, rounds, vocab, trained_on);
    Ok(match own {
        Some(own) => Description {
            vocabulary_provenance: own.vocabulary_provenance,
            obstacles: own.obstacles,
            ..made
        },
        None => made,
    })
}

/// Checks that a folder holds a model, and nothing but files that an export writes: run directories and the work of others stay.
fn check_replaceable(folder: &Path) -> Result<()> {
    let models = [MODEL_FILE, INDEX, GGUF_FILE, ONNX_FILE, peft::MODEL_FILE];
    let settings = [
        CONFIG,
        ONNX_SETTINGS,
        TOKENIZER_SETTINGS,
        peft::CONFIG_FILE,
        VOCAB_FILE,
        TOKENIZER_FILE,
        VOCAB_PRIVACY_FILE,
        TOKENIZER_PRIVACY_FILE,
    ];
    let refused = |expected, found: String| {
        let got = format!("{}, which holds {found}", folder.display());
        Err(RunError::Option {
            option: "--out",
            expected,
            got,
        })
    };
    let mut has_model = false;
    for entry in fs::read_dir(folder).map_err(|source| RunError::io("read", folder, source))? {
        let entry = entry.map_err(|source| RunError::io("read", folder, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_model = models.contains(&&*name) || is_shard(&name);
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !(is_model || settings.contains(&&*name)) {
            let expected = "a new folder, or one that holds nothing but an earlier export";
            return refused(expected, name);
        }
        has_model |= is_model;
    }
    match has_model {
        true => Ok(()),
        false => refused("a folder with a model to replace", "none".to_owned()),
    }
}

/// `true` for a name such as `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    let numbers = name
        .strip_prefix("model-")
        .and_then(|name| name.strip_suffix(".safetensors"))
        .and_then(|numbers| numbers.split_once("-of-"));
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(number, count)| is_number(number) && is_number(count))
}

/// The model and the words of a run, or of an exported task that trained.
fn model_and_words(run_dir: &Path) -> Result<(ModelSpec, Vocab)> {
    if !undertone_run_directory::task::is_exported(run_dir) {
        let Trained { data, model, .. } = Trained::read(&run_dir.join(CONFIG_FILE))?;
        let vocab = vocabulary_of(run_dir, &data)?;
        return Ok((model, vocab));
    }
    let file = undertone_run_directory::task::exported(run_dir)?;
    if let TaskPurpose::Evaluate { of, .. } = &file.purpose {
        return Err(RunError::value(
            "the directory",
            format!("that of a task that trains, such as {of}"),
            format!("{}, a task that measured it", run_dir.display()),
        ));
    }
    let path = vocabulary_file(run_dir);
    let vocab = undertone_vocabulary::parse_words(&path, &read(&path)?)?.with_rule(file.text.words);
    Ok((file.task.model, vocab))
}

/// The material of an export.
struct Source<'a> {
    spec: &'a ModelSpec,
    vocab: &'a Vocab,
    model: &'a dyn SequenceModel,
    parameters: &'a [f32],
    description: &'a str,
}

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

impl Source<'_> {
    /// The model of a family without its adapters, and its parameters with the adapters added.
    fn whole(&self, layout: Layout, family: &str) -> Result<(Transformer, Vec<f32>)> {
        let whole = self.spec.transformer(self.vocab.len())?;
        let Some(whole) = whole.filter(|_| self.spec.family() == family) else {
            return Err(RunError::value(
                "--layout",
                format!(
                    "{} for a run with `model.family` = {family:?}, or else undertone",
                    layout.name()
                ),
                format!("{} of {:?}", layout.name(), self.spec.family()),
            ));
        };
        let merged = whole.read_params(&self.model.write_merged(self.parameters, self.description)?)?;
        Ok((whole, merged))
    }

    fn gpt2(&self) -> Result<Files> {
        let (whole, merged) = self.whole(Layout::Gpt2, "transformer")?;
        let ids = self.vocab.special();
        let config = gpt2::Gpt2Config::new(&whole, ids.bos, ids.eos)?;
        let mut text = serde_json::to_vec_pretty(&config)
            .map_err(|error| RunError::value("model", "values that JSON can hold", error))?;
        text.push(b'\n');
        let weights = gpt2::write(&whole, &merged, self.description)?;
        Ok(vec![
            (MODEL_FILE.to_owned(), weights),
            (GPT2_CONFIG.to_owned(), text),
        ])
    }

    fn huggingface(&self, shard_bytes: u64) -> Result<Files> {
        let (whole, merged) = self.whole(Layout::HuggingFace, "llama")?;
        let ids = self.vocab.special();
        let mut files = huggingface::write(&whole, &merged, shard_bytes, self.description)?;
        let config = huggingface::config_json(&whole, ids.bos, ids.eos)?;
        files.push((CONFIG.to_owned(), config));
        Ok(files)
    }

    fn peft(&self) -> Result<Files> {
        let Some(lora) = self.spec.lora() else {
            return Err(RunError::value(
                "--layout",
                "peft for a run with the table [model.lora]",
                "peft of a run without adapters",
            ));
        };
        let whole = self.spec.transformer(self.vocab.len())?;
        let whole = whole.ok_or(undertone_models::ModelError::NoBase)?;
        let adapted = whole.with_lora(self.model.frozen().to_vec(), lora)?;
        let (config, tensors) = peft::write(&adapted, self.parameters, lora, self.description)?;
        Ok(vec![
            (peft::MODEL_FILE.to_owned(), tensors),
            (peft::CONFIG_FILE.to_owned(), config),
        ])
    }

    /// The model, and how to call it: the ids of the special words, the width of the state, and the file with the words.
    fn onnx(&self) -> Result<Files> {
        let model = onnx::write(self.spec, self.vocab.len(), self.parameters, self.description)?;
        let ids = self.vocab.special();
        let (hidden, words) = (self.spec.state_width(), self.vocab.file_name());
        let settings = serde_json::json!({
            "model": ONNX_FILE,
            "words": words,
            "ids": self.vocab.len(),
            "unknown_id": ids.unk,
            "begin_id": ids.bos,
            "end_id": ids.eos,
            "state": { "inputs": ["hidden", "cell"], "outputs": ["hidden_out", "cell_out"], "shape": [1, "batch", hidden] },
            "first_word_id": ids.first_word,
        });
        let mut text = serde_json::to_vec_pretty(&settings)
            .map_err(|error| RunError::value("model", "values that JSON can hold", error))?;
        text.push(b'\n');
        Ok(vec![
            (ONNX_FILE.to_owned(), model),
            (ONNX_SETTINGS.to_owned(), text),
        ])
    }

    fn gguf(&self, words: &[u8], kind: TensorType) -> Result<gguf::Written> {
        let (whole, merged) = self.whole(Layout::Gguf, "llama")?;
        let settings = tokenizer::settings(self.vocab, words, whole.sizes().vocab);
        let named = ("undertone", self.description);
        Ok(gguf::write(&whole, &merged, named, &settings, kind)?)
    }
}
