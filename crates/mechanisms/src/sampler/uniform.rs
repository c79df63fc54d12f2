//! Counter-based uniform bits: every 64-bit word has an address (key, purpose, round, index).

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::chacha20::{BLOCK_WORDS, Batch, KeyStream, LANES, lane_bytes};
use crate::error::{Result, ensure};

/// Rounds and purposes share ChaCha's 64-bit stream number: 16 bits for the purpose, 48 for the round.
const ROUND_BITS: u32 = 48;

/// The secret from which all noise of a run derives.
///
/// # Guarantee
/// The noise is as good as ChaCha20 with this key: draw the key from the operating system's entropy, use it for one
/// run only, and never privatise two different averages under the same key and round: their difference would show
/// without noise.
#[derive(Clone, ZeroizeOnDrop)]
pub struct NoiseKey {
    bytes: [u8; 32],
    #[zeroize(skip)]
    origin: KeyOrigin,
}

/// The origin of a noise key; it follows the noise into every report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyOrigin {
    /// Secret bytes, as from the operating system's entropy.
    Entropy,
    /// A seed that someone may know or guess, and then subtract the noise. For studies and tests.
    InsecureSeed,
}

impl KeyOrigin {
    /// The origin of noise that comes from both: guessable as soon as one of them is.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (KeyOrigin::Entropy, KeyOrigin::Entropy) => KeyOrigin::Entropy,
            _ => KeyOrigin::InsecureSeed,
        }
    }
}

impl std::fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KeyOrigin::Entropy => "entropy",
            KeyOrigin::InsecureSeed => "an insecure seed",
        })
    }
}

impl NoiseKey {
    /// Wraps 32 secret bytes. The copy inside the key is wiped when the key is dropped.
    ///
    /// The key says of itself that it came from entropy; for bytes that were derived from a seed, see
    /// [`with_origin`](Self::with_origin).
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self {
            bytes,
            origin: KeyOrigin::Entropy,
        }
    }

    /// A key that a seed determines: no secret, so no guarantee; for studies and tests.
    #[must_use]
    pub fn from_insecure_seed(seed: u64) -> Self {
        let mut bytes = *b"undertone insecure seed ........";
        bytes[24..].copy_from_slice(&seed.to_le_bytes());
        Self::from_bytes(bytes).with_origin(KeyOrigin::InsecureSeed)
    }

    /// Keeps the bytes and replaces the statement of their origin.
    #[must_use]
    pub fn with_origin(mut self, origin: KeyOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// The origin of the key.
    #[must_use]
    pub fn origin(&self) -> KeyOrigin {
        self.origin
    }

    /// A name of the key that does not give it away: two keys never share it.
    ///
    /// # Errors
    /// None today; the signature is that of everything that draws from the key.
    pub fn id(&self) -> Result<[u8; 32]> {
        crate::state::key_id(self)
    }

    /// The key of one client under this one, for simulated clients that have no entropy of their own.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a client number of `2^48` or more.
    pub fn for_client(&self, client: u64) -> Result<Self> {
        let mut bytes = [0; 32];
        self.stream(Purpose::ClientKey, client)?.fill(0, &mut bytes);
        Ok(Self {
            bytes,
            origin: self.origin,
        })
    }

    /// The secret itself.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The stream of words for one purpose and round.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub(crate) fn stream(&self, purpose: Purpose, round: u64) -> Result<UniformStream<'_>> {
        ensure(round >> ROUND_BITS == 0, "round", "less than 2^48", round as f64)?;
        Ok(UniformStream {
            key: self,
            stream: (purpose as u64) << ROUND_BITS | round,
        })
    }
}

impl std::fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: the origin may be printed, the bytes may not.
        write!(f, "NoiseKey({:?})", self.origin)
    }
}

/// The purpose of random words; two purposes never share a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Purpose {
    // 1 and 2 belonged to Gaussian samples in `f64`.
    /// Radii and angles of `f32` Gaussian samples.
    Gaussian32 = 3,
    /// The low parts of `f32` radii far out in the tail.
    Gaussian32Tail = 4,
    /// Radii and angles of snapped Gaussian samples.
    Snapped = 5,
    /// Further bits of the same radii and angles, where the first 64 leave the rounding open.
    SnappedRefinement = 6,
    /// Everything behind exact discrete Gaussian samples.
    DiscreteGaussian = 7,
    /// Everything behind exact discrete Laplace samples.
    DiscreteLaplace = 8,
    /// Everything behind binomial samples.
    Binomial = 9,
    /// Everything behind Poisson samples.
    Poisson = 10,
    /// Everything behind Skellam samples.
    Skellam = 11,
    /// A name of the key in saved states.
    KeyId = 12,
    /// Directions in which values are rounded.
    Rounding = 13,
    /// Signs of a random rotation, which everyone may know.
    Signs = 14,
    /// Keys of single clients.
    ClientKey = 15,
    /// Candidates and coins of private medians.
    Median = 16,
}

