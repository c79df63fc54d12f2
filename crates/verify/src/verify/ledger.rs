//! The ledger against itself and the configuration.

mod service;

use std::path::Path;

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::participation::observed::Observed;
use undertone_coordinator::record::{EndReason, LedgerEnd, LedgerEntry, LedgerLine, LedgerMode, everyone_in};
use undertone_coordinator::sampling::Sampling;

use super::same::exactly;
use super::subject::Subject;
use super::{Check, Run, published, shown};
use undertone_run_directory::error::Result;
use undertone_run_directory::files::{Line, Lines};
use undertone_run_directory::ledger::{self, Ledger};
use undertone_run_directory::manifest::Manifest;
use undertone_run_directory::public_ledger::PublicEntry;

/// Checks that each line follows the one before it, and the first the settings of the run.
pub(super) fn chain(folder: &Path, published: bool, subject: &Subject) -> (Check, Option<Ledger>) {
    let mut check = Check::new("ledger");
    let name = published::ledger_file(published);
    let path = folder.join(name);
    let read = only_what_a_run_writes(&path, published, &mut check);
    check.keep(read);
    let read = subject.genesis(folder).and_then(|genesis| match published {
        true => undertone_run_directory::public_ledger::read(&path, &genesis),
        false => ledger::read(&path, &genesis),
    });
    let Some(found) = check.keep(read) else {
        return (check, None);
    };
    let rounds = found.entries.len();
    if let Ok(manifest) = Manifest::read(folder) {
        if manifest.ledger_head != found.head {
            check.problem(format!(
                "{name}: ends in {}, the manifest's ledger_head is {}",
                found.head, manifest.ledger_head
            ));
        }
        check.same("manifest.json, rounds", &(rounds as u64), &manifest.rounds);
    }
    let ended = match (subject.file(), &found.end) {
        (None, None) => "",
        (Some(file), Some(end)) => {
            if (end.end == EndReason::Completed) != (end.rounds == file.task.rounds) {
                check.problem(format!(
                    "{name}, line {}, end: expected `completed` exactly after {} rounds, got {:?} after {}",
                    rounds + 1,
                    file.task.rounds,
                    end.end,
                    end.rounds
                ));
            }
            ", to the end of the task"
        }
        (Some(_), None) => {
            check.problem(format!(
                "{name}, line {}: expected the end of the task (a line with the key `end`), found no line; attempts after \
                 the last release may be missing",
                rounds + 1
            ));
            ""
        }
        (None, Some(end)) => {
            if !may_starve(subject, end) {
                check.problem(format!(
                    "{name}, line {}, end: expected a round. A run has an end only as `starved`, before its last round, where a participation \
                     schema may leave too few users; got {:?} after {} rounds",
                    rounds + 1,
                    end.end,
                    end.rounds
                ));
            }
            ", to its end for lack of users who may take part again"
        }
    };
    check.found = format!("{rounds} rounds, chained from the settings on{ended}");
    (check, Some(found))
}

/// `true` for the end that a run writes whose participation schema leaves too few users.
fn may_starve(subject: &Subject, end: &LedgerEnd) -> bool {
    let task = subject.task();
    end.end == EndReason::Starved
        && end.rounds < task.rounds
        && end.attempts.is_empty()
        && end.issuer.is_none()
        && !subject.is_external()
        && (undertone_run_directory::public_ledger::by_schema(task) || task.participation.is_some())
}

/// Checks that each line has the keys of a ledger's line, each once, and no others.
fn only_what_a_run_writes(path: &Path, published: bool, check: &mut Check) -> Result<()> {
    let file = published::ledger_file(published);
    let mut lines = Lines::open(path)?;
    while let Some(Line { number, bytes, .. }) = lines.next()? {
        let place = format!("{file}, line {number}");
        let problems = match LedgerLine::is_end(bytes) {
            Ok(true) => exactly::<LedgerEnd>(&place, bytes).err(),
            _ if published => exactly::<PublicEntry>(&place, bytes).err(),
            _ => exactly::<LedgerEntry>(&place, bytes).err(),
        };
        check.problems(problems.unwrap_or_default());
        if check.is_full() {
            break;
        }
    }
    Ok(())
}

