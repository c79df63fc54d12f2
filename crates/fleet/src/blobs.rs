//! The blobs that all devices of a fleet share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use undertone_device::Bytes;
use undertone_protocol::Digest32;

/// Max bytes that are kept beyond the newest blob.
const CAPACITY: usize = 512 << 20;

/// Blobs by their digests. The oldest leave first.
#[derive(Default)]
pub(crate) struct Blobs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    blobs: BTreeMap<Digest32, Bytes>,
    order: VecDeque<Digest32>,
    bytes: usize,
}

impl Blobs {
    pub(crate) fn get(&self, digest: &Digest32) -> Option<Bytes> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.blobs.get(digest).cloned()
    }

    pub(crate) fn put(&self, digest: Digest32, bytes: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.blobs.insert(digest, Bytes::clone(bytes)).is_some() {
            return;
        }
        kept.order.push_back(digest);
        kept.bytes += bytes.len();
        while kept.bytes > CAPACITY && kept.order.len() > 1 {
            let Some(oldest) = kept.order.pop_front() else {
                break;
            };
            let freed = kept.blobs.remove(&oldest).map_or(0, |blob| blob.len());
            kept.bytes -= freed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_blobs_leave_first_and_the_newest_stays() {
        let blobs = Blobs::default();
        let large: Bytes = vec![0; CAPACITY / 2].into();
        for number in 0..4 {
            blobs.put([number; 32], &large);
            blobs.put([number; 32], &large);
        }
        let there: Vec<bool> = (0..4).map(|number| blobs.get(&[number; 32]).is_some()).collect();
        assert_eq!(there, [false, false, true, true]);
    }
}
