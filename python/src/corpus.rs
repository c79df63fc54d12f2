//! Corpora of tables in memory.

use std::path::PathBuf;

use pyo3::prelude::*;
use tempfile::TempDir;
use undertone_data::{Corpus, MemoryTable, Split};
use undertone_run::RunError;
use undertone_run_directory::config::settings_from_value;
use undertone_settings::{CorpusSpec, SourceSpec};

use crate::run_error::{of_directory, of_run, of_setting};
use crate::table::stream_of;
use crate::watched::watched;

/// An opened corpus, with the folder that holds its tokenised text.
#[pyclass(name = "_Corpus", frozen, module = "undertone_dp._native")]
pub(crate) struct PyCorpus {
    pub(crate) corpus: Corpus,
    /// Holds the tokenised text; removed with the last reference.
    _folder: TempDir,
}

#[pymethods]
impl PyCorpus {
    /// Number of training users.
    #[getter]
    fn users(&self) -> usize {
        self.corpus.partition(Split::Train).num_users()
    }

    /// Number of training tokens, after caps and filters.
    #[getter]
    fn tokens(&self) -> u64 {
        self.corpus.partition(Split::Train).total_tokens()
    }

    /// Number of rows of the table.
    #[getter]
    fn rows(&self) -> u64 {
        self.corpus.stats().rows
    }

    /// SHA-256 of the table's rows in their order. It is an exact function of people's text, and no part of a release.
    #[getter]
    fn digest(&self) -> &str {
        match &self.corpus.spec().source {
            SourceSpec::Memory(source) => &source.sha256,
            _ => self.corpus.digest(),
        }
    }

    /// The counts of the corpus, as JSON.
    fn stats(&self) -> PyResult<String> {
        text_of(self.corpus.stats())
    }

    /// The table `[data]` of a run on this corpus, as JSON.
    fn settings(&self) -> PyResult<String> {
        text_of(self.corpus.spec())
    }
}

/// A value as JSON.
pub(crate) fn text_of(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| crate::error::UndertoneError::new_err(error.to_string()))
}

/// The corpus of the rows of an object with `__arrow_c_stream__`. `settings` is the table `[data]` as JSON, whose source lacks rows and
/// digest.
#[pyfunction]
pub(crate) fn _corpus(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    settings: &str,
    base: PathBuf,
) -> PyResult<PyCorpus> {
    let value = serde_json::from_str(settings)
        .map_err(|error| crate::error::UndertoneError::new_err(format!("settings: {error}")))?;
    let mut spec: CorpusSpec = settings_from_value(value, "data").map_err(|error| of_directory(&error))?;
    spec.validate().map_err(|error| of_setting(&error))?;
    let reader = stream_of(table)?;
    let done = watched(py, None, None, move |watch, _| {
        let SourceSpec::Memory(source) = &spec.source else {
            return Err(RunError::value(
                "data.source.kind",
                "\"memory\"",
                spec.source.describe(),
            ));
        };
        let table = MemoryTable::new(reader, source, watch)?;
        spec.source = SourceSpec::Memory(table.source().clone());
        let prefix = "undertone-";
        let folder = tempfile::Builder::new().prefix(prefix).tempdir();
        let folder =
            folder.map_err(|error| RunError::io("create a folder in", &std::env::temp_dir(), error))?;
        let corpus = Corpus::from_table(&spec, &table, &base, folder.path(), watch)?;
        Ok((corpus, folder))
    })?;
    if let Some(interrupt) = done.interrupt {
        return Err(interrupt);
    }
    let (corpus, folder) = done.result.map_err(|error| of_run(&error))?;
    Ok(PyCorpus {
        corpus,
        _folder: folder,
    })
}
