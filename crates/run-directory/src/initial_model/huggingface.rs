//! Folders that the Hugging Face library `transformers` writes: `config.json` with one or several files of tensors.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use undertone_models::weights;
use undertone_models::weights::huggingface::{self, Config, Index, Reader};
use undertone_models::{ModelError, SequenceModel, Transformer};

use crate::error::{DirectoryError, Result};
use crate::files::{self, names::MODEL_FILE};

/// The settings of the model, beside its tensors.
pub const CONFIG: &str = "config.json";
/// The index of a model in several files: the file that holds each tensor.
pub const INDEX: &str = "model.safetensors.index.json";

/// The longest context that a model opened from such a folder gets: its caches take memory for the whole context.
pub const LONGEST_CONTEXT: usize = 4096;

/// The longest settings and index that are read: those of the largest public models have a few thousand bytes and a few million.
pub(crate) const MAX_CONFIG: u64 = 1 << 20;
const MAX_INDEX: u64 = 1 << 24;
/// The longest header of a file of tensors, which is the limit of the library that reads them.
const MAX_HEADER: u64 = 100_000_000;

/// The files of a model of Llama or a relative; their tensors are read when they are asked for.
pub struct Weights {
    /// The file that names the model in errors.
    path: PathBuf,
    folder: PathBuf,
    shards: Vec<String>,
    index: Option<Index>,
    config: Config,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The file of a model that a path means: a folder stands for its `model.safetensors`, or for its index.
#[must_use]
pub fn file_of(path: &Path) -> PathBuf {
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
#[must_use]
pub fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX)
}

impl Weights {
    /// The files that an index names, beside it.
    pub fn of_index(path: &Path) -> Result<Self> {
        let index = Index::parse(&read_plain(path, MAX_INDEX)?).map_err(|error| unusable(path, error))?;
        let shards = index.shards().map(str::to_owned).collect();
        Self::open(path, shards, Some(index))
    }

    /// One file of tensors.
    pub fn of_file(path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self::open(path, vec![name], None)
    }

    fn open(path: &Path, shards: Vec<String>, index: Option<Index>) -> Result<Self> {
        let beside = path.with_file_name(CONFIG);
        let text = read_plain(&beside, MAX_CONFIG)?;
        let config = Config::parse(&text).map_err(|error| unusable(&beside, error))?;
        Ok(Self {
            path: path.to_owned(),
            folder: files::folder_of(path).to_owned(),
            shards,
            index,
            config,
        })
    }

    /// The settings of the model.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The description in the headers of all files. Files with different ones come from different trainings, which no guarantee covers
    /// together.
    pub fn description(&self) -> Result<Option<String>> {
        let mut described: Option<Option<String>> = None;
        for name in &self.shards {
            let path = &self.folder.join(name);
            let own = description_of(path)?;
            match &described {
                Some(first) if *first != own => {
                    let message = format!(
                        "expected the description of {}, got another: the files come from different trainings",
                        self.shards[0]
                    );
                    return Err(DirectoryError::damaged(path, message));
                }
                _ => described = Some(own),
            }
        }
        Ok(described.flatten())
    }

    /// The parameters of a model that computes what the files' model does.
    pub fn parameters(&self, model: &Transformer) -> Result<Vec<f32>> {
        let (mut bytes, paths) = (0u64, self.shards.iter().map(|name| self.folder.join(name)));
        let paths: Vec<PathBuf> = paths.collect();
        for path in &paths {
            let found = path
                .metadata()
                .map_err(|source| DirectoryError::io("read", path, source))?;
            bytes = bytes.saturating_add(found.len());
        }
        let mut reader =
            Reader::new(&self.config, model, bytes).map_err(|error| unusable(&self.path, error))?;
        for (path, name) in paths.iter().zip(&self.shards) {
            let bytes = read_plain(path, files::MAX_MODEL)?;
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
        Ok(weights::tensors_alone(model.layout(), &self.parameters(model)?)?)
    }
}

/// Reads a file that a folder of others names. Pipes and devices are refused, since reading them might never end.
pub fn read_plain(path: &Path, limit: u64) -> Result<Vec<u8>> {
    check_plain(path)?;
    files::read_given(path, limit)
}

fn check_plain(path: &Path) -> Result<()> {
    let found = path
        .metadata()
        .map_err(|source| DirectoryError::io("read", path, source))?;
    match found.is_file() {
        true => Ok(()),
        false => Err(DirectoryError::damaged(
            path,
            "expected a plain file, got a folder, a pipe or a device",
        )),
    }
}

/// The description in the header of a file of tensors, without its tensors.
pub fn description_of(path: &Path) -> Result<Option<String>> {
    weights::description_in_header(&header(path)?).map_err(|error| unusable(path, error))
}

/// The length and the header of a file of tensors, without its tensors.
fn header(path: &Path) -> Result<Vec<u8>> {
    check_plain(path)?;
    let fail = |source| DirectoryError::io("read", path, source);
    let mut file = File::open(path).map_err(fail)?;
    let mut start = Vec::new();
    file.by_ref().take(8).read_to_end(&mut start).map_err(fail)?;
    if let Ok(length) = <[u8; 8]>::try_from(&start[..]) {
        let length = u64::from_le_bytes(length).min(MAX_HEADER);
        file.take(length).read_to_end(&mut start).map_err(fail)?;
    }
    Ok(start)
}

/// `true` if the content of a file has the names of these layouts.
pub fn is(path: &Path, bytes: &[u8]) -> Result<bool> {
    huggingface::is(bytes).map_err(|error| unusable(path, error))
}

/// The error of a file that holds no model of the run's kind.
#[must_use]
pub fn unusable(path: &Path, source: ModelError) -> DirectoryError {
    DirectoryError::InitialModel {
        path: path.to_owned(),
        source: Box::new(source),
    }
}
