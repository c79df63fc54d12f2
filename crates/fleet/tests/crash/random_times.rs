//! A process that is killed at random times, over real sockets and by the clock of the machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_fleet::{Doom, Fleet, FleetConfig, MachineClock};
use undertone_service_testing::users;

use super::agreement::check;
use super::outside::{ChildClock, Outside, ToChild};
use super::task::{Size, Template, fleet_config};

/// Kills a service at random times while it leads a task, up to `kills` times and no fewer than `at_least`. The fleet lives outside and
/// goes on.
fn killed_at_random(size: Size, devices: usize, kills: u64, at_least: u64) {
    let started = Instant::now();
    let template = Template::new(size);
    let folder = template.copy();
    // Kills are spread over the rounds: a task that is ahead of them gets lives that are too short for a release. The other lives grow
    // longer while no round is released, and shorter after one. A device that joined an attempt which a kill abandoned takes no
    // part in the same round again, so few lives of one round are that short: too many would leave the round without devices.
    let (mut longest, mut last) = (0.4, 0);
    let (mut round, mut short) = (0, 0);
    let dooms = move |start: u64, head: u64| {
        if head > round {
            (round, short) = (head, 0);
        }
        match start {
            start if start > kills => Doom::None,
            start if short < 12 && (head + 1) * kills > start * size.rounds => {
                short += 1;
                Doom::Within(Duration::ZERO, Duration::from_millis(150))
            }
            _ => {
                longest = f64::clamp(longest * if head > last { 0.7 } else { 1.3 }, 0.2, 30.0);
                last = head;
                Doom::Within(Duration::ZERO, Duration::from_secs_f64(longest))
            }
        }
    };
    let outside = Outside::new(folder.path(), ChildClock::Machine, Box::new(dooms), kills + 3, 5);
    let config = FleetConfig {
        clock: Arc::new(MachineClock),
        seed: 5,
        workers: 2,
        // The devices of a round come within 500 ms or more, which most lives are shorter than.
        max_pause_ms: 3000,
        start_spread_ms: 500,
        ..fleet_config(folder.path(), devices)
    };
    let fleet = Fleet::new(config, users(devices), ToChild(outside.clone())).unwrap();
    fleet.enrol().unwrap();
    fleet.run_until(|| outside.tick()).unwrap();
    let (starts, deaths) = outside.lives();
    let seen = outside.end();
    check(folder.path(), template.task, size, &seen, &fleet);
    println!(
        "{kills} kills planned, {starts} starts, {deaths} ends, {} rounds, {devices} devices in {:?}",
        size.rounds,
        started.elapsed()
    );
    assert!(deaths >= at_least, "{deaths} of {kills} kills");
}

#[test]
#[ignore = "slow"]
fn a_process_that_is_killed_at_random_times_releases_each_round_once() {
    let size = Size {
        rounds: 4,
        users_per_round: 8,
        min_sep: 2,
        max_part: 20,
        ..Size::default()
    };
    killed_at_random(size, 60, 10, 6);
}

mod by_hand {
    use super::*;

    /// Three hundred kills in a task of 60 rounds with 300 devices.
    #[test]
    #[ignore = "five minutes"]
    fn three_hundred_kills_at_random_times_release_each_round_once() {
        let size = Size {
            rounds: 60,
            users_per_round: 40,
            min_sep: 2,
            max_part: 60,
            ..Size::default()
        };
        killed_at_random(size, 300, 330, 300);
    }
}
