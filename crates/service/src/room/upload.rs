//! The upload of one session, chunk by chunk, in memory.

use undertone_protocol::{Commit, Problem, crc32c};
use zeroize::Zeroizing;

use super::devices::Reply;
use crate::refusal::Refusal;

/// An upload on its way.
pub(super) struct Upload {
    bytes: Zeroizing<Vec<u8>>,
    /// The exact number of bytes.
    length: u64,
    /// `true` once it is in the sum: the bytes are gone then.
    done: bool,
}

impl Upload {
    /// An upload of exactly this many bytes, none of which are there.
    pub(super) fn new(length: u64) -> Self {
        Self {
            bytes: Zeroizing::new(Vec::new()),
            length,
            done: false,
        }
    }

    /// The number of bytes that need not be sent again.
    pub(super) fn offset(&self) -> u64 {
        match self.done {
            true => self.length,
            false => self.bytes.len() as u64,
        }
    }

    /// `true` once it is in the sum.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The bytes that are there.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Notes that the upload is in the sum, and wipes it.
    pub(super) fn end(&mut self) {
        self.clear();
        self.done = true;
    }

    /// Wipes the bytes. The device may send them anew.
    pub(super) fn clear(&mut self) {
        self.bytes = Zeroizing::new(Vec::new());
    }

    /// Compares the upload with what its device says of it.
    pub(super) fn check_whole(&mut self, commit: &Commit) -> Reply<()> {
        if commit.length != self.length || self.offset() != self.length {
            let expected = format!("{} bytes, all of them sent", self.length);
            let got = format!("{} of {}", self.offset(), commit.length);
            return Err(Refusal::range("the upload", expected, got).problem());
        }
        if crc32c(0, &self.bytes) != commit.crc32c {
            self.clear();
            return Err(Refusal::Malformed("the checksum of the upload does not fit".to_owned()).problem());
        }
        Ok(())
    }

    /// Takes a chunk. A chunk that overlaps with what is there must be equal to it.
    pub(super) fn take(&mut self, offset: u64, chunk: &[u8]) -> Reply<u64> {
        let have = self.bytes.len() as u64;
        if self.done {
            return Ok(self.length);
        }
        let end = offset.saturating_add(chunk.len() as u64);
        if end > self.length {
            let refusal = Refusal::range("the end of the chunk", format!("at most {}", self.length), end);
            return Err(refusal.problem());
        }
        if offset > have {
            let conflict = Refusal::Conflict(format!(
                "the upload stands at {have}, and the chunk starts at {offset}"
            ));
            return Err(Problem {
                offset: have,
                ..conflict.problem()
            });
        }
        let start = offset as usize;
        let known = self.bytes.len().min(end as usize) - start;
        if self.bytes[start..start + known] != chunk[..known] {
            let conflict =
                Refusal::Conflict("the chunk differs from the one that was sent before".to_owned());
            return Err(Problem {
                offset: have,
                ..conflict.problem()
            });
        }
        if self.bytes.capacity() == 0 {
            // The memory of an upload is taken once, so that no copy of a part stays behind.
            self.bytes.reserve_exact(self.length as usize);
        }
        self.bytes.extend_from_slice(&chunk[known..]);
        Ok(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use undertone_protocol::Code;

    use super::*;

    #[test]
    fn an_upload_is_whole_whatever_the_order_and_number_of_its_chunks() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut taken = Upload::new(100);
        // A chunk again, a chunk that overlaps, and a chunk that starts too late.
        assert_eq!(taken.take(0, &bytes[..40]), Ok(40));
        assert_eq!(taken.take(0, &bytes[..40]), Ok(40));
        assert_eq!(taken.take(30, &bytes[30..70]), Ok(70));
        let refused = taken.take(80, &bytes[80..]).unwrap_err();
        assert_eq!((refused.code(), refused.offset), (Code::Conflict, 70));
        assert_eq!(taken.take(70, &bytes[70..]), Ok(100));
        assert_eq!(*taken.bytes, bytes);
    }

    #[test]
    fn chunks_beyond_the_end_and_other_bytes_change_nothing() {
        let mut taken = Upload::new(10);
        taken.take(0, &[1, 2, 3]).unwrap();
        assert_eq!(taken.take(3, &[0; 8]).unwrap_err().code(), Code::Range);
        assert_eq!(taken.take(u64::MAX, &[0; 8]).unwrap_err().code(), Code::Range);
        assert_eq!(taken.take(1, &[2, 9, 9]).unwrap_err().code(), Code::Conflict);
        assert_eq!(*taken.bytes, [1, 2, 3]);
    }
}
