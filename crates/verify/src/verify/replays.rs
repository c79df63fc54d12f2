//! `replays.json`, where a run replayed rounds while it ran: that it names each round that was due with the checks of this kind of run, and
//! the bound of the run.
//!
//! No file can prove that a check was asked as it says.

use std::path::Path;

use super::subject::Subject;
use super::{Check, Run, audit};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files::names::REPLAYS_FILE;
use undertone_run_directory::replays::live::{LiveRecord, asked};
use undertone_run_directory::replays::{Battery, PopulationMode, Replay, ReplayCheck};

/// Checks the replays of a run; `None` for a run without them.
pub(super) fn agree(run: &Run<'_>) -> Option<Check> {
    let Subject::Run(config) = &run.subject else {
        return None;
    };
    config.audit.filter(|audit| audit.replay_every > 0)?;
    let mut check = Check::new("replays");
    if let Some(made) = check.keep(made(run, config)) {
        if made.adjacency != run.plan.adjacency() {
            let place = format!("{REPLAYS_FILE}, adjacency");
            check.wrong(
                place,
                format!("{:?}", run.plan.adjacency()),
                format!("{:?}", made.adjacency),
            );
        }
        let bound = undertone_run_directory::replays::clip_norms(&config.task);
        if made.clip_norms_per_round != bound {
            let place = format!("{REPLAYS_FILE}, clip_norms_per_round");
            check.wrong(place, bound, made.clip_norms_per_round);
        }
        check.found = format!("{} rounds beside a neighbour", made.rounds);
    }
    Some(check)
}

/// The replays of a run as `audit.json` holds them.
pub(super) fn made(run: &Run<'_>, config: &RunConfig) -> Result<Replay> {
    recorded(run.folder, config, run.entries.len() as u64)
}

/// Reads the replays that a finished run, or a published copy of one, made while it ran.
///
/// # Errors
/// [`DirectoryError`] naming the file, for a run without `audit.replay_every`, one that has not ended, and a file that is damaged.
pub fn read_replays(folder: &Path) -> Result<Replay> {
    let (config, entries) = audit::finished(folder)?;
    recorded(folder, &config, entries.len() as u64)
}

/// The words of `audit.json` for the run that such a replay tests.
pub(super) const TESTED: &str = "this run, while it ran";

fn recorded(folder: &Path, config: &RunConfig, rounds: u64) -> Result<Replay> {
    let every = config.audit.map_or(0, |audit| audit.replay_every);
    if every == 0 {
        let expected = "a number above 0: only a run that was made with it has replays of its own";
        return Err(DirectoryError::missing("audit.replay_every", expected));
    }
    let record = LiveRecord::read(folder, every)?;
    record.check(folder, &config.task, rounds)?;
    let pairs = record.replays.len();
    let mut checks = ReplayCheck::all();
    let asked = asked(&config.task);
    for check in checks.iter_mut().filter(|check| asked.contains(&check.name)) {
        check.compared = pairs as u64;
    }
    Ok(Replay {
        tested: TESTED.to_owned(),
        adjacency: record.adjacency,
        clip_norms_per_round: record.clip_norms_per_round,
        population: PopulationMode::Public,
        battery: Battery::Natural,
        // PRIVACY: a round without users counts as well, since nobody may learn which rounds had none.
        users: pairs,
        rounds: pairs as u64,
        pairs: pairs as u64,
        whole_users: 0,
        checks,
        conditional_on: Replay::conditional_on(PopulationMode::Public),
    })
}
