//! The replay of an audit. Its counts are taken as they stand.

use super::super::{Check, Run, replays};
use super::Place;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::error::Result;
use undertone_run_directory::replays::{PopulationMode, Replay, ReplayCheck, TWIN, clip_norms};

/// The words for the run itself.
pub(super) const THIS_RUN: &str = "this run";

/// The public statistics that may move where the plan is made again for a neighbour.
const MOVED: [&str; 4] = [
    "the plan itself, from the number of users",
    "sampling rate, from the number of users",
    "denominator of the average, from the number of users",
    "noise multiplier, from the sampling rate",
];

/// The replay that follows from the written counts, or from the record that the run made while it ran.
///
/// # Errors
/// [`DirectoryError`](undertone_run_directory::error::DirectoryError) naming the record of the run.
pub(super) fn made_again(
    run: &Run<'_>,
    config: &RunConfig,
    written: &Replay,
    place: Place,
    check: &mut Check,
) -> Result<Replay> {
    if written.tested == replays::TESTED {
        return replays::made(run, config);
    }
    let mut made = Replay {
        // A run without a seed has no keys left, so that only a twin can be replayed.
        tested: match (config.seed, written.tested.as_str()) {
            (Some(_), THIS_RUN) => THIS_RUN,
            _ => TWIN,
        }
        .to_owned(),
        adjacency: run.plan.adjacency(),
        clip_norms_per_round: clip_norms(&config.task),
        checks: same_checks(&written.checks, place, check),
        conditional_on: Replay::conditional_on(written.population),
        ..written.clone()
    };
    if written.population == PopulationMode::Recomputed {
        let moved = MOVED.iter().copied().map(str::to_owned);
        let stated = |name: &String| written.conditional_on.contains(name);
        let mut moved: Vec<String> = moved.filter(stated).collect();
        // In the order in which they stand, which is that of the users.
        moved.sort_by_key(|name| written.conditional_on.iter().position(|written| written == name));
        made.conditional_on.extend(moved);
    }
    let rounds = match made.tested == TWIN {
        // A twin of a run that ended early may go on.
        true => config.task.rounds,
        false => run.entries.len() as u64,
    };
    let users = written.users as u64;
    for (key, max, got) in [
        ("replay.rounds", rounds, written.rounds),
        // One user per round.
        ("replay.pairs", written.rounds, written.pairs),
        ("replay.users", run.plan.population().users, users),
        ("replay.whole_users", users, written.whole_users as u64),
    ] {
        if got > max {
            check.wrong(place.key(key), format!("at most {max}"), got);
        }
    }
    Ok(made)
}

/// The checks of a replay with their names and properties, as a replay writes them. A failure has a round, and no check fails more
/// often than it compares.
fn same_checks(written: &[ReplayCheck], place: Place, check: &mut Check) -> Vec<ReplayCheck> {
    let mut all = ReplayCheck::all();
    if written.len() != all.len() {
        check.wrong(place.key("replay.checks"), all.len(), written.len());
    }
    for (made, written) in all.iter_mut().zip(written) {
        (made.compared, made.failed) = (written.compared, written.failed);
        made.first_failure = written.first_failure;
        if written.failed > written.compared || (written.failed > 0) != written.first_failure.is_some() {
            let place = place.key(&format!("replay.checks, {}", made.name));
            let got = format!("{} failures of {}", written.failed, written.compared);
            check.wrong(place, "failures with their first round", got);
        }
    }
    all
}
