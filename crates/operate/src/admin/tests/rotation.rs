//! Keys that are replaced while people take part.

use undertone_protocol::{Code, Enrol, Label, Signed, Signer, write};
use undertone_service::data_folder;
use undertone_service::identity::{Issuer, IssuerKeys, Member, member};
use undertone_service::test_world::checkin;
use undertone_store::TaskId;

use super::super::{KeyRow, RotationStep};
use super::*;

const SECURE: &str = "service = { group = { target = 4, min = 4 } }\n\
    aggregation = { sum = \"secagg\", encoding = { kind = \"rotated_rounding\", scale = 1e4 }, min_clients = 4, max_clients = 24 }\n";

/// A service in a data folder, which is started anew for each step.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\nto\n").unwrap();
        Self(folder)
    }

    fn start(&self) -> Service {
        let shared = data_folder::open(&self.0.path().join("data"), None).unwrap();
        Service::new(shared, Identity::Certificate).unwrap()
    }

    fn perform(&self, operation: &Operation) -> Result<Answer> {
        let service = self.start();
        Admin::new(&service, &self.0.path().join("data")).perform(operation)
    }

    fn create(&self, name: &str, secure: bool) -> TaskId {
        let text = TASK.replace("\"words\"", &format!("\"{name}\""));
        let text = match secure {
            true => text.replace("service = { group = { target = 4, min = 4 } }\n", SECURE),
            false => text,
        };
        let path = self.0.path().join("task.toml");
        let population = "a".to_owned();
        let Answer::Task(made) = self
            .perform(&Operation::Create {
                text,
                path,
                population,
            })
            .unwrap()
        else {
            panic!("another answer")
        };
        let rows = self.start().shared().store.tasks().unwrap();
        rows.iter()
            .find(|row| row.task.id.to_string() == made.id)
            .unwrap()
            .task
            .id
    }

    fn activate(&self, name: &str) -> Result<Answer> {
        self.perform(&Operation::Budget {
            population: "a".to_owned(),
            max_epsilon: 1e6,
            delta: 1e-6,
        })?;
        self.perform(&Operation::Activate {
            task: name.to_owned(),
        })
    }

    fn rotate(&self, purpose: &str, step: RotationStep) -> Result<Vec<KeyRow>> {
        let operation = Operation::Rotate {
            purpose: purpose.to_owned(),
            step: Some(step),
        };
        match self.perform(&operation)? {
            Answer::Rotated(rows) => Ok(rows),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self, purpose: &str, step: RotationStep) -> String {
        let before = std::fs::read(undertone_service::keys::key_file(&self.0.path().join("data"))).unwrap();
        let error = self.rotate(purpose, step).unwrap_err().to_string();
        let after = std::fs::read(undertone_service::keys::key_file(&self.0.path().join("data"))).unwrap();
        assert!(before == after, "a refused step changes no key");
        error
    }
}

/// The certificate of a device, signed by the key that the service uses now.
fn certificate(service: &Service, device: u8, subject: [u8; 32]) -> Signed {
    let now = service.shared().store.now();
    let signer = Signer::from_seed(&[device; 32]);
    let mut enrol = Enrol {
        device_key: signer.public().to_vec(),
        invitation: Invitation::new(subject, now + DAY).text(&service.shared().keys, "a"),
        ..Enrol::default()
    };
    enrol.proof = signer.proof(Label::Enrolment, &write(&enrol));
    Issuer::new(&service.shared().keys, "a", Identity::Certificate)
        .enrol(&enrol, now)
        .unwrap()
        .0
}

