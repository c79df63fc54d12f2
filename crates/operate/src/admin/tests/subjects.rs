//! Subjects that take part no more, and the end of pseudonyms.

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::Code;
use undertone_service::identity::{Identity, Invitation, Member, hex};
use undertone_service::keys::pseudonyms::Pseudonyms;
use undertone_service::test_world::{self, Kind, checkin};
use undertone_store::SessionState;

use super::super::{Admin, Answer, Operation, Receipt};
use super::World;

fn bar(service: &undertone_service::server::Service, population: &str, subject: &str) -> Vec<Receipt> {
    let folder = tempfile::tempdir().unwrap();
    let operation = Operation::Bar {
        population: population.to_owned(),
        subject: subject.to_owned(),
        task: None,
    };
    match Admin::new(service, folder.path()).perform(&operation).unwrap() {
        Answer::Barred(receipts) => receipts,
        other => panic!("{other:?}"),
    }
}

/// A device of a subject, with a certificate of the service's own issuer.
fn member(world: &test_world::World, number: u32) -> Member {
    Member {
        issuer: world.service.shared().keys.issuer().public(),
        ..test_world::member(number)
    }
}

#[test]
fn a_barred_subject_loses_its_open_session_and_gets_no_other() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let world = test_world::World::new(kind, 4);
        let (one, two) = (member(&world, 1), member(&world, 2));
        world.room.admit(&one, checkin(1, 0), &world.token).unwrap();
        let free = world.room.need();
        let receipts = bar(&world.service, "people", &hex(&one.subject));
        assert_eq!(receipts.len(), 1);
        assert_eq!(
            (receipts[0].barred, receipts[0].session.as_str()),
            (true, "ended")
        );
        assert_eq!(receipts[0].rounds, Vec::<u64>::new());
        assert_eq!(world.room.need(), free + 1, "its place is given again");
        let refused = world.room.admit(&one, checkin(1, 1), &world.token).unwrap_err();
        assert_eq!(refused.code(), Code::TooOften);
        assert!(refused.message.contains("no more"), "{}", refused.message);
        world.room.admit(&two, checkin(2, 0), &world.token).unwrap();
        let again = bar(&world.service, "people", &hex(&one.subject));
        assert_eq!((again[0].barred, again[0].session.as_str()), (false, "none"));
    }
}

#[test]
fn a_check_in_that_stands_before_the_store_gets_no_place_after_a_bar() {
    let world = test_world::World::new(Kind::Memory, 4);
    let one = member(&world, 1);
    let begun = world.room.begin(&one, checkin(1, 0)).unwrap();
    let answer = world.service.shared().store.admit(&begun.admission);
    let receipts = bar(&world.service, "people", &hex(&one.subject));
    assert_eq!(receipts[0].session, "ended");
    let refused = world.room.settle(&begun, answer, &world.token).unwrap_err();
    assert_eq!(refused.code(), Code::Gone);
    assert_eq!(world.room.need(), world.places);
}

#[test]
fn a_joined_session_of_a_barred_subject_counts_as_a_participation() {
    let world = test_world::World::new(Kind::Memory, 4);
    let one = member(&world, 1);
    let token = world.service.token();
    let assigned = world.room.admit(&one, checkin(1, 0), &token).unwrap();
    let now = world.clock_now();
    let claims = token.open(&assigned.token, now).unwrap();
    world.room.join(&claims, &[]).unwrap();
    assert_eq!(
        bar(&world.service, "people", &hex(&one.subject))[0].session,
        "ended"
    );
    assert!(world.room.join(&claims, &[]).is_err());
    world.service.close();
    // The attempt was abandoned, and names the subject.
    let receipt = &bar(&world.service, "people", &hex(&one.subject))[0];
    assert_eq!((receipt.barred, &receipt.rounds[..]), (false, &[0][..]));
}

/// A task that an operator created and activated, with an attempt that names this subject.
fn with_an_attempt(subject: [u8; 32]) -> (World, undertone_store::TaskRow, ParticipantId) {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    world.perform(&world.activate("words")).unwrap();
    let shared = world.service.shared();
    let row = shared.store.tasks().unwrap().remove(0);
    let id = row.task.id;
    let loaded = undertone_service::task::Task::load(&row, shared.blobs.as_ref(), &shared.keys).unwrap();
    assert!(loaded.pseudonyms.is_some());
    let names = Pseudonyms::open(
        shared.store.as_ref(),
        &shared.keys,
        id,
        loaded.pseudonyms.as_ref(),
    );
    let issuer = shared.keys.issuer().public();
    let user = names.unwrap().unwrap().name(&shared.keys, id, &issuer, &subject);
    super::abandoned(shared.store.as_ref(), id, user);
    (world, row, user)
}

