//! Who is admitted to an attempt, and how often.

use undertone_accounting::participation::Participation;
use undertone_protocol::TaskState::{Active, Draft, Halted, Paused};
use undertone_store::{
    AbandonReason, Admission, Admitted, AttemptId, AttemptState, Departure, Enrolment, Histograms,
    NewAttempt, NewTask, SessionLimits, SessionState, Store, StoreError, TaskId,
};

use crate::common::*;

pub(crate) fn one_attempt_is_open_at_a_time(world: &mut World) {
    let store = world.store();
    let task = NewTask {
        rounds: 2,
        ..new_task("short", at_least(1, 9))
    };
    store.create_task(&task).unwrap();
    let lease = store.lease(task.id, "one", 30_000).unwrap().unwrap();
    let first = new_attempt(store, 0);
    refused(store.open_attempt(&lease, &first), "expected active, got draft");
    store.set_state(task.id, Draft, Active, "operator", "").unwrap();
    refused(
        store.open_attempt(&lease, &new_attempt(store, 1)),
        "expected round 1, got round 0",
    );
    assert_eq!(store.open_attempt_of(task.id).unwrap(), None);
    let attempt = store.open_attempt(&lease, &first).unwrap();
    assert_eq!(
        store.open_attempt_of(task.id).unwrap(),
        Some((attempt, AttemptState::Selecting))
    );
    refused(store.open_attempt(&lease, &first), "expected none, got attempt 1");
    store.close_selection(&lease, attempt).unwrap();
    refused(
        store.close_selection(&lease, attempt),
        "expected selecting, got reporting",
    );
    refused(store.open_attempt(&lease, &first), "expected none, got attempt 1");
    store.reserve(&lease, attempt, 1).unwrap();
    refused(store.open_attempt(&lease, &first), "expected none, got attempt 1");
    store
        .abandon(&lease, attempt, AbandonReason::Network, &[])
        .unwrap();
    assert_eq!(store.open_attempt_of(task.id).unwrap(), None);
    let second = store.open_attempt(&lease, &first).unwrap();
    assert!(second > attempt);
    store.abandon(&lease, second, AbandonReason::Few, &[]).unwrap();
    released(store, &lease, &[1]);
    store.set_state(task.id, Active, Paused, "operator", "").unwrap();
    refused(
        store.open_attempt(&lease, &new_attempt(store, 1)),
        "expected active, got paused",
    );
    store.set_state(task.id, Paused, Active, "operator", "").unwrap();
    released(store, &lease, &[1]);
    refused(
        store.open_attempt(&lease, &new_attempt(store, 2)),
        "expected a round below 2, got 2",
    );
    // An attempt belongs to its own task.
    let (_, other) = active(store, "other", at_least(1, 1));
    refused(store.close_selection(&other, second), "the task of attempt 2");
    refused(
        store.abandon(&other, second, AbandonReason::Few, &[]),
        "the task of attempt 2",
    );
}

pub(crate) fn a_round_begins_with_its_first_attempt(world: &mut World) {
    let (task, lease) = active(world.store(), "rounds", at_least(1, 9));
    assert_eq!(world.store().round_opened(task, 0).unwrap(), None);
    let attempt = open(world.store(), &lease);
    world.clock.advance(700);
    let store = world.store();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    open(store, &lease);
    assert_eq!(store.round_opened(task, 0).unwrap(), Some(BEGIN));
    assert_eq!(store.round_opened(task, 1).unwrap(), None);
    assert_eq!(store.round_opened(TaskId([9; 32]), 0).unwrap(), None);
}

pub(crate) fn a_subject_is_admitted_once_at_a_time(world: &mut World) {
    let store = world.store();
    let (_, lease) = active(store, "held", at_least(2, 5));
    let attempt = open(store, &lease);
    let first = admission(store, attempt, 1, 1);
    assert_eq!(store.admit(&first).unwrap(), Admitted::Yes);
    // The same check-in again gets the same session, whatever it proposes.
    assert_eq!(store.admit(&first).unwrap(), Admitted::Before(session(1)));
    let mut repeated = first.clone();
    repeated.session = session(77);
    assert_eq!(store.admit(&repeated).unwrap(), Admitted::Before(session(1)));
    let mut other_device = admission(store, attempt, 1, 2);
    other_device.device = sha(b"the tablet");
    assert_eq!(
        store.admit(&other_device).unwrap(),
        Admitted::Held(BEGIN + 60_000)
    );
    // The same check-in of another device is another check-in.
    let mut same_checkin = admission(store, attempt, 2, 3);
    same_checkin.checkin = first.checkin;
    assert_eq!(store.admit(&same_checkin).unwrap(), Admitted::Yes);
    let mut taken = admission(store, attempt, 3, 4);
    taken.session = session(1);
    refused(store.admit(&taken), "the identifier of a session");
    // Holds of one task do not bar from others.
    let (_, elsewhere) = active(store, "elsewhere", at_least(2, 5));
    let other = open(store, &elsewhere);
    assert_eq!(
        store.admit(&admission(store, other, 1, 5)).unwrap(),
        Admitted::Yes
    );
}

