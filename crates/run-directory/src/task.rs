//! Tasks of the service as files: reading a task file, its plan, the lines of its metrics, and the directory that
//! `undertone task export` writes for `undertone verify`.

mod export;
mod records;
mod settings;

use std::path::{Path, PathBuf};

use undertone_coordinator::task::{Seeding, TaskFile};

use crate::config::{Override, RunConfig, parse_as};
use crate::error::{DirectoryError, Result};
use crate::files::names::{CONFIG_FILE, TASK_FILE};

pub use export::ServiceRecord;
pub use export::TaskExport;
pub use export::{TASK_FILES, genesis_of};
pub use records::determined;
pub use records::{round_record, start_record};
pub use settings::source_sha256;
pub use settings::{
    check_words, counts, genesis, mechanism_json, mechanism_of, named_strategy, new_plan, plan_with,
};

/// Reads and checks a task file that the user named. Returns it with its folder, where its relative paths start.
///
/// # Errors
/// [`DirectoryError::Io`], [`DirectoryError::ConfigSyntax`] with line and column, [`DirectoryError::Coordinator`] naming the key.
pub fn read(path: &Path, overrides: &[Override], seeding: Seeding) -> Result<(TaskFile, PathBuf)> {
    let text = crate::files::read_given_text(path)?;
    let file = parse_task(&text, path, overrides)?;
    file.validate(seeding)?;
    Ok((file, RunConfig::base_of(path).to_owned()))
}

/// `true` for the directory of an exported task: it has a task file, and no run file.
#[must_use]
pub fn is_exported(folder: &Path) -> bool {
    !crate::files::exists(&folder.join(CONFIG_FILE)) && crate::files::exists(&folder.join(TASK_FILE))
}

/// The task file of an exported task.
///
/// # Errors
/// The errors of [`read`].
pub fn exported(folder: &Path) -> Result<TaskFile> {
    let path = folder.join(TASK_FILE);
    let file: TaskFile = parse_as(&crate::files::read_text(&path)?, &path, &[])?;
    file.validate(match file.seed {
        Some(_) => Seeding::ParityTest,
        None => Seeding::Refused,
    })?;
    Ok(file)
}

/// Parses and checks the text of a task file; `path` only names it in errors.
///
/// # Errors
/// The errors of [`read`].
pub fn parse(text: &str, path: &Path, seeding: Seeding) -> Result<TaskFile> {
    let file = parse_task(text, path, &[])?;
    file.validate(seeding)?;
    Ok(file)
}

/// Parses a task file. The run file of a simulation is told by its table of text.
fn parse_task(text: &str, path: &Path, overrides: &[Override]) -> Result<TaskFile> {
    parse_as(text, path, overrides).map_err(|error| match toml::from_str::<toml::Table>(text) {
        Ok(table) if table.contains_key("data") => DirectoryError::ConfigSyntax {
            file: path.to_owned(),
            message: "expected a task file, got the run file of a simulation, since it has [data]; a task has [vocabulary], [text] and \
                      [service] instead, as in examples/federated.toml"
                .to_owned(),
        },
        _ => error,
    })
}

/// The text of a task file with all settings, defaults included.
///
/// # Errors
/// [`DirectoryError::Coordinator`] for values that TOML cannot hold.
pub fn text(file: &TaskFile) -> Result<String> {
    let fail = |got: String| DirectoryError::value("task", "values that TOML can hold", got);
    let text = toml::to_string(file).map_err(|error| fail(error.to_string()))?;
    match toml::from_str::<TaskFile>(&text) {
        Ok(again) if again == *file => Ok(text),
        Ok(_) => Err(fail("a value that reads back as another".to_owned())),
        Err(error) => Err(fail(error.to_string())),
    }
}
