//! Stochastic rounding onto the integers, and rounding again until the norm is within its bound.

use undertone_mechanisms::UniformWords;
use undertone_simd::vectorised;

use crate::error::{AggregationError, Result};

/// Coordinates rounded at a time: as many as share a sequence of noise words.
pub(super) const BLOCK: usize = 1024;

/// Blocks of words of one attempt, as a power of two.
const ATTEMPT: u32 = 40;

/// Number of attempts after which a vector is rounded toward zero instead. An attempt fails with probability at most `exp(-1/2)`, so that
/// happens with probability at most `exp(-32) = 1.3e-14`.
const ATTEMPTS: u64 = 64;

/// Largest magnitude that is rounded: above it an `f32` has no fraction, and squares of a block would overflow.
pub(super) const LARGEST: f64 = (1u64 << 24) as f64;

/// The scale, cap and offset that every coordinate gets before it is rounded, all in grid steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placement {
    /// Factor of the infinity clip, at most 1.
    pub shrink: f32,
    /// Magnitudes are cut to this after it.
    pub cap: f32,
    /// Added last: one half where the grid has no point at zero.
    pub half: f32,
}

/// Rounds `values`, whose norm is already bounded, once, and hands the integers on block by block.
pub(super) fn round_once(
    values: &[f32],
    placement: Placement,
    words: UniformWords<'_>,
    mut put: impl FnMut(usize, &[i32]) -> Result<()>,
) -> Result<()> {
    attempt(values, placement, words, 0, &mut put).map(|_| ())
}

/// Rounds `values` until the squared norm of the integers is at most `bound`, and hands them on block by block; each attempt
/// overwrites the one before.
///
/// # Guarantee
/// The integers that are handed on last have a squared norm of at most `bound`. Their squares are added up in integers, so no
/// earlier rounding error matters.
///
/// # Source
/// \[Gboard\] Algorithm 2, conditional stochastic rounding. DEVIATION: bounded in time, see [`ATTEMPTS`].
pub(super) fn round_within(
    values: &[f32],
    placement: Placement,
    words: UniformWords<'_>,
    bound: u128,
    mut put: impl FnMut(usize, &[i32]) -> Result<()>,
) -> Result<()> {
    for number in 0..ATTEMPTS {
        // PRIVACY: the sensitivity is this comparison.
        if attempt(values, placement, words, number, &mut put)? <= bound {
            return Ok(());
        }
    }
    let mut squares = 0u128;
    let mut integers = [0; BLOCK];
    for (block, values) in values.chunks(BLOCK).enumerate() {
        let integers = &mut integers[..values.len()];
        squares += u128::from(truncate_block(values, placement.shrink, placement.cap, integers));
        put(block, integers)?;
    }
    if squares <= bound {
        return Ok(());
    }
    Err(AggregationError::EncodedNorm {
        norm: (squares as f64).sqrt(),
        bound: (bound as f64).sqrt(),
    })
}

/// One rounding of all values; the squared norm of the integers.
fn attempt(
    values: &[f32],
    placement: Placement,
    words: UniformWords<'_>,
    number: u64,
    put: &mut impl FnMut(usize, &[i32]) -> Result<()>,
) -> Result<u128> {
    const WORD_BLOCKS: u64 = (BLOCK / UniformWords::BLOCK) as u64;
    let mut squares = 0u128;
    let (mut random, mut integers) = ([0; BLOCK], [0; BLOCK]);
    for (block, values) in values.chunks(BLOCK).enumerate() {
        let (random, integers) = (&mut random[..values.len()], &mut integers[..values.len()]);
        words.fill((number << ATTEMPT) + block as u64 * WORD_BLOCKS, random);
        let Placement { shrink, cap, half } = placement;
        squares += u128::from(round_block(values, random, shrink, cap, half, integers));
        put(block, integers)?;
    }
    Ok(squares)
}