pub(crate) fn the_schema_decides_on_admission(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "schema", at_least(3, 2));
    released(store, &lease, &[1]);
    for round in 1..3 {
        let attempt = open(store, &lease);
        let answer = store.admit(&admission(store, attempt, 1, 10 + round)).unwrap();
        assert_eq!(answer, Admitted::TooSoon { last: 0 });
        store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
        released(store, &lease, &[100 + round]);
    }
    let attempt = open(store, &lease);
    assert_eq!(
        store.admit(&admission(store, attempt, 1, 20)).unwrap(),
        Admitted::Yes
    );
    store.reserve(&lease, attempt, 1).unwrap();
    store
        .commit_release(&lease, &release(store, task, attempt, &users([1]), &[]))
        .unwrap();
    for _ in 0..5 {
        released(store, &lease, &[200 + store.task(task).unwrap().head_round]);
    }
    let attempt = open(store, &lease);
    assert_eq!(
        store.admit(&admission(store, attempt, 1, 21)).unwrap(),
        Admitted::TooOften
    );
    // One participation in the whole run.
    let (_, lease) = active(store, "single", Participation::single());
    released(store, &lease, &[1]);
    let attempt = open(store, &lease);
    let answer = store.admit(&admission(store, attempt, 1, 30)).unwrap();
    assert_eq!(answer, Admitted::TooSoon { last: 0 });
    assert_eq!(
        store.admit(&admission(store, attempt, 2, 31)).unwrap(),
        Admitted::Yes
    );
}

pub(crate) fn an_exact_schema_admits_in_step_only(world: &mut World) {
    let store = world.store();
    let (_, lease) = active(store, "epochs", exactly(2, 3));
    released(store, &lease, &[1, 2]);
    let answers = |number: u64| {
        let attempt = open(store, &lease);
        let answer = store.admit(&admission(store, attempt, 1, number)).unwrap();
        store
            .note_sessions(&[(session(number), SessionState::LostBeforeReady)])
            .unwrap();
        store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
        answer
    };
    assert_eq!(answers(1), Admitted::TooSoon { last: 0 });
    released(store, &lease, &[3]);
    assert_eq!(answers(2), Admitted::Yes);
    released(store, &lease, &[2]);
    // The round in which it was due is over for good.
    assert_eq!(answers(3), Admitted::TooOften);
}

pub(crate) fn an_attempt_has_so_many_places(world: &mut World) {
    let store = world.store();
    let (_, lease) = active(store, "places", at_least(1, 5));
    let new = NewAttempt {
        target: 2,
        ..new_attempt(store, 0)
    };
    let attempt = store.open_attempt(&lease, &new).unwrap();
    let admit = |who: u64| store.admit(&admission(store, attempt, who, who)).unwrap();
    assert_eq!(
        [admit(1), admit(2), admit(3)],
        [Admitted::Yes, Admitted::Yes, Admitted::Full]
    );
    // A report keeps its place; a loss gives it to the next.
    let note = |who: u64, state| store.note_sessions(&[(session(who), state)]).unwrap();
    note(1, SessionState::Reported);
    assert_eq!(admit(3), Admitted::Full);
    note(2, SessionState::LostBeforeReady);
    note(2, SessionState::LostBeforeReady);
    assert_eq!([admit(3), admit(4)], [Admitted::Yes, Admitted::Full]);
    note(3, SessionState::Ready);
    note(3, SessionState::Lost);
    note(3, SessionState::Lost);
    assert_eq!([admit(4), admit(5)], [Admitted::Yes, Admitted::Full]);
    // A refusal of the subject says more than a full attempt.
    let mut again = admission(store, attempt, 4, 9);
    again.device = sha(b"the tablet");
    assert_eq!(store.admit(&again).unwrap(), Admitted::Held(BEGIN + 60_000));
}

