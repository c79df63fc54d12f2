//! Runs: training, and what is read from their directories.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;
use undertone_run_directory::session_config::SessionConfig;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use undertone_present::numbers::epsilon_delta;
use undertone_report::ReportError;
use undertone_report::story::Story;
use undertone_run::export::{ExportOptions, Layout};
use undertone_run::pretrain::{NOT_PRIVATE, PretrainFile, pretrain};
use undertone_run::{RunError, RunFile, RunOptions, checkpoint};
use undertone_run_directory::config::{Override, RunConfig};
use undertone_run_directory::{files, manifest};

use crate::corpus::{PyCorpus, text_of};
use crate::error::UndertoneError;
use crate::run_error::{of_directory, of_report, of_run};
use crate::watched::watched;

/// The run of a configuration, which is the JSON or the text of a run file, or its path, by `form`.
fn run_file(form: &str, config: &str, overrides: &[Override]) -> Result<RunFile, RunError> {
    match form {
        "file" => RunFile::read(Path::new(config), overrides),
        "text" => {
            let config = RunConfig::parse(config, Path::new("configuration"), overrides)?;
            Ok(RunFile::new(config, "."))
        }
        _ => {
            let value = serde_json::from_str(config).map_err(|error| DirectoryError::Config {
                message: error.to_string(),
            })?;
            RunFile::from_value(value, ".", overrides)
        }
    }
}

/// Trains, and returns the run directory. `overrides` is a JSON table of dotted keys, `on_event` takes the kind of an event and
/// its record as JSON.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "the Python function of the package has them as keywords"
)]
pub(crate) fn _train(
    py: Python<'_>,
    form: &str,
    config: &str,
    overrides: &str,
    out: PathBuf,
    threads: Option<NonZeroUsize>,
    resume: bool,
    corpus: Option<&Bound<'_, PyCorpus>>,
    on_event: Option<&Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let changes: serde_json::Map<String, Value> = serde_json::from_str(overrides)
        .map_err(|error| PyValueError::new_err(format!("overrides: {error}")))?;
    let changes = changes
        .into_iter()
        .map(|(key, value)| Override::from_value(&key, value));
    let changes: Vec<Override> = changes
        .collect::<Result<_, _>>()
        .map_err(|error| of_directory(&error))?;
    let mut file = run_file(form, config, &changes).map_err(|error| of_run(&error))?;
    if let Some(corpus) = corpus {
        let corpus = corpus.get().corpus.clone();
        file = file.with_corpus(corpus).map_err(|error| of_run(&error))?;
    }
    let run_dir = out.join(&file.config.task.name);
    let done = watched(py, threads, on_event, move |watch, threads| {
        let options = RunOptions { out, threads, resume };
        let summary = undertone_run::train(&file, &options, watch)?;
        undertone_report::write(&summary.run_dir)
    })?;
    if let Some(interrupt) = done.interrupt {
        let folder = run_dir.display();
        let note = if files::exists(&run_dir.join(manifest::MANIFEST_FILE)) {
            format!("the run in {folder} is finished: open it with Run.open")
        } else if files::exists(&checkpoint::path(&run_dir)) {
            format!("the run in {folder} stands as its last checkpoint left it: continue with resume=True")
        } else {
            "no round was made: start the run again".to_owned()
        };
        interrupt.value(py).call_method1("add_note", (note,))?;
        return Err(interrupt);
    }
    match done.result {
        Ok(()) => Ok(run_dir),
        Err(error) => Err(of_report(&error)),
    }
}

/// Pre-trains on public text, without privacy, and returns the run directory. `config` is a JSON table, whose relative paths start at `base`.
#[pyfunction]
pub(crate) fn _pretrain(
    py: Python<'_>,
    config: &str,
    base: PathBuf,
    out: PathBuf,
    threads: Option<NonZeroUsize>,
    resume: bool,
    on_event: Option<&Bound<'_, PyAny>>,
) -> PyResult<PathBuf> {
    let config = serde_json::from_str(config).map_err(|error| {
        of_directory(&DirectoryError::Config {
            message: error.to_string(),
        })
    })?;
    let file = PretrainFile { config, base };
    let done = watched(py, threads, on_event, move |watch, threads| {
        let options = RunOptions { out, threads, resume };
        pretrain(&file, &options, watch)
    })?;
    match (done.interrupt, done.result) {
        (Some(interrupt), _) => Err(interrupt),
        (None, Ok(summary)) => Ok(summary.run_dir),
        (None, Err(error)) => Err(of_run(&error)),
    }
}

/// The warning about a pre-training.
#[pyfunction]
pub(crate) fn _not_private() -> &'static str {
    NOT_PRIVATE
}

