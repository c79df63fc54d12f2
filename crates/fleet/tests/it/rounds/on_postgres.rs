//! Tasks on a server of Postgres, which crashes on the way.

use undertone_protocol::TaskState;
use undertone_service_testing::{PLAIN, Running, World};
use undertone_store::Postgres;

use super::self_asserted;
use crate::server;

fn world(server: &server::Server, text: &str) -> Running {
    World::new()
        .store(|clock| Postgres::with_clock(&server.database(), clock).unwrap())
        .task(text)
        .devices(40)
        .start()
}

#[test]
#[ignore = "slow"]
fn a_task_of_secure_sums_on_postgres_ends_and_its_export_verifies() {
    let Some(server) = server::shared() else { return };
    let mut world = world(server, &self_asserted());
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
    let mut world = world(&server, PLAIN);
    for round in 0..3 {
        for _ in 0..8 {
            world.step();
            world.clock.advance(500);
        }
        server.restart("immediate");
        world.run_until_round(round + 1);
    }
    world.step();
    assert_eq!(world.state(), TaskState::Completed);
    assert_eq!(world.ledger().len(), 4);
    world.keeps_apart(2, 2);
    world.exports();
}