fn checked(service: &Service, certificate: &Signed) -> Member {
    let keys = IssuerKeys::of(&service.shared().keys);
    member(certificate, &keys, "a", service.shared().store.now())
        .unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

#[test]
fn a_rotated_issuer_makes_no_person_two_users_and_old_certificates_go_on() {
    let here = Folder::new();
    let task = here.create("words", false);
    here.activate("words").unwrap();
    let (subject, other) = ([5; 32], [6; 32]);
    // The person takes part with a certificate of the first key.
    let service = here.start();
    service.tick().unwrap();
    service.tick().unwrap();
    let room = service.room(task).unwrap();
    let old = certificate(&service, 1, subject);
    let token = service.token();
    let assigned = room
        .admit(&checked(&service, &old), checkin(1, 0), &token)
        .unwrap();
    let claims = token.open(&assigned.token, service.shared().store.now()).unwrap();
    room.join(&claims, &[]).unwrap();
    service.close();
    drop((room, service));

    here.rotate("issuer", RotationStep::Add).unwrap();
    here.rotate("issuer", RotationStep::Use).unwrap();
    let service = here.start();
    service.tick().unwrap();
    service.tick().unwrap();
    let room = service.room(task).unwrap();
    let new = certificate(&service, 2, subject);
    assert_ne!(old.key_id, new.key_id, "another key signed it");
    let (one, two) = (checked(&service, &old), checked(&service, &new));
    assert!(one.issuer == two.issuer && one.subject == two.subject);
    assert_eq!(
        room.name_of(&one.issuer, &one.subject),
        room.name_of(&two.issuer, &two.subject)
    );
    // With the keys in place of the name there would have been two users.
    let keys = &service.shared().keys;
    let by_key = room.name_of(&keys.issuer().public(), &subject);
    assert_ne!(by_key, room.name_of(&keys.issuer_name(), &subject));
    // Neither device of the person gets a place within `min_sep`, and somebody else does.
    for (number, device) in [(2, &two), (3, &one)] {
        let refused = room
            .admit(device, checkin(number, 0), &service.token())
            .unwrap_err();
        assert_eq!(refused.code(), Code::TooSoon, "{}", refused.message);
    }
    let stranger = checked(&service, &certificate(&service, 3, other));
    room.admit(&stranger, checkin(4, 0), &service.token()).unwrap();
    // A device with an old certificate renews it under the new key, as the same subject.
    let signer = Signer::from_seed(&[1; 32]);
    let mut renewal = Enrol {
        device_key: signer.public().to_vec(),
        certificate: Some(old.clone()),
        ..Enrol::default()
    };
    renewal.proof = signer.proof(Label::Enrolment, &write(&renewal));
    let issuer = Issuer::new(keys, "a", Identity::Certificate);
    let (renewed, _) = issuer.enrol(&renewal, service.shared().store.now()).unwrap();
    assert_eq!(renewed.key_id, new.key_id);
    assert!(checked(&service, &renewed).subject == subject);
}

#[test]
#[ignore = "slow"]
fn a_step_that_would_shut_out_devices_or_lose_a_plan_is_refused() {
    let here = Folder::new();
    here.create("plain", false);
    here.activate("plain").unwrap();
    let words = here.refused("issuer", RotationStep::Use);
    assert!(
        words.contains("a next key") && words.contains("got none"),
        "{words}"
    );
    assert!(
        here.refused("issuer", RotationStep::Drop)
            .contains("a retired key")
    );
    assert!(
        here.refused("board", RotationStep::Add)
            .contains("state, plans or issuer")
    );

    // A secure task from before names the old key alone; one from after names both.
    here.create("before", true);
    here.create("draft", true);
    here.activate("before").unwrap();
    let rows = here.rotate("issuer", RotationStep::Add).unwrap();
    assert_eq!(rows.iter().filter(|row| row.stage == "next").count(), 1);
    let words = here.refused("issuer", RotationStep::Use);
    assert!(words.contains("not in that of task before"), "{words}");
    here.create("after", true);
    here.activate("after").unwrap();
    here.perform(&Operation::Stop {
        task: "before".to_owned(),
    })
    .unwrap();
    here.rotate("issuer", RotationStep::Use).unwrap();
    let words = here.activate("draft").unwrap_err().to_string();
    assert!(words.contains("not in that of task draft"), "{words}");
    let words = here.refused("issuer", RotationStep::Drop);
    assert!(
        words.contains("retired for 30 days") && words.contains("30 days left"),
        "{words}"
    );

    // A plan keeps its signature: it is read under the new key, and its key stays while its task lives.
    here.rotate("plans", RotationStep::Add).unwrap();
    here.rotate("plans", RotationStep::Use).unwrap();
    here.create("new", false);
    let service = here.start();
    let signers: std::collections::BTreeSet<_> = service
        .shared()
        .store
        .tasks()
        .unwrap()
        .iter()
        .map(|row| {
            Task::load(row, service.shared().blobs.as_ref(), &service.shared().keys)
                .unwrap()
                .plan_key
        })
        .collect();
    assert_eq!(signers.len(), 2);
    drop(service);
    assert!(
        here.refused("plans", RotationStep::Drop)
            .contains("under that of task")
    );
    for task in ["plain", "after"] {
        here.perform(&Operation::Stop {
            task: task.to_owned(),
        })
        .unwrap();
    }
    here.rotate("plans", RotationStep::Drop).unwrap();
    // An ended task is still read, and a fresh app trusts one key of plans.
    for task in ["plain", "new"] {
        here.perform(&Operation::Show {
            task: task.to_owned(),
        })
        .unwrap();
    }
    let Answer::Keys(keys) = here.perform(&Operation::Keys).unwrap() else {
        panic!("another answer")
    };
    assert_eq!((keys.plans.digits().len(), keys.issuer.digits().len()), (1, 2));
}
