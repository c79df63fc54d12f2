//! Many threads check in at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use undertone_protocol::Code;

use crate::test_world::{Kind, World, checkin, member};

/// Devices check in on eight threads, some of them twice, and some subjects with two devices: each place is given once.
fn together(kind: Kind, goal: u32) {
    let world = World::new(kind, goal);
    let devices = 2 * world.places;
    let assigned: Mutex<BTreeMap<u32, BTreeSet<Vec<u8>>>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (world, assigned) = (&world, &assigned);
            scope.spawn(move || {
                for step in 0..devices {
                    // Each thread begins elsewhere, so that every check-in comes from several threads at once.
                    let device = (step + (thread / 4) * devices / 2) % devices;
                    let mut member = member(device);
                    if device.is_multiple_of(5) {
                        // The second device of its neighbour's subject.
                        member.subject = crate::test_world::member(device + 1).subject;
                    }
                    match world.room.admit(&member, checkin(device, 0), &world.token) {
                        Ok(assignment) => {
                            assigned
                                .lock()
                                .unwrap()
                                .entry(device)
                                .or_default()
                                .insert(assignment.session);
                        }
                        Err(problem) => {
                            assert!(
                                matches!(problem.code(), Code::Full | Code::TooSoon),
                                "{kind:?}: {problem:?}"
                            );
                            assert!(problem.retry.is_some());
                        }
                    }
                }
            });
        }
    });
    let assigned = assigned.into_inner().unwrap();
    assert_eq!(assigned.len() as u32, world.places, "{kind:?}");
    assert!(
        assigned.values().all(|sessions| sessions.len() == 1),
        "one session per check-in"
    );
    let subjects: BTreeSet<u32> = assigned
        .keys()
        .map(|device| {
            if device.is_multiple_of(5) {
                device + 1
            } else {
                *device
            }
        })
        .collect();
    assert_eq!(subjects.len(), assigned.len(), "one session per subject");
    assert_eq!(world.room.need(), 0);
    // Every answer can be had again, and nobody else gets a place.
    for (device, sessions) in &assigned {
        let mut member = member(*device);
        if device.is_multiple_of(5) {
            member.subject = crate::test_world::member(device + 1).subject;
        }
        let again = world.room.admit(&member, checkin(*device, 0), &world.token);
        assert!(sessions.contains(&again.unwrap().session));
    }
    let other = world
        .room
        .admit(&member(devices + 7), checkin(devices + 7, 0), &world.token);
    assert_eq!(other.unwrap_err().code(), Code::Full);
}

#[test]
fn check_ins_beside_each_other_fill_the_places_and_never_more() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for goal in [4, 40] {
            together(kind, goal);
        }
    }
}
