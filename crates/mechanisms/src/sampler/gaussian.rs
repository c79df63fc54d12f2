//! Standard normal samples by Box-Muller, in blocks that can be made in any order.
//!
//! A pair of samples takes two words: one for the radius `r = sqrt(-2 ln u)`, one for the angle. The logarithm, sine
//! and cosine are own series without fused multiply-add and without calls into the system's mathematics library, so
//! the same key gives the same bits on every machine, and the loops run in vector registers.
//!
//! **Tail.** A radius word below `2^32` (once in `2^32` pairs) is continued with a second word, so `u` goes down to
//! `2^-129` and `|x|` up to 13.3. What is cut off has probability at most `2^-128` per pair. A run that draws `N`
//! samples is within total variation `N 2^-129` of one with ideal tails: below `1e-26` for `N = 1e12`, and so adds at
//! most `(1 + e^eps) 1e-26` to delta, far below any delta (`>= 1e-15`) that a run states.
//!
//! **Resolution.** `u` carries 64 random bits rounded to 53, the angle 54; the error of one sample against the exact
//! value for its words is below `2e-15 (1 + |x|)`. That is for simulations: releases take the
//! [snapped Gaussian](super::snapped).

use super::uniform::UniformStream;
use undertone_simd::vectorised;

/// Pairs of samples in a block.
const PAIRS: usize = 2048;

/// Samples in a block; block `b` holds the samples from `b * BLOCK` on.
pub(crate) const BLOCK: usize = 2 * PAIRS;

/// Radius words below this are continued with a second word.
const TAIL: u64 = 1 << 32;

/// Scratch space for one block; reuse it across blocks.
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    words: Vec<u64>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; 8 * BLOCK],
            words: vec![0; BLOCK],
        }
    }
}

/// Makes the standard normal samples of block `block`.
pub(crate) fn fill_block(
    uniform: &UniformStream<'_>,
    tail: &UniformStream<'_>,
    block: u64,
    scratch: &mut Scratch,
    samples: &mut [f64; BLOCK],
) {
    uniform.fill(block * BLOCK as u64, &mut scratch.bytes);
    for (word, bytes) in scratch.words.iter_mut().zip(scratch.bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let (radius, angle) = scratch.words.split_at(PAIRS);
    let (cosines, sines) = samples.split_at_mut(PAIRS);
    box_muller(radius, angle, cosines, sines);
    for i in (0..PAIRS).filter(|&i| radius[i] < TAIL) {
        let low = tail.word(block * PAIRS as u64 + i as u64);
        (cosines[i], sines[i]) = tail_pair(radius[i], low, angle[i]);
    }
}

vectorised! {
    /// One pair for each radius and angle word; pairs with a radius word below [`TAIL`] must be replaced.
    fn box_muller(radius: &[u64], angle: &[u64], cosines: &mut [f64], sines: &mut [f64]) {
        for (((&r, &a), cosine), sine) in radius.iter().zip(angle).zip(cosines).zip(sines) {
            let u = (word_to_f64(r) + 0.5) * (0.5f64.powi(64));
            let length = (-2.0 * natural_log(u)).sqrt();
            let (s, c) = sine_cosine(a);
            *cosine = length * c;
            *sine = length * s;
        }
    }
}

/// The pair of a radius word below [`TAIL`]: `u` gets 64 more bits.
fn tail_pair(high: u64, low: u64, angle: u64) -> (f64, f64) {
    let u = ((u128::from(high) << 64 | u128::from(low)) as f64 + 0.5) * 0.5f64.powi(128);
    let length = (-2.0 * natural_log(u)).sqrt();
    let (s, c) = sine_cosine(angle);
    (length * c, length * s)
}

/// Correctly rounded `word as f64`, from parts that exist as vector instructions everywhere.
#[inline(always)]
pub(super) fn word_to_f64(word: u64) -> f64 {
    const HIGH: u64 = 0x4530_0000_0000_0000; // 2^84, whose last place is 2^32
    const LOW: u64 = 0x4330_0000_0000_0000; // 2^52, whose last place is 1
    let high = f64::from_bits(HIGH | word >> 32);
    let low = f64::from_bits(LOW | word & 0xffff_ffff);
    (high - (f64::from_bits(HIGH) + f64::from_bits(LOW))) + low
}

/// `ln u` for a normal `u > 0`: exponent and `2 atanh s` with `s = (m - 1) / (m + 1)`, `m` in `[sqrt(1/2), sqrt(2))`.
#[inline(always)]
fn natural_log(u: f64) -> f64 {
    // Adding the distance from sqrt(1/2) to 1 to the bits makes the exponent field round at sqrt(1/2) 2^e.
    const SHIFT: u64 = 0x3ff0_0000_0000_0000 - 0x3fe6_a09e_667f_3bcd;
    const MAGIC: u64 = 0x4330_0000_0000_0000;
    let bits = u.to_bits() + SHIFT;
    let exponent = f64::from_bits(MAGIC | bits >> 52) - (f64::from_bits(MAGIC) + 1023.0);
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + 0x3fe6_a09e_667f_3bcd);
    let s = (m - 1.0) / (m + 1.0);
    // |s| <= 0.1716: the first omitted term, z^11 / 23, is below 7e-19.
    let z = s * s;
    let mut series = 1.0 / 21.0;
    let mut n = 19.0;
    while n >= 3.0 {
        series = series * z + 1.0 / n;
        n -= 2.0;
    }
    // ln 2 in two parts, the first with 11 spare bits, so that its product with the exponent is exact.
    const LN_2_HIGH: f64 = f64::from_bits(std::f64::consts::LN_2.to_bits() & !0x7ff);
    const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17 + (std::f64::consts::LN_2 - LN_2_HIGH);
    let mantissa = 2.0 * s + 2.0 * s * z * series;
    exponent * LN_2_HIGH + (mantissa + exponent * LN_2_LOW)
}

