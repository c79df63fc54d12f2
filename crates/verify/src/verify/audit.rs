//! `audit.json`, where there is one: each figure that follows from recorded files is made again and compared.
//!
//! No file can prove that a replay or a rehearsal was made as it says: its counts and its statistics are taken as they stand.

mod bounds;
mod claim;
mod noise;
mod replay;

use std::path::Path;

use undertone_coordinator::participation::policy::Enforcement;
use undertone_coordinator::record::{LedgerEntry, PrivacyReport};

use self::bounds::Level;
use super::same::exactly;
use super::subject::Subject;
use super::{Check, Run, replays, wording};
use undertone_audit::lane::Recorded;
use undertone_audit::noise::Source;
use undertone_audit::record;
use undertone_audit::record::{Audit, Kind, MECHANISM, Tested};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    AUDIT_FILE, CONFIG_FILE, LEDGER_FILE, MANIFEST_FILE, PUBLIC_LEDGER_FILE,
};
use undertone_run_directory::ledger::genesis_of;
use undertone_run_directory::plan_inputs::{config_digest, strategy_of};
use undertone_run_directory::replays::TWIN;

/// Max number of audits beside the figures of the file: there are nine kinds and levels of sections, and the file itself has one of them.
const MAX_OTHERS: usize = 8;

/// Max number of alarms of replaced sections: two verdicts for each of nine kinds and levels.
const MAX_ALARMS: usize = 18;

/// The claims of an audit that no file determines.
pub(super) const NOT_DETERMINED: &str = "audit.json: that replays, rehearsals and attacks had the counts that it states, and that the coins of \
    canaries were drawn before the first round. No file determines them, and they are the word of the operator.";

/// The finding where the guesses about canaries cannot be made again.
const COINS_MISSING: &str = "coins missing: coins.json is not there, so nothing confirms the counts of the canaries in the lane, and no \
    verdict is taken from them";

/// Checks the audit beside a run with this report; `None` where nobody has recorded one.
pub(super) fn agree(run: &Run<'_>, report: Option<&PrivacyReport>) -> Option<Check> {
    let mut check = Check::new("audit");
    let read = files::read_if_there(&run.folder.join(AUDIT_FILE));
    let bytes = match check.keep(read) {
        Some(Some(bytes)) => bytes,
        Some(None) => return None,
        None => return Some(check),
    };
    let bytes = wording::current(&bytes);
    match exactly::<Audit>(AUDIT_FILE, &bytes) {
        Ok(audit) => {
            let made = made_again(run, report, &audit, &mut check);
            if let Some(made) = check.keep(made) {
                check.agree(AUDIT_FILE, &made, &audit);
            }
            // Without the coins the verdict is that of counts that nobody can make again.
            if check.found.is_empty() {
                check.found = audit.verdict;
            }
        }
        Err(problems) => check.problems(problems),
    }
    Some(check)
}

/// The audit that follows from the counts of the written one and from the files of the run.
fn made_again(
    run: &Run<'_>,
    report: Option<&PrivacyReport>,
    written: &Audit,
    check: &mut Check,
) -> Result<Audit> {
    let Subject::Run(config) = &run.subject else {
        return Err(DirectoryError::value(
            AUDIT_FILE,
            "this file absent from an exported task",
            "one",
        ));
    };
    one_per_level(written)?;
    let head =
        undertone_run_directory::ledger::read(&run.folder.join(LEDGER_FILE), &genesis_of(run.folder)?)?.head;
    let known = Known {
        run,
        config,
        report,
        recorded: match config.has_lane() {
            true => Some(recorded(run, config)?),
            false => None,
        },
        tested: Tested {
            name: config.task.name.clone(),
            config_sha256: config_digest(config.as_ref())?,
            ledger_head: Some(head),
        },
    };
    let mut made = known.sections(written, Place::Whole, check)?;
    made.audits = written.audits;
    made.alarms.clone_from(&written.alarms);
    for (number, other) in written.others.iter().enumerate() {
        let other = known.sections(other, Place::Other(number), check)?;
        made.others.push(other.finish());
    }
    Ok(made.finish())
}

