//! Leases of tasks, and the processes that hold them.

use undertone_store::{
    AbandonReason, Admitted, AttemptState, Lease, Outcome, SessionState, StoreError, TaskHolder,
};

use crate::common::*;

pub(crate) fn one_process_leads_a_task_at_a_time(world: &mut World) {
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

pub(crate) fn a_task_names_the_holder_of_its_lease(world: &mut World) {
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

pub(crate) fn a_process_is_listed_until_it_retires(world: &mut World) {
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

pub(crate) fn a_later_process_of_a_name_replaces_the_earlier_one(world: &mut World) {
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

pub(crate) fn processes_without_a_sign_of_life_are_swept(world: &mut World) {
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

pub(crate) fn a_void_lease_changes_nothing(world: &mut World) {
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

pub(crate) fn a_new_lease_abandons_what_was_being_released(world: &mut World) {
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
