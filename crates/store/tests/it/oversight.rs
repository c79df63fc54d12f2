//! The figures of operators, on every store.

use undertone_protocol::TaskState::{Active, Completed, Draft, Halted};
use undertone_store::{AbandonReason, AttemptRow, AttemptState, LeaseRow, TaskId};

use crate::common::*;

/// The day on which tests begin.
const DAY: u64 = BEGIN / 86_400_000;

macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&super::World::memory()); })+
        }
        mod sqlite {
            $(#[test] fn $name() { super::$name(&super::World::sqlite()); })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test] fn $name() {
                if let Some(world) = super::World::postgres(false) {
                    super::$name(&world);
                }
            })+
        }
    };
}

on_every_store!(
    attempts_are_listed_newest_first,
    a_lease_is_listed_until_its_end,
    enrolments_are_counted_per_day_and_population,
    acts_name_their_task_and_their_note,
);

fn attempts_are_listed_newest_first(world: &World) {
    let store = world.store();
    let (task, lease) = active(store, "listed", at_least(1, 9));
    let (other, other_lease) = active(store, "other", at_least(1, 9));
    let first = open(store, &lease);
    store.abandon(&lease, first, AbandonReason::Few, &[]).unwrap();
    world.clock.advance(1000);
    released(store, &lease, &[1, 2, 3]);
    open(store, &other_lease);
    world.clock.advance(1000);
    open(store, &lease);
    let row = |round, attempt_of_round, state, reason, opened, closed, included| AttemptRow {
        round,
        attempt_of_round,
        state,
        reason,
        opened,
        closed,
        included,
    };
    let (begin, next, last) = (BEGIN, BEGIN + 1000, BEGIN + 2000);
    let expected = [
        row(1, 0, AttemptState::Selecting, None, last, None, None),
        row(0, 1, AttemptState::Committed, None, next, Some(next), Some(3)),
        row(
            0,
            0,
            AttemptState::Abandoned,
            Some(AbandonReason::Few),
            begin,
            Some(begin),
            None,
        ),
    ];
    assert_eq!(store.attempts(task, 9).unwrap(), expected);
    assert_eq!(store.attempts(task, 2).unwrap(), expected[..2]);
    assert_eq!(store.attempts(other, 9).unwrap().len(), 1);
    assert_eq!(store.attempts(TaskId([9; 32]), 9).unwrap(), []);
}

fn a_lease_is_listed_until_its_end(world: &World) {
    let store = world.store();
    let (task, lease) = active(store, "led", at_least(1, 1));
    store.create_task(&new_task("draft", at_least(1, 1))).unwrap();
    let expected = LeaseRow {
        task,
        process: "one".to_owned(),
        fence: 1,
        until: lease.until,
    };
    assert_eq!(store.leases().unwrap(), [expected]);
    world.clock.advance(lease.until - BEGIN);
    assert_eq!(store.leases().unwrap(), []);
    let again = store.lease(task, "two", 30_000).unwrap().unwrap();
    assert_eq!(store.leases().unwrap()[0].process, "two");
    store.hand_back(again).unwrap();
    assert_eq!(store.leases().unwrap(), []);
}

fn enrolments_are_counted_per_day_and_population(world: &World) {
    let store = world.store();
    for key in 0..5 {
        store.enrol(&enrolment(&[key; 32], "p")).unwrap();
    }
    store.enrol(&enrolment(&[0; 32], "p")).unwrap();
    store.enrol(&enrolment(&[9; 32], "q")).unwrap();
    world.clock.advance(2 * 86_400_000);
    store.enrol(&enrolment(&[6; 32], "p")).unwrap();
    assert_eq!(store.enrolments("p", 0).unwrap(), [(DAY, 5), (DAY + 2, 1)]);
    assert_eq!(store.enrolments("p", DAY + 1).unwrap(), [(DAY + 2, 1)]);
    assert_eq!(store.enrolments("q", 0).unwrap(), [(DAY, 1)]);
    assert_eq!(store.enrolments("nobody", 0).unwrap(), []);
}

fn acts_name_their_task_and_their_note(world: &World) {
    let store = world.store();
    let (task, lease) = active(store, "acted on", at_least(1, 1));
    let (other, _) = active(store, "left alone", at_least(1, 1));
    let note = "the head: is older: than 3 to 4: rounds";
    store.set_state(task, Active, Halted, "guard", note).unwrap();
    store.note_act(task, "operator", "stop", "we are: done").unwrap();
    let row = store.task(task).unwrap();
    store.end(&lease, b"end", &hex(&sha(b"end")), &row.chain).unwrap();
    store.enrol(&enrolment(&[5; 32], "p")).unwrap();
    store.revoke(&[5; 32], "admin").unwrap();
    let rows = store.acts(task, 9).unwrap();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.actor.as_str(), row.moved(), row.note()))
        .collect();
    assert_eq!(
        shown,
        [
            ("one", Some((Halted, Completed)), Some("")),
            ("operator", None, Some("we are: done")),
            ("guard", Some((Active, Halted)), Some(note)),
            ("operator", Some((Draft, Active)), Some("")),
        ]
    );
    assert_eq!(store.acts(task, 1).unwrap(), rows[..1]);
    assert_eq!(store.acts(other, 9).unwrap().len(), 1);
    let revoked = &world.audit()[5];
    assert_eq!(
        (revoked.action.as_str(), revoked.moved(), revoked.note()),
        ("revoke", None, None)
    );
}
