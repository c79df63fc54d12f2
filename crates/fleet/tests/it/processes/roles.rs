//! Processes with roles of their own, and sums that are spread over them.

use undertone_fleet::Doom;

use super::service::Service;
use super::task::Size;
use crate::server::Server;

fn size(rounds: u64) -> Size {
    Size {
        rounds,
        users_per_round: 12,
        min_sep: 2,
        max_part: 4,
        ..Size::default()
    }
}

/// One process leads, one holds the sums, and devices reach the third one alone.
#[test]
#[ignore = "slow"]
fn each_role_may_have_a_process_of_its_own() {
    let Some(server) = Server::start() else { return };
    // The first attempt may open before the leader knows the others, and then stays with it.
    let rounds = 4_usize;
    let roles = ["leader", "aggregator", "front"];
    let service = Service::with_roles(&server, size(rounds as u64), 21, roles);
    let looked = service.clone();
    service.play(60, |_| Doom::None, move |_| drop(looked.look()));
    let leads = service.visits("release.committed");
    assert_eq!(leads, [rounds, 0, 0]);
    let [a, b, c] = service.visits("shard.added");
    assert!(a == 0 && b >= 12 * (rounds - 2) && c == 0, "{:?}", [a, b, c]);
    let [a, b, c] = service.visits("shard.taken");
    assert!(
        a == 0 && (rounds - 2..=rounds).contains(&b) && c == 0,
        "{:?}",
        [a, b, c]
    );
}

/// With every role everywhere, each process adds a part of the updates of the one that leads.
#[test]
#[ignore = "slow"]
fn a_plain_sum_is_spread_over_the_processes() {
    let Some(server) = Server::start() else { return };
    // The first attempt may open before all processes are listed, and then stays with those that were.
    let service = Service::new(&server, size(4), 22);
    let looked = service.clone();
    service.play(60, |_| Doom::None, move |_| drop(looked.look()));
    let added = service.visits("shard.added");
    let leader = service.visits("release.committed");
    for (added, led) in added.iter().zip(leader) {
        // Of some 36 updates one in three goes to a process: 2 or fewer with probability below 1e-3, and one in three stays with the leader.
        assert_eq!(*added > 2, led == 0, "{:?}", [added, &led]);
    }
}

/// Groups of a secure sum stay with their leader, whichever front their devices go to.
#[test]
#[ignore = "slow"]
fn secure_sums_go_through_every_front() {
    let Some(server) = Server::start() else { return };
    let size = Size {
        rounds: 2,
        users_per_round: 9,
        secure: true,
        ..size(2)
    };
    let service = Service::new(&server, size, 23);
    let looked = service.clone();
    let released = service.play(60, |_| Doom::None, move |_| drop(looked.look()));
    assert!(released.entries.iter().all(|entry| entry.survivors >= Some(6)));
    assert_eq!(service.visits("shard.added"), [0, 0, 0]);
}
