//! The upload of one session, chunk by chunk, in the spool.

use std::sync::Arc;

use undertone_protocol::{Commit, Problem, crc32c};

use crate::refusal::Refusal;
use crate::spool::{Body, Spool, SpoolError};

/// An upload on its way.
pub(super) struct Upload {
    body: Body,
    /// The exact number of bytes.
    length: u64,
    /// `true` once it is in the sum: the bytes are gone then.
    done: bool,
}

/// A chunk that was not taken, or an upload that cannot be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The device is told.
    Refused(Problem),
    /// The bytes of the upload are not those that were sent: the session is lost.
    Damaged,
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.problem())
    }
}

impl From<SpoolError> for Trouble {
    fn from(error: SpoolError) -> Self {
        tracing::error!(%error, "an upload cannot go on");
        match error {
            SpoolError::Full(_) => Self::from(Refusal::Busy),
            SpoolError::Damaged => Self::Damaged,
        }
    }
}

impl Upload {
    /// An upload of exactly this many bytes, none of which are there.
    pub(super) fn new(spool: &Arc<Spool>, length: u64) -> Self {
        Self {
            body: Body::new(spool, length),
            length,
            done: false,
        }
    }

    /// The number of bytes that need not be sent again.
    pub(super) fn offset(&self) -> u64 {
        match self.done {
            true => self.length,
            false => self.body.len(),
        }
    }

    /// `true` once it is in the sum.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Notes that the upload is in the sum, and wipes it.
    pub(super) fn end(&mut self) {
        self.body.clear();
        self.done = true;
    }

    /// Wipes the bytes. The device may send them anew.
    pub(super) fn clear(&mut self) {
        self.body.clear();
    }

    /// Refuses a commit of an upload that is not whole.
    pub(super) fn check_length(&self, commit: &Commit) -> Result<(), Refusal> {
        match commit.length == self.length && self.offset() == self.length {
            true => Ok(()),
            false => Err(Refusal::range(
                "the upload",
                format!("{} bytes, all of them sent", self.length),
                format!("{} of {}", self.offset(), commit.length),
            )),
        }
    }

    /// Hands the bytes to `work`, if their checksum is this one.
    pub(super) fn with<T>(&mut self, checksum: u32, work: impl FnOnce(&[u8]) -> T) -> Result<T, Trouble> {
        let checked = self
            .body
            .with(|bytes| (crc32c(0, bytes) == checksum).then(|| work(bytes)))?;
        // The bytes stay, since each chunk had a checksum of its own: it is the message that was damaged on its way.
        checked.ok_or_else(|| Refusal::Malformed("the checksum of the upload does not fit".to_owned()).into())
    }

    /// Takes a chunk. A chunk that overlaps with what is there must be equal to it.
    pub(super) fn take(&mut self, offset: u64, chunk: &[u8]) -> Result<u64, Trouble> {
        if self.done {
            return Ok(self.length);
        }
        let have = self.body.len();
        let end = offset.saturating_add(chunk.len() as u64);
        if end > self.length {
            return Err(
                Refusal::range("the end of the chunk", format!("at most {}", self.length), end).into(),
            );
        }
        let conflict = |why: String| {
            Trouble::Refused(Problem {
                offset: have,
                ..Refusal::Conflict(why).problem()
            })
        };
        if offset > have {
            return Err(conflict(format!(
                "the upload stands at {have}, and the chunk starts at {offset}"
            )));
        }
        let known = (have.min(end) - offset) as usize;
        if !self.body.has(offset, &chunk[..known])? {
            return Err(conflict(
                "the chunk differs from the one that was sent before".to_owned(),
            ));
        }
        self.body.append(&chunk[known..])?;
        Ok(self.body.len())
    }
}

#[cfg(test)]
mod tests;
