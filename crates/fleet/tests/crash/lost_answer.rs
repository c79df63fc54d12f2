//! A commit whose answer is lost: the outcome is read back, and no noise is drawn a second time for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use undertone_store::{AttemptId, Release};

use super::agreement::check_inside;
use super::hooks::Hook;
use super::inside::{Inside, hooked};
use super::task::{Size, Template, drawn};

/// The ways in which the answer of a commit is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// The commit was made.
    After,
    /// The commit was not made.
    Before,
    /// The commit was made, and its outcome cannot be read at first.
    AfterUnread,
    /// The commit was made, and neither it nor its outcome is answered until the process gives up.
    AfterForGood,
    /// The commit is refused until the process gives up.
    BeforeForGood,
}

const WAYS: [Way; 5] = [
    Way::After,
    Way::Before,
    Way::AfterUnread,
    Way::AfterForGood,
    Way::BeforeForGood,
];

/// The commits that were tried, and the losses that are to come.
#[derive(Default)]
struct Losses(Mutex<State>);

#[derive(Default)]
struct State {
    seed: u64,
    /// The release of each attempt: its key of noise, its line and its files.
    tried: BTreeMap<AttemptId, BTreeSet<Vec<u8>>>,
    keys: Vec<String>,
    staged: BTreeMap<u64, u64>,
    way: Option<Way>,
    commits: u32,
    outcomes: u32,
    lost: BTreeMap<Way, u64>,
}

impl Hook for Losses {
    fn release(&self, release: &Release) {
        let mut state = self.0.lock().unwrap();
        let key = release.noise_key.clone().unwrap();
        let bytes = [
            &release.line[..],
            key.as_bytes(),
            &release.model,
            &release.state.unwrap(),
        ]
        .concat();
        let new = !state.tried.contains_key(&release.attempt);
        state.tried.entry(release.attempt).or_default().insert(bytes);
        if new {
            state.keys.push(key);
            let draw = drawn(&[state.seed, release.attempt.0]) % WAYS.len() as u64;
            state.way = Some(WAYS[draw as usize]);
            (state.commits, state.outcomes) = (0, 0);
        }
    }

    fn before(&self, act: &'static str) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        let Some(way) = state.way else { return Ok(()) };
        match (act, way) {
            ("stage_state", _) => state.staged.entry(0).and_modify(|count| *count += 1).or_insert(1),
            ("commit_release", Way::Before) if state.commits == 0 => {
                state.commits += 1;
                *state.lost.entry(way).or_default() += 1;
                return Err("the connection was lost before the commit".to_owned());
            }
            ("commit_release", Way::BeforeForGood) => {
                state.commits += 1;
                *state.lost.entry(way).or_default() += u64::from(state.commits == 1);
                return Err("the connection was lost before the commit".to_owned());
            }
            ("outcome", Way::AfterUnread) if state.outcomes < 2 && state.commits > 0 => {
                state.outcomes += 1;
                return Err("the outcome cannot be read".to_owned());
            }
            ("outcome", Way::AfterForGood) if state.commits > 0 && state.outcomes < 4 => {
                state.outcomes += 1;
                return Err("the outcome cannot be read".to_owned());
            }
            _ => return Ok(()),
        };
        Ok(())
    }

    fn after(&self, act: &'static str) -> Result<(), String> {
        let mut state = self.0.lock().unwrap();
        let Some(way) = state.way else { return Ok(()) };
        let first = state.commits == 0;
        let lost = match way {
            Way::After | Way::AfterUnread => first,
            Way::AfterForGood => true,
            Way::Before | Way::BeforeForGood => false,
        };
        if act == "commit_release" && lost {
            state.commits += 1;
            *state.lost.entry(way).or_default() += u64::from(first);
            return Err("the connection was lost after the commit".to_owned());
        }
        Ok(())
    }
}

/// A task in which the answer of every commit is lost, in ways that the seed draws.
fn every_answer_is_lost(rounds: u64, seed: u64) -> BTreeMap<Way, u64> {
    let size = Size {
        rounds,
        users_per_round: 4,
        min_sep: 1,
        max_part: 4 * rounds,
        ..Size::default()
    };
    let template = Template::new(size);
    let folder = template.copy();
    let inside = Inside::new(folder.path());
    let losses = Arc::new(Losses::default());
    losses.0.lock().unwrap().seed = seed;
    inside.serve(hooked(inside.shared("local"), losses.clone()));
    let fleet = inside.fleet(24, seed);
    fleet.enrol().unwrap();
    let mut ticks = 0u64;
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(
                ticks < 4000 * rounds,
                "the task does not end: {} {:#?}",
                inside.shown(template.task),
                fleet.statistics()
            );
            // An error is a process that gives up; it leads the task anew.
            let _ = inside.tick(template.task);
            inside.is_over(template.task)
        })
        .unwrap();
    let seen = inside.seen();
    inside.put_away();
    check_inside(folder.path(), template.task, size, &seen, &fleet);
    let state = losses.0.lock().unwrap();
    for (attempt, releases) in &state.tried {
        assert_eq!(releases.len(), 1, "attempt {attempt} made two releases");
    }
    let distinct: BTreeSet<&String> = state.keys.iter().collect();
    assert_eq!(distinct.len(), state.keys.len(), "a key of noise was used twice");
    // A commit that was made is never given up: only those that were not made have a second attempt.
    let made_anew = state.lost.get(&Way::BeforeForGood).copied().unwrap_or(0);
    assert_eq!(state.tried.len() as u64, rounds + made_anew);
    assert_eq!(state.lost.values().sum::<u64>(), rounds + made_anew);
    state.lost.clone()
}

#[test]
#[ignore = "slow"]
fn a_commit_whose_answer_is_lost_is_read_back_without_a_second_noise() {
    let lost = every_answer_is_lost(12, 3);
    println!("{lost:?}");
    assert!(lost.len() >= 4, "{lost:?}");
}

mod by_hand {
    use super::*;

    /// The answer is lost in a hundred of a hundred rounds.
    #[test]
    #[ignore = "two minutes"]
    fn a_hundred_lost_answers_of_a_hundred_are_read_back() {
        let lost = every_answer_is_lost(100, 7);
        println!("{lost:?}");
        assert_eq!(lost.len(), WAYS.len());
    }
}