/// Sine and cosine of a uniform angle: 2 bits choose the quarter, 52 bits the place in `[-pi/4, pi/4)`.
#[inline(always)]
fn sine_cosine(word: u64) -> (f64, f64) {
    let unit = f64::from_bits(0x3ff0_0000_0000_0000 | (word << 2) >> 12) - 1.5;
    // Half a step makes the set of places symmetric about zero, so the mean of the samples is exactly zero.
    let y = (unit + 0.5f64.powi(53)) * std::f64::consts::FRAC_PI_2;
    // |y| <= 0.7854: the omitted terms y^17 / 17! and y^18 / 18! are below 5e-17 and 3e-18.
    let z = y * y;
    let (mut sine, mut cosine) = (1.0, 1.0);
    let mut n = 14.0;
    while n >= 2.0 {
        sine = 1.0 - sine * (z * (1.0 / (n * (n + 1.0))));
        cosine = 1.0 - cosine * (z * (1.0 / ((n + 1.0) * (n + 2.0))));
        n -= 2.0;
    }
    cosine = 1.0 - cosine * (z * 0.5);
    sine *= y;
    // Quarter turns as bit operations: odd quarters swap, quarters 1 and 2 negate the cosine, 2 and 3 the sine.
    let swap = 0u64.wrapping_sub(word >> 62 & 1);
    let (s, c) = (sine.to_bits(), cosine.to_bits());
    let (s, c) = (s & !swap | c & swap, c & !swap | s & swap);
    let sine_sign = word & 1 << 63;
    let cosine_sign = (word ^ word << 1) & 1 << 63;
    (f64::from_bits(s ^ sine_sign), f64::from_bits(c ^ cosine_sign))
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{check_halves, check_independence, check_standard_normal, normal_cdf};
    use super::super::uniform::{NoiseKey, Purpose};
    use super::*;

    fn samples(key: u8, round: u64, blocks: std::ops::Range<u64>) -> Vec<f64> {
        let key = NoiseKey::from_bytes([key; 32]);
        let uniform = key.stream(Purpose::Gaussian, round).unwrap();
        let tail = key.stream(Purpose::GaussianTail, round).unwrap();
        let mut scratch = Scratch::new();
        let mut block = [0.0; BLOCK];
        let mut all = Vec::new();
        for b in blocks {
            fill_block(&uniform, &tail, b, &mut scratch, &mut block);
            all.extend_from_slice(&block);
        }
        all
    }

    #[test]
    fn series_agree_with_the_standard_library() {
        let key = NoiseKey::from_bytes([1; 32]);
        let uniform = key.stream(Purpose::Gaussian, 0).unwrap();
        for i in 0..20_000 {
            let word = uniform.word(i) >> (i % 64).min(60);
            assert_eq!(word_to_f64(word), word as f64);
            let u = (word as f64 + 0.5) * 0.5f64.powi(64);
            let log = natural_log(u);
            assert!(
                (log - u.ln()).abs() <= 4e-16 * u.ln().abs().max(f64::MIN_POSITIVE),
                "ln {u:e}: {log:e}"
            );
            let (s, c) = sine_cosine(word);
            let place = ((word << 2 >> 12) as f64 + 0.5) * 0.5f64.powi(52) - 0.5;
            let angle = std::f64::consts::FRAC_PI_2 * ((word >> 62) as f64 + place);
            assert!(
                (s - angle.sin()).abs() < 2e-15 && (c - angle.cos()).abs() < 2e-15,
                "{angle}: {s} {c}"
            );
            assert!((s * s + c * c - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn logarithm_at_its_seams() {
        for u in [
            0.5f64.powi(129),
            0.5f64.powi(65),
            0.5,
            0.5f64.sqrt(),
            0.707_2,
            1.0 - f64::EPSILON,
            1.0,
        ] {
            assert!(
                (natural_log(u) - u.ln()).abs() <= 4e-16 * u.ln().abs(),
                "ln {u:e} = {:e}",
                natural_log(u)
            );
        }
    }

    #[test]
    fn tail_continues_the_bulk_and_ends_where_stated() {
        // At the seam both formulas agree, and the tail is monotone down to the last word.
        let ordinary = {
            let (mut c, mut s) = ([0.0], [0.0]);
            box_muller(&[TAIL], &[0], &mut c, &mut s);
            c[0].hypot(s[0])
        };
        let length = |high, low| {
            let (c, s) = tail_pair(high, low, 0x1234_5678_9abc_def0);
            c.hypot(s)
        };
        assert!((length(TAIL, 1 << 63) - ordinary).abs() < 1e-14);
        let lengths = [
            length(TAIL - 1, u64::MAX),
            length(TAIL - 1, 0),
            length(1, 0),
            length(0, 1 << 40),
            length(0, 0),
        ];
        assert!(lengths.windows(2).all(|pair| pair[0] < pair[1]), "{lengths:?}");
        assert!((lengths[4] - (2.0 * 129.0 * std::f64::consts::LN_2).sqrt()).abs() < 1e-12);
        assert!((ordinary - 6.66).abs() < 0.01);
    }

    #[test]
    fn wide_and_plain_versions_agree_bit_for_bit() {
        let words: Vec<u64> = (0..1024u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i << 7 | TAIL)
            .collect();
        let (mut c, mut s) = (vec![0.0; 512], vec![0.0; 512]);
        box_muller(&words[..512], &words[512..], &mut c, &mut s);
        for i in 0..512 {
            let length = (-2.0 * natural_log((word_to_f64(words[i]) + 0.5) * 0.5f64.powi(64))).sqrt();
            let (sine, cosine) = sine_cosine(words[512 + i]);
            assert_eq!(
                ((length * cosine).to_bits(), (length * sine).to_bits()),
                (c[i].to_bits(), s[i].to_bits())
            );
        }
    }

    // Statistical tests. Keys are fixed, so they cannot flake; the rates are those over random keys.

    #[test]
    fn moments_tails_and_bins() {
        check_standard_normal(&samples(1, 0, 0..256));
    }

    #[test]
    fn tail_counts() {
        // Counts beyond 3, 4 and 4.5 sigma among 2^21: Poisson, expected 5662, 133 and 14.3. None beyond 4.5 happens with
        // probability 6.5e-7, the other five thresholds with 3e-7 together: false-alarm rate below 1e-6.
        let x = samples(2, 0, 0..512);
        let beyond = |t: f64| x.iter().filter(|v| v.abs() > t).count();
        for (threshold, low, high) in [(3.0, 5266, 6070), (4.0, 77, 202), (4.5, 1, 40)] {
            let count = beyond(threshold);
            assert!((low..=high).contains(&count), "{count} beyond {threshold}");
        }
    }

    #[test]
    fn kolmogorov_smirnov() {
        // P(sqrt(n) D > 2.72) = 2 exp(-2 * 2.72^2) < 8e-7.
        let mut x = samples(4, 9, 0..64);
        x.sort_unstable_by(f64::total_cmp);
        let n = x.len() as f64;
        let distance = |(i, &v): (usize, &f64)| {
            let p = normal_cdf(v);
            (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
        };
        let d = x.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(d * n.sqrt() < 2.72, "{}", d * n.sqrt());
    }

    #[test]
    fn blocks_rounds_keys_and_pairs_are_uncorrelated() {
        check_independence(|key, round| samples(key, round, 0..64));
        check_halves(&samples(5, 0, 0..64), BLOCK);
    }
}