/// The nearest whole number of one below `2^31`: in double precision it is the last bits of a sum. A cast, which minds what
/// does not fit, would not be vectorised.
#[inline(always)]
fn nearest(x: f32) -> i32 {
    const WHOLE: f64 = 1.5 * (1u64 << 52) as f64;
    (f64::from(x) + WHOLE).to_bits() as i32
}

vectorised! {
    /// `floor(x) + [word < x - floor(x)]`, with the words as fractions of 31 bits; the sum of the squares.
    ///
    /// The probability of rounding up is off by at most `2^-24`: by the fraction's own rounding where `x` is tiny and
    /// negative, by `2^-31` elsewhere. Two values under the same word are rounded in their order.
    fn round_block(values: &[f32], words: &[u32], shrink: f32, cap: f32, half: f32, out: &mut [i32]) -> u64 {
        let mut squares = 0u64;
        for ((&x, &word), out) in values.iter().zip(words).zip(out) {
            let x = (x * shrink).max(-cap).min(cap) + half;
            let nearest = nearest(x);
            let floor = nearest - i32::from((nearest as f32) > x);
            let fraction = f64::from(x - floor as f32);
            let threshold = (fraction * f64::from(1u32 << 31)).min(f64::from(i32::MAX));
            let up = f64::from((word >> 1) as i32) + 1.0 <= threshold;
            let rounded = floor + i32::from(up);
            squares = squares.wrapping_add((i64::from(rounded) * i64::from(rounded)) as u64);
            *out = rounded;
        }
        squares
    }
}

vectorised! {
    fn truncate_block(values: &[f32], shrink: f32, cap: f32, out: &mut [i32]) -> u64 {
        let mut squares = 0u64;
        for (&x, out) in values.iter().zip(out) {
            let rounded = (x * shrink).max(-cap).min(cap) as i32;
            squares = squares.wrapping_add((i64::from(rounded) * i64::from(rounded)) as u64);
            *out = rounded;
        }
        squares
    }
}