/// An endless sequence of 64-bit words that can be read from any index.
#[derive(Clone, Copy)]
pub(crate) struct UniformStream<'a> {
    key: &'a NoiseKey,
    stream: u64,
}

impl UniformStream<'_> {
    /// The key stream behind the words: word `i` is bytes `8 i % 64 ..` of ChaCha block `8 i / 64`.
    pub(crate) fn key_stream(&self) -> KeyStream {
        KeyStream::new(self.key.bytes(), self.stream)
    }

    /// Whole ChaCha blocks from `first_block` on, in the lane order that needs no shuffling.
    pub(crate) fn fill_batches(&self, first_block: u64, batches: &mut [Batch]) {
        self.key_stream().fill(first_block, batches);
    }

    /// Fills `bytes` with the little-endian words from index `first_word` on; the length must be a multiple of 8.
    pub(crate) fn fill(&self, first_word: u64, bytes: &mut [u8]) {
        let stream = self.key_stream();
        let (mut block, mut skip) = (first_word / 8, (first_word % 8) as usize * 8);
        let mut batch: Batch = [[0; LANES]; BLOCK_WORDS];
        let mut rest = bytes;
        let mut whole = [0; 64];
        while !rest.is_empty() {
            stream.fill(block, std::slice::from_mut(&mut batch));
            for lane in 0..LANES {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at_mut(rest.len().min(64 - skip));
                if let Ok(target) = now.try_into() {
                    lane_bytes(&batch, lane, target);
                } else {
                    lane_bytes(&batch, lane, &mut whole);
                    now.copy_from_slice(&whole[skip..skip + now.len()]);
                }
                (rest, skip) = (later, 0);
            }
            block = block.wrapping_add(LANES as u64);
        }
        batch.zeroize();
        whole.zeroize();
    }

    /// The word at `index`.
    pub(crate) fn word(&self, index: u64) -> u64 {
        let bytes = self.key_stream().bytes(index / 8);
        u64::from_le_bytes(bytes.as_chunks::<8>().0[(index % 8) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_addresses() {
        let key = NoiseKey::from_bytes([7; 32]);
        let stream = key.stream(Purpose::Gaussian32, 3).unwrap();
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
            key.stream(Purpose::Gaussian32, 3).unwrap().word(0),
            key.stream(Purpose::Gaussian32Tail, 3).unwrap().word(0),
            key.stream(Purpose::Gaussian32, 4).unwrap().word(0),
            key.stream(Purpose::Gaussian32, 3).unwrap().word(1),
            other.stream(Purpose::Gaussian32, 3).unwrap().word(0),
        ];
        for (i, word) in words.iter().enumerate() {
            assert!(!words[..i].contains(word));
        }
        assert!(key.stream(Purpose::Gaussian32, 1 << 48).is_err());
    }

    #[test]
    fn the_stream_is_chacha20_of_rfc_7539() {
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
        assert_eq!(
            format!("{:?}", NoiseKey::from_bytes([42; 32])),
            "NoiseKey(Entropy)"
        );
    }

    #[test]
    fn origin_follows_the_key() {
        let key = NoiseKey::from_insecure_seed(7);
        assert_eq!(key.clone().origin(), KeyOrigin::InsecureSeed);
        assert_eq!(NoiseKey::from_bytes([1; 32]).origin(), KeyOrigin::Entropy);
        let (entropy, seed) = (KeyOrigin::Entropy, KeyOrigin::InsecureSeed);
        assert_eq!(
            [
                entropy.and(entropy),
                entropy.and(seed),
                seed.and(entropy),
                seed.and(seed)
            ],
            [entropy, seed, seed, seed]
        );
        let word = |key: &NoiseKey| key.stream(Purpose::Gaussian32, 0).unwrap().word(0);
        assert_ne!(word(&key), word(&NoiseKey::from_insecure_seed(8)));
        assert_eq!(word(&key), word(&key.clone().with_origin(KeyOrigin::Entropy)));
    }
}
