//! Folders that the Hugging Face library `transformers` writes: `config.json` with one or several files of tensors.

use std::path::{Path, PathBuf};

use undertone_models::weights;
use undertone_models::weights::huggingface::{self, Config, Index, Reader};
use undertone_models::{ModelError, SequenceModel, Transformer};

use crate::error::{Result, RunError};
use crate::files::{self, names::MODEL_FILE};

/// The settings of the model, beside its tensors.
pub(crate) const CONFIG: &str = "config.json";
/// Which of several files holds which tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The longest context that a model opened from such a folder gets: its caches take memory for the whole context.
pub(crate) const LONGEST_CONTEXT: usize = 4096;

/// The files of a model of Llama or a relative; their tensors are read when they are asked for.
pub(crate) struct Weights {
    /// The file that names the model in errors.
    path: PathBuf,
    folder: PathBuf,
    shards: Vec<String>,
    index: Option<Index>,
    config: Config,
}

/// The file of a model that a path means: a folder stands for its `model.safetensors`, or for its index.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let (one, several) = (path.join(MODEL_FILE), path.join(INDEX));
    match !one.exists() && several.exists() {
        true => several,
        false => one,
    }
}

/// `true` for the name of an index of several files.
pub(crate) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX)
}

impl Weights {
    /// The files that an index names, beside it.
    pub(crate) fn of_index(path: &Path) -> Result<Self> {
        let index = Index::parse(&files::read_given(path, files::MAX_GIVEN)?)
            .map_err(|error| unusable(path, error))?;
        let shards = index.shards().map(str::to_owned).collect();
        Self::open(path, shards, Some(index))
    }

    /// One file of tensors.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self::open(path, vec![name], None)
    }

    fn open(path: &Path, shards: Vec<String>, index: Option<Index>) -> Result<Self> {
        let beside = path.with_file_name(CONFIG);
        let text = files::read_given(&beside, files::MAX_GIVEN)?;
        let config = Config::parse(&text).map_err(|error| unusable(&beside, error))?;
        Ok(Self {
            path: path.to_owned(),
            folder: files::folder_of(path).to_owned(),
            shards,
            index,
            config,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The description in the header of the first file that has one.
    pub(crate) fn description(&self) -> Result<Option<String>> {
        let first = &self.folder.join(&self.shards[0]);
        let bytes = files::read_given(first, files::MAX_MODEL)?;
        weights::description(&bytes).map_err(|error| unusable(first, error))
    }

    /// The parameters of a model that computes what the files' model does.
    pub(crate) fn parameters(&self, model: &Transformer) -> Result<Vec<f32>> {
        let (mut bytes, paths) = (0u64, self.shards.iter().map(|name| self.folder.join(name)));
        let paths: Vec<PathBuf> = paths.collect();
        for path in &paths {
            let found = path
                .metadata()
                .map_err(|source| RunError::io("read", path, source))?;
            bytes = bytes.saturating_add(found.len());
        }
        let mut reader =
            Reader::new(&self.config, model, bytes).map_err(|error| unusable(&self.path, error))?;
        for (path, name) in paths.iter().zip(&self.shards) {
            let bytes = files::read_given(path, files::MAX_MODEL)?;
            if let Some(index) = &self.index {
                index
                    .check(name, &bytes)
                    .map_err(|error| unusable(&self.path, error))?;
            }
            reader.shard(&bytes).map_err(|error| unusable(path, error))?;
        }
        reader.finish().map_err(|error| unusable(&self.path, error))
    }

    /// The parameters as a file in the layout of this program.
    pub(crate) fn rewritten(&self, model: &Transformer) -> Result<Vec<u8>> {
        Ok(model.write_params(&self.parameters(model)?, None)?)
    }
}

/// `true` if the content of a file has the names of these layouts.
pub(crate) fn is(path: &Path, bytes: &[u8]) -> Result<bool> {
    huggingface::is(bytes).map_err(|error| unusable(path, error))
}

pub(crate) fn unusable(path: &Path, source: ModelError) -> RunError {
    RunError::InitialModel {
        path: path.to_owned(),
        source: Box::new(source),
    }
}
