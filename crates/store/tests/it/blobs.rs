//! One suite that all blobs pass, and the files of a folder.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use proptest::prelude::*;
use undertone_store::{AttemptId, BlobError, Blobs, Created, FolderBlobs, MAX_HEAD, MemoryBlobs, TaskId};

use crate::common::{hex, sha};

const ATTEMPT: AttemptId = AttemptId(7);
const TASK: TaskId = TaskId([0xc0; 32]);

fn on_all(check: impl Fn(&dyn Blobs)) {
    check(&MemoryBlobs::new());
    let folder = tempfile::tempdir().unwrap();
    check(&FolderBlobs::open(folder.path()).unwrap());
    #[cfg(feature = "s3")]
    check(&crate::common::s3::S3Double::start().open().unwrap());
}

fn read(blobs: &dyn Blobs, bytes: &[u8], offset: u64) -> Vec<u8> {
    let mut found = blobs.get(&sha(bytes), offset).unwrap();
    assert_eq!(found.length, bytes.len() as u64);
    let mut read = Vec::new();
    found.bytes.read_to_end(&mut read).unwrap();
    read
}

fn refused<T: std::fmt::Debug>(result: Result<T, BlobError>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words), "expected {words:?} in {error:?}");
}

#[test]
fn a_staged_file_is_served_only_after_it_was_published() {
    on_all(|blobs| {
        let model = vec![42; 200_000];
        let stored = blobs.stage(ATTEMPT, "model", &mut &model[..]).unwrap();
        assert_eq!((stored.digest, stored.length), (sha(&model), 200_000));
        refused(blobs.get(&stored.digest, 0), "there is no ");
        assert_eq!(blobs.staged().unwrap(), [ATTEMPT]);
        blobs.publish(ATTEMPT, "model", &stored.digest).unwrap();
        blobs.publish(ATTEMPT, "model", &stored.digest).unwrap();
        assert_eq!(read(blobs, &model, 0), model);
        assert_eq!(read(blobs, &model, 199_999), [42]);
        assert_eq!(read(blobs, &model, 200_000), b"");
        refused(
            blobs.get(&stored.digest, 200_001),
            "an offset up to 200000, got 200001",
        );
        blobs.sweep(ATTEMPT).unwrap();
        blobs.sweep(ATTEMPT).unwrap();
        assert!(blobs.staged().unwrap().is_empty());
        assert_eq!(read(blobs, &model, 199_990), [42; 10]);
        // A crash after the sweep: the outbox publishes once more.
        blobs.publish(ATTEMPT, "model", &stored.digest).unwrap();
        assert!(blobs.remove(&stored.digest).unwrap());
        assert!(!blobs.remove(&stored.digest).unwrap());
        refused(blobs.get(&stored.digest, 0), "there is no ");
        refused(blobs.publish(ATTEMPT, "model", &stored.digest), "there is no ");
    });
}

#[test]
fn a_staged_name_keeps_its_first_bytes() {
    on_all(|blobs| {
        let stored = blobs.stage(ATTEMPT, "model", &mut &b"first"[..]).unwrap();
        assert_eq!(blobs.stage(ATTEMPT, "model", &mut &b"first"[..]).unwrap(), stored);
        refused(
            blobs.stage(ATTEMPT, "model", &mut &b"second"[..]),
            "7/model holds other bytes",
        );
        refused(
            blobs.publish(ATTEMPT, "model", &sha(b"second")),
            &hex(&sha(b"first")),
        );
        blobs.stage(AttemptId(8), "model", &mut &b"second"[..]).unwrap();
        blobs.stage(ATTEMPT, "state", &mut &b"third"[..]).unwrap();
        assert_eq!(blobs.staged().unwrap(), [ATTEMPT, AttemptId(8)]);
        blobs.sweep(ATTEMPT).unwrap();
        assert_eq!(blobs.staged().unwrap(), [AttemptId(8)]);
        blobs.publish(AttemptId(8), "model", &sha(b"second")).unwrap();
    });
}

