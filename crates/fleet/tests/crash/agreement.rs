//! The agreement of the store, the published heads, the draws of noise, the devices' memories and everything that was served.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::{LedgerEntry, LedgerLine};
use undertone_device::Progress;
use undertone_fleet::Fleet;
use undertone_protocol::{Digest32, Head, Label, Signed, TaskState, TrustedKeys, Verdict, digest_of, read};
use undertone_service::room::Shared;
use undertone_service_testing::{START, exports, loaded};
use undertone_store::{AttemptId, AttemptState, MAX_HEAD, ManualClock, TaskId};

use super::seen::Seen;
use super::task::{Size, open, witness};

/// The rounds of a task as they were released.
pub(crate) struct Released {
    pub(crate) entries: Vec<LedgerEntry>,
    pub(crate) heads: Vec<Head>,
}

/// Checks everything about a task that has ended, whose processes have noted their draws of noise.
pub(crate) fn check(folder: &Path, task: TaskId, size: Size, seen: &Seen, fleet: &Fleet<'_>) -> Released {
    let released = check_inside(folder, task, size, seen, fleet);
    one_draw_per_attempt(folder, &released);
    released
}

/// Checks everything about a task that has ended, and that no process leads any more.
pub(crate) fn check_inside(
    folder: &Path,
    task: TaskId,
    size: Size,
    seen: &Seen,
    fleet: &Fleet<'_>,
) -> Released {
    let shared = open(folder, Arc::new(ManualClock::at(START)), "check");
    let released = released(&shared, task, size.rounds);
    one_model_per_round(&shared, task, &released, seen);
    participations(&shared, task, size, &released, fleet);
    let text = fs::read_to_string(witness(folder).join(format!("{task}.head"))).unwrap();
    assert!(text.starts_with(&format!("{} ", size.rounds)), "{text}");
    assert!(shared.store.unpublished(task).unwrap().is_empty());
    assert!(shared.blobs.staged().unwrap().is_empty(), "staged files stayed");
    exports(&shared, task);
    released
}

/// Releases, lines of the ledger and signed heads: one each per round.
fn released(shared: &Shared, task: TaskId, rounds: u64) -> Released {
    let row = shared.store.task(task).unwrap();
    assert_eq!((row.state, row.head_round), (TaskState::Completed, rounds));
    let lines = shared.store.ledger(task, 0).unwrap();
    let mut entries = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        match LedgerLine::read(line).unwrap() {
            LedgerLine::Round(entry) => entries.push(*entry),
            LedgerLine::End(end) => {
                assert_eq!((place + 1, end.rounds), (lines.len(), rounds));
            }
        }
    }
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.round).collect();
    assert_eq!(numbers, (0..rounds).collect::<Vec<_>>());
    let (mut committed, mut missing) = (0, 0);
    for attempt in 1.. {
        let Ok(outcome) = shared.store.outcome(AttemptId(attempt)) else {
            // A server that crashed leaves out numbers of attempts, 32 at a time.
            missing += 1;
            if missing > 100 {
                break;
            }
            continue;
        };
        missing = 0;
        match outcome.state {
            AttemptState::Committed => committed += 1,
            state => assert_eq!(state, AttemptState::Abandoned, "attempt {attempt}"),
        }
    }
    assert_eq!(committed, rounds, "releases");
    assert_eq!(shared.blobs.last_head(task).unwrap(), Some(rounds));
    let key = TrustedKeys::new([shared.keys.head(task).public()]);
    let head = |round| {
        let bytes = shared.blobs.head(task, round).unwrap().unwrap();
        let signed: Signed = read("the head", &bytes, MAX_HEAD).unwrap();
        let (body, _) = key.open(Label::Head, &signed).unwrap();
        let head: Head = read("the head", body, MAX_HEAD).unwrap();
        assert_eq!((head.task.as_slice(), head.round), (&task.0[..], round));
        head
    };
    let heads: Vec<Head> = (1..=rounds).map(head).collect();
    assert_eq!(heads.last().unwrap().model_sha256, row.head_model);
    Released { entries, heads }
}

/// No device was ever shown two models of a round, nor anything that is not released; the head never fell.
fn one_model_per_round(shared: &Shared, task: TaskId, released: &Released, seen: &Seen) {
    let row = shared.store.task(task).unwrap();
    let loaded = loaded(shared, task);
    assert!(!seen.assigned.is_empty());
    for (&round, served) in &seen.assigned {
        assert_eq!(
            served.len(),
            1,
            "round {round} was served {} states",
            served.len()
        );
        let (model, chain) = served.first().unwrap();
        match round {
            0 => assert_eq!(model[..], row.task.model[..]),
            round => {
                let head = &released.heads[round as usize - 1];
                assert_eq!((model, chain), (&head.model_sha256, &head.chain), "round {round}");
            }
        }
    }
    let mut public: BTreeSet<Digest32> = [loaded.vocabulary, digest_of(&loaded.plan), row.task.model].into();
    public.extend(
        released
            .heads
            .iter()
            .map(|head| Digest32::try_from(&head.model_sha256[..]).unwrap()),
    );
    assert!(
        seen.blobs.is_subset(&public),
        "a blob was served that is not released"
    );
    for order in [&seen.heads, &seen.rounds] {
        assert!(order.is_sorted(), "the head fell: {order:?}");
    }
}

