//! Devices that ask for the next step while the release of their attempt is being made.

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};

use undertone_coordinator::task::Seeding;
use undertone_protocol::{Commit, Digest32, TaskState, TokenKey, Verdict, crc32c, next};
use undertone_service::identity::{Identity, Member};
use undertone_service::keys::Keys;
use undertone_service::room::{Claims, Room, Shared};
use undertone_service::server::Service;
use undertone_service::task::create;
use undertone_store::{
    AttemptId, BlobError, BlobReader, Blobs, Created, ManualClock, Memory, MemoryBlobs, Stored, TaskId,
};
use zeroize::Zeroizing;

const START: u64 = 1_800_000_000_000;

const TASK: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 2, population = 100 }
participation = { min_sep = 2, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "tree" } }

[service]
over_selection = 1.0
group = { target = 2, min = 2 }
identity = "dev"
"#;

type Ask = Box<dyn FnMut() + Send>;

/// Blobs that call the test while a release stages its files, between the sum and its commit.
struct Asking {
    kept: MemoryBlobs,
    ask: Mutex<Option<Ask>>,
}

impl Blobs for Asking {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        if let Some(ask) = self.ask.lock().unwrap().as_mut() {
            ask();
        }
        self.kept.stage(attempt, name, bytes)
    }

    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<(), BlobError> {
        self.kept.publish(attempt, name, digest)
    }

    fn put(&self, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        self.kept.put(bytes)
    }

    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader, BlobError> {
        self.kept.get(digest, offset)
    }

    fn list(&self) -> Result<Vec<Digest32>, BlobError> {
        self.kept.list()
    }
    fn remove(&self, digest: &Digest32) -> Result<bool, BlobError> {
        self.kept.remove(digest)
    }

    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created, BlobError> {
        self.kept.create_head(task, round, bytes)
    }

    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>, BlobError> {
        self.kept.head(task, round)
    }

    fn last_head(&self, task: TaskId) -> Result<Option<u64>, BlobError> {
        self.kept.last_head(task)
    }

    fn staged(&self) -> Result<Vec<AttemptId>, BlobError> {
        self.kept.staged()
    }

    fn sweep(&self, attempt: AttemptId) -> Result<(), BlobError> {
        self.kept.sweep(attempt)
    }
}

/// A device that joins and sends an update of zeros.
fn report(room: &Room, number: u8) -> (Claims, Commit) {
    let member = Member {
        subject: [number; 32],
        device: [number; 32],
        issuer: [0; 32],
    };
    let token = TokenKey::new(&Zeroizing::new([4; 32]));
    let assignment = room.admit(&member, [number; 16], &token).unwrap();
    let claims = token
        .open(&assignment.token, START)
        .unwrap_or_else(|error| panic!("{error}"));
    let step = room.join(&claims, &[]).unwrap();
    let Some(next::Step::Upload(grant)) = step.step else {
        panic!("{step:?}")
    };
    let update = vec![0; grant.length as usize];
    room.upload(&claims, 0, crc32c(0, &update), &update).unwrap();
    let commit = Commit {
        length: grant.length,
        crc32c: crc32c(0, &update),
        weight: 1.0,
        below: None,
    };
    (claims, commit)
}

#[test]
fn sessions_wait_for_their_verdict_while_their_release_is_made() {
    let blobs = Arc::new(Asking {
        kept: MemoryBlobs::new(),
        ask: Mutex::new(None),
    });
    let shared = Shared {
        store: Arc::new(Memory::new(Arc::new(ManualClock::at(START)))),
        blobs: blobs.clone(),
        keys: Keys::from_root([7; 32]),
        process: "test".to_owned(),
        witness: None,
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\n").unwrap();
    let file = undertone_run_directory::task::parse(TASK, Path::new("task.toml"), Seeding::Refused).unwrap();
    let (store, keys) = (shared.store.clone(), &shared.keys);
    let task = create(
        &file,
        folder.path(),
        "people",
        keys,
        store.as_ref(),
        blobs.as_ref(),
    )
    .unwrap();
    store
        .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
        .unwrap();
    let service = Service::new(shared, Identity::Dev).unwrap();
    // The first one takes the task, and the second one opens an attempt.
    service.tick().unwrap();
    service.tick().unwrap();
    let room = service.room(task).unwrap();
    let devices: Vec<_> = (1..=2).map(|number| report(&room, number)).collect();
    for (claims, commit) in &devices {
        let step = room.commit(claims, commit).unwrap();
        assert!(matches!(step.step, Some(next::Step::Wait(_))), "{step:?}");
    }
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (asked, of, told) = (room.clone(), devices.clone(), answers.clone());
    *blobs.ask.lock().unwrap() = Some(Box::new(move || {
        for (claims, commit) in &of {
            assert!(asked.knows(claims));
            let mut told = told.lock().unwrap();
            told.push(asked.next(claims, 0));
            // The reply to its commit was lost, so the device sends it again.
            told.push(asked.commit(claims, commit));
        }
    }));
    service.tick().unwrap();
    *blobs.ask.lock().unwrap() = None;
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    // Two files were staged, and two devices asked twice each time.
    assert_eq!(answers.len(), 8);
    for answer in answers {
        let step = answer.unwrap_or_else(|problem| panic!("{problem:?}"));
        assert!(matches!(step.step, Some(next::Step::Wait(_))), "{step:?}");
    }
    for (claims, _) in &devices {
        let step = room.next(claims, 0).unwrap();
        assert_eq!(
            step.step,
            Some(next::Step::Verdict(Verdict::Included.into())),
            "the round was released"
        );
    }
}
