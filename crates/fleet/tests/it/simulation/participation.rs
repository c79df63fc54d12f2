//! One person with many devices, devices without a memory, and populations that are too small (tests 11 to 13 of the design).

use undertone_device::{Ended, Ineligible};
use undertone_protocol::{Code, TaskState};
use undertone_service_testing::START;

use super::checker::Facts;
use super::template::{Rules, Template};
use super::world::World;

/// The codes with which the service refused the sessions of a device, in their order.
fn refusals(world: &World<'_>, device: usize) -> Vec<Code> {
    let code = |ended: &Ended| match ended {
        Ended::Rejected(code, _) => Some(*code),
        _ => None,
    };
    world.devices[device].ends.iter().filter_map(code).collect()
}

fn included(facts: &Facts, subject: usize) -> Vec<u64> {
    let rounds = facts.rounds.iter();
    let with = rounds.filter(|round| round.included.contains(&subject));
    with.map(|round| round.round).collect()
}

/// A thousand keys of one person, and one key each of twelve others.
#[test]
#[ignore = "slow"]
fn a_thousand_devices_of_one_person_are_one_user() {
    let crowd = 1000;
    let subjects: Vec<usize> = std::iter::repeat_n(0, crowd).chain(1..=12).collect();
    let template = Template::new(Rules::plain(8, 4, 2, 2, 3), subjects);
    let (watched, _) = template
        .pseudonyms
        .iter()
        .find(|(_, subject)| **subject == 0)
        .unwrap();
    let mut world = World::changed(&template, |_| (), |durable| durable.watched = Some(*watched));
    world.max_pause = 1000;
    world.run_until(8, 30, 1000);
    // Everybody else has taken part as often as allowed, or all rounds are over; the person with the many devices goes on trying.
    let facts = Facts::of(&world);
    assert_eq!(facts.violations(), Vec::<String>::new());
    assert_eq!(world.durable.most_open(), 1, "one open session at a time");
    let rounds = included(&facts, 0);
    assert_eq!(
        rounds.len(),
        3,
        "all that the task allows, and no more: {rounds:?}"
    );
    let tries: usize = world.devices[..crowd]
        .iter()
        .map(|device| device.ends.len())
        .sum();
    let refused: usize = (0..crowd).map(|device| refusals(&world, device).len()).sum();
    println!("{tries} sessions of {crowd} devices, {refused} refused; in rounds {rounds:?}");
    assert!(refused > 2 * crowd, "they try all the time: {refused}");
}

