//! A process that is killed at every fail point: around each arrow of a release, in admissions, leases and abandonments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_coordinator::record::LedgerEntry;
use undertone_fleet::{Doom, FailPoint, Fleet, FleetConfig};
use undertone_service_testing::users;

use super::agreement::{Released, check};
use super::outside::{ChildClock, Outside, ToChild, listed};
use super::task::{Size, Template, drawn, fleet_config};

/// Devices of a play: enough for three attempts per round that all count.
const DEVICES: usize = 60;

/// The events before the process that is to be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Prelude {
    /// None: the first process is to be killed.
    None,
    /// Another process was killed here, and left work to the next one.
    Killed(FailPoint),
    /// The process is asked to end after so many assignments.
    Closed(usize),
}

/// One play of the task, from the first device to the end.
struct Played {
    released: Released,
    /// The visits of the process after the prelude.
    visits: BTreeMap<String, u64>,
    deaths: u64,
}

/// Plays the task with a process that is killed at `point` after the prelude, and checks everything.
fn play(template: &Template, seed: u64, prelude: &Prelude, point: Option<FailPoint>) -> Played {
    let folder = template.copy();
    let mut dooms: Vec<Doom> = match prelude {
        Prelude::Killed(point) => vec![Doom::At(point.clone())],
        _ => Vec::new(),
    };
    let before = dooms.len() as u64;
    dooms.extend(point.map(Doom::At));
    let patience = dooms.len() as u64 + 3;
    let outside = Outside::new(folder.path(), ChildClock::Virtual, listed(dooms), patience, seed);
    let config = FleetConfig {
        clock: outside.fleet_clock(),
        seed,
        max_pause_ms: 10_000 + drawn(&[seed, 1]) % 20_000,
        start_spread_ms: drawn(&[seed, 2]) % 8_000,
        // With a cache of its own, each device loads each model.
        share_blobs: seed.is_multiple_of(2),
        ..fleet_config(folder.path(), DEVICES)
    };
    let fleet = Fleet::new(config, users(DEVICES), ToChild(outside.clone())).unwrap();
    fleet.enrol().unwrap();
    let (mut ticks, mut closed) = (0, false);
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "the task does not end: {}", outside.log());
            if let Prelude::Closed(assignments) = prelude
                && !closed
                && outside.assignments() >= *assignments
            {
                closed = true;
                outside.close();
            }
            outside.tick()
        })
        .unwrap();
    let (_, deaths) = outside.lives();
    let seen = outside.end();
    let released = check(folder.path(), template.task, template.size, &seen, &fleet);
    Played {
        released,
        visits: outside.visits(before + 1),
        deaths,
    }
}

/// The names of all fail points of the store and of the service, from their sources.
fn fail_points() -> Vec<String> {
    fn collect(folder: &Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.split("failpoint!(\"").skip(1);
                names.extend(found.filter_map(|rest| Some(rest.split_once("\")")?.0.to_owned())));
            }
        }
    }
    let mut names = Vec::new();
    for crate_name in ["store", "service"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        collect(&folder.join(crate_name).join("src"), &mut names);
    }
    // The tests of the store name the macro, too.
    names.retain(|name| !name.is_empty() && !name.contains(['(', '\n']));
    // A service of one process has no shards; those of several are killed in `tests/it/processes`.
    names.retain(|name| !name.starts_with("shard"));
    names.sort();
    names.dedup();
    names
}

fn preludes() -> Vec<Prelude> {
    let killed = |point: &str, visit| Prelude::Killed(FailPoint::new(point, visit));
    vec![
        Prelude::None,
        killed("release.reserved", 1),
        killed("release.staged", 2),
        killed("admit.assigned", 9),
        killed("release.committed", 1),
        Prelude::Closed(5),
    ]
}

/// The ways to reach each fail point: a prelude, and the number of visits after it.
fn ways(template: &Template) -> BTreeMap<String, Vec<(Prelude, u64)>> {
    let mut ways = BTreeMap::<String, Vec<(Prelude, u64)>>::new();
    for (found, prelude) in in_parallel(preludes(), |prelude| (play(template, 0, &prelude, None), prelude)) {
        let expected = u64::from(prelude != Prelude::None);
        assert_eq!(found.deaths, expected, "{prelude:?}");
        for (point, visits) in found.visits {
            ways.entry(point).or_default().push((prelude.clone(), visits));
        }
    }
    ways
}

/// Does the work on as many threads as the machine has cores.
fn in_parallel<T: Send, R: Send>(work: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let work: Vec<Mutex<Option<T>>> = work.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let results = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| {
                while let Some(item) = work.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let item = item.lock().unwrap().take().unwrap();
                    let result = each(item);
                    results.lock().unwrap().push(result);
                }
            });
        }
    });
    results.into_inner().unwrap()
}