pub(crate) fn an_attempt_stops_taking_devices(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "closing", at_least(1, 5));
    let attempt = open(store, &lease);
    let mut number = 0;
    let mut admit = |attempt: AttemptId| {
        number += 1;
        store.admit(&admission(store, attempt, number, number)).unwrap()
    };
    assert_eq!(admit(attempt), Admitted::Yes);
    for state in [Paused, Halted] {
        store.set_state(task, Active, state, "operator", "").unwrap();
        assert_eq!(admit(attempt), Admitted::Full);
        store.set_state(task, state, Active, "operator", "on").unwrap();
    }
    world.clock.advance(600_000 - 1);
    assert_eq!(admit(attempt), Admitted::Yes);
    world.clock.advance(1);
    assert_eq!(admit(attempt), Admitted::Full);
    store
        .abandon(&lease, attempt, AbandonReason::Deadline, &[])
        .unwrap();
    assert_eq!(admit(attempt), Admitted::Full);
    let attempt = open(store, &lease);
    assert_eq!(admit(attempt), Admitted::Yes);
    store.close_selection(&lease, attempt).unwrap();
    assert_eq!(admit(attempt), Admitted::Full);
    store
        .abandon(&lease, attempt, AbandonReason::Operator, &[])
        .unwrap();
    let attempt = open(store, &lease);
    assert_eq!(admit(attempt), Admitted::Yes);
    world.restart();
    let store = world.store();
    let late = admission(store, attempt, 999, 999);
    assert_eq!(store.admit(&late).unwrap(), Admitted::Full);
}

pub(crate) fn a_subject_that_sent_nothing_may_come_again(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "again", at_least(5, 5));
    let attempt = open(store, &lease);
    for number in 1..4 {
        assert_eq!(
            store.admit(&admission(store, attempt, 1, number)).unwrap(),
            Admitted::Yes
        );
        store
            .note_sessions(&[(session(number), SessionState::LostBeforeReady)])
            .unwrap();
    }
    // The old check-ins keep their answers.
    let old = admission(store, attempt, 1, 2);
    assert_eq!(store.admit(&old).unwrap(), Admitted::Before(session(2)));
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    assert_eq!(store.observed(task).unwrap(), Histograms::default());
    let attempt = open(store, &lease);
    assert_eq!(
        store.admit(&admission(store, attempt, 1, 4)).unwrap(),
        Admitted::Yes
    );
}

pub(crate) fn a_subject_that_was_ready_may_not_come_again(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "ready", at_least(5, 5));
    let attempt = open(store, &lease);
    for (who, state) in [
        (1, SessionState::Ready),
        (2, SessionState::Reported),
        (3, SessionState::Lost),
    ] {
        store.admit(&admission(store, attempt, who, who)).unwrap();
        store.note_sessions(&[(session(who), state)]).unwrap();
    }
    world.clock.advance(60_000);
    for who in 1..4 {
        let mut again = admission(store, attempt, who, 10 + who);
        again.device = sha(b"the tablet");
        again.checkin[9] = who as u8;
        assert_eq!(store.admit(&again).unwrap(), Admitted::TooSoon { last: 0 });
    }
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    assert_eq!(store.observed(task).unwrap().users, 3);
}

pub(crate) fn a_session_without_a_hold_still_bars_its_subject(world: &mut World) {
    let store = world.store();
    let (_, lease) = active(store, "slow", at_least(5, 5));
    let attempt = open(store, &lease);
    let until = new_attempt(store, 0).report_until;
    store.admit(&admission(store, attempt, 1, 1)).unwrap();
    world.clock.advance(60_000);
    let again = admission(store, attempt, 1, 2);
    assert_eq!(store.admit(&again).unwrap(), Admitted::Held(until));
    store
        .note_sessions(&[(session(1), SessionState::LostBeforeReady)])
        .unwrap();
    assert_eq!(store.admit(&again).unwrap(), Admitted::Yes);
}

