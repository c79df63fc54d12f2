//! Masks: the words of a keyed stream as residues, added to a vector block by block and never stored.
//!
//! The stream is AES-256 in counter mode from counter 0 (NIST SP 800-38A; the counter is big-endian, 128 bits). Its bytes
//! are little-endian words of 4 bytes for moduli up to 2^32 and of 8 bytes above, cut to the modulus's bits. For a power of
//! two each word is a residue; for others, words that are not below the modulus are skipped. Both are uniform, and the same
//! on every machine.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit, consts::U16};
use undertone_aggregation::{Lane, ModularVec, Modulus};
use zeroize::{Zeroize, Zeroizing};

use crate::error::Result;
use crate::keys::Secret;

/// Residues made at a time: with their stream they stay in the first cache.
const BLOCK: usize = 2048;
/// Bytes of stream behind a block of the widest residues.
const STREAM: usize = BLOCK * 8;
/// Bytes of stream made at a time where some words are skipped.
const DRAWN: usize = 2048;

/// The sign of a mask: added or subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

impl Sign {
    /// The sign with which client `own` wears the mask that it shares with `other`: one of the two adds, one takes away.
    pub(crate) fn of_pair(own: u32, other: u32) -> Self {
        if other < own { Self::Plus } else { Self::Minus }
    }

    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Plus => Self::Minus,
            Self::Minus => Self::Plus,
        }
    }
}

/// Adds or takes away the masks of `keys` over the whole of `vector`.
pub(crate) fn apply<'a>(
    vector: &mut ModularVec,
    keys: impl IntoIterator<Item = (Sign, &'a Secret)>,
) -> Result<()> {
    let modulus = vector.modulus();
    let mut streams: Vec<_> = keys
        .into_iter()
        .map(|(sign, key)| (sign, MaskStream::new(key, modulus)))
        .collect();
    if modulus.is_narrow() {
        apply_lanes::<u32>(vector, &mut streams)
    } else {
        apply_lanes::<u64>(vector, &mut streams)
    }
}

/// Block after block of the vector, and over each block all masks: the vector is read and written once.
fn apply_lanes<W: Word>(vector: &mut ModularVec, streams: &mut [(Sign, MaskStream)]) -> Result<()> {
    // PRIVACY: a mask is all that hides a vector, so what was made of it is wiped, also where an addition is refused.
    let (mut block, mut scratch) = (Zeroizing::new([W::default(); BLOCK]), Zeroizing::new([0; STREAM]));
    for start in (0..vector.len()).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(vector.len() - start)];
        for (sign, stream) in &mut *streams {
            stream.residues(block, &mut scratch);
            match sign {
                Sign::Plus => vector.add_at(start, block)?,
                Sign::Minus => vector.sub_at(start, block)?,
            }
        }
    }
    Ok(())
}

/// A word of the stream.
trait Word: Lane + Default + Zeroize {
    const BYTES: usize;
    /// Cuts each word of `bytes` to `last`, the largest residue of a power of two.
    fn cut(bytes: &[u8], last: u64, out: &mut [Self]);
    /// Words below `modulus` of `bytes`, cut to `mask`, until `out` is full: how many words were read and written.
    fn select(bytes: &[u8], mask: u64, modulus: u64, out: &mut [Self]) -> (usize, usize);
}

macro_rules! word {
    ($word:ty, $bytes:literal) => {
        impl Word for $word {
            const BYTES: usize = $bytes;

            fn cut(bytes: &[u8], last: u64, out: &mut [Self]) {
                for (out, word) in out.iter_mut().zip(bytes.as_chunks::<$bytes>().0) {
                    *out = <$word>::from_le_bytes(*word) & last as $word;
                }
            }

            fn select(bytes: &[u8], mask: u64, modulus: u64, out: &mut [Self]) -> (usize, usize) {
                let (mut read, mut written) = (0, 0);
                for word in bytes.as_chunks::<$bytes>().0 {
                    let Some(place) = out.get_mut(written) else {
                        break;
                    };
                    *place = <$word>::from_le_bytes(*word) & mask as $word;
                    // PRIVACY: which words are skipped says nothing of the others, but no branch tells it either.
                    written += usize::from(u64::from(*place) < modulus);
                    read += 1;
                }
                (read, written)
            }
        }
    };
}

word!(u32, 4);
word!(u64, 8);

/// One key's stream of residues.
pub(crate) struct MaskStream {
    cipher: Aes256,
    counter: u128,
    modulus: Modulus,
    /// Stream that was made and not yet read, where words are skipped.
    drawn: Vec<u8>,
}

impl MaskStream {
    pub(crate) fn new(key: &Secret, modulus: Modulus) -> Self {
        Self {
            cipher: Aes256::new(&(**key).into()),
            counter: 0,
            modulus,
            drawn: Vec::new(),
        }
    }

    /// The next whole blocks of stream.
    fn fill(&mut self, stream: &mut [u8]) {
        let (blocks, _) = Array::<u8, U16>::slice_as_chunks_mut(stream);
        for block in &mut *blocks {
            *block = self.counter.to_be_bytes().into();
            self.counter = self.counter.wrapping_add(1);
        }
        self.cipher.encrypt_blocks(blocks);
    }

