//! The release of a round, and attempts that are abandoned.

use undertone_protocol::TaskState::{Active, Halted, Paused};
use undertone_store::{
    AbandonReason, Admitted, AttemptId, AttemptState, Histograms, NewTask, SessionState, StoreError, TaskId,
    Unpublished,
};

use crate::common::*;

pub(crate) fn a_release_is_reserved_under_its_conditions(world: &mut World) {
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

pub(crate) fn a_commit_moves_everything_together(world: &mut World) {
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

pub(crate) fn a_repeated_commit_changes_nothing(world: &mut World) {
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

pub(crate) fn a_commit_is_refused_under_a_wrong_condition(world: &mut World) {
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

pub(crate) fn a_commit_refuses_users_who_break_the_schema(world: &mut World) {
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

pub(crate) fn an_abandoned_attempt_counts_at_once(world: &mut World) {
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

pub(crate) fn abandoned_attempts_are_listed_until_a_release(world: &mut World) {
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

pub(crate) fn models_are_served_once_published(world: &mut World) {
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