#[test]
fn a_blob_is_put_once() {
    on_all(|blobs| {
        for _ in 0..2 {
            let stored = blobs.put(&mut &b"a plan"[..]).unwrap();
            assert_eq!((stored.digest, stored.length), (sha(b"a plan"), 6));
        }
        assert_eq!(read(blobs, b"a plan", 2), b"plan");
        blobs.put(&mut &b""[..]).unwrap();
        assert_eq!(read(blobs, b"", 0), b"");
    });
}

#[test]
fn a_list_names_every_blob_and_no_staged_file_or_head() {
    on_all(|blobs| {
        assert!(blobs.list().unwrap().is_empty());
        let mut put: Vec<_> = (0..5u8)
            .map(|number| blobs.put(&mut &[number][..]).unwrap().digest)
            .collect();
        blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap();
        blobs.create_head(TASK, 1, b"head").unwrap();
        blobs.remove(&put.remove(0)).unwrap();
        let mut listed = blobs.list().unwrap();
        put.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, put);
    });
}

#[test]
fn a_head_is_created_once() {
    on_all(|blobs| {
        assert_eq!(blobs.last_head(TASK).unwrap(), None);
        assert_eq!(blobs.head(TASK, 3).unwrap(), None);
        assert_eq!(blobs.create_head(TASK, 3, b"one").unwrap(), Created::Created);
        assert_eq!(blobs.create_head(TASK, 3, b"one").unwrap(), Created::Same);
        let other = Created::Other(b"one".to_vec());
        assert_eq!(blobs.create_head(TASK, 3, b"two").unwrap(), other);
        assert_eq!(blobs.head(TASK, 3).unwrap(), Some(b"one".to_vec()));
        for round in [12, 4] {
            assert_eq!(blobs.create_head(TASK, round, b"").unwrap(), Created::Created);
        }
        assert_eq!(blobs.last_head(TASK).unwrap(), Some(12));
        assert_eq!(blobs.last_head(TaskId([1; 32])).unwrap(), None);
        refused(
            blobs.create_head(TASK, 13, &vec![0; MAX_HEAD + 1]),
            "at most 65536 bytes, got 65537",
        );
        assert_eq!(
            blobs.create_head(TASK, u64::MAX, &vec![0; MAX_HEAD]).unwrap(),
            Created::Created
        );
        assert_eq!(blobs.last_head(TASK).unwrap(), Some(u64::MAX));
    });
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    on_all(|blobs| {
        for name in [
            "",
            "..",
            "../model",
            "a/b",
            ".hidden",
            "Model",
            "a\0",
            "\u{e9}",
            &"a".repeat(65),
        ] {
            refused(
                blobs.stage(ATTEMPT, name, &mut &b""[..]),
                "expected a name of 1 to 64",
            );
            refused(
                blobs.publish(ATTEMPT, name, &sha(b"")),
                "expected a name of 1 to 64",
            );
        }
        blobs.stage(ATTEMPT, "model.safetensors", &mut &b""[..]).unwrap();
    });
}

#[test]
fn one_of_many_threads_creates_a_head() {
    on_all(|blobs| {
        let created: Vec<Created> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|thread| scope.spawn(move || blobs.create_head(TASK, 1, &[thread; 10]).unwrap()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let there = blobs.head(TASK, 1).unwrap().unwrap();
        let winners = created
            .iter()
            .filter(|created| **created == Created::Created)
            .count();
        let losers = created
            .iter()
            .filter(|created| **created == Created::Other(there.clone()))
            .count();
        assert_eq!((winners, losers), (1, 7));
    });
}

/// All files under a folder, but those of links and folders.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

struct Fails(usize);

impl Read for Fails {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the source is gone"));
        }
        let read = self.0.min(buffer.len());
        self.0 -= read;
        Ok(read)
    }
}