/// Refuses two sections of one kind and level, and more others and alarms than there can be.
fn one_per_level(written: &Audit) -> Result<()> {
    let limit = |key: &str, max: usize, got: usize| match got > max {
        true => Err(DirectoryError::value(key, format!("at most {max}"), got)),
        false => Ok(()),
    };
    limit("audit.json, others", MAX_OTHERS, written.others.len())?;
    limit("audit.json, alarms", MAX_ALARMS, written.alarms.len())?;
    let mut known: Vec<(Kind, String)> = Vec::new();
    for (number, audit) in std::iter::once(written).chain(&written.others).enumerate() {
        let sections: Vec<(Kind, &str)> = audit.sections().collect();
        if number > 0 && sections.len() != 1 {
            let key = Place::Other(number - 1).key("sections");
            return Err(DirectoryError::value(&key, "one section", sections.len()));
        }
        for (kind, level) in sections {
            let section = (kind, level.to_owned());
            if known.contains(&section) {
                let key = format!("{AUDIT_FILE}, others");
                let got = format!("two of the kind {kind:?} and the level {}", short(level));
                return Err(DirectoryError::value(
                    &key,
                    "sections of different kinds or levels",
                    got,
                ));
            }
            known.push(section);
        }
    }
    for (number, alarm) in written.alarms.iter().enumerate() {
        let key = format!("{AUDIT_FILE}, alarms[{number}]");
        let level = alarm.level.as_str();
        let is_known = match alarm.kind {
            Kind::Canaries => Level::of("", level).is_ok(),
            Kind::Noise => [MECHANISM, record::LANE].contains(&level),
            Kind::Replay => [replay::THIS_RUN, TWIN, replays::TESTED].contains(&level),
            Kind::Exposure => level == record::TEXT,
        };
        if !is_known || !alarm.verdict.is_alarm() {
            let got = format!("{:?} of {}: {:?}", alarm.kind, short(level), alarm.verdict);
            return Err(DirectoryError::value(&key, "an alarm of a section", got));
        }
        if written.alarms[..number].contains(alarm) {
            return Err(DirectoryError::value(
                &key,
                "each alarm once",
                "one of them again",
            ));
        }
    }
    Ok(())
}

/// The start of a text that anybody may have written, for an error.
fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    text.chars().take(SHOWN).collect()
}

/// The place of an audit in the file.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The file itself.
    Whole,
    /// One of those beside its figures.
    Other(usize),
}

impl Place {
    /// The place of a key of the audit.
    fn key(self, key: &str) -> String {
        match self {
            Self::Whole => format!("{AUDIT_FILE}, {key}"),
            Self::Other(number) => format!("{AUDIT_FILE}, others[{number}].{key}"),
        }
    }
}

/// The facts that the figures of an audit follow from, beside its counts.
struct Known<'a> {
    run: &'a Run<'a>,
    config: &'a RunConfig,
    report: Option<&'a PrivacyReport>,
    recorded: Option<Recorded<'a>>,
    tested: Tested,
}

