//! `audit.json`, where there is one: each figure that follows from recorded files is made again and compared.
//!
//! No file can prove that a replay or a rehearsal was made as it says: its counts are taken as they stand.

use std::path::Path;

use serde_json::Value;

use super::same::{Precision, differences, exactly};
use super::subject::Subject;
use super::{Check, Run, replays};
use crate::audit::lane::{LEVEL, Recorded};
use crate::audit::noise::Source;
use crate::audit::record::{ANY, Audit, FINAL, ITERATES, SCHEMA};
use crate::audit::text;
use crate::config::{RunConfig, RunFile};
use crate::driver::{LEDGER_FILE, config_digest, strategy_of};
use crate::error::{Result, RunError};
use crate::files;
use crate::files::names::{AUDIT_FILE, CONFIG_FILE, MANIFEST_FILE, PUBLIC_LEDGER_FILE};
use crate::ledger::{genesis_of, read_chain};
use crate::replay::ReplayCheck;
use undertone_accounting::audit::noise::holm;
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry};

/// The relative difference that a claim may have which was made for the coordinates of a rehearsal.
const OTHER_COORDINATES: f64 = 1e-3;

/// Checks the audit beside a run; `None` where nobody has recorded one.
pub(super) fn agree(run: &Run<'_>) -> Option<Check> {
    let mut check = Check::new("audit");
    let read = files::read_if_there(&run.folder.join(AUDIT_FILE));
    let bytes = match check.keep(read) {
        Some(Some(bytes)) => bytes,
        Some(None) => return None,
        None => return Some(check),
    };
    match exactly::<Audit>(AUDIT_FILE, &bytes) {
        Ok(audit) => {
            let made = made_again(run, &audit, &mut check);
            if let Some(made) = check.keep(made) {
                compare(&made, &audit, &mut check);
            }
            check.found = audit.verdict;
        }
        Err(problems) => check.problems(problems),
    }
    Some(check)
}

/// The audit that follows from the counts of the written one and from the files of the run.
fn made_again(run: &Run<'_>, written: &Audit, check: &mut Check) -> Result<Audit> {
    let Subject::Run(config) = &run.subject else {
        return Err(RunError::value(
            AUDIT_FILE,
            "no such file in an exported task",
            "one",
        ));
    };
    let (_, head) = read_chain(&run.folder.join(LEDGER_FILE), &genesis_of(run.folder)?)?;
    let mut made = written.clone();
    made.schema = SCHEMA.to_owned();
    made.run.name.clone_from(&config.task.name);
    made.run.config_sha256 = config_digest(config.as_ref())?;
    made.run.ledger_head = Some(head);
    made.control = None;
    if let Some(replay) = &mut made.replay
        && replay.tested == replays::TESTED
    {
        *replay = replays::made(run, config)?;
    } else if let Some(replay) = &mut made.replay {
        replay.adjacency = run.plan.adjacency();
        replay.checks = same_checks(&replay.checks, check);
        if replay.rounds > run.entries.len() as u64 {
            let place = format!("{AUDIT_FILE}, replay.rounds");
            check.wrong(place, format!("at most {}", run.entries.len()), replay.rounds);
        }
    }
    let recorded = match config.has_lane() {
        true => Some(recorded(run, config)?),
        false => None,
    };
    if let Some(noise) = &mut made.noise
        && noise.source == Source::ThisRun
    {
        let recorded = recorded.as_ref().ok_or_else(no_lane)?;
        *noise = recorded.noise()?;
    } else if let Some(noise) = &mut made.noise {
        let p: Vec<f64> = noise.tests.iter().map(|test| test.p).collect();
        if p.iter().any(|p| !(0.0..=1.0).contains(p)) {
            check.problem(format!("{AUDIT_FILE}, noise.tests: expected p-values in [0, 1]"));
        }
        let corrected = holm(&p);
        for (test, &p_holm) in noise.tests.iter_mut().zip(&corrected) {
            test.p_holm = p_holm;
        }
        noise.smallest_p_holm = corrected.iter().copied().fold(1.0, f64::min);
    }
    if let Some(exposure) = &mut made.exposure {
        *exposure = exposure.made_again()?;
    }
    if let Some(plan) = &mut made.plan {
        plan.config_sha256.clone_from(&made.run.config_sha256);
        made.plan_sha256 = Some(plan.sha256()?);
    } else {
        made.plan_sha256 = None;
    }
    if made.noise.is_some() || !made.canaries.is_empty() {
        let planned = run.plan.planned()?;
        let planned =
            planned.ok_or_else(|| RunError::missing("privacy", "a claim that an audit can test"))?;
        made.claim = Some(claim(written.claim.as_ref(), planned));
    } else {
        made.claim = None;
    }
    if let Some(claim) = made.claim.clone() {
        let bounds = std::mem::take(&mut made.canaries);
        for (place, mut bound) in bounds.into_iter().enumerate() {
            if place == 0 {
                // PRIVACY: without a headline no bound could contradict the claim.
                bound.estimator = ANY.to_owned();
                bound.adversary = match bound.level == text::LEVEL {
                    true => FINAL.to_owned(),
                    false => ITERATES.to_owned(),
                };
            }
            bound.headline = bound.decides();
            if let Some(plan) = &made.plan {
                bound.canaries = plan.canaries;
                bound.guesses = bound.guesses.map(|_| match bound.estimator == ANY {
                    true => plan.guesses,
                    false => plan.guesses_fdp,
                });
            }
            made.canaries.push(bound.of_counts(&claim)?);
        }
        if made.canaries.iter().any(|bound| bound.level == LEVEL) {
            let recorded = recorded.as_ref().ok_or_else(no_lane)?;
            // Without the coins, the counts are taken as they stand.
            if let Some(bounds) = recorded.bounds(&claim)? {
                made.canaries = bounds;
            }
        }
    }
    Ok(made.finish())
}

