//! The content of a task: its blobs and its export.

use std::io::Read as _;
use std::path::Path;

use undertone_coordinator::record::PrivacyReport;
use undertone_protocol::Digest32;
use undertone_service::room::Shared;
use undertone_service::task::Task;
use undertone_store::{Blobs, TaskId};

/// The bytes of a blob.
pub fn blob(blobs: &dyn Blobs, digest: &Digest32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut found = blobs.get(digest, 0).unwrap();
    found.bytes.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A task as the service loads it.
pub fn loaded(shared: &Shared, task: TaskId) -> Task {
    let row = shared.store.task(task).unwrap();
    Task::load(&row, shared.blobs.as_ref(), &shared.keys).unwrap()
}

/// Writes the directory of a task that has ended.
pub fn export(shared: &Shared, task: TaskId, target: &Path) -> PrivacyReport {
    let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
    let exported = loaded(shared, task).export(store, blobs, &shared.keys, target, &[]);
    exported.unwrap()
}

/// The export of a task that has ended states what devices really did, and verifies.
pub fn exports(shared: &Shared, task: TaskId) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("run");
    let report = export(shared, task, &target);
    assert!(report.observed.is_some());
    let verified = undertone_verify::verify(&target).unwrap();
    assert!(verified.holds(), "{verified:?}");
}
