//! `mechanism.json` against the configuration.

use std::path::Path;

use undertone_mechanisms::{Mechanism, Strategy};

use super::same::exactly;
use super::{Check, Run};
use undertone_run_directory::files::names::MECHANISM_FILE;

/// Checks that the file, if there is one, has the keys and the values of a mechanism for the rounds of the configuration.
pub(super) fn is_one(folder: &Path, rounds: u64) -> (Check, Option<()>) {
    let mut check = Check::new("mechanism file");
    let read = check.keep(undertone_run_directory::files::read_if_there(
        &folder.join(MECHANISM_FILE),
    ));
    match read.flatten().map(|bytes| {
        has_rounds(&bytes, rounds)?;
        exactly::<Mechanism>(MECHANISM_FILE, &bytes)
    }) {
        None => check.found = "none".to_owned(),
        Some(Ok(mechanism)) => check.found = mechanism.strategy().name(),
        Some(Err(problems)) => check.problems(problems),
    }
    let holds = check.problems.is_empty().then_some(());
    (check, holds)
}

/// Compares the number of rounds before anything is computed. Reading a mechanism computes its sensitivity, whose cost grows with
/// the rounds, so a changed number would make the reader work for a time that the file chooses.
fn has_rounds(bytes: &[u8], expected: u64) -> Result<(), Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Rounds {
        rounds: u64,
    }
    match serde_json::from_slice::<Rounds>(bytes) {
        Ok(Rounds { rounds }) if rounds != expected => Err(vec![format!(
            "{MECHANISM_FILE}, rounds: expected {expected} as in config.toml, got {rounds}"
        )]),
        // A file without rounds is refused below, with the names of all keys that are missing.
        _ => Ok(()),
    }
}

/// Checks that the mechanism is that of the configuration: its rounds, its schema, its noise, and each figure of a matrix that
/// needs no search. The figures of an optimised matrix are in its sensitivity, which the guarantee rests on.
pub(super) fn matches_configuration(run: &Run<'_>) -> Check {
    let mut check = Check::new("mechanism");
    let Some(bounded) = run.plan.bounded() else {
        check.found = "none: noise of its own in every round, or none at all".to_owned();
        return check;
    };
    let Some(bytes) = check.keep(undertone_run_directory::files::read(
        &run.folder.join(MECHANISM_FILE),
    )) else {
        return check;
    };
    // What is wrong with its keys has been named before the plan was made from it.
    let Ok(mechanism) = exactly::<Mechanism>(MECHANISM_FILE, &bytes) else {
        return check;
    };
    check.agree(MECHANISM_FILE, bounded.mechanism(), &mechanism);
    let unsearched = run.plan.unsearched_strategy(run.task());
    if let Some(expected) = unsearched.and_then(|made| check.keep(made)) {
        let place = format!("{MECHANISM_FILE}, strategy");
        check.agree(&place, &expected, mechanism.strategy());
    }
    buffers(run, mechanism.strategy(), &mut check);
    check.found = format!("{}, as configured", mechanism.strategy().name());
    check
}

/// Checks the number of buffers of a BLT, where the configuration gives one.
fn buffers(run: &Run<'_>, strategy: &Strategy, check: &mut Check) {
    let privacy = run.task().privacy.as_ref();
    let configured = privacy.and_then(|privacy| privacy.mechanism.as_ref()?.buffers);
    let figures = serde_json::to_value(strategy).unwrap_or_default();
    let found = ["/decay_complements", "/blt/decay_complements"]
        .iter()
        .find_map(|place| figures.pointer(place)?.as_array().map(Vec::len));
    if let (Some(configured), Some(found)) = (configured, found)
        && configured != found
    {
        let place = format!("{MECHANISM_FILE}, number of buffers");
        check.wrong(place, format!("{configured} as in the configuration"), found);
    }
}

/// The names of a matrix's figures.
pub(super) fn keys_of(strategy: &Strategy) -> String {
    let strategy = serde_json::to_value(strategy).unwrap_or_default();
    let keys = strategy.as_object().into_iter().flat_map(|fields| fields.keys());
    keys.map(String::as_str).collect::<Vec<_>>().join(", ")
}
