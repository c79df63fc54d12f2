//! One suite that every store passes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use undertone_accounting::participation::Participation;
use undertone_protocol::TaskState::{self, Active, Completed, Draft, Halted, Paused};
use undertone_store::{
    AbandonReason, Admitted, AttemptId, AttemptState, AuditRow, DeviceRow, Histograms, Lease, NewAttempt,
    NewTask, Outcome, SessionState, StoreError, TaskHolder, TaskId, Unpublished,
};

use common::*;

macro_rules! conformance {
    ($($name:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&mut super::World::memory()); })+
        }
        mod sqlite {
            $(#[test] fn $name() { super::$name(&mut super::World::sqlite()); })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test] fn $name() {
                if let Some(mut world) = super::World::postgres(super::restarts(stringify!($name))) {
                    super::$name(&mut world);
                }
            })+
        }
    };
}

conformance!(
    a_task_is_read_back_as_it_was_created,
    a_name_is_taken_once_per_population,
    a_task_moves_only_as_its_states_allow,
    one_process_leads_a_task_at_a_time,
    a_task_names_the_holder_of_its_lease,
    a_process_is_listed_until_it_retires,
    a_later_process_of_a_name_replaces_the_earlier_one,
    processes_without_a_sign_of_life_are_swept,
    a_void_lease_changes_nothing,
    a_new_lease_abandons_what_was_being_released,
    one_attempt_is_open_at_a_time,
    a_round_begins_with_its_first_attempt,
    a_subject_is_admitted_once_at_a_time,
    the_schema_decides_on_admission,
    an_exact_schema_admits_in_step_only,
    an_attempt_has_so_many_places,
    an_attempt_stops_taking_devices,
    a_subject_that_sent_nothing_may_come_again,
    a_subject_that_was_ready_may_not_come_again,
    a_session_without_a_hold_still_bars_its_subject,
    sessions_move_forward_only,
    a_release_is_reserved_under_its_conditions,
    a_commit_moves_everything_together,
    a_repeated_commit_changes_nothing,
    a_commit_is_refused_under_a_wrong_condition,
    a_commit_refuses_users_who_break_the_schema,
    an_abandoned_attempt_counts_at_once,
    abandoned_attempts_are_listed_until_a_release,
    models_are_served_once_published,
    a_task_ends_with_its_last_line,
    metrics_are_kept_in_order,
    a_device_has_one_row,
    certificates_are_spent_once_and_issued_within_a_limit,
    sweeping_deletes_what_is_over_and_nothing_else,
    a_barred_subject_is_never_admitted_again,
    a_key_of_pseudonyms_is_kept_once_and_destroyed_at_the_end,
    an_unknown_row_is_named,
    the_audit_log_is_whole,
    state_survives_a_restart,
);

/// Names of the tests that restart the database.
#[cfg(feature = "postgres")]
fn restarts(test: &str) -> bool {
    [
        "an_attempt_stops_taking_devices",
        "a_release_is_reserved_under_its_conditions",
        "the_audit_log_is_whole",
        "state_survives_a_restart",
        "a_barred_subject_is_never_admitted_again",
    ]
    .contains(&test)
}

fn a_task_is_read_back_as_it_was_created(world: &mut World) {
    let store = world.store();
    assert_eq!(store.now(), BEGIN);
    let schemas = [
        at_least(3, 4),
        exactly(7, 2),
        Participation::single(),
        at_least(1, u64::MAX),
    ];
    for (number, schema) in schemas.into_iter().enumerate() {
        let task = NewTask {
            rounds: u64::MAX - number as u64,
            min_included: 3,
            ..new_task(&format!("task {number}"), schema)
        };
        store.create_task(&task).unwrap();
        let row = store.task(task.id).unwrap();
        assert_eq!(format!("{:?}", row.task), format!("{task:?}"));
        assert_eq!((row.state, row.head_round, row.fence), (Draft, 0, 0));
        assert_eq!((row.head_model, row.head_state), (task.model, None));
        assert_eq!(row.chain, task.genesis);
    }
    let names: Vec<String> = store
        .tasks()
        .unwrap()
        .into_iter()
        .map(|row| row.task.name)
        .collect();
    assert_eq!(names, ["task 0", "task 1", "task 2", "task 3"]);
}

fn a_barred_subject_is_never_admitted_again(world: &mut World) {
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

fn a_key_of_pseudonyms_is_kept_once_and_destroyed_at_the_end(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "words", at_least(1, 9));
    assert_eq!(store.pseudonym_key(task).unwrap(), None);
    assert_eq!(store.keep_pseudonym_key(task, b"first").unwrap(), b"first");
    assert_eq!(store.keep_pseudonym_key(task, b"second").unwrap(), b"first");
    assert_eq!(store.pseudonym_key(task).unwrap().unwrap(), b"first");
    refused(
        store.forget_pseudonym_key(task, "operator"),
        "completed, since admission needs the key",
    );
    let chain = store.task(task).unwrap().chain;
    store.end(&lease, b"{}", &hex(&sha(b"{}")), &chain).unwrap();
    assert!(store.forget_pseudonym_key(task, "operator").unwrap());
    assert!(!store.forget_pseudonym_key(task, "operator").unwrap());
    assert_eq!(store.pseudonym_key(task).unwrap(), None);
    let rows = world.audit();
    assert_eq!(rows.iter().filter(|row| row.action == "forget").count(), 1);
}

