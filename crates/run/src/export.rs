//! Exports of a run's model for other programs, or for a different run: adapters merged, words beside it.
//!
//! The export is computed only from the released model and the run's public settings, so the run's guarantee still applies.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use undertone_coordinator::task::Purpose;
use undertone_data::{FolderBuilder, Vocab};
use undertone_models::weights::{self, gpt2};
use undertone_models::{ModelSpec, SequenceModel};

use crate::driver::workspace::{Trained, trained_model, vocabulary_of};
use crate::error::{Result, RunError};
use crate::files::names::{CONFIG_FILE, MODEL_FILE};
use crate::files::{read, vocabulary_file, write_atomic};
use crate::initial_model::{Description, GPT2_CONFIG};

/// Names and shapes of an exported model's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// GPT-2's names, as the Hugging Face hub has them, with the `config.json` that readers need. Only for transformers with
    /// learned positions.
    Gpt2,
    /// The names of a run's own `model.safetensors`.
    Undertone,
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
    /// Rank of the adapters that were merged, where the run trained adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_lora_rank: Option<usize>,
}

/// Writes the final model of a run, its words or tokenizer, and with [`Layout::Gpt2`] a `config.json`, into a new folder.
/// `overwrite` replaces the folder of an earlier export.
///
/// # Guarantee
/// PRIVACY: the export is computed only from the released model, so the run's guarantee still applies. Words are copied as they
/// are, and their cost is the one that the run states.
///
/// # Errors
/// [`RunError::Coordinator`] for a family that the layout does not have, for rotary positions in GPT-2's layout and for a model
/// file of a different model. [`RunError::Data`] for a folder that exists; a folder without `model.safetensors` is never
/// replaced. [`RunError::Io`].
pub fn export(run_dir: &Path, layout: Layout, folder: &Path, overwrite: bool) -> Result<Exported> {
    let (spec, vocab) = model_and_words(run_dir)?;
    let (model, parameters) = trained_model(run_dir, &spec, &vocab)?;
    if overwrite && folder.exists() && !folder.join(MODEL_FILE).exists() {
        return Err(RunError::value(
            "--out",
            format!("a folder with a {MODEL_FILE} to replace"),
            format!("{}, which has none", folder.display()),
        ));
    }
    let own = weights::description(&read(&run_dir.join(MODEL_FILE))?)?;
    let own = own.and_then(|text| serde_json::from_str::<Description>(&text).ok());
    let (rounds, trained_on) = own.map_or((0, Vec::new()), |own| (own.rounds, own.trained_on));
    let description = Description::new(&spec.without_lora(), rounds, &vocab, trained_on).to_json()?;
    let mut files = match layout {
        Layout::Gpt2 => gpt2_files(&spec, &vocab, model.as_ref(), &parameters, &description)?,
        Layout::Undertone => vec![(MODEL_FILE, model.write_merged(&parameters, Some(&description))?)],
    };
    files.push((vocab.file_name(), read(&vocabulary_file(run_dir))?));
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
        files: files.iter().map(|(name, _)| (*name).to_owned()).collect(),
        layout,
        parameters: spec.without_lora().layout(vocab.len())?.len(),
        merged_lora_rank: spec.lora().map(|lora| lora.rank),
    })
}

/// The model and the words of a run, or of an exported task that trained.
fn model_and_words(run_dir: &Path) -> Result<(ModelSpec, Vocab)> {
    if !crate::task::is_exported(run_dir) {
        let Trained { data, model, .. } = Trained::read(&run_dir.join(CONFIG_FILE))?;
        let vocab = vocabulary_of(run_dir, &data)?;
        return Ok((model, vocab));
    }
    let file = crate::task::exported(run_dir)?;
    if let Purpose::Evaluate { of, .. } = &file.purpose {
        return Err(RunError::value(
            "the directory",
            format!("that of a task that trains, such as {of}"),
            format!("{}, a task that measured it", run_dir.display()),
        ));
    }
    let path = vocabulary_file(run_dir);
    let vocab = undertone_data::parse_words(&path, &read(&path)?)?;
    Ok((file.task.model, vocab))
}

fn gpt2_files(
    spec: &ModelSpec,
    vocab: &Vocab,
    model: &dyn SequenceModel,
    parameters: &[f32],
    description: &str,
) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let Some(whole) = spec.transformer(vocab.len())? else {
        let expected = "gpt2 for a run with `model.family` = \"transformer\", or else undertone";
        return Err(RunError::value(
            "--layout",
            expected,
            format!("gpt2 of {:?}", spec.family()),
        ));
    };
    let merged = whole.read_params(&model.write_merged(parameters, None)?)?;
    let ids = vocab.special();
    let config = gpt2::Gpt2Config::new(&whole, ids.bos, ids.eos)?;
    let mut text = serde_json::to_vec_pretty(&config)
        .map_err(|error| RunError::value("model", "values that JSON can hold", error))?;
    text.push(b'\n');
    Ok(vec![
        (
            MODEL_FILE,
            weights::describe(gpt2::write(&whole, &merged)?, description)?,
        ),
        (GPT2_CONFIG, text),
    ])
}
