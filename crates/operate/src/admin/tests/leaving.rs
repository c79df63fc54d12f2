//! People who leave, in every order of what an operator does meanwhile, and what the files know of people after a task was forgotten.

use std::path::PathBuf;

use undertone_protocol::{
    CheckIn, Code, Digest32, Enrol, Enrolled, Label, RequestSignature, Signed, Signer, limits, read, write,
};
use undertone_service::data_folder;
use undertone_service::identity::{DAY, Identity, Invitation, hex};
use undertone_service::server::Service;
use undertone_store::TaskId;

use super::super::{Admin, Answer, Operation};
use super::{TASK, World};
use crate::backup::{self, BackupKey, Places};

const POPULATION: &str = "a";
const PATH: &str = "/v1/populations/a/checkin";

/// A service in a data folder that may become another folder by a restore.
struct Place {
    above: tempfile::TempDir,
    data: PathBuf,
    service: Option<Service>,
    number: u8,
}

impl Place {
    fn new() -> Self {
        let above = tempfile::tempdir().unwrap();
        std::fs::write(above.path().join("vocab.txt"), "the\nof\nand\nto\n").unwrap();
        let data = above.path().join("data");
        let mut place = Self {
            above,
            data,
            service: None,
            number: 0,
        };
        place.start();
        place
    }