#[test]
fn a_receipt_names_the_rounds_of_its_subject_and_of_nobody_else() {
    let (world, ..) = with_an_attempt([5; 32]);
    let keys = &world.service.shared().keys;
    let now = world.service.shared().store.now();
    // An invitation names its subject, also after its end.
    let invitation = Invitation::new([5; 32], now - 1).text(keys, "a");
    for subject in [hex(&[5; 32]), invitation] {
        assert_eq!(bar(&world.service, "a", &subject)[0].rounds, [0]);
    }
    assert_eq!(
        bar(&world.service, "a", &hex(&[6; 32]))[0].rounds,
        Vec::<u64>::new()
    );
    for (population, subject, task) in [
        ("a", "abc", None),
        ("a", "zz", None),
        ("b", &hex(&[5; 32])[..], Some("words".to_owned())),
        ("", &hex(&[5; 32])[..], None),
    ] {
        let operation = Operation::Bar {
            population: population.to_owned(),
            subject: subject.to_owned(),
            task,
        };
        world.refused(&operation);
    }
    // PRIVACY: the message does not repeat what may be an invitation with a wrong digit.
    let mut wrong = Invitation::new([5; 32], now - 1).text(keys, "a");
    wrong.replace_range(111.., if wrong.ends_with('0') { "1" } else { "0" });
    let operation = Operation::Bar {
        population: "a".to_owned(),
        subject: wrong.clone(),
        task: None,
    };
    let error = world.refused(&operation);
    assert!(
        error.contains("112 letters") && !error.contains(&wrong[..64]),
        "{error}"
    );
}

#[test]
fn after_forget_nobody_can_link_a_subject_and_the_ledger() {
    let (world, row, user) = with_an_attempt([5; 32]);
    let forget = Operation::Forget {
        task: "words".to_owned(),
    };
    let error = world.refused(&forget);
    assert!(error.contains("completed"), "{error}");
    let stop = Operation::Stop {
        task: "words".to_owned(),
    };
    world.perform(&stop).unwrap();
    assert_eq!(bar(&world.service, "a", &hex(&[5; 32]))[0].rounds, [0]);
    world.perform(&forget).unwrap();
    let receipt = &bar(&world.service, "a", &hex(&[5; 32]))[0];
    assert_eq!(receipt.rounds, Vec::<u64>::new());
    assert!(
        receipt.note.as_ref().unwrap().contains("destroyed"),
        "{receipt:?}"
    );
    assert!(world.refused(&forget).contains("destroyed"));
    // The ledger still names the pseudonym, which the key file alone does not make.
    let shared = world.service.shared();
    let issuer = shared.keys.issuer().public();
    let by_file = shared.keys.pseudonym(row.task.id, &issuer, &[5; 32]);
    assert_ne!(by_file, user);
    let lines = shared.store.ledger(row.task.id, 0).unwrap();
    let last = String::from_utf8(lines.last().unwrap().clone()).unwrap();
    assert!(last.contains(&user.to_string()), "{last}");
    // The export needs no key.
    let folder = world.folder.path().join("out");
    world
        .perform(&Operation::Export {
            task: "words".to_owned(),
            folder,
        })
        .unwrap();
}

#[test]
fn a_task_that_asks_for_it_forgets_its_pseudonyms_at_its_end() {
    let world = World::new(Identity::Certificate);
    let text = super::TASK.replace("service = { group", "service = { forget_pseudonyms = true, group");
    let create = Operation::Create {
        text,
        path: world.folder.path().join("task.toml"),
        population: "a".to_owned(),
    };
    world.perform(&create).unwrap();
    world.perform(&world.activate("words")).unwrap();
    let store = &world.service.shared().store;
    let id = store.tasks().unwrap()[0].task.id;
    assert!(store.pseudonym_key(id).unwrap().is_some());
    world.service.forget_ended().unwrap();
    assert!(store.pseudonym_key(id).unwrap().is_some(), "it has not ended");
    let stop = Operation::Stop {
        task: "words".to_owned(),
    };
    world.perform(&stop).unwrap();
    assert_eq!(store.pseudonym_key(id).unwrap(), None);
    world.service.forget_ended().unwrap();
}

#[test]
fn a_person_who_left_is_admitted_to_no_task_that_counts_on_devices() {
    let more = "ledger = \"device\"\neligibility = { min_examples = 1, max_examples = 8, timer = \"1h\" }\n";
    let world = test_world::World::with(Kind::Memory, 4, more);
    let one = member(&world, 1);
    let receipt = &bar(&world.service, "people", &hex(&one.subject))[0];
    assert!(receipt.barred && receipt.note.is_some(), "{receipt:?}");
    let refused = world.room.admit(&one, checkin(1, 0), &world.token).unwrap_err();
    assert_eq!(refused.code(), Code::TooOften);
    world
        .room
        .admit(&member(&world, 2), checkin(2, 0), &world.token)
        .unwrap();
}

#[test]
fn a_lost_session_before_the_join_is_no_participation() {
    let world = test_world::World::new(Kind::Sqlite, 4);
    let one = member(&world, 1);
    let assigned = world.room.admit(&one, checkin(1, 0), &world.token).unwrap();
    let session = undertone_store::SessionId(assigned.session.as_slice().try_into().unwrap());
    bar(&world.service, "people", &hex(&one.subject));
    // A note that comes late moves nothing back.
    let store = &world.service.shared().store;
    store.note_sessions(&[(session, SessionState::Ready)]).unwrap();
    world.service.close();
    assert_eq!(
        bar(&world.service, "people", &hex(&one.subject))[0].rounds,
        Vec::<u64>::new()
    );
}