fn no_lane() -> RunError {
    RunError::missing("audit", "a table: the audit speaks of a lane of the run")
}

/// Reads the lane of a finished run, or of a published copy of one.
///
/// # Errors
/// [`RunError`] naming the file, for a run without `[audit]`, one that has not ended, and files that are damaged.
pub fn read_lane(folder: &Path) -> Result<Recorded<'_>> {
    let (config, entries) = finished(folder)?;
    let strategy = strategy_of(folder)?;
    Recorded::of(folder, &config, config_digest(&config)?, strategy, entries)
}

/// The configuration and the ledger of a finished run, or of a published copy of one.
pub(super) fn finished(folder: &Path) -> Result<(RunConfig, Vec<LedgerEntry>)> {
    let path = folder.join(CONFIG_FILE);
    let config = RunFile::parse(&files::read_text(&path)?, &path, &[])?;
    if !files::exists(&folder.join(MANIFEST_FILE)) {
        let expected = "a file: without it the run has not ended, and its audit is not fixed";
        return Err(RunError::missing(MANIFEST_FILE, expected));
    }
    let genesis = genesis_of(folder)?;
    let found = match crate::publish::is_published(folder) {
        true => crate::publish::read_ledger(&folder.join(PUBLIC_LEDGER_FILE), &genesis)?,
        false => crate::ledger::read(&folder.join(LEDGER_FILE), &genesis)?,
    };
    Ok((config, found.entries))
}

fn recorded<'a>(run: &Run<'a>, config: &RunConfig) -> Result<Recorded<'a>> {
    let (digest, strategy) = (config_digest(config)?, strategy_of(run.folder)?);
    Recorded::of(run.folder, config, digest, strategy, run.entries.clone())
}

/// Checks the lane of a run: that the run may have one, and that its values are those of its rounds and columns.
pub(super) fn lane(run: &Run<'_>) -> Option<Check> {
    let Subject::Run(config) = &run.subject else {
        return None;
    };
    let audit = config.audit.filter(|_| config.has_lane())?;
    let mut check = Check::new("lane");
    let plan = check.keep(run.plan.clone().with_lane(config.lane_size()));
    let recorded = check.keep(recorded(run, config));
    if let (Some(plan), Some(recorded)) = (plan, recorded) {
        check.keep(recorded.check_plan(&plan));
    }
    check.found = format!(
        "{} canaries and {} probes in {} rounds",
        audit.lane,
        audit.noise_probe,
        run.entries.len()
    );
    Some(check)
}

/// The planned guarantee, with the written epsilon if that differs by the coordinates of a rehearsal alone.
fn claim(written: Option<&GuaranteeRecord>, planned: GuaranteeRecord) -> GuaranteeRecord {
    match written {
        Some(written)
            if (written.epsilon - planned.epsilon).abs() <= OTHER_COORDINATES * planned.epsilon
                && written.delta == planned.delta
                && written.adjacency == planned.adjacency =>
        {
            written.clone()
        }
        _ => planned,
    }
}

/// The checks of a replay with their names and properties, as a replay writes them. A failure has a round, and no check fails more
/// often than it compares.
fn same_checks(written: &[ReplayCheck], check: &mut Check) -> Vec<ReplayCheck> {
    let mut all = ReplayCheck::all();
    if written.len() != all.len() {
        check.wrong(format!("{AUDIT_FILE}, replay.checks"), all.len(), written.len());
    }
    for (made, written) in all.iter_mut().zip(written) {
        (made.compared, made.failed) = (written.compared, written.failed);
        made.first_failure = written.first_failure;
        if written.failed > written.compared || (written.failed > 0) != written.first_failure.is_some() {
            let place = format!("{AUDIT_FILE}, replay.checks, {}", made.name);
            let got = format!("{} failures of {}", written.failed, written.compared);
            check.wrong(place, "failures with their first round", got);
        }
    }
    all
}

fn compare(made: &Audit, written: &Audit, check: &mut Check) {
    let value = |audit: &Audit| serde_json::to_value(audit).unwrap_or(Value::Null);
    let (made, written) = (value(made), value(written));
    check.problems(differences(AUDIT_FILE, &made, &written, Precision::Recomputed));
}