/// The timer of a day, which the device itself keeps. The memory of the device decides, then the service on its own.
#[test]
fn devices_without_a_memory_refuse_and_the_service_refuses_without_their_help() {
    const DAY: u64 = 24 * 3600;
    let rules = Rules {
        timer: DAY,
        ..Rules::plain(6, 2, 2, 2, 3)
    };
    let template = Template::new(rules, vec![0, 1, 2, 3]);
    let mut world = World::new(&template);
    // Only two of them work at first.
    let backup = world.devices[0].memory.clone();
    for number in [0, 1] {
        world.step(number, 200);
    }
    world.tick();
    world.clock.advance(3000);
    assert_eq!(world.round(), 1, "{:?}", world.devices[0].ends);
    for number in [0, 1] {
        world.step(number, 200);
    }
    assert_eq!(world.round(), 1);
    assert_eq!(world.devices[0].memory.participations.len(), 1);
    let now = world.now();
    let session = |world: &mut World<'_>, change: &dyn Fn(&mut undertone_device::Memory)| {
        // An attempt that has too few devices is followed by another one.
        for _ in 0..2 {
            world.clock.advance(1000);
            world.tick();
        }
        world.devices[0].machine = None;
        change(&mut world.devices[0].memory);
        world.clock.advance(3000);
        world.step(0, 200);
        world.devices[0].ends.pop().unwrap()
    };
    let reason = |ended: Ended| match ended {
        Ended::NotEligible(reasons) => reasons[0].1,
        other => panic!("{other:?}"),
    };
    let kept = world.devices[0].memory.clone();

    // A fresh install: the store of the device has seen every participation since now alone.
    let fresh = |memory: &mut undertone_device::Memory| {
        *memory = backup.clone();
        memory.trusted_from_ms = now;
    };
    assert!(matches!(
        reason(session(&mut world, &fresh)),
        Ineligible::TooNew { .. }
    ));
    // A phone that was restored from a backup: the counter of its keystore shows one participation that the store lacks.
    let restored = |memory: &mut undertone_device::Memory| {
        *memory = backup.clone();
        (memory.trusted_from_ms, memory.lost) = (now, 1);
    };
    assert!(matches!(
        reason(session(&mut world, &restored)),
        Ineligible::TooNew { .. }
    ));
    // A clock that was later before: the board confirms the present one, under which the timer of the last participation still runs.
    let set_back = |memory: &mut undertone_device::Memory| {
        *memory = kept.clone();
        memory.latest_ms = now + 10_000_000;
    };
    assert!(matches!(
        reason(session(&mut world, &set_back)),
        Ineligible::TooSoon { .. }
    ));
    // The unchanged memory bars the device by its timer.
    let unchanged = |memory: &mut undertone_device::Memory| *memory = kept.clone();
    assert!(matches!(
        reason(session(&mut world, &unchanged)),
        Ineligible::TooSoon { .. }
    ));

    // A device that forgets everything, counters included, asks the service, which has a memory of its own.
    let forgets = |memory: &mut undertone_device::Memory| *memory = backup.clone();
    let ended = session(&mut world, &forgets);
    assert!(matches!(ended, Ended::Rejected(Code::TooSoon, _)), "{ended:?}");
    assert_eq!(Facts::of(&world).rounds.len(), 1);
    // A check-in that was signed under a clock far from that of the service is refused, too.
    world.devices[0].machine = None;
    world.devices[0].memory = backup.clone();
    let behind = world.now() - START;
    assert!(behind < 300_000, "the board would be too old for the device");
    let stale = world
        .sent
        .iter()
        .rev()
        .find(|sent| sent.request.target.ends_with("check-in"));
    let stale = stale.unwrap().request.clone();
    world.clock.advance(301_000);
    world.tick();
    let reply = world.carry(&stale).unwrap();
    assert!(!reply.is_success());
    let problem: undertone_protocol::Problem =
        undertone_protocol::read("the refusal", &reply.body, 10_000).unwrap();
    assert_eq!(problem.code(), Code::BadSignature);
    world.devices[0].memory = kept;
    assert_eq!(Facts::of(&world).violations(), Vec::<String>::new());
}

/// Seven people for five rounds of four, each of whom may come twice: three rounds can be made.
#[test]
#[ignore = "slow"]
fn a_task_whose_population_is_used_up_releases_no_more_and_repeats_nobody() {
    let template = Template::new(Rules::plain(5, 4, 4, 1, 2), (0..7).collect());
    let mut world = World::new(&template);
    for _ in 0..3000 {
        world.turn();
        world.clock.advance(1000);
    }
    // It waits for people who may come yet, and never pauses for want of them.
    assert_eq!((world.state(), world.round()), (TaskState::Active, 3));
    assert_eq!(Facts::of(&world).violations(), Vec::<String>::new());
}

/// A large separation starves a small population as well: nobody can come to the second round.
#[test]
#[ignore = "slow"]
fn a_separation_that_the_population_cannot_fill_releases_no_second_round() {
    let template = Template::new(Rules::plain(5, 4, 4, 4, 2), (0..7).collect());
    let mut world = World::new(&template);
    for _ in 0..2000 {
        world.turn();
        world.clock.advance(1000);
    }
    assert_eq!((world.state(), world.round()), (TaskState::Active, 1));
    assert_eq!(Facts::of(&world).violations(), Vec::<String>::new());
}

/// Nobody comes for a night, and everybody in the morning: the task goes on by itself.
#[test]
fn a_night_without_devices_pauses_no_task() {
    let template = Template::new(Rules::plain(5, 4, 4, 1, 2), (0..7).collect());
    let mut world = World::new(&template);
    let asleep = std::mem::take(&mut world.devices);
    for _ in 0..300 {
        world.turn();
        world.clock.advance(1000);
    }
    assert_eq!((world.state(), world.round()), (TaskState::Active, 0));
    world.devices = asleep;
    let released = (0..2000).any(|_| {
        world.turn();
        world.clock.advance(1000);
        world.round() > 0
    });
    assert!(released, "the task stands at round {}", world.round());
    assert_eq!(Facts::of(&world).violations(), Vec::<String>::new());
}
