//! Blobs in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_protocol::{Digest32, digest_of};

use super::{BlobError, BlobReader, Blobs, Created, Result, Stored, check_head, check_name};
use crate::audit::hex;
use crate::{AttemptId, TaskId};

/// Blobs in memory, for simulations and tests. They end with the process.
#[derive(Default)]
pub struct MemoryBlobs(Mutex<State>);

#[derive(Default)]
struct State {
    staged: BTreeMap<AttemptId, BTreeMap<String, Arc<[u8]>>>,
    blobs: BTreeMap<Digest32, Arc<[u8]>>,
    heads: BTreeMap<(TaskId, u64), Vec<u8>>,
}

impl fmt::Debug for MemoryBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlobs").finish_non_exhaustive()
    }
}

impl MemoryBlobs {
    /// No blobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_all(bytes: &mut dyn Read) -> Result<Arc<[u8]>> {
    let mut all = Vec::new();
    bytes.read_to_end(&mut all).map_err(|source| BlobError::Io {
        action: "reading the bytes for",
        path: "a blob in memory".to_owned(),
        source,
    })?;
    Ok(all.into())
}

fn stored(bytes: &[u8]) -> Stored {
    Stored {
        digest: digest_of(bytes),
        length: bytes.len() as u64,
    }
}

impl Blobs for MemoryBlobs {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored> {
        check_name(name)?;
        let bytes = read_all(bytes)?;
        let new = stored(&bytes);
        let mut state = self.state();
        let files = state.staged.entry(attempt).or_default();
        let found = files.entry(name.to_owned()).or_insert(bytes);
        let there = stored(found);
        if there == new {
            return Ok(new);
        }
        Err(BlobError::Exists {
            path: format!("staged/{attempt}/{name}"),
            expected: hex(&new.digest),
            got: hex(&there.digest),
        })
    }

    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<()> {
        check_name(name)?;
        let mut state = self.state();
        if state.blobs.contains_key(digest) {
            return Ok(());
        }
        let path = || format!("staged/{attempt}/{name}");
        let staged = state.staged.get(&attempt).and_then(|files| files.get(name));
        let Some(bytes) = staged.cloned() else {
            return Err(BlobError::Missing { path: path() });
        };
        let got = digest_of(&bytes);
        if got != *digest {
            return Err(BlobError::Damaged {
                path: path(),
                expected: hex(digest),
                got: hex(&got),
            });
        }
        state.blobs.insert(got, bytes);
        Ok(())
    }

    fn put(&self, bytes: &mut dyn Read) -> Result<Stored> {
        let bytes = read_all(bytes)?;
        let new = stored(&bytes);
        self.state().blobs.insert(new.digest, bytes);
        Ok(new)
    }

    fn list(&self) -> Result<Vec<Digest32>> {
        Ok(self.state().blobs.keys().copied().collect())
    }

    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader> {
        let path = || format!("blobs/{}", hex(digest));
        let bytes = self.state().blobs.get(digest).cloned();
        let bytes = bytes.ok_or_else(|| BlobError::Missing { path: path() })?;
        let length = bytes.len() as u64;
        if offset > length {
            let path = path();
            return Err(BlobError::Range { path, length, offset });
        }
        let mut cursor = Cursor::new(bytes);
        cursor.set_position(offset);
        Ok(BlobReader {
            length,
            bytes: Box::new(cursor),
        })
    }

    fn remove(&self, digest: &Digest32) -> Result<bool> {
        Ok(self.state().blobs.remove(digest).is_some())
    }

    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created> {
        check_head(&format!("heads/{task}/{round}"), bytes.len() as u64)?;
        let mut state = self.state();
        Ok(match state.heads.get(&(task, round)) {
            Some(there) if there == bytes => Created::Same,
            Some(there) => Created::Other(there.clone()),
            None => {
                state.heads.insert((task, round), bytes.to_vec());
                Created::Created
            }
        })
    }

    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.state().heads.get(&(task, round)).cloned())
    }

    fn last_head(&self, task: TaskId) -> Result<Option<u64>> {
        let state = self.state();
        let mut heads = state.heads.range((task, 0)..=(task, u64::MAX));
        Ok(heads.next_back().map(|((_, round), _)| *round))
    }

    fn staged(&self) -> Result<Vec<AttemptId>> {
        Ok(self.state().staged.keys().copied().collect())
    }

    fn sweep(&self, attempt: AttemptId) -> Result<()> {
        self.state().staged.remove(&attempt);
        Ok(())
    }
}
