//! The upload of one session, chunk by chunk, in the spool.

use std::sync::Arc;

use undertone_protocol::{Commit, Problem, crc32c, crc32c_joined};

use crate::attempt::refusal::Refusal;
use crate::storage::spool::{Body, Spool, SpoolError};
use crate::trouble::Seldom;

/// An upload on its way.
pub(crate) struct Upload {
    body: Body,
    /// The checksum of the bytes that are there.
    crc: u32,
    /// The exact number of bytes.
    length: u64,
    /// `true` once it is in the sum: the bytes are gone then.
    done: bool,
}

/// A chunk that was not taken, or an upload that cannot be read.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The device gets this refusal.
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
        static FAILED: Seldom = Seldom::new();
        if let Some(left_out) = FAILED.speaks() {
            tracing::error!(%error, left_out, "an upload cannot go on");
        }
        match error {
            SpoolError::Full(_) => Self::from(Refusal::Busy),
            SpoolError::Damaged => Self::Damaged,
        }
    }
}

impl Upload {
    /// An upload of exactly this many bytes, none of which are there.
    pub(crate) fn new(spool: &Arc<Spool>, length: u64) -> Self {
        Self {
            body: Body::new(spool, length),
            crc: 0,
            length,
            done: false,
        }
    }

    /// The number of bytes that need not be sent again.
    pub(crate) fn offset(&self) -> u64 {
        match self.done {
            true => self.length,
            false => self.body.len(),
        }
    }

    /// `true` once it is in the sum.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Notes that the upload is in the sum, and wipes it.
    pub(crate) fn end(&mut self) {
        self.clear();
        self.done = true;
    }

    /// Wipes the bytes. The device may send them anew.
    pub(crate) fn clear(&mut self) {
        self.body.clear();
        self.crc = 0;
    }

    /// Refuses a commit of an upload that is not whole.
    pub(crate) fn check_length(&self, commit: &Commit) -> Result<(), Refusal> {
        match commit.length == self.length && self.offset() == self.length {
            true => Ok(()),
            false => Err(Refusal::range(
                "the upload",
                format!("{} bytes, all of them sent", self.length),
                format!("{} of {}", self.offset(), commit.length),
            )),
        }
    }

    /// Hands the bytes to `work`, if their checksum is this one. It was computed when the chunks came.
    pub(crate) fn with<T>(&mut self, checksum: u32, work: impl FnOnce(&[u8]) -> T) -> Result<T, Trouble> {
        if self.crc != checksum {
            // The bytes stay, since each chunk had a checksum of its own: it is the message that was damaged on its way.
            let why = "the checksum of the upload does not fit".to_owned();
            return Err(Refusal::Malformed(why).into());
        }
        Ok(self.body.with(work)?)
    }

    /// Takes a chunk, in parts that follow each other, with its checksum. A chunk that overlaps with what is there must be equal to
    /// it.
    ///
    /// A chunk that cannot be kept whole may be kept in part. The device goes on where the upload then stands.
    pub(crate) fn take<P: AsRef<[u8]>>(
        &mut self,
        offset: u64,
        checksum: u32,
        parts: &[P],
    ) -> Result<u64, Trouble> {
        if self.done {
            return Ok(self.length);
        }
        let have = self.body.len();
        let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        let end = offset.saturating_add(length as u64);
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
        let mut known = (have.min(end) - offset) as usize;
        let whole = known == 0;
        let (mut at, mut crc) = (offset, self.crc);
        for (number, part) in parts.iter().enumerate() {
            let part = part.as_ref();
            let (before, new) = part.split_at(known.min(part.len()));
            if !before.is_empty() && !self.body.has(at, before)? {
                return Err(conflict(
                    "the chunk differs from the one that was sent before".to_owned(),
                ));
            }
            known -= before.len();
            at += part.len() as u64;
            if let Err(error) = self.body.append(new) {
                let kept = if whole { &parts[..number] } else { &[] };
                self.crc = kept.iter().fold(crc, |crc, part| crc32c(crc, part.as_ref()));
                return Err(error.into());
            }
            if !whole {
                crc = crc32c(crc, new);
            }
        }
        self.crc = match whole {
            true => crc32c_joined(self.crc, checksum, length),
            false => crc,
        };
        Ok(self.body.len())
    }
}

#[cfg(test)]
mod tests;