#[test]
fn a_source_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = FolderBlobs::open(folder.path()).unwrap();
    refused(
        blobs.stage(ATTEMPT, "model", &mut Fails(100_000)),
        "the source is gone",
    );
    refused(blobs.put(&mut Fails(100_000)), "the source is gone");
    assert_eq!(files(folder.path()), Vec::<String>::new());
    refused(MemoryBlobs::new().put(&mut Fails(10)), "the source is gone");
}

#[test]
fn nothing_stays_in_tmp() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = FolderBlobs::open(folder.path()).unwrap();
    blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap();
    blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap();
    let _ = blobs.stage(ATTEMPT, "model", &mut &b"other"[..]).unwrap_err();
    blobs.publish(ATTEMPT, "model", &sha(b"model")).unwrap();
    blobs.put(&mut &b"model"[..]).unwrap();
    for bytes in [b"one", b"two"] {
        blobs.create_head(TASK, 1, bytes).unwrap();
    }
    assert_eq!(
        files(folder.path()),
        [
            format!("blobs/{}", hex(&sha(b"model"))),
            format!("heads/{TASK}/1"),
            "staged/7/model".to_owned(),
        ]
    );
}

#[test]
fn a_damaged_blob_is_mended_from_the_staged_file() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = FolderBlobs::open(folder.path()).unwrap();
    let digest = blobs.stage(ATTEMPT, "model", &mut &b"model"[..]).unwrap().digest;
    blobs.publish(ATTEMPT, "model", &digest).unwrap();
    fs::write(folder.path().join("blobs").join(hex(&digest)), b"mod").unwrap();
    blobs.publish(ATTEMPT, "model", &digest).unwrap();
    assert_eq!(read(&blobs, b"model", 0), b"model");
    // Damage of both is an error that names the path, and the blob keeps its damage.
    fs::write(folder.path().join("blobs").join(hex(&digest)), b"mod").unwrap();
    fs::write(folder.path().join("staged/7/model"), b"del").unwrap();
    let error = blobs.publish(ATTEMPT, "model", &digest).unwrap_err();
    assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("staged/7/model is damaged"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_and_files_are_private() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("blobs of a service");
    let blobs = FolderBlobs::open(&root).unwrap();
    let digest = blobs.put(&mut &b"model"[..]).unwrap().digest;
    let path = root.join("blobs").join(hex(&digest));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&root)), (0o600, 0o700));
    let secret = folder.path().join("secret");
    fs::write(&secret, b"secret").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&secret, &path).unwrap();
    refused(blobs.get(&digest, 0), "a regular file that is no link");
    fs::create_dir_all(root.join("heads").join(TASK.to_string())).unwrap();
    symlink(&secret, root.join("heads").join(TASK.to_string()).join("5")).unwrap();
    refused(blobs.head(TASK, 5), "a regular file that is no link");
}

#[test]
fn an_error_names_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    fs::write(&file, b"").unwrap();
    refused(FolderBlobs::open(&file), "creating ");
    refused(FolderBlobs::open(&file), "a file");
    let blobs = FolderBlobs::open(&folder.path().join("root")).unwrap();
    fs::remove_dir(folder.path().join("root/tmp")).unwrap();
    refused(blobs.put(&mut &b""[..]), "root/tmp/");
}

#[test]
fn names_of_other_programs_are_not_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = FolderBlobs::open(folder.path()).unwrap();
    for name in ["lost+found", "007", "-1", "+8", "18446744073709551616"] {
        fs::create_dir(folder.path().join("staged").join(name)).unwrap();
    }
    assert!(blobs.staged().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    #[ignore = "slow"]
    fn any_bytes_come_back_from_any_offset(bytes in proptest::collection::vec(any::<u8>(), 0..300_000), cut in 0.0f64..=1.0) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = FolderBlobs::open(folder.path()).unwrap();
        blobs.put(&mut &bytes[..]).unwrap();
        let offset = (bytes.len() as f64 * cut) as usize;
        prop_assert_eq!(read(&blobs, &bytes, offset as u64), &bytes[offset..]);
    }
}
