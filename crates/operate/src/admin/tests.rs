mod leaving;
mod limits;
mod rotation;
mod subjects;

use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::limits::MAX_MESSAGE;
use undertone_protocol::{Board, Signed, read};
use undertone_service::keys::Keys;
use undertone_store::{AbandonReason, ManualClock, Memory, MemoryBlobs, NewAttempt, Store, TaskId};

use super::*;

const TASK: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 2, max_part = 2 }
user_update = { batch_size = 2, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "tree" } }
service = { group = { target = 4, min = 4 } }
"#;

struct World {
    service: Service,
    folder: tempfile::TempDir,
}

impl World {
    fn new(identity: Identity) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\nto\n").unwrap();
        let shared = Shared {
            store: Arc::new(Memory::new(Arc::new(ManualClock::at(1_800_000_000_000)))),
            blobs: Arc::new(MemoryBlobs::new()),
            keys: Keys::from_root([7; 32]),
            process: "test".to_owned(),
            witness: None,
        };
        let service = Service::new(shared, identity).unwrap();
        Self { service, folder }
    }

    fn perform(&self, operation: &Operation) -> Result<Answer> {
        // Every operation and answer survives its way through the listener.
        let text = serde_json::to_string(operation).unwrap();
        let operation: Operation = serde_json::from_str(&text).unwrap();
        let answer = Admin::new(&self.service, self.folder.path()).perform(&operation)?;
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        Ok(answer)
    }

    fn create(&self, population: &str) -> Result<TaskSummary> {
        let created = self.perform(&Operation::Create {
            text: TASK.to_owned(),
            path: self.folder.path().join("task.toml"),
            population: population.to_owned(),
        });
        match created? {
            Answer::Task(task) => Ok(task),
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self, operation: &Operation) -> String {
        self.perform(operation).unwrap_err().to_string()
    }

    fn activate(&self, task: &str) -> Operation {
        Operation::Activate {
            task: task.to_owned(),
        }
    }
}

/// An abandoned attempt of a task that nobody leads, which counts for the user.
fn abandoned(store: &dyn Store, task: TaskId, user: ParticipantId) {
    let lease = store.lease(task, "test", 30_000).unwrap().unwrap();
    let attempt = NewAttempt {
        round: 0,
        target: 4,
        select_until: u64::MAX / 4,
        report_until: u64::MAX / 4,
    };
    let attempt = store.open_attempt(&lease, &attempt).unwrap();
    store
        .abandon(&lease, attempt, AbandonReason::Few, &[user])
        .unwrap();
    store.hand_back(lease).unwrap();
}

/// The board of the population `a`.
fn board(service: &Service) -> Board {
    let signed: Signed = read("the board", &service.board("a").unwrap(), MAX_MESSAGE).unwrap();
    read("the board", &signed.body, MAX_MESSAGE).unwrap()
}

#[test]
fn a_process_that_has_just_started_names_the_live_tasks_on_its_first_board() {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    assert!(board(&world.service).tasks.is_empty(), "a draft is on no board");
    world.perform(&world.activate("words")).unwrap();
    let shared = world.service.shared();
    let shared = Shared {
        store: Arc::clone(&shared.store),
        blobs: Arc::clone(&shared.blobs),
        keys: Keys::from_root([7; 32]),
        process: "another".to_owned(),
        witness: None,
    };
    let started = Service::new(shared, Identity::Certificate).unwrap();
    assert_eq!(board(&started).tasks.len(), 1);
    // It leads the task, which stands on the board once.
    started.tick().unwrap();
    started.renew_boards();
    assert_eq!(board(&started).tasks.len(), 1);
}

