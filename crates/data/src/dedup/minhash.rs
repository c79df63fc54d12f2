//! Sets of word 5-grams, and their min-wise hashes in bands.

use undertone_text::WordRule;

/// Words of a gram.
const GRAM: usize = 5;

/// A bijection of 64-bit numbers under which near ones go far apart: the finaliser of MurmurHash3 (Appleby).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Hash of some bytes. Not against an adversary: who writes public text to collide with private text only has it removed.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    hash
}

/// The hashes of the distinct word 5-grams of a text, in increasing order; of a text with fewer words, that of all its words. Words of
/// scripts without spaces come from a dictionary.
pub(super) fn shingles(text: &str) -> Vec<u64> {
    let mut all = Vec::new();
    WordRule::Unicode.words(text, &mut String::new(), |word| {
        all.push(hash_bytes(word.as_bytes()));
    });
    if all.is_empty() {
        return all;
    }
    let gram = |words: &[u64]| {
        words
            .iter()
            .fold(words.len() as u64, |hash, word| mix(hash.rotate_left(17) ^ word))
    };
    let mut grams: Vec<u64> = all.windows(GRAM.min(all.len())).map(gram).collect();
    grams.sort_unstable();
    grams.dedup();
    grams
}

/// Jaccard similarity of two increasing lists.
pub(super) fn jaccard(one: &[u64], other: &[u64]) -> f64 {
    let (mut i, mut j, mut common) = (0, 0, 0);
    while i < one.len() && j < other.len() {
        match one[i].cmp(&other[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                (i, j, common) = (i + 1, j + 1, common + 1);
            }
        }
    }
    let union = one.len() + other.len() - common;
    if union == 0 {
        0.0
    } else {
        common as f64 / union as f64
    }
}

/// Permutations of the 64-bit numbers, in bands.
#[derive(Debug)]
pub(super) struct MinHash {
    keys: Vec<u64>,
    rows_per_band: usize,
}

impl MinHash {
    pub(super) fn new(bands: usize, rows_per_band: usize) -> MinHash {
        let keys = (1..=(bands * rows_per_band) as u64).map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        MinHash {
            keys: keys.collect(),
            rows_per_band,
        }
    }

    /// One hash a band, of its minima; none for an empty set, which agrees with nothing.
    pub(super) fn bands(&self, set: &[u64]) -> Vec<u64> {
        if set.is_empty() {
            return Vec::new();
        }
        let min_hash = |&key: &u64| set.iter().map(|gram| mix(gram ^ key)).fold(u64::MAX, u64::min);
        let bands = self.keys.chunks(self.rows_per_band).zip(0_u64..);
        bands
            .map(|(keys, band)| {
                keys.iter()
                    .map(min_hash)
                    .fold(band, |hash, min| mix(hash.rotate_left(17) ^ min))
            })
            .collect()
    }
}