    fn start(&mut self) {
        // The lock of the folder before is given back first.
        if let Some(service) = self.service.take() {
            service.close();
        }
        let shared = data_folder::open(&self.data, None).unwrap();
        self.service = Some(Service::new(shared, Identity::Certificate).unwrap());
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn perform(&self, operation: &Operation) -> Answer {
        Admin::new(self.service(), &self.data).perform(operation).unwrap()
    }

    fn create(&self, name: &str) {
        self.perform(&Operation::Create {
            text: TASK.replace("\"words\"", &format!("\"{name}\"")),
            path: self.above.path().join("task.toml"),
            population: POPULATION.to_owned(),
        });
    }

    fn activate(&self, name: &str) {
        self.perform(&Operation::Activate {
            task: name.to_owned(),
        });
        self.service().tick().unwrap();
        self.service().tick().unwrap();
    }

    /// A backup of now, in which the service goes on.
    fn restore(&mut self) {
        self.number += 1;
        let at = |name: &str| self.above.path().join(format!("{name}-{}", self.number));
        let (key, folder, data) = (at("key"), at("backup"), at("data"));
        backup::write_key(&key).unwrap();
        let key = BackupKey::File(key);
        let now = self.service().shared().store.now();
        backup::create(&self.data, now, &folder, &key).unwrap();
        if let Some(service) = self.service.take() {
            service.close();
        }
        backup::restore(&folder, &key, &data, Places::default()).unwrap();
        self.data = data;
        self.start();
        let rows = self.service().shared().store.tasks().unwrap();
        for row in rows
            .iter()
            .filter(|row| row.state == undertone_protocol::TaskState::Halted)
        {
            self.perform(&Operation::Resume {
                task: row.task.name.clone(),
                note: "no later round was released".to_owned(),
            });
        }
    }

    fn bar(&self, subject: Digest32) {
        self.perform(&Operation::Bar {
            population: POPULATION.to_owned(),
            subject: hex(&subject),
            task: None,
        });
    }

    /// A new device of a subject, if the service enrols it.
    fn enrol(&self, device: u8, subject: Digest32) -> Result<Signed, Code> {
        let service = self.service();
        let now = service.shared().store.now();
        let signer = Signer::from_seed(&[device; 32]);
        let mut enrol = Enrol {
            device_key: signer.public().to_vec(),
            invitation: Invitation::new(subject, now + DAY).text(&service.shared().keys, POPULATION),
            ..Enrol::default()
        };
        enrol.proof = signer.proof(Label::Enrolment, &write(&enrol));
        let answer = service
            .enrol(POPULATION, &write(&enrol))
            .map_err(|problem| problem.code())?;
        let enrolled: Enrolled = read("the answer", &answer, limits::MAX_MESSAGE).unwrap();
        Ok(enrolled.certificate.unwrap())
    }

    /// Checks a device in to all tasks: the code of the refusal, and none for a place.
    fn check_in(&self, device: u8, certificate: &Signed, checkin: u8) -> Option<Code> {
        let service = self.service();
        service.tick().unwrap();
        service.tick().unwrap();
        let tasks = service.shared().store.tasks().unwrap();
        let body = write(&CheckIn {
            checkin: vec![checkin; 16],
            eligible: tasks.iter().map(|row| row.task.id.0.to_vec()).collect(),
            client_version: u32::MAX,
            certificate: Some(certificate.clone()),
            evidence: Vec::new(),
        });
        let signer = Signer::from_seed(&[device; 32]);
        let now = service.shared().store.now();
        let signature = RequestSignature::new(&signer, now, "POST", PATH, &body).header();
        let answer = service.check_in(POPULATION, &signature, PATH, &body);
        answer.err().map(|problem| problem.code())
    }
}

#[test]
#[ignore = "slow"]
fn a_person_who_left_takes_part_in_no_order_of_what_an_operator_does() {
    // Bar, enrol, create, activate, start anew, restore.
    for order in [
        "BECASR", "EBCASR", "ECBASR", "ECABSR", "ECASBR", "ECASRB", "BECARS", "CEBARS", "RBSECA", "CASEBR",
    ] {
        let (leaver, stayer) = ([5; 32], [6; 32]);
        let mut place = Place::new();
        place.create("first");
        place.activate("first");
        // Both have a device from the beginning.
        let mut certificates = vec![(1, place.enrol(1, leaver).unwrap())];
        let control = place.enrol(2, stayer).unwrap();
        let mut barred = false;
        for (at, step) in (1u8..).zip(order.chars()) {
            match step {
                'B' => {
                    place.bar(leaver);
                    barred = true;
                }
                'E' => {
                    let enrolled = place.enrol(10 + at, leaver);
                    assert_eq!(enrolled.is_ok(), !barred, "{order}, step {at}");
                    certificates.extend(enrolled.ok().map(|certificate| (10 + at, certificate)));
                }
                'C' => place.create("second"),
                'A' => place.activate("second"),
                'S' => place.start(),
                _ => place.restore(),
            }
            if barred {
                for (device, certificate) in &certificates {
                    let refused = place.check_in(*device, certificate, at);
                    assert_eq!(
                        refused,
                        Some(Code::TooOften),
                        "{order}, step {at}, device {device}"
                    );
                }
            }
        }
        assert!(barred);
        assert_eq!(place.enrol(30, leaver).err(), Some(Code::TooOften), "{order}");
        // Somebody else takes part all the while, so the tasks do take devices.
        assert_eq!(place.check_in(2, &control, 99), None, "{order}");
    }
}

#[test]
#[ignore = "slow"]
fn a_person_who_did_not_leave_takes_part_in_a_task_created_later() {
    let place = Place::new();
    place.create("first");
    let certificate = place.enrol(1, [5; 32]).unwrap();
    place.bar([6; 32]);
    place.create("second");
    place.activate("second");
    assert_eq!(place.check_in(1, &certificate, 1), None);
}

/// All files below a folder, with their bytes.
fn files(folder: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

/// The files that hold these bytes, and the number of times that they do in all.
fn holding(folder: &std::path::Path, needle: &[u8]) -> (Vec<PathBuf>, usize) {
    let (mut named, mut times) = (Vec::new(), 0);
    for (path, bytes) in files(folder) {
        let here = bytes.windows(needle.len()).filter(|part| *part == needle).count();
        if here > 0 {
            named.push(path);
            times += here;
        }
    }
    (named, times)
}

#[test]
#[ignore = "slow"]
fn after_forget_no_file_of_the_data_folder_holds_a_key_or_a_pseudonym_outside_of_the_ledger() {
    let place = Place::new();
    place.create("words");
    place.activate("words");
    let subject = [0xc5; 32];
    let certificate = place.enrol(7, subject).unwrap();
    let device = Signer::from_seed(&[7; 32]).public();
    assert_eq!(place.check_in(7, &certificate, 1), None);
    let shared = place.service().shared().clone();
    let row = shared.store.tasks().unwrap().remove(0);
    let id: TaskId = row.task.id;
    let room = place.service().room(id).unwrap();
    let user = room.name_of(&shared.keys.issuer_name(), &subject);
    drop(room);
    let person = shared
        .keys
        .person(POPULATION, &shared.keys.issuer_name(), &subject);
    // PRIVACY: what the person leaves in the files while the task runs: the row of the pseudonym alone.
    let name = user.get().to_be_bytes();
    let data = place.data.clone();
    assert!(holding(&data, &name).1 > 0, "the search finds what is there");
    // An attempt that counts, and a bar of the task alone with its time.
    place.perform(&Operation::Bar {
        population: POPULATION.to_owned(),
        subject: hex(&subject),
        task: Some("words".to_owned()),
    });
    place.service().close();
    super::abandoned(shared.store.as_ref(), id, user);
    for operation in [
        Operation::Stop {
            task: "words".to_owned(),
        },
        Operation::Forget {
            task: "words".to_owned(),
        },
    ] {
        place.perform(&operation);
    }
    // The ledger names the pseudonym by its digits, and nothing else does by its bytes.
    let digits = user.to_string();
    let in_ledger: usize = shared
        .store
        .ledger(id, 0)
        .unwrap()
        .iter()
        .map(|line| String::from_utf8_lossy(line).matches(&digits).count())
        .sum();
    assert!(in_ledger > 0, "the attempt stands in the last line");
    assert_eq!(holding(&data, digits.as_bytes()).1, in_ledger);
    for (what, needle) in [
        ("pseudonym", name.to_vec()),
        ("device", device.to_vec()),
        ("device in digits", hex(&device).into_bytes()),
        ("subject", subject.to_vec()),
        ("subject in digits", hex(&subject).into_bytes()),
    ] {
        assert_eq!(holding(&data, &needle), (Vec::new(), 0), "{what}");
    }
    // The person and the task stand nowhere together: the one row of the person is that of a device, without a round.
    assert_eq!(holding(&data, &person).1, 2, "the row and its index");
    assert_eq!(shared.store.observed(id).unwrap().users, 1);
    drop(shared);
    // A backup of later holds none of it either.
    let key = place.above.path().join("later.key");
    backup::write_key(&key).unwrap();
    let folder = place.above.path().join("later");
    let now = place.service().shared().store.now();
    backup::create(&place.data, now, &folder, &BackupKey::File(key)).unwrap();
    assert_eq!(holding(&folder, &name), (Vec::new(), 0));
    assert_eq!(holding(&folder, &device), (Vec::new(), 0));
}

#[test]
fn a_task_that_was_deleted_is_gone_but_for_its_settings_and_counts_for_the_budget() {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    world.perform(&world.activate("words")).unwrap();
    let delete = Operation::Delete {
        task: "words".to_owned(),
    };
    let error = world.refused(&delete);
    assert!(error.contains("only an ended task"), "{error}");
    world
        .perform(&Operation::Stop {
            task: "words".to_owned(),
        })
        .unwrap();
    let shared = world.service.shared();
    let row = shared.store.tasks().unwrap().remove(0);
    assert!(shared.blobs.get(&row.task.model, 0).is_ok());
    let Answer::Task(gone) = world.perform(&delete).unwrap() else {
        panic!("another answer")
    };
    assert_eq!(gone.state, "deleted");
    assert!(shared.blobs.get(&row.task.model, 0).is_err());
    for operation in [
        delete,
        Operation::Show {
            task: "words".to_owned(),
        },
    ] {
        let error = world.refused(&operation);
        assert!(error.contains("were deleted"), "{error}");
    }
    // Its epsilon was spent all the same: a second one does not fit beside it.
    let budget = |max_epsilon: f64| Operation::Budget {
        population: "a".to_owned(),
        max_epsilon,
        delta: 1e-6,
    };
    let text = TASK.replace("\"words\"", "\"next\"");
    let create = Operation::Create {
        text,
        path: world.folder.path().join("task.toml"),
        population: "a".to_owned(),
    };
    world.perform(&create).unwrap();
    let row = shared.store.tasks().unwrap().remove(1);
    let admin = Admin::new(&world.service, world.folder.path());
    let alone = admin.load(&row).unwrap().privacy;
    let planned = alone.planned().unwrap().unwrap().epsilon;
    world.perform(&budget(1.2 * planned)).unwrap();
    let error = world.refused(&world.activate("next"));
    assert!(error.contains("population.max_epsilon"), "{error}");
    world.perform(&budget(100.0 * planned)).unwrap();
    world.perform(&world.activate("next")).unwrap();
}
