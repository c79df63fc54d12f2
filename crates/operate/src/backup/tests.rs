use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::TaskState;
use undertone_service::data_folder;
use undertone_service::identity::Identity;
use undertone_service::server::Service;
use undertone_store::{AbandonReason, NewAttempt, SystemClock};

use super::*;
use crate::admin::{Admin, Answer, Operation};

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

struct Here {
    folder: tempfile::TempDir,
}

impl Here {
    /// A data folder with an active task that has an abandoned attempt.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\nto\n").unwrap();
        let here = Self { folder };
        write_key(&here.path("key")).unwrap();
        let service = here.service("data");
        let (data, path) = (here.path("data"), here.path("task.toml"));
        let admin = Admin::new(&service, &data);
        let perform = |operation: Operation| admin.perform(&operation).unwrap();
        perform(Operation::Create {
            text: TASK.to_owned(),
            path,
            population: "a".to_owned(),
        });
        perform(Operation::Budget {
            population: "a".to_owned(),
            max_epsilon: 1e6,
            delta: 1e-6,
        });
        perform(Operation::Activate {
            task: "words".to_owned(),
        });
        let store = &service.shared().store;
        let id = store.tasks().unwrap()[0].task.id;
        let lease = store.lease(id, "local", 30_000).unwrap().unwrap();
        let attempt = NewAttempt {
            round: 0,
            target: 4,
            select_until: u64::MAX / 4,
            report_until: u64::MAX / 4,
        };
        let attempt = store.open_attempt(&lease, &attempt).unwrap();
        let users = [ParticipantId::new(7)];
        store
            .abandon(&lease, attempt, AbandonReason::Few, &users)
            .unwrap();
        here
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, name: &str) -> BackupKey {
        BackupKey::File(self.path(name))
    }

    /// A file of its owner alone with this text.
    fn secret(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        self.path(name)
    }

    fn service(&self, data: &str) -> Arc<Service> {
        let shared = data_folder::open(&self.path(data), None).unwrap();
        Arc::new(Service::new(shared, Identity::Certificate).unwrap())
    }

    fn create(&self, name: &str) -> Result<Manifest> {
        create(&self.path("data"), 5, &self.path(name), &self.key("key"))
    }

    fn refused(&self, backup: &str, key: &str) -> String {
        let data = self.path("elsewhere");
        let error = restore(&self.path(backup), &self.key(key), &data, Places::default()).unwrap_err();
        assert!(!data.exists());
        assert!(rehearse(&self.path(backup), &self.key(key)).is_err());
        error.to_string()
    }
}

#[test]
fn a_restored_service_has_the_keys_and_rows_of_the_backup_and_its_tasks_are_halted() {
    let here = Here::new();
    // The server has the folder open meanwhile.
    let service = here.service("data");
    let operation = Operation::Backup {
        folder: here.path("backup"),
        key: here.path("key"),
        passphrase: false,
    };
    let data = here.path("data");
    let Answer::Saved(manifest) = Admin::new(&service, &data).perform(&operation).unwrap() else {
        panic!("another answer")
    };
    assert_eq!(
        (manifest.tasks[0].name.as_str(), manifest.tasks[0].released),
        ("words", 0)
    );
    let board = service.shared().keys.board().public();
    let before = service.shared().store.tasks().unwrap();
    drop(service);
    restore(
        &here.path("backup"),
        &here.key("key"),
        &here.path("restored"),
        Places::default(),
    )
    .unwrap();
    let restored = here.service("restored");
    assert_eq!(restored.shared().keys.board().public(), board);
    let after = restored.shared().store.tasks().unwrap();
    assert_eq!(after.len(), before.len());
    assert_eq!(after[0].chain, before[0].chain);
    assert_eq!(after[0].state, TaskState::Halted);
    let abandoned = restored.shared().store.abandoned_since_release(after[0].task.id);
    assert_eq!(abandoned.unwrap()[0].participants, [ParticipantId::new(7)]);
    // It goes on with a note alone.
    let data = here.path("restored");
    let resume = |note: &str| {
        Admin::new(&restored, &data).perform(&Operation::Resume {
            task: "words".to_owned(),
            note: note.to_owned(),
        })
    };
    assert!(resume("").is_err());
    resume("the disk was lost before round 0 was released").unwrap();
    let budgets = std::fs::read_to_string(here.path("restored").join(BUDGETS)).unwrap();
    assert!(budgets.contains("1000000"), "{budgets}");
}

#[test]
fn a_rehearsal_leads_each_live_task_and_leaves_nothing() {
    let here = Here::new();
    here.create("backup").unwrap();
    let rehearsal = rehearse(&here.path("backup"), &here.key("key")).unwrap();
    assert_eq!(rehearsal.tasks.len(), 1);
    assert!(rehearsal.tasks[0].leads, "{rehearsal:?}");
    assert!(rehearsal.files >= 4, "{rehearsal:?}");
    let mut names: Vec<String> = entries(here.folder.path())
        .unwrap()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["backup", "data", "key", "vocab.txt"]);
}