fn a_name_is_taken_once_per_population(world: &mut World) {
    let store = world.store();
    let task = new_task("next-word", at_least(1, 1));
    store.create_task(&task).unwrap();
    refused(
        store.create_task(&task),
        "\"next-word\" in population \"keyboard-en\"",
    );
    let changed = NewTask {
        id: TaskId([9; 32]),
        ..task.clone()
    };
    refused(store.create_task(&changed), "a name that no task has");
    let elsewhere = NewTask {
        population: "keyboard-de".to_owned(),
        ..changed
    };
    store.create_task(&elsewhere).unwrap();
    assert_eq!(store.tasks().unwrap().len(), 2);
}

fn a_task_moves_only_as_its_states_allow(world: &mut World) {
    let store = world.store();
    let all = [Draft, Active, Paused, Completed, Halted, TaskState::Unspecified];
    // A way from a draft to each state that a person can reach.
    let ways: [(&[TaskState], TaskState); 4] = [
        (&[], Draft),
        (&[Active], Active),
        (&[Active, Paused], Paused),
        (&[Active, Halted], Halted),
    ];
    let legal = [
        (Draft, Active),
        (Draft, Halted),
        (Active, Paused),
        (Active, Halted),
        (Paused, Active),
        (Paused, Halted),
        (Halted, Active),
        (Halted, Paused),
    ];
    let mut number = 0;
    for (way, from) in ways {
        for to in all {
            number += 1;
            let task = new_task(&format!("task {number}"), at_least(1, 1));
            store.create_task(&task).unwrap();
            let mut state = Draft;
            for &step in way {
                store.set_state(task.id, state, step, "operator", "on").unwrap();
                state = step;
            }
            let moved = store.set_state(task.id, from, to, "operator", "a reason");
            assert_eq!(moved.is_ok(), legal.contains(&(from, to)), "{from:?} to {to:?}");
            let now = if moved.is_ok() { to } else { from };
            assert_eq!(store.task(task.id).unwrap().state, now);
        }
    }
    let (task, _) = active(store, "halted", at_least(1, 1));
    refused(
        store.set_state(task, Paused, Halted, "operator", ""),
        "expected paused, got active",
    );
    store
        .set_state(task, Active, Halted, "guard", "the head is older")
        .unwrap();
    refused(
        store.set_state(task, Halted, Active, "operator", " "),
        "an empty note",
    );
    store
        .set_state(task, Halted, Active, "operator", "the head was compared")
        .unwrap();
}

fn one_process_leads_a_task_at_a_time(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "led", at_least(1, 1));
    assert_eq!((lease.fence, lease.until), (1, BEGIN + 30_000));
    assert_eq!(store.lease(task, "two", 30_000).unwrap(), None);
    world.clock.advance(20_000);
    let lease = store.renew(&lease, 30_000).unwrap();
    assert_eq!((lease.fence, lease.until), (1, BEGIN + 50_000));
    world.clock.advance(29_999);
    assert_eq!(store.lease(task, "two", 30_000).unwrap(), None);
    // Its own process may take it again, under a new fence.
    let again = store.lease(task, "one", 10).unwrap().unwrap();
    assert_eq!(again.fence, 2);
    world.clock.advance(10);
    let two = store.lease(task, "two", u64::MAX).unwrap().unwrap();
    assert_eq!((two.fence, two.until), (3, i64::MAX as u64));
    store.hand_back(two.clone()).unwrap();
    refused(store.hand_back(two), "the lease with fence 3 is void");
    assert_eq!(store.lease(task, "three", 5).unwrap().unwrap().fence, 4);
    assert_eq!(store.task(task).unwrap().fence, 4);
}

fn a_void_lease_changes_nothing(world: &mut World) {
    let store = world.store();
    let (task, old) = active(store, "fenced", at_least(1, 5));
    let attempt = open(store, &old);
    world.clock.advance(30_000);
    let new = store.lease(task, "two", 30_000).unwrap().unwrap();
    let stranger = Lease {
        process: "one".to_owned(),
        ..new.clone()
    };
    for void in [&old, &stranger] {
        let fenced = |result: undertone_store::Result<()>| {
            assert!(
                matches!(result, Err(StoreError::Fenced { current: 2, .. })),
                "{result:?}"
            );
        };
        fenced(store.renew(void, 1).map(drop));
        fenced(store.hand_back(void.clone()));
        fenced(store.open_attempt(void, &new_attempt(store, 0)).map(drop));
        fenced(store.close_selection(void, attempt));
        fenced(store.reserve(void, attempt, 5));
        let release = release(store, task, attempt, &users([1]), &[]);
        fenced(store.commit_release(void, &release));
        fenced(store.abandon(void, attempt, AbandonReason::Few, &users([1])));
        fenced(store.end(void, b"end", "", ""));
    }
    assert_eq!(
        store.open_attempt_of(task).unwrap(),
        Some((attempt, AttemptState::Selecting))
    );
    // The next holder goes on with it.
    store.close_selection(&new, attempt).unwrap();
    store.reserve(&new, attempt, 1).unwrap();
    let release = release(store, task, attempt, &users([1]), &[]);
    store.commit_release(&new, &release).unwrap();
    assert_eq!(store.observed(task).unwrap().users, 1);
}