/// Checks the clip norm, sensitivity and noise of each round against the configuration.
pub(super) fn rounds(run: &Run<'_>) -> Check {
    let mut check = Check::new("rounds");
    if run.entries.len() as u64 > run.task().rounds {
        check.problem(format!(
            "{}: {} rounds, {} allows {}",
            run.ledger_file(),
            run.entries.len(),
            run.subject.file_name(),
            run.task().rounds
        ));
    }
    let adaptive = run
        .plan
        .bounded()
        .is_some_and(|bounded| bounded.clients().is_some());
    for (index, entry) in run.entries.iter().enumerate() {
        let place = place(run, index);
        let planned = match (adaptive, entry.clip_norm) {
            // Where clipping is adaptive the norm is an outcome, and changes where a segment begins.
            (true, Some(clip_norm)) => run.plan.round_clipped(entry.round, clip_norm),
            _ => run.plan.round(entry.round),
        };
        let sampling = run.task().cohort.sampling.name();
        if entry.sampling != sampling {
            check.wrong(place("sampling"), sampling, &entry.sampling);
        }
        let (q, population) = (run.plan.sampling_probability(), run.plan.population());
        check.same(place("sampling_probability"), &q, &entry.sampling_probability);
        check.same(place("population"), &population.users, &entry.population);
        if !run.withholds_participation() {
            check_size(run, index, &mut check);
            check_survivors(run, index, &mut check);
        }
        check.same(
            place("total_weight"),
            &population.total_weight,
            &entry.total_weight,
        );
        check.same(place("clip_norm"), &planned.clipping.bound(), &entry.clip_norm);
        check.same(place("sensitivity"), &planned.sensitivity, &entry.sensitivity);
        check.same(place("noise_std"), &planned.noise_std, &entry.noise_std);
        let noise_multiplier = planned.noise_multiplier;
        check.same(
            place("noise_multiplier"),
            &noise_multiplier,
            &entry.noise_multiplier,
        );
        check_examples(run, index, &mut check);
        check_digests(run, index, &mut check);
        if run.published {
            continue;
        }
        let named = entry.noise_key.as_deref().map(is_key_id);
        if named != noise_multiplier.map(|_| true) {
            let expected = "expected 16 hexadecimal digits in private runs, and nothing in others";
            check.problem(format!("{}: {expected}", place("noise_key")));
        }
    }
    if adaptive {
        segments(run, &mut check);
    }
    check.found = "clip norm, sensitivity and noise of every round as configured".to_owned();
    check
}

/// The places of the values in a line of the ledger, by their keys.
fn place(run: &Run<'_>, index: usize) -> impl Fn(&str) -> String {
    let file = run.ledger_file();
    move |what| format!("{file}, line {}, {what}", index + 1)
}

/// `true` if a text is the name of a key.
fn is_key_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Checks the size of a cohort, where the configuration determines it.
fn check_size(run: &Run<'_>, index: usize, check: &mut Check) {
    let (users, goal) = (run.plan.population().users, run.plan.users_per_round() as u64);
    let sizes = match run.task().cohort.sampling {
        Sampling::FixedSize => goal..=goal,
        Sampling::ShuffledEpochs => {
            let cohorts = (users / goal.max(1)).max(1);
            users / cohorts..=users.div_ceil(cohorts)
        }
        Sampling::Poisson | Sampling::DeviceTimers => 0..=users,
        Sampling::CheckIn => match run.subject.file() {
            Some(file) => file.floor()..=file.sessions().min(users),
            None => 0..=users,
        },
    };
    let size = run.entries[index].cohort_size;
    if !sizes.contains(&size) {
        let expected = format!("from {} to {}", sizes.start(), sizes.end());
        check.wrong(place(run, index)("cohort_size"), expected, size);
    }
}

/// Checks that each participant gave from one to `group_size` examples, with ULS and ELS.
fn check_examples(run: &Run<'_>, index: usize, check: &mut Check) {
    let (entry, place) = (&run.entries[index], place(run, index));
    let group_size = run.task().user_update.group_size;
    check.same(
        place("group_size"),
        &group_size.map(f64::from),
        &entry.group_size.map(f64::from),
    );
    if run.published {
        return;
    }
    let Some(group_size) = group_size else {
        if entry.examples.is_some() {
            let place = place("examples");
            check.problem(format!(
                "{place}: a run without a group size has this value absent"
            ));
        }
        return;
    };
    let max = entry.cohort_size.saturating_mul(u64::from(group_size));
    // A user of a session may have contributed nothing.
    let min = match run.subject.is_external() {
        true => 0,
        false => entry.cohort_size,
    };
    let within = |examples| (min..=max).contains(&examples);
    // Of users who failed on the way nothing is in the sum.
    if entry.survivors.is_none() && !entry.examples.is_some_and(within) {
        let size = entry.cohort_size;
        let expected = format!("from {min} to {max} of {size} participants");
        check.wrong(place("examples"), expected, shown(entry.examples));
    }
}

