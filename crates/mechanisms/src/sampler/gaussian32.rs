//! Standard normal samples in `f32` by Box-Muller, in blocks that can be made in any order.
//!
//! For research streams, whose state and output are `f32` anyway. A pair of samples takes two 32-bit words, one for the
//! radius and one for the angle. The logarithm, sine and cosine are own series without fused multiply-add and without calls
//! into the system's mathematics library, so the same key gives the same bits on every machine.
//!
//! **Tail.** A radius word below `2^16` (once in `2^16` pairs) is continued with 64 more bits, so `u` goes down to
//! `2^-97` and `|x|` up to 11.6. What is cut off has probability at most `2^-96` per pair.
//!
//! **Resolution.** `u` carries 32 random bits (96 in the tail), the angle 32: a radius takes `2^32` values, whose
//! distance is at most `2^-16` near zero and `4e-6` at the seam to the tail, and below `1e-9` times the radius in the
//! bulk. The arithmetic adds a relative error below `6e-7`. Low bits of an `f32` sample are therefore not those of a
//! rounded real Gaussian: a release that someone outside sees takes the snapped Gaussian.

use super::chacha20::{BLOCK_WORDS, Batch, LANES};
use super::uniform::UniformStream;
use undertone_simd::vectorised;

/// Batches of ChaCha blocks behind one block of samples: the first half are radii, the second half angles.
const BATCHES: usize = 16;

/// Pairs of samples in a block.
const PAIRS: usize = BLOCK / 2;

/// Samples in a block; block `b` holds the samples from `b * BLOCK` on.
pub(crate) const BLOCK: usize = BATCHES * LANES * BLOCK_WORDS;

/// Radius words below this are continued with a second word.
const TAIL: u32 = 1 << 16;

/// Scratch space for one block; reuse it across blocks.
pub(crate) struct Scratch {
    words: Box<[Batch; BATCHES]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            words: Box::new([[[0; LANES]; BLOCK_WORDS]; BATCHES]),
        }
    }
}

/// Makes the standard normal samples of block `block`.
pub(crate) fn fill_block(
    uniform: &UniformStream<'_>,
    tail: &UniformStream<'_>,
    block: u64,
    scratch: &mut Scratch,
    samples: &mut [f32; BLOCK],
) {
    uniform.fill_batches(block * (BATCHES * LANES) as u64, &mut scratch.words[..]);
    let (radius, angle) = scratch.words.as_flattened().as_flattened().split_at(PAIRS);
    let (cosines, sines) = samples.split_at_mut(PAIRS);
    if !box_muller(radius, angle, cosines, sines) {
        return;
    }
    for i in (0..PAIRS).filter(|&i| radius[i] < TAIL) {
        let low = tail.word(block * PAIRS as u64 + i as u64);
        (cosines[i], sines[i]) = tail_pair(radius[i], low, angle[i]);
    }
}

vectorised! {
    /// One pair for each radius and angle word; whether any radius word is below [`TAIL`] and its pair to be replaced.
    fn box_muller(radius: &[u32], angle: &[u32], cosines: &mut [f32], sines: &mut [f32]) -> bool {
        let mut smallest = u32::MAX;
        for (((&r, &a), cosine), sine) in radius.iter().zip(angle).zip(cosines).zip(sines) {
            smallest = smallest.min(r);
            let length = (-2.0 * log_of_word(r)).sqrt();
            let (s, c) = sine_cosine(a);
            *cosine = length * c;
            *sine = length * s;
        }
        smallest < TAIL
    }
}

/// The pair of a radius word below [`TAIL`]: `u` gets 64 more bits.
fn tail_pair(high: u32, low: u64, angle: u32) -> (f32, f32) {
    let u = (u128::from(high) << 64 | u128::from(low)) as f32 + 0.5;
    let length = (-2.0 * (natural_log(u) - 96.0 * std::f32::consts::LN_2)).sqrt();
    let (s, c) = sine_cosine(angle);
    (length * c, length * s)
}

