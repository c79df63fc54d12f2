//! The upload of one session, chunk by chunk, in memory.

use undertone_protocol::Problem;
use zeroize::Zeroizing;

use super::devices::Reply;
use crate::refusal::Refusal;

/// An upload on its way.
pub(super) struct Upload {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The exact number of bytes; 0 before it is known.
    pub(super) length: u64,
    /// `true` once it was committed: the bytes are gone then.
    pub(super) done: bool,
}

impl Upload {
    pub(super) fn new() -> Self {
        Self {
            bytes: Zeroizing::new(Vec::new()),
            length: 0,
            done: false,
        }
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

    fn upload(length: u64) -> Upload {
        Upload {
            length,
            ..Upload::new()
        }
    }

    #[test]
    fn an_upload_is_whole_whatever_the_order_and_number_of_its_chunks() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut taken = upload(100);
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
        let mut taken = upload(10);
        taken.take(0, &[1, 2, 3]).unwrap();
        assert_eq!(taken.take(3, &[0; 8]).unwrap_err().code(), Code::Range);
        assert_eq!(taken.take(u64::MAX, &[0; 8]).unwrap_err().code(), Code::Range);
        assert_eq!(taken.take(1, &[2, 9, 9]).unwrap_err().code(), Code::Conflict);
        assert_eq!(*taken.bytes, [1, 2, 3]);
    }
}
