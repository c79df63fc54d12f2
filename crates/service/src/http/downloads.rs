//! Downloads: pieces of a blob, one after the other, under a ceiling on those that are open.
//!
//! A blob is compared with its digest once, piece by piece, before the first download of it. Later requests, also for a range, read
//! what they send and nothing else.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use futures_core::Stream;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use undertone_protocol::{Code, Digest32, Problem, RetryWindow};
use undertone_store::{BlobReader, Blobs};

use super::bodies;
use super::connections::Downloading;
use crate::capacity::DOWNLOAD_PIECE as PIECE;
use crate::room::Reply;

/// Blobs whose digests are remembered. A service has a few models per task, and one per round.
const REMEMBERED: usize = 4096;

/// The window of a client whose download finds no place.
const FULL: (u64, u64) = (5_000, 30_000);

/// A blob, and its length once it was compared with its digest.
type Checked = Arc<OnceCell<u64>>;

/// The places of downloads, and the blobs that were compared with their digests.
#[derive(Debug)]
pub struct Downloads {
    places: Arc<Semaphore>,
    max: usize,
    checked: Mutex<BTreeMap<Digest32, Checked>>,
}

impl Downloads {
    /// Places for this many downloads.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(max)),
            max,
            checked: Mutex::default(),
        }
    }

    /// Number of open downloads.
    pub fn open(&self) -> u64 {
        (self.max - self.places.available_permits()) as u64
    }

    /// A place for a download.
    pub(super) fn place(&self) -> Reply<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            Problem::new(Code::Busy, "the service sends as much as it can")
                .with_retry(RetryWindow::between(FULL.0, FULL.1))
        })
    }

    /// The length of a blob whose bytes are those of its digest. Many who ask at once wait for one comparison.
    pub(super) async fn length(&self, blobs: &Arc<dyn Blobs>, digest: Digest32) -> Reply<u64> {
        let cell = {
            let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            if checked.len() >= REMEMBERED && !checked.contains_key(&digest) {
                checked.clear();
            }
            checked.entry(digest).or_default().clone()
        };
        let compared = cell.get_or_try_init(|| {
            let blobs = blobs.clone();
            super::blocking(move || {
                crate::storage::blobs::check(blobs.as_ref(), &digest).map_err(|_| missing())
            })
        });
        compared.await.copied()
    }

    /// Forgets that a blob was compared: it is not there any more, or has changed.
    pub(super) fn forget(&self, digest: &Digest32) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.remove(digest);
    }
}

pub(super) fn missing() -> Problem {
    Problem::new(Code::NotFound, "there is no blob of this digest")
}

/// The rest of a blob on its way to a client.
pub(super) struct Download {
    state: State,
    /// Bytes that were not read yet.
    left: u64,
    handed: u64,
    begun: Instant,
    connection: Option<Downloading>,
    _place: OwnedSemaphorePermit,
}

type Read = std::io::Result<(BlobReader, Bytes)>;

enum State {
    Ready(BlobReader),
    Reading(JoinHandle<Read>),
    Over,
}

impl Download {
    /// The body of a response with the next `left` bytes of `reader`.
    pub(super) fn body(
        reader: BlobReader,
        left: u64,
        connection: Option<Downloading>,
        place: OwnedSemaphorePermit,
    ) -> Body {
        Body::from_stream(Self {
            state: State::Ready(reader),
            left,
            handed: 0,
            begun: Instant::now(),
            connection,
            _place: place,
        })
    }
}

/// Reads a piece of exactly this many bytes.
fn read(mut reader: BlobReader, length: usize) -> Read {
    let mut piece = vec![0; length];
    std::io::Read::read_exact(&mut reader.bytes, &mut piece)?;
    Ok((reader, piece.into()))
}

impl Stream for Download {
    type Item = std::io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Ready(_) if this.left == 0 => return Poll::Ready(None),
                State::Ready(reader) => {
                    if this.begun.elapsed() > bodies::allowed(bodies::PATIENCE, this.handed) {
                        let slow = std::io::Error::new(
                            std::io::ErrorKind::TimedOut,
                            "the client takes less than the min rate",
                        );
                        return Poll::Ready(Some(Err(slow)));
                    }
                    let length = PIECE.min(usize::try_from(this.left).unwrap_or(PIECE));
                    let work = move || read(reader, length);
                    this.state = State::Reading(tokio::task::spawn_blocking(work));
                }
                State::Reading(mut reading) => {
                    let Poll::Ready(done) = Pin::new(&mut reading).poll(context) else {
                        this.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    let (reader, piece) = match done {
                        Ok(Ok(read)) => read,
                        Ok(Err(error)) => return Poll::Ready(Some(Err(error))),
                        Err(_) => {
                            return Poll::Ready(Some(Err(std::io::Error::other("the read was ended"))));
                        }
                    };
                    this.left -= piece.len() as u64;
                    this.handed += piece.len() as u64;
                    if let Some(connection) = &this.connection {
                        connection.moved();
                    }
                    this.state = State::Ready(reader);
                    return Poll::Ready(Some(Ok(piece)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_protocol::digest_of;
    use undertone_store::FolderBlobs;

    use super::*;

    #[tokio::test]
    async fn a_blob_is_compared_with_its_digest_once_and_never_for_a_range() {
        let folder = tempfile::tempdir().unwrap();
        let blobs: Arc<dyn Blobs> = Arc::new(FolderBlobs::open(folder.path()).unwrap());
        let bytes = vec![7; 300_000];
        let digest = blobs.put(&mut &bytes[..]).unwrap().digest;
        let path = folder.path().join("blobs").join(crate::identity::hex(&digest));
        let downloads = Downloads::new(2);
        assert_eq!(downloads.length(&blobs, digest).await, Ok(300_000));
        // Other bytes show that nothing is read again.
        std::fs::write(&path, vec![8; 300_000]).unwrap();
        assert_eq!(downloads.length(&blobs, digest).await, Ok(300_000));
        downloads.forget(&digest);
        let refused = downloads.length(&blobs, digest).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        // A comparison that failed is made again.
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(downloads.length(&blobs, digest).await, Ok(300_000));
        assert_eq!(digest_of(&bytes), digest);
    }

    #[test]
    fn a_reader_that_waits_holds_no_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = FolderBlobs::open(folder.path()).unwrap();
        let digest = blobs.put(&mut &vec![7; 1000][..]).unwrap().digest;
        let open = |path: &std::path::Path| {
            let links = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            links
                .filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.starts_with(path)))
                .count()
        };
        let readers: Vec<BlobReader> = (0..100).map(|_| blobs.get(&digest, 0).unwrap()).collect();
        assert_eq!(open(folder.path()), 0);
        for reader in readers {
            let (mut reader, piece) = read(reader, 600).unwrap();
            assert_eq!(piece.len(), 600);
            let mut rest = Vec::new();
            std::io::Read::read_to_end(&mut reader.bytes, &mut rest).unwrap();
            assert_eq!(rest.len(), 400);
        }
    }
}
