//! Files of run directories.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};
use undertone_data::EosTargets;
use undertone_run::export::{ExportOptions, Layout, export};
use undertone_run::personalize::{PersonalizeOptions, personalize};
use undertone_run::{RunOptions, Silent};
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::ledger::GenesisFiles;
use undertone_verify::verify;

use crate::world::{RESUMED, RUNS, World, copy};

/// The run directory that a place belongs to.
fn run_of(world: &World, place: &str) -> Result<(String, PathBuf)> {
    let mut parts = place.split('/');
    match (parts.next(), parts.next()) {
        (Some(RUNS), Some(name)) => Ok((name.to_owned(), world.run(name))),
        _ => bail!("{place} is no file of a run"),
    }
}

/// `undertone verify` and `undertone report`: as the directory is, and once more with the chain of its ledger and its manifest
/// made to agree, which takes a change further.
pub(super) fn verify_and_report(world: &World, place: &str) -> Result<()> {
    let (_, folder) = run_of(world, place)?;
    let first = verified(&folder);
    let reported = reported(&folder);
    // Nothing that comes out of it matters: it is not to panic, hang or take memory.
    if first.is_err() && forge(&folder).is_ok() {
        let _ = verified(&folder);
    }
    first.and(reported)
}

fn verified(folder: &Path) -> Result<()> {
    let verification = verify(folder)?;
    serde_json::to_string(&verification)?;
    let problem = verification
        .checks
        .iter()
        .find_map(|check| check.problems.first());
    match problem {
        Some(problem) => bail!("{problem}"),
        None => Ok(()),
    }
}

fn reported(folder: &Path) -> Result<()> {
    let data = undertone_run_directory::read::read(folder)?;
    undertone_report::plots(&data)?;
    undertone_report::html(&data)?;
    let _ = undertone_report::summary(&data);
    Ok(())
}

/// Makes ledger and manifest agree with the other files.
fn forge(folder: &Path) -> Result<()> {
    let read = |name: &str| fs::read(folder.join(name));
    let vocabulary = read("tokenizer.json").or_else(|_| read("vocab.txt"))?;
    let config = read("config.toml")?;
    let [mechanism, vocabulary_privacy, initial_model, sweep, source] = [
        "mechanism.json",
        "vocab.txt.privacy.json",
        "initial_model.json",
        "sweep.json",
        "source.json",
    ]
    .map(|name| read(name).ok());
    let files = GenesisFiles {
        config: &config,
        mechanism: mechanism.as_deref(),
        vocabulary: &vocabulary,
        vocabulary_privacy: vocabulary_privacy.as_deref(),
        initial_model: initial_model.as_deref(),
        sweep: sweep.as_deref(),
        source: source.as_deref(),
    };
    let mut head = files.digest();
    let mut ledger = String::new();
    for line in fs::read_to_string(folder.join("ledger.jsonl"))?.lines() {
        let mut entry: Value = serde_json::from_str(line)?;
        let link = entry
            .get_mut("previous_sha256")
            .context("a line without a link")?;
        *link = head.clone().into();
        let line = entry.to_string();
        head = sha256(line.as_bytes());
        ledger += &line;
        ledger.push('\n');
    }
    fs::write(folder.join("ledger.jsonl"), ledger)?;
    let mut manifest: Value = serde_json::from_slice(&read("manifest.json")?)?;
    *manifest
        .get_mut("ledger_head")
        .context("a manifest without a head")? = head.into();
    let files = manifest.get_mut("files").and_then(Value::as_object_mut);
    let files = files.context("a manifest without files")?;
    for (name, digest) in files {
        // A changed name may be that of a device.
        let own = name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c == '.' || c == '_');
        if own && let Ok(bytes) = read(name) {
            *digest = sha256(&bytes).into();
        }
    }
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// `undertone eval`, `undertone personalize` and `undertone export`.
pub(super) fn use_model(world: &World, place: &str) -> Result<()> {
    let (_, folder) = run_of(world, place)?;
    let base = Some(world.folder());
    let eos = EosTargets::Excluded;
    let evaluated = undertone_run::evaluate(&folder, base, EvaluationSplit::Test, eos, 1, &Silent);
    let options = PersonalizeOptions {
        split: EvaluationSplit::Test,
        max_users: Some(2),
        epochs: 1,
        batch_size: 8,
        learning_rate: 0.1,
        eos,
        threads: 1,
    };
    let personalized = match &evaluated {
        Ok(_) => personalize(&folder, base, &options, &Silent).map(drop),
        Err(_) => Ok(()),
    };
    let out = tempfile::tempdir_in(world.folder())?;
    // Not every family has GPT-2's layout.
    let _ = export(
        &folder,
        &out.path().join("gpt2"),
        ExportOptions::new(Layout::Gpt2),
    );
    let exported = export(
        &folder,
        &out.path().join("plain"),
        ExportOptions::new(Layout::Undertone),
    );
    evaluated?;
    personalized?;
    exported?;
    Ok(())
}

/// `undertone train --resume`.
pub(super) fn resume(world: &World, place: &str) -> Result<()> {
    let (name, folder) = run_of(world, place)?;
    let out = world.path(RESUMED);
    let resumed = out.join(&name);
    if resumed.exists() {
        fs::remove_dir_all(&resumed)?;
    }
    copy(&folder, &resumed)?;
    let options = RunOptions {
        out,
        threads: 1,
        resume: true,
    };
    undertone_run::train(&world.run_file(&name)?, &options, &Silent)?;
    Ok(())
}