pub(crate) fn sessions_move_forward_only(world: &mut World) {
    use SessionState::{Assigned, Included, Lost, LostBeforeReady, Ready, Reported};
    let store = world.store();
    let (task, lease) = active(store, "notes", at_least(5, 5));
    let attempt = open(store, &lease);
    // Each way, and whether the user counts at the end.
    let ways: [(&[SessionState], bool); 8] = [
        (&[], true),
        (&[LostBeforeReady], false),
        (&[LostBeforeReady, Ready], false),
        (&[Ready, LostBeforeReady], true),
        (&[Reported, LostBeforeReady, Assigned], true),
        (&[Lost, LostBeforeReady], true),
        (&[Included, LostBeforeReady], false),
        (&[LostBeforeReady, Lost], false),
    ];
    let mut counted = Vec::new();
    for (who, (way, counts)) in (1..).zip(ways) {
        store.admit(&admission(store, attempt, who, who)).unwrap();
        for &state in way {
            store.note_sessions(&[(session(who), state)]).unwrap();
        }
        if counts {
            counted.push(who);
        }
    }
    store.note_sessions(&[(session(12_345), Ready)]).unwrap();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    let listed = store.abandoned_since_release(task).unwrap();
    assert_eq!(listed[0].participants, users(counted.iter().copied()));
    // A note after the end changes nothing.
    store.note_sessions(&[(session(1), LostBeforeReady)]).unwrap();
    assert_eq!(store.observed(task).unwrap().users, counted.len() as u64);
}

pub(crate) fn a_barred_subject_is_never_admitted_again(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "words", at_least(1, 9));
    let (_, other) = active(store, "other", at_least(1, 9));
    // Its open session does not save it from the bar, and a repeated check-in still has its answer.
    let attempt = open(store, &lease);
    let admitted = admission(store, attempt, 5, 1);
    assert_eq!(store.admit(&admitted).unwrap(), Admitted::Yes);
    assert!(store.bar(task, user(5), "operator").unwrap());
    assert!(!store.bar(task, user(5), "operator").unwrap());
    assert_eq!(store.admit(&admitted).unwrap(), Admitted::Before(session(1)));
    assert_eq!(
        store.admit(&admission(store, attempt, 5, 2)).unwrap(),
        Admitted::Barred
    );
    store
        .abandon(&lease, attempt, AbandonReason::Operator, &[])
        .unwrap();
    let attempt = open(store, &lease);
    assert_eq!(
        store.admit(&admission(store, attempt, 5, 3)).unwrap(),
        Admitted::Barred
    );
    assert_eq!(
        store.admit(&admission(store, attempt, 6, 4)).unwrap(),
        Admitted::Yes
    );
    // The bar is that of one task.
    let elsewhere = open(store, &other);
    assert_eq!(
        store.admit(&admission(store, elsewhere, 5, 5)).unwrap(),
        Admitted::Yes
    );
    let unknown = TaskId(sha(b"no task"));
    assert!(matches!(
        store.bar(unknown, user(5), "operator"),
        Err(StoreError::Missing { .. })
    ));
    world.restart();
    let store = world.store();
    let lease = store.lease(task, "one", 30_000).unwrap().unwrap();
    store.abandon(&lease, attempt, AbandonReason::Crash, &[]).unwrap();
    let attempt = open(store, &lease);
    assert_eq!(
        store.admit(&admission(store, attempt, 5, 6)).unwrap(),
        Admitted::Barred
    );
    let name = user(5).to_string();
    let rows = world.audit();
    assert_eq!(rows.iter().filter(|row| row.action == "bar").count(), 1);
    assert!(rows.iter().all(|row| !row.detail.contains(&name)));
}

pub(crate) fn a_subject_that_left_is_admitted_to_no_task_of_now_or_later(world: &mut World) {
    let left = |store: &dyn Store, name: &str, number: u64| {
        let (_, lease) = active(store, name, at_least(1, 9));
        let attempt = open(store, &lease);
        // Its pseudonym is another one in each task, and so is its device.
        let mut of = admission(store, attempt, 100 + number, number);
        of.person = person(1);
        let other = store.admit(&admission(store, attempt, 2, 1000 + number)).unwrap();
        (store.admit(&of).unwrap(), other)
    };
    let store = world.store();
    let population = new_task("any", at_least(1, 1)).population;
    assert_eq!(left(store, "before", 1), (Admitted::Yes, Admitted::Yes));
    // A withdrawn invitation does not stop the devices that there are.
    store
        .depart(&population, &person(1), Departure::Withdrawn, "operator")
        .unwrap();
    assert_eq!(left(store, "withdrawn", 2), (Admitted::Yes, Admitted::Yes));
    store
        .depart(&population, &person(1), Departure::Left, "operator")
        .unwrap();
    let gone = |how| (Admitted::Departed(how), Admitted::Yes);
    assert_eq!(left(store, "later", 3), gone(Departure::Left));
    world.restart();
    let store = world.store();
    assert_eq!(left(store, "latest", 4), gone(Departure::Left));
    store
        .depart(&population, &person(1), Departure::Revoked, "operator")
        .unwrap();
    assert_eq!(left(store, "last", 5), gone(Departure::Revoked));
}

