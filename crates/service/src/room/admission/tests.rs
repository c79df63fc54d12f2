mod together;

use undertone_store::AbandonReason;

use super::*;
use crate::test_world::{Kind, World, checkin, member};

/// Asks the store, as [`Room::admit`] does between its two other steps.
fn ask(world: &World, begun: &Begun) -> Result<Admitted, StoreError> {
    world.service.shared().store.admit(&begun.admission)
}

fn session(reply: Reply<Assignment>) -> Vec<u8> {
    reply.unwrap_or_else(|problem| panic!("{problem:?}")).session
}

#[test]
fn two_answers_to_one_check_in_name_one_session_in_every_order() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for late_first in [false, true] {
            let world = World::new(kind, 4);
            let room = &world.room;
            let device = member(1);
            let one = room.begin(&device, checkin(1, 0)).unwrap();
            let other = room.begin(&device, checkin(1, 0)).unwrap();
            let (first, second) = (ask(&world, &one), ask(&world, &other));
            assert!(matches!(first, Ok(Admitted::Yes)));
            assert!(matches!(second, Ok(Admitted::Before(session)) if session == one.admission.session));
            let sessions = if late_first {
                let second = session(room.settle(&other, second, &world.token));
                [session(room.settle(&one, first, &world.token)), second]
            } else {
                let first = session(room.settle(&one, first, &world.token));
                [first, session(room.settle(&other, second, &world.token))]
            };
            assert_eq!(sessions, [one.admission.session.0; 2]);
            assert_eq!(room.need(), world.places - 1, "{kind:?}");
            assert!(room.lock().current.as_ref().unwrap().pending.is_empty());
            // An answer that was lost is given again.
            let again = session(room.admit(&device, checkin(1, 0), &world.token));
            assert_eq!(again, sessions[0]);
            assert_eq!(room.need(), world.places - 1);
        }
    }
}

#[test]
fn a_subject_that_the_room_has_no_place_for_is_held_no_longer() {
    let world = World::new(Kind::Sqlite, 4);
    let room = &world.room;
    let late = room.begin(&member(1), checkin(1, 0)).unwrap();
    let answer = ask(&world, &late);
    {
        // Two others have joined, so that the attempt goes on without more devices after its select deadline.
        for device in 2..4 {
            session(room.admit(&member(device), checkin(device, 0), &world.token));
        }
        let mut inner = room.lock();
        let until = inner.current.as_ref().unwrap().machine.settings().select_until();
        room.event(&mut inner, until, Event::Tick).unwrap();
    }
    let refused = room.settle(&late, answer, &world.token).unwrap_err();
    assert_eq!(refused.code(), Code::Full);
    assert!(refused.retry.is_some());
    // Its row is that of a lost session: another check-in is refused for want of a place, not for an open session.
    let again = room.admit(&member(1), checkin(1, 1), &world.token).unwrap_err();
    assert_eq!(again.code(), Code::Full);
}

#[test]
fn an_admission_that_the_end_of_its_attempt_overtakes_gets_no_session() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let world = World::new(kind, 4);
        let room = &world.room;
        let before = room.begin(&member(1), checkin(1, 0)).unwrap();
        let answer = ask(&world, &before);
        let after = room.begin(&member(2), checkin(2, 0)).unwrap();
        let attempt = before.admission.attempt;
        {
            let mut inner = room.lock();
            let now = room.now();
            room.abandon(&mut inner, now, AbandonReason::Operator).unwrap();
        }
        let over = room.settle(&before, answer, &world.token).unwrap_err();
        assert_eq!(over.code(), Code::Gone);
        // The store had its row, so the subject counts: that errs to the safe side.
        let store = &world.service.shared().store;
        let abandoned = store.abandoned_since_release(room.task.id).unwrap();
        assert_eq!(abandoned.len(), 1);
        assert_eq!(abandoned[0].participants, [before.admission.user]);
        // The other one came to the store after the end.
        let answer = ask(&world, &after);
        assert!(matches!(answer, Ok(Admitted::Full)));
        let refused = room.settle(&after, answer, &world.token).unwrap_err();
        assert_eq!(refused.code(), Code::Full);
        assert_eq!(
            store.outcome(attempt).unwrap().state,
            undertone_store::AttemptState::Abandoned
        );
        let next = room.begin(&member(3), checkin(3, 0)).err().unwrap();
        assert_eq!(next.code(), Code::NoTask);
    }
}

#[test]
fn a_device_that_takes_part_no_more_is_not_counted_for_the_population() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let world = World::new(kind, 4);
        let (room, store) = (&world.room, &world.service.shared().store);
        let counted = || room.lock().population.distinct(room.now(), 1);
        let device = member(1);
        let enrolled = store.enrol(&crate::test_world::enrolment(&device.device));
        enrolled.unwrap();
        store.revoke(&device.device, "operator").unwrap();
        let refused = room.admit(&device, checkin(1, 0), &world.token).unwrap_err();
        assert_eq!(refused.code(), Code::Revoked);
        assert!(room.lock().current.as_ref().unwrap().pending.is_empty());
        assert_eq!(counted(), 0);
        session(room.admit(&member(2), checkin(2, 0), &world.token));
        assert_eq!(counted(), 1);
        {
            let mut inner = room.lock();
            let now = room.now();
            room.abandon(&mut inner, now, AbandonReason::Operator).unwrap();
        }
        // Nor is one that finds no open attempt, which no admission answers.
        let refused = room.admit(&device, checkin(1, 1), &world.token).unwrap_err();
        assert_eq!((refused.code(), counted()), (Code::Revoked, 1));
        let refused = room.admit(&member(3), checkin(3, 0), &world.token).unwrap_err();
        assert_eq!((refused.code(), counted()), (Code::NoTask, 2));
    }
}

#[test]
fn a_lost_answer_of_the_store_assigns_nobody() {
    let world = World::new(Kind::Memory, 4);
    let room = &world.room;
    let begun = room.begin(&member(1), checkin(1, 0)).unwrap();
    assert!(matches!(ask(&world, &begun), Ok(Admitted::Yes)));
    let lost = StoreError::Unavailable {
        place: "here".to_owned(),
        reason: "a test".to_owned(),
    };
    let refused = room.settle(&begun, Err(lost), &world.token).unwrap_err();
    assert_eq!(refused.code(), Code::Busy);
    assert_eq!(room.need(), world.places);
    assert!(room.lock().current.as_ref().unwrap().pending.is_empty());
    // The row of the store is that of a session that nobody has.
    let again = room.admit(&member(1), checkin(1, 0), &world.token).unwrap_err();
    assert_eq!(again.code(), Code::Gone);
}
