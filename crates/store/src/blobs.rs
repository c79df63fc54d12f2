//! Blobs: files by the digest of their content, the heads of tasks, and files that wait for a commit.

mod folder;
mod memory;
#[cfg(feature = "s3")]
mod s3;

use std::io::Read;

use undertone_protocol::Digest32;

use crate::audit::hex;
use crate::{AttemptId, TaskId};

pub use folder::FolderBlobs;
pub use memory::MemoryBlobs;
#[cfg(feature = "s3")]
pub use s3::{Credentials, Patience, S3Blobs};

/// Models, plans, sealed noise and the heads of tasks: whatever is too large for a database, or must be seen beside it.
///
/// A release stages its files under its attempt before the commit, and publishes them after it. The head of a round is created at
/// most once, so it shows a database that went back in time.
///
/// # Guarantee
/// A name shows whole content or is absent, also after a crash at any point. What a method has stored is durable before it
/// returns, and was read back and compared.
pub trait Blobs: Send + Sync {
    /// Stores a file of an attempt that is to be committed. A repeated call with the same bytes gives the same digest.
    ///
    /// # Errors
    /// [`BlobError::Name`]; [`BlobError::Exists`] where the attempt has other bytes under this name; [`BlobError::Io`];
    /// [`BlobError::Damaged`].
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored>;

    /// Publishes a staged file under its digest. A repeated call changes nothing, also after the attempt was swept.
    ///
    /// # Errors
    /// [`BlobError::Missing`] where neither the staged file nor the blob is there; [`BlobError::Damaged`] where the staged file has
    /// another digest; [`BlobError::Name`]; [`BlobError::Io`].
    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<()>;

    /// Stores bytes under their digest. A repeated call changes nothing.
    ///
    /// # Errors
    /// [`BlobError::Io`]; [`BlobError::Damaged`].
    fn put(&self, bytes: &mut dyn Read) -> Result<Stored>;

    /// The bytes of a blob from an offset on.
    ///
    /// # Errors
    /// [`BlobError::Missing`]; [`BlobError::Range`] for an offset behind the end; [`BlobError::Io`].
    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader>;

    /// The digests of all blobs, in no order. One that is stored or removed meanwhile may be there or not.
    ///
    /// # Errors
    /// [`BlobError::Io`].
    fn list(&self) -> Result<Vec<Digest32>>;

    /// Deletes a blob; `false` where it is absent. Two rounds may share a model, so the caller knows that no row names the digest.
    ///
    /// # Errors
    /// [`BlobError::Io`].
    fn remove(&self, digest: &Digest32) -> Result<bool>;

    /// Creates the head of a task after a number of rounds, unless there is one.
    ///
    /// # Errors
    /// [`BlobError::TooLong`] above [`MAX_HEAD`] bytes; [`BlobError::Io`].
    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created>;

    /// The head of a task after a number of rounds; `None` where there is none.
    ///
    /// # Errors
    /// [`BlobError::TooLong`] above [`MAX_HEAD`] bytes; [`BlobError::Io`].
    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>>;

    /// The highest number of rounds for which a task has a head; `None` where it has none.
    ///
    /// # Errors
    /// [`BlobError::Io`].
    fn last_head(&self, task: TaskId) -> Result<Option<u64>>;

    /// The attempts with staged files, ascending.
    ///
    /// # Errors
    /// [`BlobError::Io`].
    fn staged(&self) -> Result<Vec<AttemptId>>;

    /// Deletes the staged files of an attempt, which the database calls abandoned, or whose files were published.
    ///
    /// # Errors
    /// [`BlobError::Io`].
    fn sweep(&self, attempt: AttemptId) -> Result<()>;
}

/// Max size of a head in bytes.
pub const MAX_HEAD: usize = 64 << 10;

/// The name of stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// SHA-256 of the bytes.
    pub digest: Digest32,
    /// Number of bytes.
    pub length: u64,
}

