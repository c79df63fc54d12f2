//! A part of the private corpus, by the hashes of its bands.

use std::collections::HashSet;

use super::minhash::{hash_bytes, jaccard};

/// Sets of grams and where to look for them.
#[derive(Debug, Default)]
pub(super) struct PrivateBlock {
    grams: Vec<u64>,
    /// Index in `grams` at which each set ends.
    ends: Vec<usize>,
    /// Band hashes and the sets that have them; sorted by [`PrivateBlock::seal`].
    bands: Vec<(u64, u32)>,
    /// Hashes of the sets, so that copies are kept once.
    seen: HashSet<u64>,
}

impl PrivateBlock {
    pub(super) fn push(&mut self, set: &[u64], bands: &[u64]) {
        if set.is_empty() || !self.seen.insert(hash_bytes(bytemuck::cast_slice(set))) {
            return;
        }
        let number = self.ends.len() as u32;
        self.grams.extend_from_slice(set);
        self.ends.push(self.grams.len());
        self.bands.extend(bands.iter().map(|&band| (band, number)));
    }

    /// Memory in use: vectors grow by half of themselves on average, and a hash set is half full.
    pub(super) fn bytes(&self) -> usize {
        let (set, band) = (8 + 32, size_of::<(u64, u32)>());
        3 * (8 * self.grams.len() + band * self.bands.len()) / 2 + set * self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn seal(&mut self) {
        self.bands.sort_unstable();
        self.seen = HashSet::new();
    }

    fn set(&self, number: usize) -> &[u64] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.grams[start..self.ends[number]]
    }

    /// Returns `true` if a set with an equal band has at least this Jaccard similarity.
    pub(super) fn holds_similar(&self, set: &[u64], bands: &[u64], threshold: f64) -> bool {
        let mut candidates: Vec<u32> = Vec::new();
        for &band in bands {
            let first = self.bands.partition_point(|&(other, _)| other < band);
            let agree = self.bands[first..]
                .iter()
                .take_while(|&&(other, _)| other == band);
            candidates.extend(agree.map(|&(_, number)| number));
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().any(|number| {
            let other = self.set(number as usize);
            let (small, large) = (set.len().min(other.len()), set.len().max(other.len()));
            // The similarity is at most the ratio of the sizes.
            small as f64 >= threshold * large as f64 && jaccard(set, other) >= threshold
        })
    }
}