    /// The next residues, made in `scratch`. All but the last call must ask for multiples of 4.
    fn residues<W: Word>(&mut self, out: &mut [W], scratch: &mut [u8; STREAM]) {
        let mask = u64::MAX >> (64 - self.modulus.bits());
        if self.modulus.is_power_of_two() {
            let stream = &mut scratch[..(out.len() * W::BYTES).next_multiple_of(16)];
            self.fill(stream);
            W::cut(stream, mask, out);
            return;
        }
        let mut done = 0;
        while done < out.len() {
            if self.drawn.is_empty() {
                let mut drawn = std::mem::take(&mut self.drawn);
                drawn.resize(DRAWN, 0);
                self.fill(&mut drawn);
                self.drawn = drawn;
            }
            let (read, written) = W::select(&self.drawn, mask, self.modulus.get(), &mut out[done..]);
            self.drawn.drain(..read * W::BYTES);
            done += written;
        }
    }
}

impl Drop for MaskStream {
    fn drop(&mut self) {
        // The cipher wipes its own keys. Zeroizing covers the vector's whole capacity, read parts included.
        self.drawn.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> Secret {
        Secret::new([seed; 32])
    }

    fn mask(seed: u8, modulus: u64, len: usize) -> Vec<u64> {
        let mut vector = ModularVec::zeros(Modulus::new(modulus).unwrap(), len);
        apply(&mut vector, [(Sign::Plus, &key(seed))]).unwrap();
        vector.iter().collect()
    }

    /// NIST SP 800-38A, F.5.5: AES-256 in counter mode. A generator that folded the key to fewer bits could not pass.
    #[test]
    fn the_mask_stream_is_aes_256_in_counter_mode() {
        let key = [
            0x60, 0x3d, 0xeb, 0x10, 0x15, 0xca, 0x71, 0xbe, 0x2b, 0x73, 0xae, 0xf0, 0x85, 0x7d, 0x77, 0x81,
            0x1f, 0x35, 0x2c, 0x07, 0x3b, 0x61, 0x08, 0xd7, 0x2d, 0x98, 0x10, 0xa3, 0x09, 0x14, 0xdf, 0xf4,
        ];
        let mut stream = MaskStream::new(&Secret::new(key), Modulus::new(1 << 32).unwrap());
        stream.counter = u128::from_be_bytes(std::array::from_fn(|i| 0xf0 + i as u8));
        let mut bytes = [0; 32];
        stream.fill(&mut bytes);
        let plain = [
            0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96, 0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93, 0x17, 0x2a,
        ];
        let cipher = [
            0x60, 0x1e, 0xc3, 0x13, 0x77, 0x57, 0x89, 0xa5, 0xb7, 0xa7, 0xf5, 0x04, 0xbb, 0xf3, 0xd2, 0x28,
        ];
        assert_eq!(std::array::from_fn(|i| bytes[i] ^ plain[i]), cipher);
    }

    /// Block by block, one word at a time, from the definition in the module's page.
    fn reference(seed: u8, modulus: u64, len: usize) -> Vec<u64> {
        let bits = (modulus - 1).ilog2() + 1;
        let cipher = Aes256::new(&[seed; 32].into());
        let words = (0u128..).flat_map(|counter| {
            let mut block = counter.to_be_bytes().into();
            cipher.encrypt_block(&mut block);
            let bytes: [u8; 16] = block.into();
            let word = |chunk: &[u8]| {
                chunk
                    .iter()
                    .rev()
                    .fold(0u64, |word, byte| word << 8 | u64::from(*byte))
            };
            let size = if bits <= 32 { 4 } else { 8 };
            bytes.chunks(size).map(word).collect::<Vec<_>>()
        });
        words
            .map(|word| word & (u64::MAX >> (64 - bits)))
            .filter(|word| *word < modulus)
            .take(len)
            .collect()
    }

    #[test]
    fn masks_are_what_the_page_says() {
        let mut moduli: Vec<u64> = (1..=62).map(|bits| 1 << bits).collect();
        moduli.extend([
            3,
            5,
            1000,
            (1 << 31) + 1,
            (1 << 32) - 5,
            (1 << 32) + 15,
            (1 << 61) + 1,
            (1 << 62) - 57,
        ]);
        for (seed, modulus) in (0..).zip(moduli) {
            for len in [1, 5, 2048, 2049, 5000] {
                assert_eq!(
                    mask(seed, modulus, len),
                    reference(seed, modulus, len),
                    "modulus {modulus}"
                );
            }
        }
    }

    #[test]
    fn masks_cancel_in_pairs() {
        for modulus in [1 << 20, 1000, 1 << 32, 1 << 40, (1 << 40) - 87] {
            let modulus = Modulus::new(modulus).unwrap();
            let mut vector = ModularVec::from_residues(modulus, &[5u32; 3000]).unwrap();
            let (a, b) = (key(1), key(2));
            apply(&mut vector, [(Sign::Plus, &a), (Sign::Minus, &b)]).unwrap();
            assert!(!vector.iter().eq([5; 3000]));
            apply(&mut vector, [(Sign::Minus, &a), (Sign::Plus, &b)]).unwrap();
            assert!(vector.iter().eq([5; 3000]));
        }
        assert_eq!(Sign::of_pair(3, 5), Sign::of_pair(5, 3).opposite());
    }
}
