//! Devices, certificates, the audit log, and what is swept or outlives a restart.

use undertone_protocol::TaskState::{Active, Halted};
use undertone_store::{
    AbandonReason, Admitted, AuditRow, Departure, DeviceRow, Enrolled, Enrolment, Quota, SessionState,
};

use crate::common::*;

pub(crate) fn a_device_has_one_row(world: &mut World) {
    let store = world.store();
    let key = [7; 32];
    assert_eq!(store.device(&key).unwrap(), None);
    let row = DeviceRow {
        population: "keyboard-en".to_owned(),
        enrolled_day: BEGIN / 86_400_000,
        revoked: false,
    };
    let device = |row: &DeviceRow| Enrolled::Device(row.clone());
    assert_eq!(
        store.enrol(&enrolment(&key, "keyboard-en")).unwrap(),
        device(&row)
    );
    world.clock.advance(5 * 86_400_000);
    assert_eq!(store.enrol(&enrolment(&key, "elsewhere")).unwrap(), device(&row));
    store.revoke(&key, "operator").unwrap();
    let revoked = DeviceRow { revoked: true, ..row };
    assert_eq!(store.device(&key).unwrap(), Some(revoked.clone()));
    assert_eq!(
        store.enrol(&enrolment(&key, "keyboard-en")).unwrap(),
        device(&revoked)
    );
    refused(store.revoke(&[8; 32], "operator"), "no device 0808");
    // The log names no key.
    let rows = world.audit();
    assert!(
        rows.iter().all(|row| !row.detail.contains(&hex(&key))),
        "{rows:?}"
    );
}

pub(crate) fn a_subject_has_so_many_devices_and_enrols_so_many(world: &mut World) {
    let store = world.store();
    let of = |number: u8| Enrolment {
        person: person(1),
        max_devices: 2,
        max_enrolments: 3,
        ..enrolment(&[number; 32], "p")
    };
    let enrol = |number: u8| store.enrol(&of(number)).unwrap();
    let is_in = |answer: Enrolled| matches!(answer, Enrolled::Device(_));
    assert!(is_in(enrol(1)) && is_in(enrol(2)));
    assert_eq!(enrol(3), Enrolled::Devices);
    // A device that has a row renews, and other subjects and populations have limits of their own.
    assert!(is_in(enrol(1)));
    for other in [
        Enrolment {
            person: person(2),
            ..of(4)
        },
        Enrolment {
            population: "q".to_owned(),
            ..of(5)
        },
    ] {
        assert!(is_in(store.enrol(&other).unwrap()));
    }
    // A person beyond a limit does not use up the day of others.
    let day = |number: u8, who: u64| Enrolment {
        person: person(who),
        max_devices: 1,
        day: Quota {
            counter: [9; 32],
            window: 1,
            limit: 2,
        },
        ..enrolment(&[number; 32], "p")
    };
    assert!(is_in(store.enrol(&day(20, 20)).unwrap()));
    for number in 21..24 {
        assert_eq!(store.enrol(&day(number, 20)).unwrap(), Enrolled::Devices);
    }
    assert!(is_in(store.enrol(&day(24, 21)).unwrap()));
    assert_eq!(store.enrol(&day(25, 22)).unwrap(), Enrolled::Day);
    // A limit of now counts, not that of an earlier program.
    assert!(is_in(
        store
            .enrol(&Enrolment {
                max_devices: 9,
                ..of(6)
            })
            .unwrap()
    ));
    assert_eq!(
        store
            .enrol(&Enrolment {
                max_devices: 9,
                ..of(7)
            })
            .unwrap(),
        Enrolled::Enrolments
    );
}

pub(crate) fn a_revoked_device_is_not_replaced_by_its_invitation(world: &mut World) {
    let store = world.store();
    let of = |number: u8| Enrolment {
        person: person(1),
        ..enrolment(&[number; 32], "p")
    };
    store.enrol(&of(1)).unwrap();
    store.enrol(&of(2)).unwrap();
    store.revoke(&[1; 32], "operator").unwrap();
    assert_eq!(
        store.enrol(&of(3)).unwrap(),
        Enrolled::Departed(Departure::Withdrawn)
    );
    // Other devices of the subject go on.
    let other = store.membership(&[2; 32], "p", &person(1)).unwrap();
    assert!(!other.device.unwrap().revoked);
    assert_eq!(other.departure, Some(Departure::Withdrawn));
}

pub(crate) fn a_departure_moves_in_one_direction_and_names_nobody(world: &mut World) {
    let store = world.store();
    let depart = |how| store.depart("p", &person(1), how, "operator").unwrap();
    let standing = |population: &str, who| {
        let found = store.membership(&[1; 32], population, &person(who));
        found.unwrap().departure
    };
    assert_eq!(standing("p", 1), None);
    assert!(depart(Departure::Withdrawn) && !depart(Departure::Withdrawn));
    assert!(depart(Departure::Left) && !depart(Departure::Withdrawn));
    assert_eq!(standing("p", 1), Some(Departure::Left));
    assert!(depart(Departure::Revoked) && !depart(Departure::Left));
    assert_eq!(standing("p", 1), Some(Departure::Revoked));
    assert_eq!((standing("q", 1), standing("p", 2)), (None, None));
    let rows = world.audit();
    let shown: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.action.as_str(), row.detail.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("withdraw", "population p: one invitation was withdrawn"),
            ("bar", "population p: one subject takes part no more"),
            ("revoke", "population p: one subject was revoked"),
        ]
    );
}

pub(crate) fn certificates_are_spent_once_and_issued_within_a_limit(world: &mut World) {
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

pub(crate) fn sweeping_deletes_what_is_over_and_nothing_else(world: &mut World) {
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

pub(crate) fn the_audit_log_is_whole(world: &mut World) {
    let store = world.store();
    let (task, lease) = active(store, "audited", at_least(1, 1));
    store
        .set_state(task, Active, Halted, "guard", "the head is older")
        .unwrap();
    assert!(store.set_state(task, Active, Halted, "guard", "again").is_err());
    let row = store.task(task).unwrap();
    store.end(&lease, b"end", &hex(&sha(b"end")), &row.chain).unwrap();
    store.enrol(&enrolment(&[5; 32], "p")).unwrap();
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
            ("admin", "revoke"),
            ("admin", "withdraw")
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

pub(crate) fn state_survives_a_restart(world: &mut World) {
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