/// Checks that a line names the parameters after its round, and that of a session the released average in their place. Only a session
/// has sums of a device of another program.
fn check_digests(run: &Run<'_>, index: usize, check: &mut Check) {
    let (entry, place) = (&run.entries[index], place(run, index));
    let external = run.subject.is_external();
    let (model, released) = (&entry.parameters_sha256, &entry.released_sha256);
    if model.is_some() == external {
        let expected = if external {
            "this value absent in a session"
        } else {
            "a digest"
        };
        check.wrong(place("parameters_sha256"), expected, shown(model.as_ref()));
    }
    let digits = |digest: &String| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if released.as_ref().map(digits) != external.then_some(true) {
        let expected = match external {
            true => "64 hexadecimal digits",
            false => "this value absent outside of sessions",
        };
        check.wrong(place("released_sha256"), expected, shown(released.as_ref()));
    }
    if entry.summed_on_gpu && !external {
        let expected = "this value absent outside of sessions";
        check.wrong(place("summed_on_device"), expected, "true");
    }
}

/// Checks that a round below the floor of survivors was abandoned, and left the parameters as they were.
fn check_survivors(run: &Run<'_>, index: usize, check: &mut Check) {
    let (entry, place) = (&run.entries[index], place(run, index));
    let Some(encoding) = run.plan.encoding() else {
        if entry.survivors.is_some() || entry.abandoned {
            let place = place("survivors");
            check.problem(format!(
                "{place}: a run without [aggregation] has this value absent"
            ));
        }
        return;
    };
    let cohort = encoding.size();
    let survivors = entry.survivors.unwrap_or(0);
    if survivors > entry.cohort_size || survivors > cohort.max_clients {
        let max = entry.cohort_size.min(cohort.max_clients);
        check.wrong(place("survivors"), format!("at most {max}"), survivors);
    }
    if entry.survivors.is_none() {
        let place = place("survivors");
        check.problem(format!("{place}: expected a number with [aggregation]"));
    }
    if survivors < cohort.min_clients && !entry.abandoned {
        let (place, floor) = (place("abandoned"), cohort.min_clients);
        check.problem(format!(
            "{place}: {survivors} survivors, released below the floor of {floor}"
        ));
    }
    let before = index
        .checked_sub(1)
        .map(|before| &run.entries[before].parameters_sha256);
    if entry.abandoned && before.is_some_and(|before| *before != entry.parameters_sha256) {
        let place = place("parameters_sha256");
        check.problem(format!("{place}: an abandoned round changed the parameters"));
    }
}

/// Checks that an adaptive clip norm is constant between restarts, and starts as configured.
fn segments(run: &Run<'_>, check: &mut Check) {
    let Some(bounded) = run.plan.bounded() else { return };
    let mut active = Some(bounded.first_clip_norm());
    for (index, entry) in run.entries.iter().enumerate() {
        let segment = bounded.segment_of(entry.round);
        if segment > 0 && bounded.segment(segment).start == entry.round {
            active = entry.clip_norm;
        }
        check.same(
            place(run, index)("clip_norm between restarts"),
            &active,
            &entry.clip_norm,
        );
    }
}

/// Checks that each round names distinct participants, as many as it counts, who keep to the declared schema.
pub(super) fn participation(run: &Run<'_>) -> Check {
    let mut check = Check::new("participation");
    if run.withholds_participation() {
        "withheld: the guarantee rests on sampling, and holds if nobody sees who was drawn"
            .clone_into(&mut check.found);
        return check;
    }
    let file = run.ledger_file();
    let mut observed = Observed::new();
    let mut policy = check.keep(run.plan.policy(run.task())).flatten();
    let mut count = |round: u64, everyone: &[ParticipantId], line: &str, check: &mut Check| {
        if let Err(violation) = observed.record(round, everyone) {
            check.problem(format!("{line}: {violation}"));
        }
        if let Some(policy) = &mut policy
            && let Err(violation) = policy.admit(round, everyone)
        {
            check.problem(format!("{line}: {violation}"));
        }
    };
    for (index, entry) in run.entries.iter().enumerate() {
        let line = format!("{file}, line {}", index + 1);
        service::check_line(run, index, &mut check);
        let named = entry.mode != Some(LedgerMode::DeviceLedger);
        if named && entry.participants.len() as u64 != entry.cohort_size {
            check.problem(format!(
                "{line}: cohort_size is {}, {} participants are named",
                entry.cohort_size,
                entry.participants.len()
            ));
        }
        count(entry.round, &entry.everyone(), &line, &mut check);
    }
    if let Some(end) = &run.end {
        let line = format!("{file}, line {}", run.entries.len() + 1);
        service::check_attempts(run, &end.attempts, &line, &mut check);
        if !end.attempts.is_empty() {
            count(end.rounds, &everyone_in(&end.attempts), &line, &mut check);
        }
    }
    let population = run.plan.population().users;
    if observed.users() > population {
        check.problem(format!(
            "{file}: {} different participants in a population of {population}",
            observed.users()
        ));
    }
    let between = observed.min_sep();
    check.found = format!(
        "{} of {population} users took part, at most {} times, {}",
        observed.users(),
        observed.max_participation(),
        between.map_or("nobody twice".to_owned(), |between| format!(
            "MinS {}",
            between.get()
        )),
    );
    check
}
