//! Counter-based uniform bits: every 64-bit word has an address (key, purpose, round, index).

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::ZeroizeOnDrop;

use crate::error::{MechanismError, Result};

/// Rounds and purposes share ChaCha's 64-bit stream number: 16 bits for the purpose, 48 for the round.
const ROUND_BITS: u32 = 48;

/// The secret from which all noise of a run derives.
///
/// # Guarantee
/// The noise is as good as ChaCha20 with this key: draw the key from the operating system's entropy, use it for one
/// run only, and never privatise two different averages under the same key and round: their difference would show
/// without noise.
#[derive(Clone, ZeroizeOnDrop)]
pub struct NoiseKey([u8; 32]);

impl NoiseKey {
    /// Wraps 32 secret bytes. The copy inside the key is wiped when the key is dropped.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The stream of words for one purpose and round.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] for a round of `2^48` or more.
    pub(crate) fn stream(&self, purpose: Purpose, round: u64) -> Result<UniformStream<'_>> {
        if round >> ROUND_BITS != 0 {
            let (name, expected) = ("round", "less than 2^48");
            return Err(MechanismError::Setting {
                name,
                expected,
                got: round as f64,
            });
        }
        Ok(UniformStream {
            key: self,
            stream: (purpose as u64) << ROUND_BITS | round,
        })
    }
}

impl std::fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoiseKey")
    }
}

/// What random words are for; two purposes never share a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Purpose {
    /// Radii and angles of Gaussian samples.
    Gaussian = 1,
    /// The low halves of radii far out in the tail.
    GaussianTail = 2,
}

/// An endless sequence of 64-bit words that can be read from any index.
#[derive(Clone, Copy)]
pub(crate) struct UniformStream<'a> {
    key: &'a NoiseKey,
    stream: u64,
}

impl UniformStream<'_> {
    /// Fills `bytes` with the little-endian words from index `first_word` on; the length must be a multiple of 8.
    pub(crate) fn fill(&self, first_word: u64, bytes: &mut [u8]) {
        let mut generator = ChaCha20Rng::from_seed(self.key.0);
        generator.set_stream(self.stream);
        generator.set_word_pos(2 * u128::from(first_word));
        generator.fill_bytes(bytes);
    }

    /// The word at `index`.
    pub(crate) fn word(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(index, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_addresses() {
        let key = NoiseKey::from_bytes([7; 32]);
        let stream = key.stream(Purpose::Gaussian, 3).unwrap();
        let mut bytes = [0; 80];
        stream.fill(5, &mut bytes);
        for (i, chunk) in bytes.chunks_exact(8).enumerate() {
            assert_eq!(chunk, stream.word(5 + i as u64).to_le_bytes());
        }
    }

    #[test]
    fn addresses_do_not_collide() {
        let (key, other) = (NoiseKey::from_bytes([7; 32]), NoiseKey::from_bytes([8; 32]));
        let words = [
            key.stream(Purpose::Gaussian, 3).unwrap().word(0),
            key.stream(Purpose::GaussianTail, 3).unwrap().word(0),
            key.stream(Purpose::Gaussian, 4).unwrap().word(0),
            key.stream(Purpose::Gaussian, 3).unwrap().word(1),
            other.stream(Purpose::Gaussian, 3).unwrap().word(0),
        ];
        for (i, word) in words.iter().enumerate() {
            assert!(!words[..i].contains(word));
        }
        assert!(key.stream(Purpose::Gaussian, 1 << 48).is_err());
    }

    #[test]
    fn is_chacha20_of_rfc_7539() {
        // RFC 7539, appendix A.1, test vector 1: key, nonce and counter zero.
        let stream = UniformStream {
            key: &NoiseKey::from_bytes([0; 32]),
            stream: 0,
        };
        let expected = [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90];
        assert_eq!(stream.word(0).to_le_bytes(), expected);
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", NoiseKey::from_bytes([42; 32])), "NoiseKey");
    }
}