/// The data of a run directory as JSON: configuration, start, rounds, evaluations, privacy report, the rows of its story, and whether the
/// run is finished.
#[pyfunction]
pub(crate) fn _read_run(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        if let Some(session) = session_data(&path)? {
            return text_of(&session);
        }
        let run = undertone_run_directory::read::read(&path).map_err(|error| of_directory(&error))?;
        text_of(&json!({
            "config": run.config,
            "start": run.start,
            "rounds": run.rounds,
            "evaluations": run.evaluations,
            "privacy": run.privacy,
            "story": Story::of(&run).map(|story| json!({ "rows": story.rows(), "sentences": story.sentences() })),
            "finished": files::exists(&path.join(manifest::MANIFEST_FILE)),
        }))
    })
}

/// The data of the folder of a session as JSON. It has no metrics, since another program trains the model.
fn session_data(path: &Path) -> PyResult<Option<Value>> {
    let read = |name: &str| files::read_text(&path.join(name)).map_err(|error| of_directory(&error));
    let Ok(config) = read("config.toml") else {
        return Ok(None);
    };
    if !SessionConfig::is_of_session(&config) {
        return Ok(None);
    }
    let privacy = match files::exists(&path.join("privacy.json")) {
        true => {
            let text = read("privacy.json")?;
            serde_json::from_str(&text)
                .map_err(|error| UndertoneError::new_err(format!("privacy.json: {error}")))?
        }
        false => Value::Null,
    };
    Ok(Some(json!({
        "config": config,
        "start": null,
        "rounds": [],
        "evaluations": [],
        "privacy": privacy,
        "story": null,
        "finished": files::exists(&path.join(manifest::MANIFEST_FILE)),
    })))
}

/// The lines of the ledger as a JSON array. Their chain is not checked here.
#[pyfunction]
pub(crate) fn _read_ledger(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let path = path.join("ledger.jsonl");
        let text = files::read_text(&path).map_err(|error| of_directory(&error))?;
        let lines: Vec<&str> = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .collect();
        for (line, number) in lines.iter().zip(1..) {
            serde_json::from_str::<Value>(line).map_err(|error| {
                of_directory(&DirectoryError::Line {
                    file: path.clone(),
                    line: number,
                    expected: "an entry of a ledger",
                    message: error.to_string(),
                })
            })?;
        }
        Ok(format!("[{}]", lines.join(",")))
    })
}

/// The verification of a run directory as JSON.
#[pyfunction]
pub(crate) fn _verify(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let verification = undertone_verify::verify(&path).map_err(|error| of_directory(&error))?;
        text_of(&json!({ "holds": verification.holds(), "verification": verification }))
    })
}

/// The report of a run as HTML.
#[pyfunction]
pub(crate) fn _report(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let html = undertone_report::read(&path)
            .map_err(ReportError::from)
            .and_then(|run| undertone_report::html(&run));
        html.map_err(|error| of_report(&error))
    })
}

/// The pictures of a run's report: names and SVG documents.
#[pyfunction]
pub(crate) fn _pictures(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(&'static str, String)>> {
    py.detach(|| {
        let pictures = undertone_report::read(&path)
            .map_err(ReportError::from)
            .and_then(|run| undertone_report::plots(&run));
        let pictures = pictures.map_err(|error| of_report(&error))?;
        Ok(pictures
            .into_iter()
            .map(|picture| (picture.name, picture.svg))
            .collect())
    })
}

/// Writes the model of a run into a new folder for other programs. Returns the folder, and all that the guarantee does not cover.
#[pyfunction]
pub(crate) fn _export(
    py: Python<'_>,
    path: PathBuf,
    folder: PathBuf,
    layout: &str,
    overwrite: bool,
) -> PyResult<(PathBuf, Vec<String>)> {
    let Some(known) = Layout::ALL.into_iter().find(|known| known.name() == layout) else {
        let names = Layout::ALL.map(|known| format!("'{}'", known.name())).join(", ");
        let message = format!("layout: expected one of {names}, got {layout:?}");
        return Err(PyValueError::new_err(message));
    };
    let options = ExportOptions {
        overwrite,
        ..ExportOptions::new(known)
    };
    py.detach(|| {
        let exported = undertone_run::export::export(&path, &folder, options);
        exported
            .map(|exported| (exported.folder, exported.obstacles))
            .map_err(|error| of_run(&error))
    })
}

/// Copies the release of a finished run into a new folder, for strangers.
#[pyfunction]
pub(crate) fn _publish(py: Python<'_>, path: PathBuf, folder: PathBuf) -> PyResult<PathBuf> {
    py.detach(|| {
        let published = undertone_verify::publish(&path, &folder);
        published
            .map(|published| published.folder)
            .map_err(|error| of_directory(&error))
    })
}

/// A guarantee in words, with epsilon rounded up.
#[pyfunction]
pub(crate) fn _epsilon_delta(epsilon: f64, delta: f64) -> String {
    epsilon_delta(epsilon, delta)
}