/// Plays each fail point at as many seeds. A seed chooses the way, the visit, the cohort and the times of devices.
fn every_point(seeds: u64) -> usize {
    let template = Template::new(Size::default());
    let ways = ways(&template);
    let points = fail_points();
    let reached: Vec<String> = ways.keys().cloned().collect();
    assert_eq!(reached, points, "the plays visit every fail point");
    assert!(points.len() >= 40, "{} fail points", points.len());
    let mut work = Vec::new();
    for (number, (point, ways)) in ways.iter().enumerate() {
        for seed in 0..seeds {
            let draw = |part| drawn(&[number as u64, seed, part]);
            let (prelude, visits) = &ways[(draw(0) % ways.len() as u64) as usize];
            // Places that admissions visit are visited less often where fewer devices come.
            let last = if *visits > 3 { visits * 2 / 3 } else { *visits };
            let visit = 1 + draw(1) % last;
            work.push((1 + seed, prelude.clone(), FailPoint::new(point.clone(), visit)));
        }
    }
    let plays = work.len();
    in_parallel(work, |(seed, prelude, point)| {
        let played = play(&template, seed, &prelude, Some(point.clone()));
        // A process that dies at a place has visited it so often, and no more.
        let visited = played.visits.get(&point.name).copied();
        assert_eq!(visited, Some(point.visit), "{point} after {prelude:?}");
    });
    plays
}

#[test]
#[ignore = "slow"]
fn a_process_that_is_killed_at_any_fail_point_releases_each_round_once() {
    every_point(super::seeds());
}

mod by_hand {
    use super::*;

    /// Thirty seeds of every fail point: some 1,500 plays, ten minutes on two cores that do nothing else.
    #[test]
    #[ignore = "ten to twenty minutes"]
    fn thirty_seeds_of_every_fail_point_release_each_round_once() {
        let plays = every_point(30);
        println!("{plays} plays");
    }
}

/// Groups of a secure sum live in memory alone: a crash in any of their phases fails them, and the next attempt makes its own.
#[test]
#[ignore = "slow"]
fn a_process_that_is_killed_amid_secure_sums_releases_each_round_once() {
    let size = Size {
        rounds: 2,
        users_per_round: 9,
        secure: true,
        ..Size::default()
    };
    let template = Template::new(size);
    let visits = play(&template, 0, &Prelude::None, None).visits;
    let mut work = Vec::new();
    let places = [
        "attempt.opened",
        "attempt.selected",
        "admit.assigned",
        "writer: after commit",
        "release.reserved",
        "release.sealed",
        "release.closed",
        "release.staged",
        "release.committed",
        "publish.head",
    ];
    for (number, point) in places.into_iter().enumerate() {
        for seed in 0..super::seeds() {
            let draw = drawn(&[number as u64, seed, 7]);
            let last = if visits[point] > 3 {
                visits[point] * 2 / 3
            } else {
                visits[point]
            };
            work.push((1 + seed, FailPoint::new(point, 1 + draw % last)));
        }
    }
    in_parallel(work, |(seed, point)| {
        let played = play(&template, seed, &Prelude::None, Some(point.clone()));
        assert_eq!(played.deaths, 1, "{point}");
        assert!(
            played
                .released
                .entries
                .iter()
                .all(|entry| entry.survivors >= Some(6))
        );
    });
}

/// A release whose parameters are not finite is committed as quarantined: nothing after the noise depends on its value.
#[test]
#[ignore = "slow"]
fn a_release_that_is_not_finite_is_committed_once_and_its_noise_never_drawn_again() {
    let size = Size {
        rate: 1e60,
        ..Size::default()
    };
    let template = Template::new(size);
    let mut work = Vec::new();
    for (number, point) in [
        "release.closed",
        "release.staged",
        "commit: after the head",
        "release.committed",
        "publish.head",
        "publish.done",
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 0..super::seeds() {
            work.push((seed, FailPoint::new(point, 1 + drawn(&[number as u64, seed]) % 3)));
        }
    }
    in_parallel(work, |(seed, point)| {
        let played = play(&template, seed, &Prelude::None, Some(point.clone()));
        assert_eq!(played.deaths, 1, "{point}");
        let quarantined = |entry: &LedgerEntry| entry.quarantined;
        assert!(
            played.released.entries.iter().all(quarantined),
            "the parameters are finite"
        );
        let models = played.released.heads.windows(2);
        assert!(
            models
                .into_iter()
                .all(|pair| pair[0].model_sha256 == pair[1].model_sha256)
        );
    });
}
