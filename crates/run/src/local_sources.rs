//! The texts behind a model as files of this machine, in a private file beside it.
//!
//! The public name of a text follows from the settings of a run, so one text can have two. On the machine where both trainings are made,
//! the files themselves tell. The release shows nothing of them: a training on the run's own files gets the run's own name.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::trainings::Training;
use undertone_data::LocalPlace;

use crate::error::{Result, RunError};
use undertone_run_directory::files;
use undertone_run_directory::files::names::LOCAL_SOURCES_FILE;
use undertone_run_directory::initial_model::huggingface;

/// Maximum size of the file: the names of a million files.
const MAX_BYTES: u64 = 256 << 20;

/// The files of the texts that a model was trained on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalSources {
    sources: Vec<LocalSource>,
}

/// The files of one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalSource {
    /// The public name of the text.
    source_sha256: String,
    places: Vec<LocalPlace>,
}

impl LocalSources {
    /// The files behind the models that a run starts from, as far as they were trained on this machine.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) for a file that cannot be understood.
    pub(crate) fn of_start(base: &Path, model: Option<&Path>, adapters: Option<&Path>) -> Result<Self> {
        let mut all = Self::default();
        let model = model.map(|file| huggingface::file_of(&base.join(file)));
        let folders = [
            model.as_deref().map(files::folder_of),
            adapters.map(|folder| base.join(folder)).as_deref(),
        ]
        .map(|folder| folder.map(|folder| folder.join(LOCAL_SOURCES_FILE)));
        for path in folders.into_iter().flatten().filter(|path| files::exists(path)) {
            let bytes = files::read_at_most(&path, MAX_BYTES)?;
            let found: Self =
                serde_json::from_slice(&bytes).map_err(|error| RunError::damaged(&path, error))?;
            all.sources.extend(found.sources);
        }
        Ok(all)
    }

    /// Gives trainings on these files the name of the run that reads them.
    ///
    /// PRIVACY: the files decide, so that a second path to people's text is not taken for another text.
    pub(crate) fn rename(&self, trainings: &mut [Training], name: &str, places: &[LocalPlace]) {
        for training in trainings {
            let (Training::NotPrivate { source_sha256, .. } | Training::Private { source_sha256, .. }) =
                training
            else {
                continue;
            };
            let mut same = self
                .sources
                .iter()
                .filter(|source| source.source_sha256 == *source_sha256);
            if same.any(|source| LocalPlace::meet(&source.places, places)) {
                name.clone_into(source_sha256);
            }
        }
    }

    /// Adds the text of a run, and writes the file that only its owner can read.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io).
    pub(crate) fn write(mut self, folder: &Path, name: &str, places: Vec<LocalPlace>) -> Result<()> {
        if !places.is_empty() {
            self.sources.push(LocalSource {
                source_sha256: name.to_owned(),
                places,
            });
        }
        if self.sources.is_empty() {
            return Ok(());
        }
        let path = folder.join(LOCAL_SOURCES_FILE);
        let failed = |error| RunError::io("write", &path, error);
        let text = serde_json::to_vec(&self).map_err(|error| failed(error.into()))?;
        let mut file = files::open_secret_to_write(&path)?;
        file.set_len(0).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.sync_all().map_err(failed)
    }
}