/// The outcome of creating a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// There was no head before.
    Created,
    /// A head was there with the same bytes.
    Same,
    /// A head was there with these other bytes. PRIVACY: the database has another history, and the task must halt.
    Other(Vec<u8>),
}

/// A blob that is being read.
pub struct BlobReader {
    /// The length of the whole blob in bytes.
    pub length: u64,
    /// Bytes of the blob from the offset on.
    pub bytes: Box<dyn Read + Send>,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobReader")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// An act on blobs that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// The operating system refused.
    #[error("{action} {path}: {source}")]
    Io {
        /// The act.
        action: &'static str,
        /// The path.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// There is nothing under this path.
    #[error("there is no {path}")]
    Missing {
        /// The path.
        path: String,
    },
    /// A file has another content than its name or its writer says.
    #[error("{path} is damaged: expected the digest {expected}, got {got}")]
    Damaged {
        /// The path.
        path: String,
        /// Digest that the file must have, in hexadecimal digits.
        expected: String,
        /// Digest that the file has, in hexadecimal digits.
        got: String,
    },
    /// An attempt has another file under this name.
    #[error("{path} holds other bytes: expected the digest {expected}, got {got}")]
    Exists {
        /// The path.
        path: String,
        /// The digest of the bytes to store, in hexadecimal digits.
        expected: String,
        /// The digest of the bytes that are there.
        got: String,
    },
    /// A name of a staged file has other characters.
    #[error(
        "expected a name of 1 to 64 characters of a-z, 0-9, '_', '-' and '.', the first of a-z, got {got:?}"
    )]
    Name {
        /// The first characters of the name.
        got: String,
    },
    /// An offset is behind the end.
    #[error("{path}: expected an offset up to {length}, got {offset}")]
    Range {
        /// The path.
        path: String,
        /// The length in bytes.
        length: u64,
        /// The offset.
        offset: u64,
    },
    /// A head is too long.
    #[error("{path}: expected a head of at most {limit} bytes, got {length}")]
    TooLong {
        /// The path.
        path: String,
        /// Max number of bytes.
        limit: usize,
        /// The length in bytes.
        length: u64,
    },
    /// The folder, or the store of objects, cannot create a name only where it is absent.
    #[error(
        "{path} cannot hold heads: {reason}; keep them on a local disk whose file system has hard links, or in a store with \
         conditional writes"
    )]
    Unfit {
        /// The folder.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The address of a store of objects has another form.
    #[error("the address of the blobs: expected {expected}, got {got:?}")]
    Address {
        /// The form.
        expected: String,
        /// The part of another form.
        got: String,
    },
    /// There are no credentials for a store of objects.
    #[error("the credentials of the blobs in {place}: expected {expected}")]
    Credentials {
        /// The file, or the environment.
        place: String,
        /// The form.
        expected: String,
    },
}

/// A result of blobs.
type Result<T, E = BlobError> = core::result::Result<T, E>;

/// Checks the name of a staged file.
fn check_name(name: &str) -> Result<()> {
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let known =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    if begins && name.len() <= 64 && name.bytes().all(known) {
        return Ok(());
    }
    Err(BlobError::Name {
        got: name.chars().take(64).collect(),
    })
}

fn check_head(path: &str, length: u64) -> Result<()> {
    if length <= MAX_HEAD as u64 {
        return Ok(());
    }
    Err(BlobError::TooLong {
        path: path.to_owned(),
        limit: MAX_HEAD,
        length,
    })
}

/// The error of a name that is absent.
fn missing(path: impl Into<String>) -> BlobError {
    BlobError::Missing { path: path.into() }
}

/// The error of bytes with another digest.
fn damaged(path: impl Into<String>, expected: &Digest32, got: &Digest32) -> BlobError {
    BlobError::Damaged {
        path: path.into(),
        expected: hex(expected),
        got: hex(got),
    }
}

/// The digest that a name is, as this program writes digests.
fn digest(name: &str) -> Option<Digest32> {
    let mut bytes = Digest32::default();
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (hex(&bytes) == name).then_some(bytes)
}

/// The number that a name is, as this program writes numbers.
fn number(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}
