//! A failover of Postgres to a standby that lacks the last release: the task halts, and no round gets a second model.

use std::sync::Arc;

use undertone_protocol::TaskState;
use undertone_service::ServiceError;
use undertone_service::room::{Room, Shared};
use undertone_service::storage::spool::Spool;
use undertone_service_testing::loaded;
use undertone_store::{Postgres, Store};

use super::inside::Inside;
use super::server::Server;
use super::task::{Size, create_task, temporary};

const SIZE: Size = Size {
    rounds: 5,
    users_per_round: 8,
    min_sep: 1,
    max_part: 20,
    rate: 1.0,
    quick: false,
    secure: false,
};

#[test]
#[ignore = "slow"]
fn a_standby_that_lacks_the_last_release_halts_the_task_and_makes_no_second_model() {
    let Some(mut primary) = Server::start() else {
        return;
    };
    let url = primary.database();
    let here = temporary();
    let inside = Inside::new(here.path());
    let over = |url: &str| -> Arc<dyn Store> {
        Arc::new(Postgres::with_clock(url, Arc::new(inside.clock.clone())).unwrap())
    };
    let shared = |store: Arc<dyn Store>| Shared {
        store,
        ..inside.shared("local")
    };
    let first = shared(over(&url));
    let task = create_task(&first, SIZE);
    let mut standby = primary.standby();
    inside.serve(first);
    let fleet = inside.fleet(12, 1);
    fleet.enrol().unwrap();
    let run_to = |rounds: u64| {
        let mut ticks = 0;
        fleet
            .run_until(|| {
                ticks += 1;
                assert!(ticks < 20_000, "round {rounds} is not released");
                assert_eq!(inside.tick(task), [""; 0]);
                inside.service().shared().store.task(task).unwrap().head_round >= rounds
            })
            .unwrap();
        // The release is published, and the next attempt is open.
        assert_eq!(inside.tick(task), [""; 0]);
    };
    run_to(2);
    primary.wait_for_standby();
    primary.cut_off_standbys();
    run_to(3);
    inside.put_away();
    primary.stop("immediate");
    standby.promote();
    let elsewhere = standby.url_of(&url);
    let row = over(&elsewhere).task(task).unwrap();
    assert_eq!(
        (row.head_round, row.state),
        (2, TaskState::Active),
        "the standby lacks the last release"
    );

    let blobs = || inside.shared("local").blobs;
    let head = blobs().head(task, 3).unwrap().unwrap();
    // Also after an operator has let the task go on, no process leads it.
    for note in ["", "the standby looks right to me"] {
        let shared = Arc::new(shared(over(&elsewhere)));
        let store = shared.store.clone();
        if !note.is_empty() {
            store
                .set_state(task, TaskState::Halted, TaskState::Active, "operator", note)
                .unwrap();
        }
        let loaded = loaded(&shared, task);
        let spool = Arc::new(Spool::new(1 << 20, here.path()).unwrap());
        let error = Room::lead(shared, spool, loaded).map(drop).unwrap_err();
        let ServiceError::Halted { reason, .. } = error else {
            panic!("{error}");
        };
        let expected = "the store stands at round 2, but the folder of blobs shows a head of round 3: the store was put back to an \
                        earlier state. Start a new task; its ledger composes with this one";
        assert_eq!(reason, expected);
        let after = store.task(task).unwrap();
        assert_eq!((after.state, after.head_round), (TaskState::Halted, 2));
    }
    assert_eq!(
        blobs().head(task, 3).unwrap().unwrap(),
        head,
        "the head of round 3 is as it was"
    );
    assert_eq!(blobs().last_head(task).unwrap(), Some(3));
}
