//! Devices of the protocol version before that of a service take part, and older ones must upgrade.
//!
//! Version 1 is the first, so no older program exists. The service is therefore made newer: its routes speak up to version 2 or 3, and the
//! devices are those of this program.

use undertone_fleet::{Fleet, InProcess, RunEnd};
use undertone_protocol::{TaskState, Versions};
use undertone_service::http::routes_of;
use undertone_service_testing::{PLAIN, Running, World, changed, users};

const CHANGES: &str = r#"
rounds = 2
cohort.users_per_round = 6
participation.max_part = 1
service.identity = "dev"
"#;

fn world() -> Running {
    World::new().task(&changed(PLAIN, CHANGES)).start()
}

/// Twenty devices, and their way to a service that speaks up to this version. All fleets are the same devices.
fn fleet(world: &Running, newest: u32) -> Fleet<'static> {
    let routes = routes_of(world.service.clone(), Versions::up_to(newest));
    let way = InProcess::to_router(routes).unwrap();
    Fleet::new(world.fleet_config(20), users(20), way).unwrap()
}

#[test]
fn a_device_of_the_version_before_takes_part_to_the_verified_export() {
    let world = world();
    let fleet = fleet(&world, 2);
    fleet.enrol().unwrap();
    let ended = || {
        world.service.tick().unwrap();
        world.state() == TaskState::Completed
    };
    assert_eq!(fleet.run_until(ended).unwrap(), RunEnd::Done);
    assert_eq!((world.row().head_round, world.state()), (2, TaskState::Completed));
    // Six devices are in each of the two rounds, by their own memories.
    assert!(fleet.participations().len() >= 12, "{:?}", fleet.statistics());
    world.exports();
}

#[test]
fn a_device_two_versions_behind_is_told_to_upgrade() {
    let world = world();
    let refused = fleet(&world, 3).enrol().unwrap_err().to_string();
    let sentence = "this service speaks versions 2 and 3 of the protocol, and the request has \\\"1\\\"";
    assert!(
        refused.contains("CODE_UPGRADE") && refused.contains("426") && refused.contains(sentence),
        "{refused}"
    );
    // Nothing behind the check of the version has seen the device.
    let devices = fleet(&world, 3).device_keys();
    assert!(
        devices
            .iter()
            .all(|key| world.shared().store.device(key).unwrap().is_none())
    );
}