/// Each draw of noise had a key of its own, and belongs to an attempt of its own; the released ones are those of the ledger.
fn one_draw_per_attempt(folder: &Path, released: &Released) {
    let text = fs::read_to_string(folder.join("draws")).unwrap();
    let draws: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let distinct = |column: usize| {
        draws
            .iter()
            .map(|draw| draw[column])
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert_eq!(distinct(0), draws.len(), "an attempt drew noise twice:\n{text}");
    assert_eq!(distinct(2), draws.len(), "a key of noise was used twice:\n{text}");
    for entry in &released.entries {
        let key = entry.noise_key.as_deref().unwrap();
        let drawn = |draw: &Vec<&str>| draw[1] == entry.round.to_string() && draw[2] == key;
        assert_eq!(
            draws.iter().filter(|draw| drawn(draw)).count(),
            1,
            "round {}",
            entry.round
        );
    }
}

/// Rounds of one participant that are closer than `b`, or more than `k`.
fn keeps(who: &str, rounds: &mut [u64], size: Size) {
    rounds.sort_unstable();
    let apart = rounds.windows(2).all(|pair| pair[1] >= pair[0] + size.min_sep);
    assert!(apart && rounds.len() as u64 <= size.max_part, "{who}: {rounds:?}");
}

/// Participations keep to the schema, in the ledger and in every memory. Each released one is in the memory of its device, and each one
/// in the memory of a device is in the ledger, unless its update came too late for a release.
fn participations(shared: &Shared, task: TaskId, size: Size, released: &Released, fleet: &Fleet<'_>) {
    let issuer = shared.keys.issuer().public();
    let names: BTreeMap<ParticipantId, usize> = fleet
        .subject_names()
        .iter()
        .enumerate()
        .map(|(device, subject)| (shared.keys.pseudonym(task, &issuer, subject), device))
        .collect();
    let mut counted = BTreeMap::<ParticipantId, Vec<u64>>::new();
    let mut abandoned = BTreeMap::<(u64, u32), BTreeSet<ParticipantId>>::new();
    let mut count = |users: &[ParticipantId], round| {
        for user in users {
            counted.entry(*user).or_default().push(round);
        }
    };
    for line in shared.store.ledger(task, 0).unwrap() {
        let (round, attempts) = match LedgerLine::read(&line).unwrap() {
            LedgerLine::Round(entry) => {
                count(&entry.participants, entry.round);
                count(&entry.lost, entry.round);
                (entry.round, entry.attempts)
            }
            LedgerLine::End(end) => (end.rounds, end.attempts),
        };
        for attempt in attempts {
            count(&attempt.participants, round);
            let users = attempt.participants.into_iter().collect();
            abandoned.insert((round, attempt.attempt), users);
        }
    }
    for (user, rounds) in &mut counted {
        keeps(&format!("participant {user:?}"), rounds, size);
    }
    let mut remembered = BTreeMap::<usize, Vec<(u64, u32)>>::new();
    for row in fleet.participations() {
        let participation = row.participation;
        let place = (participation.round, participation.attempt);
        remembered.entry(row.device).or_default().push(place);
        // A device that had joined counts, whatever became of the attempt.
        match abandoned.get(&place) {
            Some(users) => {
                let listed = |user: &ParticipantId| names.get(user) == Some(&row.device);
                // A session may be lost before its device, which has noted its participation, joins.
                let unheard = size.quick && participation.progress == Progress::Begun;
                assert!(
                    unheard || users.iter().any(listed),
                    "device {} at {place:?} is not counted: {:?}",
                    row.device,
                    participation.progress
                );
            }
            None => {
                let head = released.heads.get(place.0 as usize).map(|head| head.attempt);
                assert_eq!(head, Some(place.1), "device {} at {place:?}", row.device);
            }
        }
        if participation.progress == Progress::Ended(Verdict::Included) {
            let entry = &released.entries[participation.round as usize];
            let listed = |user: &ParticipantId| names.get(user) == Some(&row.device);
            assert!(
                entry.participants.iter().any(listed),
                "device {} in no sum",
                row.device
            );
        }
    }
    for (device, places) in &remembered {
        let mut rounds: Vec<u64> = places.iter().map(|(round, _)| *round).collect();
        keeps(&format!("device {device}"), &mut rounds, size);
    }
    for (entry, head) in released.entries.iter().zip(&released.heads) {
        assert!(!entry.participants.is_empty());
        for user in &entry.participants {
            let device = names[user];
            let place = (entry.round, head.attempt);
            let known = remembered
                .get(&device)
                .is_some_and(|places| places.contains(&place));
            assert!(known, "device {device} does not remember {place:?}");
        }
    }
}