/// `ln((word + 1/2) / 2^32)`, with small relative error also where it is nearly zero.
#[inline(always)]
fn log_of_word(word: u32) -> f32 {
    // Above sqrt(1/2), u is near one and its distance to one, not u itself, must keep its low bits.
    const SEAM: u32 = 0xb504_f334;
    let near_one = word >= SEAM;
    let distance = (if near_one { !word } else { word }) as f32 + 0.5;
    let (exponent, m_minus_one) = split(distance * 0.5f32.powi(32));
    let exponent = if near_one { 0.0 } else { exponent };
    let f = if near_one {
        distance * -(0.5f32.powi(32))
    } else {
        m_minus_one
    };
    log_of_parts(exponent, f)
}

/// `ln u` for a normal `u > 0`.
#[inline(always)]
fn natural_log(u: f32) -> f32 {
    let (exponent, f) = split(u);
    log_of_parts(exponent, f)
}

/// `u = 2^exponent (1 + f)` with `1 + f` in `[sqrt(1/2), sqrt(2))`.
#[inline(always)]
fn split(u: f32) -> (f32, f32) {
    // Adding the distance from sqrt(1/2) to 1 to the bits makes the exponent field round at sqrt(1/2) 2^e.
    const SHIFT: u32 = 0x3f80_0000 - 0x3f35_04f3;
    let bits = u.to_bits() + SHIFT;
    let exponent = ((bits >> 23) as i32 - 127) as f32;
    (exponent, f32::from_bits((bits & 0x007f_ffff) + 0x3f35_04f3) - 1.0)
}

/// `exponent ln 2 + ln(1 + f)`, the logarithm as `2 atanh s` with `s = f / (2 + f)`.
#[inline(always)]
fn log_of_parts(exponent: f32, f: f32) -> f32 {
    let s = f / (2.0 + f);
    // |s| <= 0.1716: the first omitted term, z^5 / 11, is below 3e-9.
    let z = s * s;
    let series = ((1.0 / 9.0 * z + 1.0 / 7.0) * z + 1.0 / 5.0) * z + 1.0 / 3.0;
    exponent * std::f32::consts::LN_2 + (2.0 * s + 2.0 * s * z * series)
}

