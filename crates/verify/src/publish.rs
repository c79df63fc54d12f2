//! `undertone publish`: the files of a run that are its release, and a ledger that strangers may read.
//!
//! A published folder holds what a stranger needs to use the model and to recompute its guarantee, and no exact statistic of
//! people. A value in it was written by a person for strangers, or computed from releases. Nothing in it is made from a private file but
//! `ledger.public.jsonl`, which is made from `ledger.jsonl`, and the rounds of canaries in `lane.json`.

mod public;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::verify::{self, Verification};
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{LEDGER_FILE, PUBLIC_LEDGER_FILE};
use undertone_run_directory::manifest::{MANIFEST_FILE, Manifest, sha256_of};
use undertone_run_directory::public_ledger::{
    self, PUBLIC_FILES, PUBLIC_TASK_FILES, by_schema, is_published,
};

/// A published folder.
#[derive(Debug, Serialize)]
pub struct Published {
    /// The folder.
    pub folder: PathBuf,
    /// The names of its files.
    pub files: Vec<String>,
    /// The verification of the folder, made from its files alone.
    pub verification: Verification,
}

/// Copies the release of a finished run or session, or of an exported task, to a new folder.
///
/// # Guarantee
/// The folder holds the files of `PUBLIC_FILES` that the run has, and a manifest. It appears under its name only after it was
/// verified from its own files, and only if all of it is covered by the guarantee that it states.
///
/// # Errors
/// [`DirectoryError::NotPublishable`] with each reason; [`DirectoryError::RunExists`] where the name is taken; [`DirectoryError::Io`] naming the path.
/// Nothing is left behind then.
pub fn publish(run_dir: &Path, folder: &Path) -> Result<Published> {
    let (files, mut verification) = files::new_folder(folder, |staged| {
        let files = fill(run_dir, staged)?;
        let (verification, obstacles) = verify::release(staged)?;
        let mut reasons: Vec<String> = (verification.checks.iter())
            .flat_map(|check| check.problems.iter().cloned())
            .collect();
        reasons.extend(obstacles);
        match reasons.is_empty() {
            true => Ok((files, verification)),
            false => Err(not_publishable(run_dir, reasons)),
        }
    })?;
    folder.clone_into(&mut verification.run);
    Ok(Published {
        folder: folder.to_owned(),
        files,
        verification,
    })
}

fn not_publishable(run_dir: &Path, reasons: Vec<String>) -> DirectoryError {
    DirectoryError::NotPublishable {
        path: run_dir.to_owned(),
        reasons,
    }
}

/// Copies the public files, makes the public ledger, and writes the manifest last. Returns the names.
fn fill(run_dir: &Path, folder: &Path) -> Result<Vec<String>> {
    if is_published(run_dir) {
        let reason = format!("{PUBLIC_LEDGER_FILE}: the folder is published already; copy it as it is");
        return Err(not_publishable(run_dir, vec![reason]));
    }
    if !files::exists(&run_dir.join(MANIFEST_FILE)) {
        let reason = format!("{MANIFEST_FILE}: missing, so the run has not ended");
        return Err(not_publishable(run_dir, vec![reason]));
    }
    let manifest = Manifest::read(run_dir)?;
    let of_task = undertone_run_directory::task::is_exported(run_dir);
    let names: &[&str] = if of_task {
        &PUBLIC_TASK_FILES
    } else {
        &PUBLIC_FILES
    };
    for name in names {
        let (from, to) = (run_dir.join(name), folder.join(name));
        let Some(expected) = manifest.files.get(*name) else {
            continue;
        };
        copy(&from, &to)?;
        unchanged(run_dir, name, expected, &sha256_of(&to)?)?;
    }
    let path = run_dir.join(LEDGER_FILE);
    let expected = manifest.files.get(LEDGER_FILE).map_or("", String::as_str);
    unchanged(run_dir, LEDGER_FILE, expected, &sha256_of(&path)?)?;
    let (task, own_genesis) = verify::settings_of(run_dir, of_task)?;
    let found = undertone_run_directory::ledger::read(&path, &own_genesis)?;
    public::blank(run_dir, folder, &found.entries)?;
    // The ledger of an earlier version follows settings with private parts, and that of a task its whole file.
    let (_, genesis) = verify::settings_of(folder, of_task)?;
    let pseudonyms = by_schema(&task).then(public_ledger::Names::fresh).transpose()?;
    let (lines, head) = public_ledger::public_lines(&found, pseudonyms.as_ref(), &genesis)?;
    files::write_atomic(&folder.join(PUBLIC_LEDGER_FILE), &lines)?;
    let public = Manifest::of(folder, names, found.entries.len() as u64, &head)?;
    public.write(folder)?;
    let mut files: Vec<String> = public.files.into_keys().collect();
    files.push(MANIFEST_FILE.to_owned());
    Ok(files)
}

fn unchanged(run_dir: &Path, name: &str, expected: &str, got: &str) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    let reason = format!(
        "{name}: changed since the run ended (SHA-256 {got}, {MANIFEST_FILE} says {})",
        if expected.is_empty() { "nothing" } else { expected }
    );
    Err(not_publishable(run_dir, vec![reason]))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut source = files::open(from)?;
    files::write_atomic_with(to, |file| {
        std::io::copy(&mut source, file)
            .map(drop)
            .map_err(|error| DirectoryError::io("write", to, error))
    })
}