pub(crate) fn a_revoked_device_is_admitted_nowhere_and_its_refusal_leaves_nothing(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "words", at_least(1, 9));
    let population = store.task(task).unwrap().task.population;
    let attempt = open(store, &lease);
    // Two devices of one person: the first has a session that was lost.
    let of = |device: u64, number: u64| Admission {
        key: device_key(device),
        device: sha(&device.to_le_bytes()),
        ..admission(store, attempt, 5, number)
    };
    for device in [1, 2] {
        let enrolment = Enrolment {
            person: person(5),
            ..enrolment(&device_key(device), &population)
        };
        store.enrol(&enrolment).unwrap();
    }
    assert_eq!(store.admit(&of(1, 1)).unwrap(), Admitted::Yes);
    let lost = [(session(1), SessionState::LostBeforeReady)];
    store.note_sessions(&lost).unwrap();
    store.revoke(&device_key(1), "operator").unwrap();
    // Its earlier check-in has no answer any more, and a new one takes neither a place nor the hold on the person.
    for number in [1, 2] {
        assert_eq!(store.admit(&of(1, number)).unwrap(), Admitted::Revoked);
    }
    assert_eq!(store.admit(&of(2, 3)).unwrap(), Admitted::Yes);
    // The revocation of the device stands above the departure of its person.
    store
        .depart(&population, &person(5), Departure::Left, "operator")
        .unwrap();
    assert_eq!(store.admit(&of(1, 4)).unwrap(), Admitted::Revoked);
    let left = Admitted::Departed(Departure::Left);
    // PRIVACY: a person who left learns no session of before.
    assert_eq!(store.admit(&of(2, 3)).unwrap(), left);
    assert_eq!(store.admit(&of(2, 5)).unwrap(), left);
    // A person of another population, and a device that was never enrolled, are not known.
    let mut elsewhere = of(3, 6);
    (elsewhere.user, elsewhere.person) = (user(6), person(6));
    assert_eq!(store.admit(&elsewhere).unwrap(), Admitted::Yes);
    store
        .abandon(&lease, attempt, AbandonReason::Operator, &[])
        .unwrap();
    assert_eq!(store.observed(task).unwrap().users, 2);
}

pub(crate) fn lost_sessions_of_a_subject_or_a_device_are_limited_in_number_and_pace(world: &mut World) {
    let (_, lease) = active(world.store(), "pace", at_least(1, 9));
    let attempt = open(world.store(), &lease);
    let limits = SessionLimits {
        sessions: 2,
        interval: 1000,
    };
    let try_as = |world: &World, user: u64, device: u64, number: u64| {
        let mut of = admission(world.store(), attempt, user, number);
        of.device = sha(&device.to_le_bytes());
        of.limits = limits;
        let answer = world.store().admit(&of).unwrap();
        if answer == Admitted::Yes {
            let lost = [(session(number), SessionState::LostBeforeReady)];
            world.store().note_sessions(&lost).unwrap();
        }
        answer
    };
    assert_eq!(try_as(world, 1, 1, 1), Admitted::Yes);
    let early = Admitted::TooFast(BEGIN + 1000);
    // By another device of the subject, and by the device under another name.
    assert_eq!(try_as(world, 1, 2, 2), early);
    assert_eq!(try_as(world, 3, 1, 3), early);
    assert_eq!(
        try_as(world, 2, 2, 4),
        Admitted::Yes,
        "another person is not held up"
    );
    world.clock.advance(1000);
    assert_eq!(try_as(world, 1, 1, 5), Admitted::Yes);
    world.clock.advance(5000);
    assert_eq!(try_as(world, 1, 9, 6), Admitted::TooMany);
    assert_eq!(try_as(world, 9, 1, 7), Admitted::TooMany);
    // The check-ins of before keep their answers, and the next attempt begins anew.
    assert_eq!(try_as(world, 1, 1, 5), Admitted::Before(session(5)));
    let store = world.store();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    let next = open(store, &lease);
    let mut of = admission(store, next, 1, 8);
    of.limits = limits;
    assert_eq!(store.admit(&of).unwrap(), Admitted::Yes);
}