#[test]
fn every_changed_missing_or_added_file_is_named() {
    let here = Here::new();
    let manifest = here.create("backup").unwrap();
    let root = here.path("backup");
    for path in manifest
        .files
        .keys()
        .map(String::as_str)
        .chain([MANIFEST, SEALED])
    {
        let place = root.join(path);
        let whole = std::fs::read(&place).unwrap();
        let mut changed = whole.clone();
        match changed.last_mut() {
            Some(last) => *last ^= 1,
            None => changed.push(0),
        }
        std::fs::write(&place, &changed).unwrap();
        let error = here.refused("backup", "key");
        assert!(error.contains(path), "{path}: {error}");
        std::fs::remove_file(&place).unwrap();
        let error = here.refused("backup", "key");
        assert!(error.contains(path), "{path}: {error}");
        std::fs::write(&place, &whole).unwrap();
    }
    std::fs::write(root.join("blobs").join("more"), b"x").unwrap();
    assert!(here.refused("backup", "key").contains("blobs/more"));
    std::fs::remove_file(root.join("blobs").join("more")).unwrap();
    rehearse(&root, &here.key("key")).unwrap();
}

#[test]
fn another_key_and_a_key_that_others_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let here = Here::new();
    here.create("backup").unwrap();
    write_key(&here.path("other")).unwrap();
    assert!(here.refused("backup", "other").contains("sealed under this key"));
    std::fs::write(here.path("short"), b"0123456789").unwrap();
    std::fs::set_permissions(here.path("short"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(here.refused("backup", "short").contains("32 to 4096"));
    std::fs::set_permissions(here.path("other"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(here.refused("backup", "other").contains("0600"));
    assert!(write_key(&here.path("key")).is_err());
    assert!(
        here.create("backup").is_err(),
        "a backup is not written over another one"
    );
    let error = restore(
        &here.path("backup"),
        &here.key("key"),
        &here.path("data"),
        Places::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn no_byte_of_the_key_file_is_in_a_backup_in_clear() {
    let here = Here::new();
    here.create("backup").unwrap();
    let key = std::fs::read(keys::key_file(&here.path("data"))).unwrap();
    let root = &key[key.len() - 32..];
    let mut read = 0;
    for path in walk(&here.path("backup")).unwrap() {
        let bytes = std::fs::read(&path).unwrap();
        read += bytes.len();
        assert!(
            !bytes.windows(16).any(|part| part == &root[..16]),
            "{}",
            path.display()
        );
    }
    assert!(read > 10_000);
}

#[test]
fn heads_beyond_the_snapshot_stay_out_of_a_backup() {
    let here = Here::new();
    let id = {
        let service = here.service("data");
        service.shared().store.tasks().unwrap()[0].task.id
    };
    let heads = here.path("data").join(BLOBS).join("heads").join(id.to_string());
    folders(&heads).unwrap();
    for round in ["0", "1", "12"] {
        std::fs::write(heads.join(round), b"a head").unwrap();
    }
    let manifest = here.create("backup").unwrap();
    let kept: Vec<&String> = manifest
        .files
        .keys()
        .filter(|path| path.contains("heads"))
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].ends_with("/0"), "{kept:?}");
}

#[test]
fn a_witness_that_saw_a_later_round_halts_a_restored_task_with_the_sentence_that_says_what_to_do() {
    let here = Here::new();
    here.create("backup").unwrap();
    restore(
        &here.path("backup"),
        &here.key("key"),
        &here.path("restored"),
        Places::default(),
    )
    .unwrap();
    let witness = here.path("witness");
    std::fs::create_dir(&witness).unwrap();
    let shared = data_folder::open(&here.path("restored"), Some(&witness)).unwrap();
    let row = shared.store.tasks().unwrap().remove(0);
    let (id, store) = (row.task.id, shared.store.clone());
    std::fs::write(
        witness.join(format!("{id}.head")),
        format!("2 {}\n", "ab".repeat(32)),
    )
    .unwrap();
    store
        .set_state(
            id,
            TaskState::Halted,
            TaskState::Active,
            "operator",
            "it looked like the newest",
        )
        .unwrap();
    let service = Service::new(shared, Identity::Certificate).unwrap();
    service.tick().unwrap();
    assert_eq!(store.task(id).unwrap().state, TaskState::Halted);
    drop(service);
    let clock: Arc<dyn undertone_store::Clock> = Arc::new(SystemClock);
    drop(store);
    let audit = Sqlite::with_clock(&here.path("restored").join(DATABASE), clock)
        .unwrap()
        .audit();
    let last = audit.unwrap().pop().unwrap().detail;
    assert!(
        last.contains("put back to an earlier state") && last.contains("Start a new task"),
        "{last}"
    );
}

#[test]
#[ignore = "slow"]
fn a_backup_under_a_passphrase_opens_with_it_alone() {
    let here = Here::new();
    let right = BackupKey::Passphrase(here.secret("right", "a long enough passphrase\nand a second line\n"));
    let manifest = create(&here.path("data"), 5, &here.path("backup"), &right).unwrap();
    assert_eq!(manifest.passphrase, Some(Stretching::default()));
    let rehearsal = rehearse(&here.path("backup"), &right).unwrap();
    assert!(rehearsal.tasks[0].leads, "{rehearsal:?}");
    // The first line counts, without its end.
    rehearse(
        &here.path("backup"),
        &BackupKey::Passphrase(here.secret("again", "a long enough passphrase")),
    )
    .unwrap();
    let says = |key: BackupKey| rehearse(&here.path("backup"), &key).unwrap_err().to_string();
    let wrong = BackupKey::Passphrase(here.secret("wrong", "a long enough passphrasf\n"));
    assert!(says(wrong).contains("another key or passphrase"));
    assert!(
        says(BackupKey::Passphrase(here.secret("short", "too short\n"))).contains("at least 16 characters")
    );
    assert!(says(here.key("key")).contains("a passphrase, under which it was made"));
    here.create("other").unwrap();
    let error = rehearse(&here.path("other"), &right).unwrap_err().to_string();
    assert!(error.contains("the key file, under which it was made"), "{error}");
    // A manifest that asks for a terabyte is refused before it is taken.
    let path = here.path("backup").join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("65536", "4294967295")).unwrap();
    assert!(says(right).contains("the cost of the passphrase"));
}

/// A store of objects in memory stands for a bucket: what is saved from it comes back to another one, and not to one that went on.
#[test]
fn blobs_of_a_store_of_objects_are_saved_and_brought_back() {
    use undertone_store::{Blobs, MemoryBlobs};
    let here = Here::new();
    let service = here.service("data");
    let store = &service.shared().store;
    let rows = store.tasks().unwrap();
    let id = rows[0].task.id;
    let bucket = MemoryBlobs::new();
    let put: Vec<_> = [&b"one"[..], b"two"]
        .map(|bytes| bucket.put(&mut &bytes[..]).unwrap().digest)
        .to_vec();
    for round in [0, 1] {
        bucket
            .create_head(id, round, format!("head {round}").as_bytes())
            .unwrap();
    }
    let folder = here.path("saved");
    objects::save(&bucket, &folder, store.as_ref(), &rows).unwrap();
    let fresh = MemoryBlobs::new();
    objects::bring(&folder, &fresh, &rows).unwrap();
    let mut listed = fresh.list().unwrap();
    let mut expected = put.clone();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    // The snapshot stands at round 0: the head of round 1 is no part of it.
    assert_eq!(fresh.last_head(id).unwrap(), Some(0));
    // The bucket itself has a later round, and another one has another history.
    let error = objects::bring(&folder, &bucket, &rows).unwrap_err().to_string();
    assert!(error.contains("a service went on there"), "{error}");
    let other = MemoryBlobs::new();
    other.create_head(id, 0, b"another head").unwrap();
    let error = objects::bring(&folder, &other, &rows).unwrap_err().to_string();
    assert!(error.contains("got another one"), "{error}");
}

#[cfg(feature = "postgres")]
#[path = "../../../store/tests/common/postgres.rs"]
mod server;

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;

    #[test]
    #[ignore = "slow"]
    fn a_service_on_postgres_is_saved_rehearsed_and_restored_to_another_database() {
        let Some(server) = server::shared() else { return };
        let here = Here::new();
        here.create("first").unwrap();
        let (one, two) = (server.database(), server.database());
        let to = |url: &'static str| Places {
            store: Some(url),
            blobs: None,
        };
        let (one, two): (&'static str, &'static str) = (one.leak(), two.leak());
        restore(
            &here.path("first"),
            &here.key("key"),
            &here.path("served"),
            to(one),
        )
        .unwrap();
        assert!(!here.path("served").join(DATABASE).exists());
        let before = here.service("served").shared().store.tasks().unwrap();
        assert_eq!(before[0].state, TaskState::Halted);
        // The service has its database open meanwhile.
        let service = here.service("served");
        let manifest = create(&here.path("served"), 6, &here.path("second"), &here.key("key")).unwrap();
        assert_eq!(manifest.tasks[0].state, "halted");
        assert!(manifest.files.contains_key(DATABASE));
        drop(service);
        rehearse(&here.path("second"), &here.key("key")).unwrap();
        restore(
            &here.path("second"),
            &here.key("key"),
            &here.path("again"),
            to(two),
        )
        .unwrap();
        let again = here.service("again");
        let after = again.shared().store.tasks().unwrap();
        assert_eq!(
            (after[0].chain.clone(), after[0].state),
            (before[0].chain.clone(), TaskState::Halted)
        );
        let abandoned = again
            .shared()
            .store
            .abandoned_since_release(after[0].task.id)
            .unwrap();
        assert_eq!(abandoned[0].participants, [ParticipantId::new(7)]);
        // A database that is in use is not filled, and the folder is not made.
        let error = restore(
            &here.path("second"),
            &here.key("key"),
            &here.path("third"),
            to(two),
        )
        .unwrap_err();
        assert!(error.to_string().contains("an empty database"), "{error}");
        assert!(!here.path("third").exists());
    }
}