vectorised! {
    /// The sum of the squares; not finite if a value is not.
    pub(super) fn energy(values: &[f32]) -> f64 {
        let mut sums = [0.0f64; 16];
        let (chunks, rest) = values.as_chunks::<16>();
        for chunk in chunks {
            for (sum, &x) in sums.iter_mut().zip(chunk) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>()
    }
}

vectorised! {
    /// The largest magnitude.
    pub(super) fn largest(values: &[f32]) -> f32 {
        // Magnitudes of floats are ordered like their bits.
        f32::from_bits(values.iter().fold(0, |top, x| top.max(x.to_bits() & 0x7fff_ffff)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_mechanisms::NoiseKey;

    const PLAIN: Placement = Placement {
        shrink: 1.0,
        cap: 1e6,
        half: 0.0,
    };

    fn rounded(values: &[f32], round: u64, bound: Option<u128>) -> Result<Vec<i32>> {
        let key = NoiseKey::from_bytes([5; 32]);
        let words = UniformWords::rounding(&key, round).unwrap();
        let mut out = vec![0; values.len()];
        let put = |block: usize, integers: &[i32]| {
            out[block * BLOCK..][..integers.len()].copy_from_slice(integers);
            Ok(())
        };
        match bound {
            None => round_once(values, PLAIN, words, put)?,
            Some(bound) => round_within(values, PLAIN, words, bound, put)?,
        }
        Ok(out)
    }

    #[test]
    fn rounding_is_unbiased() {
        // 2^18 roundings each of 12 numbers: two-sided z-tests at 5.33 standard deviations, together below 1.2e-6.
        let n = 1 << 18;
        for (round, x) in [
            0.0, 0.25, -0.25, 0.5, 0.999, -0.999, 1e-3, -1e-3, 17.3, -17.3, 12_345.67, -4095.125,
        ]
        .into_iter()
        .enumerate()
        {
            let x = x as f32;
            let sample = rounded(&vec![x; n], round as u64, None).unwrap();
            let low = x.floor() as i32;
            assert!(sample.iter().all(|&v| v == low || v == low + 1), "{x}");
            let fraction = f64::from(x) - f64::from(low);
            let up = sample.iter().filter(|&&v| v == low + 1).count() as f64;
            let spread = (n as f64 * fraction * (1.0 - fraction)).sqrt();
            assert!(
                (up - n as f64 * fraction).abs() <= 5.33 * spread + 1e-9,
                "{x}: {up} of {n}"
            );
        }
    }

    #[test]
    fn conditional_rounding_never_exceeds_its_bound() {
        // 4000 coordinates of 0.5 round to 2000 +- 32 ones; a bound in the middle takes several attempts.
        let values = vec![0.5; 4000];
        for round in 0..50 {
            let sample = rounded(&values, round, Some(2000)).unwrap();
            assert!(sample.iter().map(|&v| i64::from(v).pow(2)).sum::<i64>() <= 2000);
        }
        // Out of reach of any attempt: toward zero.
        assert!(rounded(&values, 0, Some(500)).unwrap().iter().all(|&v| v == 0));
        let message = rounded(&[3.0; 10], 0, Some(89)).unwrap_err().to_string();
        assert!(message.contains("above its bound"), "{message}");
    }

    /// Against the formula with integers: `floor + [word / 2 < trunc(2^31 fraction)]`, where tiny negative numbers have a
    /// fraction of one, and words lie at the threshold and beside it.
    #[test]
    fn rounding_is_the_formula() {
        let cap = (1 << 24) as f32;
        let numbers = (0..2000).map(|i| (i as f32 - 1000.0) * 0.37);
        let special = [
            0.0,
            -0.0,
            1e-40,
            -1e-40,
            -1e-9,
            0.5,
            -0.5,
            cap,
            -cap,
            4_194_303.5,
            -8_388_607.5,
            3e38,
            -3e38,
        ];
        let numbers: Vec<f32> = numbers.chain(special).collect();
        for half in [0.0, 0.5] {
            let exact = |x: f32| {
                let x = x.clamp(-cap, cap) + half;
                let floor = x.floor();
                (floor as i32, ((x - floor) * (1u32 << 31) as f32) as i32)
            };
            for beside in [i32::MIN, -2, -1, 0, 1, 2, i32::MAX] {
                let word = |x: f32| ((exact(x).1.saturating_add(beside)).max(0) as u32) << 1;
                let words: Vec<u32> = numbers.iter().map(|&x| word(x)).collect();
                let mut out = vec![0; numbers.len()];
                round_block(&numbers, &words, 1.0, cap, half, &mut out);
                for ((&x, &word), &out) in numbers.iter().zip(&words).zip(&out) {
                    let (floor, threshold) = exact(x);
                    assert_eq!(
                        out,
                        floor + i32::from(((word >> 1) as i32) < threshold),
                        "{x} {word}"
                    );
                }
            }
        }
    }

    #[test]
    fn values_are_capped_and_placed() {
        let mut out = [0; 4];
        let words = [u32::MAX; 4];
        let squares = round_block(&[8.0, -8.0, 3.0, -3.0], &words, 0.5, 3.0, 0.0, &mut out);
        assert_eq!((out, squares), ([3, -3, 1, -2], 9 + 9 + 1 + 4));
        round_block(&[8.0, -8.0, 0.0, -0.5], &words, 1.0, 2.5, 0.5, &mut out);
        assert_eq!(out, [3, -2, 0, 0]);
        assert_eq!(
            truncate_block(&[2.9, -2.9, 9.0, 0.0], 1.0, 4.0, &mut out),
            4 + 4 + 16
        );
        assert_eq!((energy(&[3.0; 40]), largest(&[1.0, -7.0, 2.0])), (360.0, 7.0));
        assert!(energy(&[f32::INFINITY, 0.0]).is_infinite() && energy(&[f32::NAN]).is_nan());
    }
}
