//! The copies of a run's files without what no stranger may see.

use std::path::Path;

use undertone_coordinator::record::LedgerEntry;
use undertone_present::numbers::hex;

use undertone_run_directory::config::RunConfig;
use undertone_run_directory::config::public::public;
use undertone_run_directory::entropy::fresh_bytes;
use undertone_run_directory::error::Result;
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    CONFIG_FILE, INITIAL_MODEL_FILE, LANE_FILE, MODEL_FILE, SERVICE_FILE, SOURCE_FILE, SWEEP_FILE, TASK_FILE,
};
use undertone_run_directory::initial_model::{SourceName, SourceRecord};
use undertone_run_directory::lane::LaneRecord;
use undertone_run_directory::session_config::SessionConfig;
use undertone_run_directory::sweep_statement::SweepStatement;
use undertone_run_directory::task::ServiceRecord;

/// Makes the copied files of a run in `folder` public: paths, digests of tables and names of users outside of the ledger are blank.
pub(super) fn blank(run_dir: &Path, folder: &Path, entries: &[LedgerEntry]) -> Result<()> {
    if files::exists(&folder.join(TASK_FILE)) {
        return task(folder);
    }
    let path = folder.join(CONFIG_FILE);
    let text = files::read_text(&path)?;
    if !SessionConfig::is_of_session(&text) {
        source(run_dir, folder, &text)?;
    }
    write_changed(&path, &text, &public(&text, &path)?)?;
    let path = folder.join(LANE_FILE);
    if files::exists(&path) {
        let record: LaneRecord = files::read_json(&path)?;
        if !record.shadows.is_empty() {
            files::write_json(&path, &record.public(entries))?;
        }
    }
    sweep(folder)
}

fn write_changed(path: &Path, before: &str, now: &str) -> Result<()> {
    match before == now {
        true => Ok(()),
        false => files::write_atomic(path, now.as_bytes()),
    }
}

/// The task file without paths. Its identifier covers the paths, so strangers see that of the public file.
fn task(folder: &Path) -> Result<()> {
    let path = folder.join(TASK_FILE);
    let text = files::read_text(&path)?;
    let blank = public(&text, &path)?;
    if blank == text {
        return Ok(());
    }
    files::write_atomic(&path, blank.as_bytes())?;
    let file = undertone_run_directory::task::exported(folder)?;
    let path = folder.join(SERVICE_FILE);
    let mut record: ServiceRecord = files::read_json(&path)?;
    record.task = hex(&file.id(&record.population)?);
    files::write_json(&path, &record)
}

/// Statements of earlier versions hold the whole texts of their combinations.
fn sweep(folder: &Path) -> Result<()> {
    let Some(mut statement) = SweepStatement::read(folder)? else {
        return Ok(());
    };
    let path = folder.join(SWEEP_FILE);
    let before = statement.clone();
    for combination in &mut statement.combinations {
        combination.config = public(&combination.config, &path)?;
    }
    statement.score.public = statement.score.public.without_path();
    match statement == before {
        true => Ok(()),
        false => files::write_json(&path, &statement),
    }
}

/// The files of an earlier version name a text by a digest of its path. Their copies have the name that a run of today would have.
fn source(run_dir: &Path, folder: &Path, config: &str) -> Result<()> {
    let path = folder.join(SOURCE_FILE);
    let data = RunConfig::parse(config, &folder.join(CONFIG_FILE), &[])?.data;
    if files::exists(&path) || !SourceName::is_recorded(&data) {
        return Ok(());
    }
    let earlier = SourceName::of(run_dir, &data)?.public;
    // If the folder above cannot be written to, the name is good for this publication alone.
    let name = match SourceName::beside(run_dir, &data) {
        Ok(name) => name.public,
        Err(_) => hex(&fresh_bytes()?),
    };
    for file in [MODEL_FILE, INITIAL_MODEL_FILE] {
        let path = folder.join(file);
        if let Some(mut bytes) = files::read_if_there(&path)? {
            let end = match file {
                MODEL_FILE => header_of(&bytes),
                _ => bytes.len(),
            };
            rename(&mut bytes[..end], earlier.as_bytes(), name.as_bytes());
            files::write_atomic(&path, &bytes)?;
        }
    }
    files::write_json(&path, &SourceRecord { name })
}

/// The end of the header of a safetensors file.
fn header_of(bytes: &[u8]) -> usize {
    let length = bytes
        .first_chunk()
        .map_or(0, |length| u64::from_le_bytes(*length));
    usize::try_from(length.saturating_add(8)).map_or(bytes.len(), |end| end.min(bytes.len()))
}

/// Both names have 64 digits, so that no place moves.
fn rename(bytes: &mut [u8], earlier: &[u8], name: &[u8]) {
    if earlier.len() != name.len() {
        return;
    }
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(earlier.len())
        .position(|window| window == earlier)
    {
        bytes[at + found..at + found + name.len()].copy_from_slice(name);
        at += found + name.len();
    }
}