/// Sine and cosine of a uniform angle: 2 bits choose the quarter, 30 bits the place in `[-pi/4, pi/4)`.
#[inline(always)]
fn sine_cosine(word: u32) -> (f32, f32) {
    // Half a step makes the set of places symmetric about zero, so the mean of the samples is exactly zero.
    let place = ((word << 2) as i32 >> 2) as f32 + 0.5;
    let y = place * (std::f32::consts::FRAC_PI_2 * 0.5f32.powi(30));
    // |y| <= 0.7854: the omitted terms y^11 / 11! and y^12 / 12! are below 2e-9 and 2e-10.
    let z = y * y;
    let sine = y - y * z * (1.0 / 6.0 - z * (1.0 / 120.0 - z * (1.0 / 5040.0 - z * (1.0 / 362_880.0))));
    let cosine = 1.0
        - z * (0.5 - z * (1.0 / 24.0 - z * (1.0 / 720.0 - z * (1.0 / 40_320.0 - z * (1.0 / 3_628_800.0)))));
    // Quarter turns as bit operations: odd quarters swap, quarters 1 and 2 negate the cosine, 2 and 3 the sine.
    let swap = 0u32.wrapping_sub(word >> 30 & 1);
    let (s, c) = (sine.to_bits(), cosine.to_bits());
    let (s, c) = (s & !swap | c & swap, c & !swap | s & swap);
    let sine_sign = word & 1 << 31;
    let cosine_sign = (word ^ word << 1) & 1 << 31;
    (f32::from_bits(s ^ sine_sign), f32::from_bits(c ^ cosine_sign))
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{check_halves, check_independence, check_standard_normal};
    use super::super::uniform::{NoiseKey, Purpose};
    use super::*;

    fn samples(key: u8, round: u64, blocks: std::ops::Range<u64>) -> Vec<f64> {
        let key = NoiseKey::from_bytes([key; 32]);
        let uniform = key.stream(Purpose::Gaussian32, round).unwrap();
        let tail = key.stream(Purpose::Gaussian32Tail, round).unwrap();
        let mut scratch = Scratch::new();
        let mut block = [0.0; BLOCK];
        let mut all = Vec::new();
        for b in blocks {
            fill_block(&uniform, &tail, b, &mut scratch, &mut block);
            all.extend(block.map(f64::from));
        }
        all
    }

    /// The pair of two words in `f64` and the standard library's functions.
    fn reference(radius: u32, low: Option<u64>, angle: u32) -> (f64, f64) {
        let u = match low {
            None => (f64::from(radius) + 0.5) * 0.5f64.powi(32),
            Some(low) => ((u128::from(radius) << 64 | u128::from(low)) as f64 + 0.5) * 0.5f64.powi(96),
        };
        let place = f64::from((angle << 2) as i32 >> 2) + 0.5;
        let turn = std::f64::consts::FRAC_PI_2 * (f64::from(angle >> 30) + place * 0.5f64.powi(30));
        let length = (-2.0 * u.ln()).sqrt();
        (length * turn.cos(), length * turn.sin())
    }

    #[test]
    fn error_is_as_documented() {
        let key = NoiseKey::from_bytes([1; 32]);
        let uniform = key.stream(Purpose::Gaussian32, 0).unwrap();
        let check = |radius: u32, angle: u32| {
            let (mut c, mut s) = ([0.0], [0.0]);
            let (expected, length) = if box_muller(&[radius], &[angle], &mut c, &mut s) {
                (c[0], s[0]) = tail_pair(radius, 7 << 50, angle);
                let pair = reference(radius, Some(7 << 50), angle);
                (pair, pair.0.hypot(pair.1))
            } else {
                let pair = reference(radius, None, angle);
                (pair, pair.0.hypot(pair.1))
            };
            let error = (f64::from(c[0]) - expected.0)
                .abs()
                .max((f64::from(s[0]) - expected.1).abs());
            assert!(
                error < 6e-7 * length,
                "{radius:#x} {angle:#x}: {error:e} of {length:e}"
            );
        };
        for i in 0..100_000 {
            let word = uniform.word(i);
            check((word >> 32) as u32 >> (i % 32), word as u32);
            check(!((word >> 32) as u32 >> (i % 32)), word as u32);
        }
        for radius in [
            0,
            1,
            TAIL - 1,
            TAIL,
            0xb504_f333,
            0xb504_f334,
            u32::MAX - 1,
            u32::MAX,
        ] {
            for angle in [
                0,
                1,
                0x1fff_ffff,
                0x2000_0000,
                0x3fff_ffff,
                0x4000_0000,
                0x8000_0000,
                u32::MAX,
            ] {
                check(radius, angle);
            }
        }
    }

    #[test]
    fn tail_is_monotone_and_ends_where_stated() {
        let length = |high, low| {
            let (c, s) = tail_pair(high, low, 0x1234_5678);
            c.hypot(s)
        };
        let ordinary = {
            let (mut c, mut s) = ([0.0], [0.0]);
            assert!(!box_muller(&[TAIL], &[0], &mut c, &mut s));
            c[0].hypot(s[0])
        };
        let lengths = [
            ordinary,
            length(TAIL - 1, 0),
            length(1, 0),
            length(0, 1 << 40),
            length(0, 0),
        ];
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]), "{lengths:?}");
        assert!((lengths[4] - (2.0 * 97.0 * std::f32::consts::LN_2).sqrt()).abs() < 1e-4);
    }

    #[test]
    fn wide_and_plain_versions_agree_bit_for_bit() {
        let words: Vec<u32> = (0..1024u32)
            .map(|i| i.wrapping_mul(0x9e37_79b9) ^ i << 7 | TAIL)
            .collect();
        let (mut c, mut s) = (vec![0.0; 512], vec![0.0; 512]);
        box_muller(&words[..512], &words[512..], &mut c, &mut s);
        for i in 0..512 {
            let length = (-2.0 * log_of_word(words[i])).sqrt();
            let (sine, cosine) = sine_cosine(words[512 + i]);
            let expected = ((length * cosine).to_bits(), (length * sine).to_bits());
            assert_eq!(expected, (c[i].to_bits(), s[i].to_bits()));
        }
    }

    #[test]
    fn samples_follow_the_standard_normal() {
        check_standard_normal(&samples(1, 0, 0..512));
    }

    #[test]
    fn blocks_rounds_keys_and_pairs_are_uncorrelated() {
        check_independence(|key, round| samples(key, round, 0..64));
        check_halves(&samples(5, 0, 0..64), BLOCK);
    }
}