impl<'a> Known<'a> {
    fn lane(&self) -> Result<&Recorded<'a>> {
        self.recorded.as_ref().ok_or_else(no_lane)
    }

    /// The sections of an audit that follow from the counts of the written ones, without verdict and sentences.
    fn sections(&self, written: &Audit, place: Place, check: &mut Check) -> Result<Audit> {
        let mut made = Audit {
            run: self.tested.clone(),
            ..Audit::new("", "")
        };
        if let Some(replay) = &written.replay {
            made.replay = Some(replay::made_again(self.run, self.config, replay, place, check)?);
        }
        if let Some(noise) = &written.noise {
            made.noise = Some(match noise.source {
                Source::ThisRun => self.lane()?.noise()?,
                Source::Rehearsal => noise::made_again(self.run, noise, place)?,
            });
        }
        if let Some(exposure) = &written.exposure {
            made.exposure = Some(exposure.made_again()?);
            let task = &self.config.task;
            let target = task.privacy.as_ref().and_then(|privacy| privacy.target_epsilon);
            let schema = task.participation.as_ref();
            // Where users may take part beyond the schema, the copy may owe more than was planned.
            let as_planned = schema.is_none_or(|schema| schema.on_violation != Enforcement::Account);
            let planned = self
                .report
                .and_then(|report| report.planned.as_ref())
                .filter(|_| as_planned);
            if let Err(expected) = claim::of_copy(exposure.claim.as_ref(), planned, target) {
                let got = exposure.claim.as_ref().map_or("none".to_owned(), |claim| {
                    format!("{} at {}", claim.epsilon, claim.delta)
                });
                check.wrong(place.key("exposure.claim"), expected, got);
            }
        }
        let first = written.canaries.first();
        let level = first.map(|first| Level::of(&place.key("canaries[0].level"), &first.level));
        let level = level.transpose()?;
        made.claim = match (level, written.noise.as_ref().map(|noise| noise.source)) {
            (None, None) => None,
            (Some(Level::Lane), _) | (None, Some(Source::ThisRun)) => {
                Some(self.lane()?.claim(claim::report(self.report)?)?)
            }
            (Some(Level::Text), _) => Some(claim::planned(self.report)?),
            (Some(Level::Mechanism), _) | (None, Some(Source::Rehearsal)) => {
                let planned = claim::planned(self.report)?;
                Some(claim::rehearsed(written.claim.as_ref(), planned))
            }
        };
        if let (Some(level), Some(claim)) = (level, &made.claim) {
            let plan = match level {
                Level::Lane => self.lane()?.plan(claim)?,
                Level::Mechanism | Level::Text => {
                    bounds::plan(level, &self.tested.config_sha256, written, place, claim)?
                }
            };
            let of_coins = match level {
                Level::Lane => self.lane()?.bounds(claim)?,
                Level::Mechanism | Level::Text => None,
            };
            made.canaries = match of_coins {
                Some(bounds) => bounds,
                None => {
                    if level == Level::Lane {
                        COINS_MISSING.clone_into(&mut check.found);
                    }
                    let counted = bounds::Counted {
                        run: self.run,
                        level,
                        plan: &plan,
                        claim,
                    };
                    counted.made_again(&written.canaries, place, check)?
                }
            };
            made.plan_sha256 = Some(plan.sha256()?);
            made.plan = Some(plan);
        }
        Ok(made)
    }
}

fn no_lane() -> DirectoryError {
    DirectoryError::missing("audit", "a table: the audit speaks of a lane of the run")
}

/// Reads the lane of a finished run, or of a published copy of one.
///
/// # Errors
/// [`DirectoryError`] naming the file, for a run without `[audit]`, one that has not ended, and files that are damaged.
pub fn read_lane(folder: &Path) -> Result<Recorded<'_>> {
    let (config, entries) = finished(folder)?;
    let strategy = strategy_of(folder)?;
    Recorded::of(folder, &config, config_digest(&config)?, strategy, entries)
}

/// The configuration and the ledger of a finished run, or of a published copy of one.
pub(super) fn finished(folder: &Path) -> Result<(RunConfig, Vec<LedgerEntry>)> {
    let path = folder.join(CONFIG_FILE);
    let config = RunConfig::parse(&files::read_text(&path)?, &path, &[])?;
    if !files::exists(&folder.join(MANIFEST_FILE)) {
        let expected = "a file: without it the run has not ended, and its audit is not fixed";
        return Err(DirectoryError::missing(MANIFEST_FILE, expected));
    }
    let genesis = genesis_of(folder)?;
    let found = match undertone_run_directory::public_ledger::is_published(folder) {
        true => undertone_run_directory::public_ledger::read(&folder.join(PUBLIC_LEDGER_FILE), &genesis)?,
        false => undertone_run_directory::ledger::read(&folder.join(LEDGER_FILE), &genesis)?,
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
