//! Uniform words for rounding and for the signs of rotations, addressed by key, round and place.

use zeroize::Zeroize;

use super::chacha20::{BLOCK_WORDS, Batch, LANES};
use super::uniform::{NoiseKey, Purpose, UniformStream};
use crate::error::Result;

/// 32-bit words of ChaCha20 in blocks of [`UniformWords::BLOCK`], read from any block on.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, UniformWords};
/// let key = NoiseKey::from_bytes([1; 32]);
/// let words = UniformWords::rounding(&key, 0)?;
/// let (mut all, mut second) = ([0; 2 * UniformWords::BLOCK], [0; 10]);
/// words.fill(0, &mut all);
/// words.fill(1, &mut second);
/// assert_eq!(all[UniformWords::BLOCK..][..10], second);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: words decide how secrets are rounded"
)]
pub struct UniformWords<'a>(UniformStream<'a>);

impl<'a> UniformWords<'a> {
    /// Words that are made together.
    pub const BLOCK: usize = LANES * BLOCK_WORDS;

    /// Creates the words for stochastic rounding, under a key of the client that rounds.
    ///
    /// # Errors
    /// A round of `2^48` or more.
    pub fn rounding(key: &'a NoiseKey, round: u64) -> Result<Self> {
        key.stream(Purpose::Rounding, round).map(Self)
    }

    /// Creates the words for the signs of a rotation, under a key that all clients and the server share: it need not be secret.
    ///
    /// # Errors
    /// A round of `2^48` or more.
    pub fn signs(key: &'a NoiseKey, round: u64) -> Result<Self> {
        key.stream(Purpose::Signs, round).map(Self)
    }

    /// The words from block `first` on.
    pub fn fill(&self, first: u64, out: &mut [u32]) {
        let mut batch: Batch = [[0; LANES]; BLOCK_WORDS];
        for (index, out) in out.chunks_mut(Self::BLOCK).enumerate() {
            let block = first.wrapping_add(index as u64).wrapping_mul(LANES as u64);
            self.0.fill_batches(block, std::slice::from_mut(&mut batch));
            out.copy_from_slice(&batch.as_flattened()[..out.len()]);
        }
        batch.as_flattened_mut().zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_collide() {
        let key = NoiseKey::from_bytes([3; 32]);
        let client = key.for_client(7).unwrap();
        let first = |words: UniformWords<'_>| {
            let mut out = [0; 4];
            words.fill(0, &mut out);
            out
        };
        let all = [
            first(UniformWords::rounding(&key, 0).unwrap()),
            first(UniformWords::rounding(&key, 1).unwrap()),
            first(UniformWords::signs(&key, 0).unwrap()),
            first(UniformWords::rounding(&client, 0).unwrap()),
            first(UniformWords::rounding(&key.for_client(8).unwrap(), 0).unwrap()),
        ];
        for (i, words) in all.iter().enumerate() {
            assert!(!all[..i].contains(words));
        }
        assert_eq!(client.origin(), key.origin());
        assert!(key.for_client(1 << 48).is_err());
        assert!(UniformWords::rounding(&key, 1 << 48).is_err());
    }
}
