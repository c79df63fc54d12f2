//! Tasks on a server of Postgres, which crashes on the way.

use std::sync::Arc;

use undertone_protocol::TaskState;
use undertone_service::identity::Identity;
use undertone_store::{ManualClock, Postgres};

use super::world::{PLAIN, SECURE, START, World};
use crate::server;

fn world(server: &server::Server, text: &str, identity: Identity) -> World {
    let clock = ManualClock::at(START);
    let store = Postgres::with_clock(&server.database(), Arc::new(clock.clone())).unwrap();
    World::on(Arc::new(store), clock, text, 40, identity)
}

#[test]
#[ignore = "slow"]
fn a_task_of_secure_sums_on_postgres_ends_and_its_export_verifies() {
    let Some(server) = server::shared() else { return };
    let mut world = world(server, SECURE, Identity::Dev);
    world.run_until_round(2);
    world.step();
    world.exports();
}

/// The server loses power in each round, while devices train: the attempt is abandoned, its devices count, and the round is made
/// by others.
#[test]
#[ignore = "slow"]
fn a_task_goes_on_after_crashes_of_its_database() {
    let Some(mut server) = server::Server::start() else {
        return;
    };
    let mut world = world(&server, PLAIN, Identity::Certificate);
    for round in 0..3 {
        for _ in 0..8 {
            world.step();
            world.advance(500);
        }
        server.restart("immediate");
        world.run_until_round(round + 1);
    }
    world.step();
    let store = world.service.shared().store.clone();
    assert_eq!(store.task(world.task).unwrap().state, TaskState::Completed);
    assert_eq!(store.ledger(world.task, 0).unwrap().len(), 4);
    for device in &world.devices {
        let rounds: Vec<u64> = device.memory.participations.iter().map(|row| row.round).collect();
        assert!(
            rounds.len() <= 2 && rounds.windows(2).all(|pair| pair[1] >= pair[0] + 2),
            "{rounds:?}"
        );
    }
    world.exports();
}
