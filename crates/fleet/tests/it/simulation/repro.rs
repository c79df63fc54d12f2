//! Defects that the simulation has found, each as the shortest play that shows it.

use undertone_protocol::TaskState;

use super::checker::Facts;
use super::durable::Fault;
use super::kinds::Point;
use super::template::{Rules, Sum, Template};
use super::world::World;

/// A phase that closed within the event of a join had its deadline replaced by that of the reports, so one silent device in the
/// roll-call cost the whole attempt.
#[test]
fn repro_a_device_that_is_silent_in_the_roll_call_costs_no_attempt() {
    let rules = Rules {
        over_selection: 1.0,
        sum: Sum::Curious { group: 6 },
        ..Rules::plain(1, 6, 3, 1, 1)
    };
    let template = Template::new(rules, (0..6).collect());
    let mut world = World::new(&template);
    world.devices[0].leaves = Some(Point::Lobby);
    assert!(world.run_until(1, 60, 500), "no round in 30 seconds");
    let facts = Facts::of(&world);
    assert_eq!(facts.violations(), Vec::<String>::new());
    let mut included = facts.rounds[0].included.clone();
    included.sort_unstable();
    assert_eq!(included, [1, 2, 3, 4, 5]);
    assert!(facts.rounds[0].everyone.contains(&0), "it counts");
}

/// A blob that could not be written while a process took the lead halted the task for good.
#[test]
fn repro_a_disk_that_fails_while_a_task_is_led_halts_nothing() {
    let template = Template::new(Rules::plain(2, 2, 2, 1, 1), (0..6).collect());
    for writes in 0..6 {
        let mut world = World::new(&template);
        for number in [0, 1] {
            world.step(number, 200);
        }
        // The process dies right after its commit, so the next one publishes.
        let fault = Fault::Crash { applied: true };
        world.durable.arm(4, fault);
        world.tick();
        world.kill();
        world.clock.advance(91_000);
        world.durable.arm(writes, Fault::Unavailable { applied: false });
        world.start();
        for _ in 0..4 {
            world.tick();
            world.clock.advance(1000);
        }
        world.durable.disarm();
        assert_eq!(
            world.state(),
            TaskState::Active,
            "{writes}: {}",
            world.durable.last_note()
        );
        assert!(world.run_until(2, 300, 1000), "{writes}: {}", world.round());
        assert_eq!(Facts::of(&world).violations(), Vec::<String>::new(), "{writes}");
    }
}
