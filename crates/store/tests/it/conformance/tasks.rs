//! Tasks: their states, names, keys and ends.

use undertone_accounting::participation::Participation;
use undertone_protocol::TaskState::{self, Active, Completed, Draft, Halted, Paused};
use undertone_store::{
    AbandonReason, Admitted, AttemptId, Histograms, Lease, NewTask, Release, SessionState, Store, TaskId,
};

use crate::common::*;

pub(crate) fn a_task_is_read_back_as_it_was_created(world: &mut World) {
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

pub(crate) fn a_name_is_taken_once_per_population(world: &mut World) {
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

pub(crate) fn a_task_moves_only_as_its_states_allow(world: &mut World) {
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

pub(crate) fn a_task_ends_with_its_last_line(world: &mut World) {
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

pub(crate) fn metrics_are_kept_in_order(world: &mut World) {
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

pub(crate) fn a_key_of_pseudonyms_is_kept_once_and_destroyed_at_the_end(world: &mut World) {
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

/// A task after a release of users 1 and 2 and an abandoned attempt of user 3.
fn ended(store: &dyn Store, name: &str) -> (TaskId, Release) {
    let (task, lease) = active(store, name, at_least(1, 9));
    store.keep_pseudonym_key(task, b"key").unwrap();
    let release = released(store, &lease, &[1, 2]);
    store.published(task, 1).unwrap();
    let attempt = open(store, &lease);
    let number = u64::from(task.0[0]);
    store.admit(&admission(store, attempt, 3, number)).unwrap();
    store
        .note_sessions(&[(session(number), SessionState::Ready)])
        .unwrap();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    store.bar(task, user(4), "operator").unwrap();
    refused(store.blobs_of(task), "only an ended task can be deleted");
    refused(
        store.delete_task(task, "operator"),
        "only an ended task can be deleted",
    );
    let chain = store.task(task).unwrap().chain;
    store.end(&lease, b"{}", &hex(&sha(b"{}")), &chain).unwrap();
    (task, release)
}

pub(crate) fn a_forgotten_task_keeps_its_figures_and_names_no_user(world: &mut World) {
    let store = world.store();
    let (task, _) = ended(store, "words");
    let before = store.observed(task).unwrap();
    assert_eq!((before.users, &before.participations[..]), (3, &[(1, 3)][..]));
    let ledger = store.ledger(task, 0).unwrap();
    assert!(store.forget_pseudonym_key(task, "operator").unwrap());
    // A second call, as after a crash, changes nothing.
    assert!(!store.forget_pseudonym_key(task, "operator").unwrap());
    assert_eq!(store.observed(task).unwrap(), before);
    assert_eq!(store.ledger(task, 0).unwrap(), ledger);
    let attempts = store.abandoned_since_release(task).unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].participants, users([]));
    assert_eq!(store.attempts(task, 9).unwrap().len(), 2);
    store.sweep().unwrap();
    store.scrub().unwrap();
    assert_eq!(store.observed(task).unwrap(), before);
}

pub(crate) fn a_deleted_task_keeps_its_settings_and_gives_back_the_blobs_that_it_alone_names(
    world: &mut World,
) {
    let store = world.store();
    let (task, release) = ended(store, "old");
    let (other, second) = ended(store, "other");
    // The other task was begun with the model that the first one released.
    let begun = NewTask {
        model: release.model,
        ..new_task("next", at_least(1, 9))
    };
    store.create_task(&begun).unwrap();
    let mut expected = vec![sha(b"model of old"), release.state.unwrap()];
    let mut found = store.blobs_of(task).unwrap();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(store.delete_task(task, "operator").unwrap());
    assert!(!store.delete_task(task, "operator").unwrap());
    let row = store.task(task).unwrap();
    assert!(row.deleted && row.task.config.contains("old"));
    assert_eq!(row.head_state, None, "a backup looks for what a row names");
    assert!(store.ledger(task, 0).unwrap().is_empty() && store.metrics(task).unwrap().is_empty());
    assert!(store.attempts(task, 9).unwrap().is_empty());
    assert_eq!(store.observed(task).unwrap().users, 0);
    assert_eq!(store.pseudonym_key(task).unwrap(), None);
    assert!(!store.may_serve(&sha(b"model of old")).unwrap());
    assert!(store.blobs_of(task).unwrap().is_empty());
    // Its name stays taken, and other tasks are as they were.
    refused(
        store.create_task(&new_task("old", at_least(1, 9))),
        "a name that no task has",
    );
    assert!(store.may_serve(&second.model).unwrap() && store.may_serve(&release.model).unwrap());
    assert_eq!(store.observed(other).unwrap().users, 3);
    assert!(!store.task(other).unwrap().deleted);
}

pub(crate) fn a_pinned_release_is_one_that_was_published_until_the_task_is_deleted(world: &mut World) {
    let store = world.store();
    let (task, release) = ended(store, "words");
    let pinned = || store.task(task).unwrap().pinned;
    assert_eq!(pinned(), None);
    assert!(store.pin(task, Some(1), "operator").unwrap());
    assert!(!store.pin(task, Some(1), "operator").unwrap());
    assert_eq!(pinned(), Some((1, release.model)));
    refused(store.pin(task, Some(2), "operator"), "from 0 to 1");
    assert!(store.pin(TaskId([1; 32]), None, "operator").is_err());
    assert!(store.pin(task, None, "operator").unwrap());
    assert!(!store.pin(task, None, "operator").unwrap());
    assert_eq!(pinned(), None);
    assert!(store.pin(task, Some(1), "operator").unwrap());
    store.delete_task(task, "operator").unwrap();
    assert_eq!(pinned(), None);
    assert!(store.pin(task, Some(1), "operator").is_err());
    let rows = world.audit();
    let of = |action: &str| rows.iter().filter(|row| row.action == action).count();
    assert_eq!((of("pin"), of("unpin")), (2, 1));
}

pub(crate) fn the_end_of_a_task_ends_its_sessions(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "over", at_least(1, 9));
    let attempt = open(store, &lease);
    let of = admission(store, attempt, 1, 1);
    store.admit(&of).unwrap();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    store.sweep().unwrap();
    assert_eq!(store.admit(&of).unwrap(), Admitted::Before(session(1)));
    let chain = store.task(task).unwrap().chain;
    store.end(&lease, b"{}", &hex(&sha(b"{}")), &chain).unwrap();
    store.sweep().unwrap();
    assert_ne!(store.admit(&of).unwrap(), Admitted::Before(session(1)));
}

pub(crate) fn an_unknown_row_is_named(world: &mut World) {
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
