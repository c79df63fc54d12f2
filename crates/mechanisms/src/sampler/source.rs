//! A sequence of uniform words for samplers that use more of them for some samples than for others.

use rayon::prelude::*;
use zeroize::Zeroize;

use super::chacha20::{BLOCK_WORDS, Batch, KeyStream, LANES};
use super::uniform::{NoiseKey, Purpose, UniformStream};
use crate::error::{MechanismError, Result};

/// Samples that share one sequence of words; sample `i` of a round comes from sequence `i / BLOCK`.
pub(crate) const BLOCK: usize = 1024;

/// ChaCha blocks between the starts of two sequences, as a power of two: a gigabyte each, where some 100 KB are used.
const SPACING: u32 = 24;

/// Words of one sequence, in order.
pub(super) struct WordSource {
    stream: KeyStream,
    next_block: u64,
    batch: Batch,
    used: usize,
}

impl WordSource {
    /// Sequence `index` of a stream.
    pub(super) fn new(stream: &UniformStream<'_>, index: u64) -> Self {
        Self {
            stream: stream.key_stream(),
            next_block: index << SPACING,
            batch: [[0; LANES]; BLOCK_WORDS],
            used: LANES * BLOCK_WORDS,
        }
    }

    /// 32 uniform bits.
    #[inline]
    pub(super) fn half_word(&mut self) -> u32 {
        if self.used == LANES * BLOCK_WORDS {
            self.stream
                .fill(self.next_block, std::slice::from_mut(&mut self.batch));
            self.next_block += LANES as u64;
            self.used = 0;
        }
        let word = self.batch.as_flattened()[self.used];
        self.used += 1;
        word
    }

    /// 64 uniform bits.
    #[inline]
    pub(super) fn word(&mut self) -> u64 {
        u64::from(self.half_word()) << 32 | u64::from(self.half_word())
    }

    /// A whole number below `bound`, which is positive, each with the same probability (Lemire 2019).
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound <= 1 << 32 {
            return self.below_half(bound);
        }
        loop {
            let product = u128::from(self.word()) * u128::from(bound);
            // The lowest 2^64 mod bound products of each residue would make their quotients too likely.
            if product as u64 >= bound || product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A whole number below `bound`, which is positive and at most `2^32`, each with the same probability.
    #[inline]
    fn below_half(&mut self, bound: u64) -> u64 {
        loop {
            let product = u64::from(self.half_word()) * bound;
            let low = product & 0xffff_ffff;
            if low >= bound || low >= (1 << 32) % bound {
                return product >> 32;
            }
        }
    }

    /// A whole number below `bound`, which is positive, by rejection.
    pub(super) fn below_wide(&mut self, bound: u128) -> u128 {
        if let Ok(bound) = u64::try_from(bound) {
            return u128::from(self.below(bound));
        }
        let unused = (bound - 1).leading_zeros();
        loop {
            let value = (u128::from(self.word()) << 64 | u128::from(self.word())) >> unused;
            if value < bound {
                return value;
            }
        }
    }
}

impl Drop for WordSource {
    fn drop(&mut self) {
        self.batch.as_flattened_mut().zeroize();
    }
}

/// Fills `out` with the samples of one block of [`BLOCK`]: those that [`fill`] puts there, without the others.
pub(super) fn fill_block(
    key: &NoiseKey,
    purpose: Purpose,
    round: u64,
    block: u64,
    out: &mut [i64],
    sample: impl Fn(&mut WordSource) -> i64,
) -> Result<()> {
    if out.len() > BLOCK {
        return Err(MechanismError::WrongDimension {
            expected: BLOCK,
            got: out.len(),
        });
    }
    let mut source = WordSource::new(&key.stream(purpose, round)?, block);
    out.fill_with(|| sample(&mut source));
    Ok(())
}

/// Fills `out` with samples of `round`, each drawn from the words of its block; the same at any thread count.
pub(super) fn fill(
    key: &NoiseKey,
    purpose: Purpose,
    round: u64,
    out: &mut [i64],
    sample: impl Fn(&mut WordSource) -> i64 + Sync,
) -> Result<()> {
    let stream = key.stream(purpose, round)?;
    out.par_chunks_mut(BLOCK).enumerate().for_each(|(block, out)| {
        let mut source = WordSource::new(&stream, block as u64);
        out.fill_with(|| sample(&mut source));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::statistics::check_counts;
    use super::*;

    fn source(index: u64) -> WordSource {
        let key = NoiseKey::from_bytes([4; 32]);
        WordSource::new(&key.stream(Purpose::DiscreteLaplace, 0).unwrap(), index)
    }

    #[test]
    fn blocks_are_parts_of_the_whole() {
        let key = NoiseKey::from_bytes([6; 32]);
        let sample = |source: &mut WordSource| source.below(1000) as i64;
        let mut whole = vec![0; 2 * BLOCK + 5];
        fill(&key, Purpose::Binomial, 3, &mut whole, sample).unwrap();
        for (block, part) in whole.chunks(BLOCK).enumerate() {
            let mut out = vec![0; part.len()];
            fill_block(&key, Purpose::Binomial, 3, block as u64, &mut out, sample).unwrap();
            assert_eq!(out, part);
        }
        assert!(fill_block(&key, Purpose::Binomial, 3, 0, &mut vec![0; BLOCK + 1], sample).is_err());
    }

    #[test]
    fn sequences_do_not_meet() {
        let first: Vec<u64> = std::iter::repeat_with({
            let mut source = source(0);
            move || source.word()
        })
        .take(1000)
        .collect();
        let mut other = source(1);
        assert!((0..1000).all(|_| !first.contains(&other.word())));
    }

    #[test]
    fn bounded_numbers_are_uniform() {
        let mut source = source(2);
        for bound in [
            1u128,
            2,
            3,
            7,
            100,
            (1 << 32) - 1,
            1 << 32,
            (1 << 32) + 1,
            3 << 62,
            (1 << 64) + 1,
            3 << 126,
        ] {
            // Counts by sevenths of the range; where it has fewer numbers, by number.
            let bins = bound.min(7) as usize;
            let bin = |value: u128| match bound {
                0..=7 => value as usize,
                _ => (value / (bound / 7 + 1)) as usize,
            };
            let mut counts = vec![0; bins];
            for _ in 0..20_000 {
                let value = source.below_wide(bound);
                assert!(value < bound);
                counts[bin(value)] += 1;
            }
            if bins == 1 {
                continue;
            }
            let mut mass = vec![1.0 / bins as f64; bins];
            if bound > 7 {
                let width = (bound / 7 + 1) as f64 / bound as f64;
                mass.fill(width);
                mass[6] = 1.0 - 6.0 * width;
            }
            check_counts(&counts, &mass);
        }
    }
}