fn a_new_lease_abandons_what_was_being_released(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "crashed", at_least(2, 5));
    let attempt = open(store, &lease);
    store.admit(&admission(store, attempt, 1, 1)).unwrap();
    store.admit(&admission(store, attempt, 2, 2)).unwrap();
    store
        .note_sessions(&[(session(2), SessionState::LostBeforeReady)])
        .unwrap();
    store.reserve(&lease, attempt, 1).unwrap();
    let release = release(store, task, attempt, &users([1]), &[]);
    let again = store.lease(task, "one", 30_000).unwrap().unwrap();
    let outcome = Outcome {
        state: AttemptState::Abandoned,
        reason: Some(AbandonReason::Crash),
        fence: 2,
    };
    assert_eq!(store.outcome(attempt).unwrap(), outcome);
    let listed = store.abandoned_since_release(task).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].participants, users([1]));
    assert!(store.commit_release(&lease, &release).is_err());
    refused(
        store.commit_release(&again, &release),
        "expected releasing, got abandoned",
    );
    let second = open(store, &again);
    let answer = store.admit(&admission(store, second, 1, 3)).unwrap();
    assert_eq!(answer, Admitted::TooSoon { last: 0 });
    assert_eq!(
        store.admit(&admission(store, second, 2, 4)).unwrap(),
        Admitted::Yes
    );
}