#[test]
fn the_board_names_a_pinned_release_until_it_is_unpinned() {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    world.perform(&world.activate("words")).unwrap();
    let named = || {
        let card = board(&world.service).tasks.remove(0);
        card.pinned
            .map(|model| (model.digest().unwrap(), card.pinned_round))
    };
    let pin = |round: Option<u64>| Operation::Pin {
        task: "words".to_owned(),
        round,
    };
    assert_eq!(named(), None);
    let Answer::Task(task) = world.perform(&pin(Some(0))).unwrap() else {
        panic!("a pin answers with its task");
    };
    assert_eq!(task.pinned, Some(0));
    let model = world.service.shared().store.tasks().unwrap()[0].task.model;
    assert_eq!(named(), Some((model, 0)));
    let error = world.refused(&pin(Some(1)));
    assert!(
        error.contains("from 0 to 0") && error.contains("got 1"),
        "{error}"
    );
    world.perform(&pin(None)).unwrap();
    assert_eq!(named(), None);
}

#[test]
fn a_name_that_two_tasks_have_is_refused_and_the_digits_of_one_are_not() {
    let world = World::new(Identity::Certificate);
    let first = world.create("a").unwrap();
    assert!(world.perform(&world.activate("words")).is_ok());
    let second = world.create("b").unwrap();
    assert_ne!(first.id, second.id);
    assert!(world.refused(&world.activate("words")).contains("several tasks"));
    assert!(
        world
            .perform(&world.activate(&second.id[..12].to_uppercase()))
            .is_ok()
    );
    assert!(
        world
            .refused(&world.activate(&second.id[..7]))
            .contains("no task")
    );
    assert!(world.refused(&world.activate("other")).contains("no task other"));
}

#[test]
fn a_service_without_an_issuer_starts_no_task_that_claims_one() {
    let world = World::new(Identity::Dev);
    world.create("a").unwrap();
    let error = world.refused(&world.activate("words"));
    assert!(
        error.contains("service.identity") && error.contains("\"certificate\""),
        "{error}"
    );
}

#[test]
fn a_halted_task_goes_on_with_a_note_alone() {
    let world = World::new(Identity::Certificate);
    let id = world.create("a").unwrap().id;
    world.perform(&world.activate("words")).unwrap();
    let row = &world.service.shared().store.tasks().unwrap()[0];
    assert_eq!(row.task.id.to_string(), id);
    let store = &world.service.shared().store;
    store
        .set_state(
            row.task.id,
            TaskState::Active,
            TaskState::Halted,
            "test",
            "a fork",
        )
        .unwrap();
    let resume = |note: &str| Operation::Resume {
        task: "words".to_owned(),
        note: note.to_owned(),
    };
    assert!(world.perform(&resume("")).is_err());
    world.perform(&resume("the backup was put aside")).unwrap();
    assert_eq!(store.task(row.task.id).unwrap().state, TaskState::Active);
}

#[test]
fn a_budget_is_kept_per_population_and_admits_what_fits() {
    let world = World::new(Identity::Certificate);
    world.create("a").unwrap();
    let id = world.create("b").unwrap().id;
    let budget = |max_epsilon: f64| Operation::Budget {
        population: "a".to_owned(),
        max_epsilon,
        delta: 1e-6,
    };
    for bad in [0.0, -1.0, f64::INFINITY] {
        let admin = Admin::new(&world.service, world.folder.path());
        assert!(admin.perform(&budget(bad)).is_err(), "{bad}");
    }
    world.perform(&budget(0.01)).unwrap();
    let first = world.service.shared().store.tasks().unwrap()[0]
        .task
        .id
        .to_string();
    let error = world.refused(&world.activate(&first));
    assert!(
        error.contains("population.max_epsilon") && error.contains("0.01"),
        "{error}"
    );
    world.perform(&world.activate(&id)).unwrap();
    world.perform(&budget(100.0)).unwrap();
    world.perform(&world.activate(&first)).unwrap();
}

#[test]
fn operations_of_another_version_are_refused() {
    for text in [
        r#"{"operation":"show","task":"words","more":1}"#,
        r#"{"operation":"dance"}"#,
        r#"{"operation":"show"}"#,
        "[]",
    ] {
        assert!(serde_json::from_str::<Operation>(text).is_err(), "{text}");
    }
}