fn a_round_begins_with_its_first_attempt(world: &mut World) {
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

fn one_attempt_is_open_at_a_time(world: &mut World) {
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

fn a_subject_is_admitted_once_at_a_time(world: &mut World) {
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

fn the_schema_decides_on_admission(world: &mut World) {
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

fn an_exact_schema_admits_in_step_only(world: &mut World) {
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

fn an_attempt_has_so_many_places(world: &mut World) {
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

fn an_attempt_stops_taking_devices(world: &mut World) {
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

fn a_subject_that_sent_nothing_may_come_again(world: &mut World) {
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

fn a_subject_that_was_ready_may_not_come_again(world: &mut World) {
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

fn a_session_without_a_hold_still_bars_its_subject(world: &mut World) {
    let store = world.store();
    let (_, lease) = active(store, "slow", at_least(5, 5));
    let attempt = open(store, &lease);
    let until = new_attempt(store, 0).report_until;
    store.admit(&admission(store, attempt, 1, 1)).unwrap();
    world.clock.advance(60_000);
    let again = admission(store, attempt, 1, 2);
    assert_eq!(store.admit(&again).unwrap(), Admitted::Held(until));
    store
        .note_sessions(&[(session(1), SessionState::Configured)])
        .unwrap();
    assert_eq!(store.admit(&again).unwrap(), Admitted::Held(until));
    store
        .note_sessions(&[(session(1), SessionState::LostBeforeReady)])
        .unwrap();
    assert_eq!(store.admit(&again).unwrap(), Admitted::Yes);
}

fn sessions_move_forward_only(world: &mut World) {
    use SessionState::{Assigned, Configured, Included, Lost, LostBeforeReady, Ready, Reported};
    let store = world.store();
    let (task, lease) = active(store, "notes", at_least(5, 5));
    let attempt = open(store, &lease);
    // Each way, and whether the user counts at the end.
    let ways: [(&[SessionState], bool); 10] = [
        (&[], true),
        (&[Configured], true),
        (&[LostBeforeReady], false),
        (&[Configured, LostBeforeReady], false),
        (&[LostBeforeReady, Ready], false),
        (&[Ready, LostBeforeReady], true),
        (&[Reported, LostBeforeReady, Configured, Assigned], true),
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

fn a_release_is_reserved_under_its_conditions(world: &mut World) {
    let store = world.store();
    let task = NewTask {
        min_included: 3,
        ..new_task("floor", at_least(1, 5))
    };
    let (id, lease) = activate(store, &task);
    let attempt = open(store, &lease);
    refused(store.reserve(&lease, attempt, 2), "expected 3 or more, got 2");
    store.set_state(id, Active, Halted, "guard", "").unwrap();
    refused(
        store.reserve(&lease, attempt, 3),
        "expected active or paused, got halted",
    );
    store
        .set_state(id, Halted, Paused, "operator", "checked")
        .unwrap();
    // What is on its way is finished in a pause.
    store.reserve(&lease, attempt, 3).unwrap();
    refused(store.reserve(&lease, attempt, 3), "got releasing");
    let outcome = store.outcome(attempt).unwrap();
    assert_eq!((outcome.state, outcome.reason), (AttemptState::Releasing, None));
    store
        .abandon(&lease, attempt, AbandonReason::Duplicate, &[])
        .unwrap();
    refused(store.reserve(&lease, attempt, 3), "got abandoned");
    store.set_state(id, Paused, Active, "operator", "").unwrap();
    let attempt = open(store, &lease);
    world.restart();
    let store = world.store();
    refused(store.reserve(&lease, attempt, 3), "the start of the database");
    store
        .abandon(&lease, attempt, AbandonReason::Store, &users([1]))
        .unwrap();
    let attempt = open(store, &lease);
    store.reserve(&lease, attempt, 3).unwrap();
}

fn a_commit_moves_everything_together(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "commit", at_least(2, 5));
    let attempt = open(store, &lease);
    for who in 1..=4 {
        store.admit(&admission(store, attempt, who, who)).unwrap();
    }
    store
        .note_sessions(&[(session(4), SessionState::LostBeforeReady)])
        .unwrap();
    store.reserve(&lease, attempt, 2).unwrap();
    // User 5 has no session: a database that lost its latest rows still counts the users of a sum.
    let release = release(store, task, attempt, &users([5, 1]), &users([2]));
    store.commit_release(&lease, &release).unwrap();
    let row = store.task(task).unwrap();
    assert_eq!(
        (row.head_round, row.head_model, row.head_state),
        (1, release.model, release.state)
    );
    assert_eq!(row.chain, release.digest);
    assert_eq!(
        store.ledger(task, 0).unwrap(),
        std::slice::from_ref(&release.line)
    );
    assert_eq!(
        store.metrics(task).unwrap(),
        std::slice::from_ref(&release.metrics)
    );
    let outcome = store.outcome(attempt).unwrap();
    assert_eq!(
        (outcome.state, outcome.reason, outcome.fence),
        (AttemptState::Committed, None, 1)
    );
    let unpublished = Unpublished {
        round: 1,
        attempt,
        attempt_of_round: 0,
        model: release.model,
        state: release.state,
        chain: release.digest.clone(),
    };
    assert_eq!(store.unpublished(task).unwrap(), [unpublished]);
    let observed = Histograms {
        participations: vec![(1, 3)],
        users: 3,
    };
    assert_eq!(store.observed(task).unwrap(), observed);
    // Counted users wait; the others, whose holds have ended with the attempt, come at once.
    let attempt = open(store, &lease);
    for (who, answer) in [
        (1, Admitted::TooSoon { last: 0 }),
        (2, Admitted::TooSoon { last: 0 }),
        (3, Admitted::Yes),
        (4, Admitted::Yes),
        (5, Admitted::TooSoon { last: 0 }),
    ] {
        assert_eq!(
            store.admit(&admission(store, attempt, who, 10 + who)).unwrap(),
            answer
        );
    }
}

fn a_repeated_commit_changes_nothing(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "repeat", at_least(2, 5));
    let done = released(store, &lease, &[1, 2]);
    store.commit_release(&lease, &done).unwrap();
    assert_eq!(store.ledger(task, 0).unwrap().len(), 1);
    assert_eq!(store.metrics(task).unwrap().len(), 1);
    assert_eq!(store.observed(task).unwrap().participations, [(1, 2)]);
    let mut other = done.clone();
    other.model = [9; 32];
    refused(store.commit_release(&lease, &other), "the release of attempt 1");
    // It stays known after later releases, and under a later lease of the same process.
    released(store, &lease, &[3]);
    store.commit_release(&lease, &done).unwrap();
    let later = store.lease(task, "one", 1).unwrap().unwrap();
    store.commit_release(&later, &done).unwrap();
    assert_eq!(store.task(task).unwrap().head_round, 2);
    refused(
        store.abandon(&later, done.attempt, AbandonReason::Few, &[]),
        "expected not committed, got committed",
    );
}

fn a_commit_is_refused_under_a_wrong_condition(world: &mut World) {
    let store = world.store();
    let task = NewTask {
        min_included: 2,
        ..new_task("conditions", at_least(1, 5))
    };
    let (id, lease) = activate(store, &task);
    released(store, &lease, &[1, 2]);
    let attempt = open(store, &lease);
    let good = release(store, id, attempt, &users([1, 2]), &users([3]));
    refused(
        store.commit_release(&lease, &good),
        "expected releasing, got selecting",
    );
    store.reserve(&lease, attempt, 2).unwrap();
    let wrong = |change: &dyn Fn(&mut undertone_store::Release), words: &str| {
        let mut wrong = good.clone();
        change(&mut wrong);
        refused(store.commit_release(&lease, &wrong), words);
    };
    wrong(&|release| release.round = 2, "the round of attempt 2");
    wrong(
        &|release| release.included.truncate(1),
        "expected 2 or more, got 1",
    );
    wrong(
        &|release| release.previous.clone_from(&task.genesis),
        "the end of the ledger",
    );
    wrong(&|release| release.digest = hex(&[1; 32]), "the digest of a line");
    wrong(&|release| release.line.push(b' '), "the digest of a line");
    wrong(
        &|release| release.attempt = AttemptId(1),
        "the release of attempt 1",
    );
    wrong(&|release| release.attempt = AttemptId(9), "no attempt 9");
    wrong(&|release| release.attempt = AttemptId(u64::MAX), "no attempt");
    store.set_state(id, Active, Halted, "guard", "").unwrap();
    refused(
        store.commit_release(&lease, &good),
        "expected active or paused, got halted",
    );
    store
        .set_state(id, Halted, Active, "operator", "checked")
        .unwrap();
    assert_eq!(store.task(id).unwrap().head_round, 1);
    assert_eq!(store.ledger(id, 0).unwrap().len(), 1);
    store.commit_release(&lease, &good).unwrap();
    assert_eq!(store.ledger(id, 1).unwrap(), [good.line]);
    assert!(store.ledger(id, 2).unwrap().is_empty());
    assert!(store.ledger(id, u64::MAX).unwrap().is_empty());
}

fn a_commit_refuses_users_who_break_the_schema(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "gate", at_least(2, 2));
    released(store, &lease, &[1]);
    let attempt = open(store, &lease);
    store.reserve(&lease, attempt, 1).unwrap();
    let commit = |included: &[u64], lost: &[u64]| {
        let release = release(
            store,
            task,
            attempt,
            &users(included.iter().copied()),
            &users(lost.iter().copied()),
        );
        store.commit_release(&lease, &release)
    };
    let soon = "round 1, user 0000000000000001: expected a gap of at least 2 rounds";
    refused(commit(&[2, 1], &[]), soon);
    refused(commit(&[2], &[1]), soon);
    refused(commit(&[2, 2], &[]), "at most once per round");
    refused(commit(&[2], &[2]), "at most once per round");
    assert!(matches!(commit(&[2], &[3, 3]), Err(StoreError::Refused(_))));
    assert_eq!(store.observed(task).unwrap().users, 1);
    commit(&[2], &[3]).unwrap();
    // The third participation is one too many, however far away.
    released(store, &lease, &[1]);
    released(store, &lease, &[4]);
    released(store, &lease, &[5]);
    let attempt = open(store, &lease);
    store.reserve(&lease, attempt, 1).unwrap();
    let release = release(store, task, attempt, &users([1]), &[]);
    refused(
        store.commit_release(&lease, &release),
        "at most 2 participations, got 3",
    );
}

fn an_abandoned_attempt_counts_at_once(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "abandoned", at_least(3, 5));
    let attempt = open(store, &lease);
    for who in 1..=3 {
        store.admit(&admission(store, attempt, who, who)).unwrap();
    }
    store
        .note_sessions(&[(session(3), SessionState::LostBeforeReady)])
        .unwrap();
    // An aggregator knows user 9, whose session the database has lost, and user 1 twice.
    store
        .abandon(&lease, attempt, AbandonReason::Protocol, &users([9, 1, 1]))
        .unwrap();
    let outcome = store.outcome(attempt).unwrap();
    assert_eq!(
        (outcome.state, outcome.reason),
        (AttemptState::Abandoned, Some(AbandonReason::Protocol))
    );
    // A repeated call changes nothing, whatever it says.
    store
        .abandon(&lease, attempt, AbandonReason::Few, &users([77]))
        .unwrap();
    assert_eq!(
        store.outcome(attempt).unwrap().reason,
        Some(AbandonReason::Protocol)
    );
    assert_eq!(store.observed(task).unwrap().participations, [(1, 3)]);
    let attempt = open(store, &lease);
    for (who, answer) in [
        (1, Admitted::TooSoon { last: 0 }),
        (2, Admitted::TooSoon { last: 0 }),
        (3, Admitted::Yes),
        (9, Admitted::TooSoon { last: 0 }),
        (77, Admitted::Yes),
    ] {
        assert_eq!(
            store.admit(&admission(store, attempt, who, 100 + who)).unwrap(),
            answer
        );
    }
    // A user that is handed in against the schema counts as well: nothing hides it.
    store
        .abandon(&lease, attempt, AbandonReason::Few, &users([1]))
        .unwrap();
    assert_eq!(store.observed(task).unwrap().participations, [(1, 4), (2, 1)]);
}

fn abandoned_attempts_are_listed_until_a_release(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "listed", at_least(1, 9));
    let (_, other) = active(store, "other", at_least(1, 9));
    let high = u64::MAX - 1;
    for (reason, who) in [
        (AbandonReason::Few, vec![3, high, 1]),
        (AbandonReason::Deadline, vec![]),
    ] {
        let attempt = open(store, &lease);
        let elsewhere = open(store, &other);
        store.abandon(&lease, attempt, reason, &users(who)).unwrap();
        store
            .abandon(&other, elsewhere, AbandonReason::Operator, &users([8]))
            .unwrap();
    }
    let listed = store.abandoned_since_release(task).unwrap();
    let shown: Vec<_> = listed
        .iter()
        .map(|found| {
            (
                found.round,
                found.attempt_of_round,
                found.reason,
                found.participants.clone(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (0, 0, AbandonReason::Few, users([1, 3, high])),
            (0, 1, AbandonReason::Deadline, vec![])
        ]
    );
    let attempt = open(store, &lease);
    assert_eq!(store.abandoned_since_release(task).unwrap().len(), 2);
    store.reserve(&lease, attempt, 1).unwrap();
    let release = release(store, task, attempt, &users([50]), &[]);
    store.commit_release(&lease, &release).unwrap();
    assert!(store.abandoned_since_release(task).unwrap().is_empty());
    assert_eq!(store.unpublished(task).unwrap()[0].attempt_of_round, 2);
    let attempt = open(store, &lease);
    store
        .abandon(&lease, attempt, AbandonReason::Network, &[])
        .unwrap();
    let listed = store.abandoned_since_release(task).unwrap();
    assert_eq!(
        (listed.len(), listed[0].round, listed[0].attempt_of_round),
        (1, 1, 0)
    );
    assert_eq!(store.abandoned_since_release(other.task).unwrap().len(), 2);
}

fn models_are_served_once_published(world: &mut World) {
    let store = world.store();
    let task = new_task("served", at_least(1, 9));
    assert!(!store.may_serve(&task.model).unwrap());
    let (id, lease) = activate(store, &task);
    assert!(store.may_serve(&task.model).unwrap());
    assert!(store.may_serve(&task.plan).unwrap());
    let first = released(store, &lease, &[1]);
    let second = released(store, &lease, &[2]);
    assert!(!store.may_serve(&first.model).unwrap());
    let rounds = || -> Vec<u64> {
        store
            .unpublished(id)
            .unwrap()
            .iter()
            .map(|row| row.round)
            .collect()
    };
    assert_eq!(rounds(), [1, 2]);
    store.published(id, 1).unwrap();
    store.published(id, 1).unwrap();
    assert_eq!(rounds(), [2]);
    assert!(store.may_serve(&first.model).unwrap());
    assert!(!store.may_serve(&second.model).unwrap());
    assert!(!store.may_serve(&first.state.unwrap()).unwrap());
    refused(store.published(id, 3), "no model of task");
    refused(store.published(TaskId([1; 32]), 1), "no task 0101");
}

fn a_task_ends_with_its_last_line(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "ending", at_least(1, 9));
    let done = released(store, &lease, &[1]);
    let line = b"{\"end\":true}";
    let digest = hex(&sha(line));
    let attempt = open(store, &lease);
    refused(
        store.end(&lease, line, &digest, &done.digest),
        "expected none, got attempt 2",
    );
    store
        .abandon(&lease, attempt, AbandonReason::Operator, &[])
        .unwrap();
    refused(
        store.end(&lease, line, &digest, &done.previous),
        "the end of the ledger",
    );
    refused(
        store.end(&lease, line, "00", &done.digest),
        "the digest of a line",
    );
    store.end(&lease, line, &digest, &done.digest).unwrap();
    let row = store.task(task).unwrap();
    assert_eq!(
        (row.state, row.chain, row.head_round),
        (Completed, digest.clone(), 1)
    );
    assert_eq!(store.ledger(task, 0).unwrap(), [done.line, line.to_vec()]);
    refused(store.end(&lease, line, &digest, &digest), "got completed");
    refused(
        store.open_attempt(&lease, &new_attempt(store, 1)),
        "expected active, got completed",
    );
    for to in [Draft, Active, Paused, Halted] {
        assert!(store.set_state(task, Completed, to, "operator", "no").is_err());
    }
    let draft = new_task("draft", at_least(1, 1));
    store.create_task(&draft).unwrap();
    let lease = store.lease(draft.id, "one", 1).unwrap().unwrap();
    refused(store.end(&lease, line, &digest, &draft.genesis), "got draft");
}

fn metrics_are_kept_in_order(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "metrics", at_least(1, 9));
    store.append_metrics(task, b"first").unwrap();
    released(store, &lease, &[1]);
    store.append_metrics(task, &[0, 255]).unwrap();
    assert_eq!(
        store.metrics(task).unwrap(),
        [b"first".to_vec(), b"{\"round\":0}".to_vec(), vec![0, 255]]
    );
    assert!(store.metrics(TaskId([1; 32])).unwrap().is_empty());
}

fn a_device_has_one_row(world: &mut World) {
    let store = world.store();
    let key = [7; 32];
    assert_eq!(store.device(&key).unwrap(), None);
    let row = DeviceRow {
        key,
        population: "keyboard-en".to_owned(),
        enrolled_day: BEGIN / 86_400_000,
        revoked: false,
    };
    assert_eq!(store.enrol(&key, "keyboard-en").unwrap(), row);
    world.clock.advance(5 * 86_400_000);
    assert_eq!(store.enrol(&key, "elsewhere").unwrap(), row);
    store.revoke(&key, "operator").unwrap();
    let revoked = Some(DeviceRow { revoked: true, ..row });
    assert_eq!(store.device(&key).unwrap(), revoked);
    assert_eq!(Some(store.enrol(&key, "keyboard-en").unwrap()), revoked);
    refused(store.revoke(&[8; 32], "operator"), "no device 0808");
}

fn certificates_are_spent_once_and_issued_within_a_limit(world: &mut World) {
    let store = world.store();
    assert!(store.spend(&[1; 32], BEGIN + 10).unwrap());
    assert!(!store.spend(&[1; 32], BEGIN + 99).unwrap());
    assert!(store.spend(&[2; 32], BEGIN + 10).unwrap());
    let subject = [3; 32];
    assert!(store.issue(&subject, 5, 3, 8).unwrap());
    assert!(!store.issue(&subject, 5, 6, 8).unwrap());
    assert!(store.issue(&subject, 5, 5, 8).unwrap());
    assert!(!store.issue(&subject, 5, 1, 8).unwrap());
    assert!(store.issue(&subject, 5, 0, 8).unwrap());
    assert!(store.issue(&subject, 6, 8, 8).unwrap());
    assert!(store.issue(&[4; 32], 5, 8, 8).unwrap());
    assert!(!store.issue(&[4; 32], 7, u32::MAX, 8).unwrap());
    assert!(store.issue(&[4; 32], 7, u32::MAX, u32::MAX).unwrap());
    assert!(!store.issue(&[4; 32], 7, u32::MAX, u32::MAX).unwrap());
}

fn sweeping_deletes_what_is_over_and_nothing_else(world: &mut World) {
    const DAY: u64 = 86_400_000;
    let store = world.store();
    let (task, lease) = active(store, "swept", at_least(1, 9));
    let attempt = open(store, &lease);
    let old = admission(store, attempt, 1, 1);
    store.admit(&old).unwrap();
    let lost = admission(store, attempt, 2, 2);
    store.admit(&lost).unwrap();
    store
        .note_sessions(&[(session(2), SessionState::LostBeforeReady)])
        .unwrap();
    store.spend(&[1; 32], BEGIN + DAY).unwrap();
    store.spend(&[2; 32], BEGIN + 30 * DAY).unwrap();
    store.issue(&[3; 32], 0, 8, 8).unwrap();
    world.clock.advance(20 * DAY);
    store.sweep().unwrap();
    // An open attempt keeps its sessions.
    assert_eq!(store.admit(&old).unwrap(), Admitted::Before(session(1)));
    assert!(store.spend(&[1; 32], BEGIN + 90 * DAY).unwrap());
    assert!(!store.spend(&[2; 32], BEGIN + 90 * DAY).unwrap());
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    world.clock.advance(7 * DAY - 1);
    store.sweep().unwrap();
    assert_eq!(store.admit(&old).unwrap(), Admitted::Before(session(1)));
    assert!(!store.issue(&[3; 32], 0, 1, 8).unwrap());
    world.clock.advance(1);
    store.sweep().unwrap();
    assert_eq!(store.admit(&old).unwrap(), Admitted::TooSoon { last: 0 });
    assert_eq!(store.admit(&lost).unwrap(), Admitted::Full);
    assert_eq!(store.observed(task).unwrap().users, 1);
    assert_eq!(
        store.abandoned_since_release(task).unwrap()[0].participants,
        users([1])
    );
    world.clock.advance(60 * DAY);
    store.sweep().unwrap();
    assert!(store.issue(&[3; 32], 0, 1, 8).unwrap());
}

fn an_unknown_row_is_named(world: &mut World) {
    let store = world.store();
    let unknown = TaskId([0xab; 32]);
    let name = format!("no task {unknown}");
    refused(store.task(unknown), &name);
    refused(store.set_state(unknown, Draft, Active, "", ""), &name);
    refused(store.lease(unknown, "one", 1), &name);
    refused(store.append_metrics(unknown, b""), &name);
    let lease = Lease {
        task: unknown,
        process: "one".to_owned(),
        fence: 1,
        until: u64::MAX,
    };
    refused(store.renew(&lease, 1), &name);
    refused(store.open_attempt(&lease, &new_attempt(store, 0)), &name);
    refused(store.end(&lease, b"", "", ""), &name);
    for id in [0, 1, u64::MAX] {
        let name = format!("no attempt {id}");
        refused(store.outcome(AttemptId(id)), &name);
        refused(store.admit(&admission(store, AttemptId(id), 1, 1)), &name);
    }
    assert_eq!(store.open_attempt_of(unknown).unwrap(), None);
    assert!(store.ledger(unknown, 0).unwrap().is_empty());
    assert!(store.unpublished(unknown).unwrap().is_empty());
    assert!(store.abandoned_since_release(unknown).unwrap().is_empty());
    assert_eq!(store.observed(unknown).unwrap(), Histograms::default());
    assert!(!store.may_serve(&[1; 32]).unwrap());
    store.sweep().unwrap();
}

fn the_audit_log_is_whole(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "audited", at_least(1, 1));
    store
        .set_state(task, Active, Halted, "guard", "the head is older")
        .unwrap();
    assert!(store.set_state(task, Active, Halted, "guard", "again").is_err());
    let row = store.task(task).unwrap();
    store.end(&lease, b"end", &hex(&sha(b"end")), &row.chain).unwrap();
    store.enrol(&[5; 32], "p").unwrap();
    store.revoke(&[5; 32], "admin").unwrap();
    world.restart();
    let rows = world.audit();
    let shown: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.actor.as_str(), row.action.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("operator", "set_state"),
            ("guard", "set_state"),
            ("one", "end"),
            ("admin", "revoke")
        ]
    );
    assert!(
        rows[1].detail.ends_with("active to halted: the head is older"),
        "{:?}",
        rows[1]
    );
    assert_eq!(AuditRow::first_break(&rows), None);
    assert_eq!(AuditRow::first_break(&rows[1..]), Some(0));
}

fn state_survives_a_restart(world: &mut World) {
    let (task, lease) = active(world.store(), "kept", at_least(2, 5));
    let done = released(world.store(), &lease, &[1, u64::MAX]);
    let attempt = open(world.store(), &lease);
    let admitted = admission(world.store(), attempt, 2, 2);
    world.store().admit(&admitted).unwrap();
    world.restart();
    let store = world.store();
    let row = store.task(task).unwrap();
    assert_eq!((row.head_round, row.chain, row.fence), (1, done.digest, 1));
    assert_eq!(store.observed(task).unwrap().users, 2);
    assert_eq!(store.admit(&admitted).unwrap(), Admitted::Before(session(2)));
    assert_eq!(store.unpublished(task).unwrap().len(), 1);
    // The lease lives on, and the attempt can be abandoned by it.
    store.abandon(&lease, attempt, AbandonReason::Crash, &[]).unwrap();
    assert_eq!(
        store.abandoned_since_release(task).unwrap()[0].participants,
        users([2])
    );
}

fn a_task_names_the_holder_of_its_lease(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "words", at_least(2, 3));
    let holder = TaskHolder {
        process: lease.process.clone(),
        until: lease.until,
    };
    assert_eq!(store.task(task).unwrap().holder, Some(holder));
    world.clock.advance(10_000);
    let renewed = store.renew(&lease, 30_000).unwrap();
    let held = store.tasks().unwrap().remove(0).holder.unwrap();
    assert_eq!(
        (held.process, held.until),
        (renewed.process.clone(), renewed.until)
    );
    // A lease that is over still names its process.
    world.clock.advance(31_000);
    assert!(store.task(task).unwrap().holder.is_some());
    store.hand_back(renewed).unwrap();
    assert_eq!(store.task(task).unwrap().holder, None);
}

fn a_process_is_listed_until_it_retires(world: &mut World) {
    let store = world.store();
    assert!(store.processes().unwrap().is_empty());
    let two = store.register(&process("two")).unwrap();
    let one = store.register(&process("one")).unwrap();
    world.clock.advance(500);
    assert!(store.beat("two", two, "front").unwrap());
    let rows = store.processes().unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.epoch, row.roles.as_str(), row.beat - BEGIN))
        .collect();
    assert_eq!(
        seen,
        [("one", one, "front,leader", 0), ("two", two, "front", 500)]
    );
    assert_eq!(rows[1].url, "https://two.example:8450");
    assert!(!store.beat("three", 1, "front").unwrap());
    store.retire("two", two + 1).unwrap();
    assert_eq!(store.processes().unwrap().len(), 2);
    store.retire("two", two).unwrap();
    store.retire("two", two).unwrap();
    assert_eq!(store.processes().unwrap(), rows[..1]);
    assert!(!store.beat("two", two, "front").unwrap());
}

fn a_later_process_of_a_name_replaces_the_earlier_one(world: &mut World) {
    let store = world.store();
    let earlier = store.register(&process("one")).unwrap();
    let later = store.register(&process("one")).unwrap();
    assert!(later > earlier);
    assert!(!store.beat("one", earlier, "front").unwrap());
    assert!(store.beat("one", later, "front").unwrap());
    store.retire("one", earlier).unwrap();
    assert_eq!(store.processes().unwrap()[0].epoch, later);
    // After its end a name begins above the epochs it had.
    store.retire("one", later).unwrap();
    world.clock.advance(1000);
    assert!(store.register(&process("one")).unwrap() > later);
}

fn processes_without_a_sign_of_life_are_swept(world: &mut World) {
    let store = world.store();
    store.register(&process("lost")).unwrap();
    world.clock.advance(80_000_000);
    store.register(&process("young")).unwrap();
    world.clock.advance(6_400_000);
    store.sweep().unwrap();
    let names: Vec<String> = store
        .processes()
        .unwrap()
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, ["young"]);
}
