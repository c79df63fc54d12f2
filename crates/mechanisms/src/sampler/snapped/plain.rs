//! First level: Box-Muller in `f64`, with a bound on how far each sample can be off.

use undertone_simd::vectorised;

/// Radius words from here on, `sqrt(1/2) 2^64`, are near one: their distance to one is what keeps its low bits.
pub(super) const SEAM: u64 = 0xb504_f333_f9de_6484;

/// Adding this and subtracting it again rounds to a whole number, which stands in the low bits in between.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

/// The words of a block of pairs: upper and lower halves of radius and angle words, as the generator's lanes give them.
pub(super) struct Words<'a> {
    pub(super) radius_high: &'a [u32],
    pub(super) radius_low: &'a [u32],
    pub(super) angle_high: &'a [u32],
    pub(super) angle_low: &'a [u32],
}

impl Words<'_> {
    pub(super) fn radius(&self, pair: usize) -> u64 {
        u64::from(self.radius_high[pair]) << 32 | u64::from(self.radius_low[pair])
    }

    pub(super) fn angle(&self, pair: usize) -> u64 {
        u64::from(self.angle_high[pair]) << 32 | u64::from(self.angle_low[pair])
    }
}

/// A pair of samples at the `f64` level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// `steps R cos theta` and `steps R sin theta`.
    pub(super) cosine: f64,
    pub(super) sine: f64,
    /// Neither is further than this from any value that further bits of the words can give it.
    pub(super) margin: f64,
    /// True if the margin holds, which it does not for radius words close to zero or one.
    pub(super) in_range: bool,
}

/// One pair.
///
/// # Guarantee
/// `margin` bounds the distance to `steps R cos theta` for every real radius and angle whose leading bits are these
/// words, if `in_range`. With `e = 2^-53` and errors to first order:
/// - Logarithm. Below the seam, converting the word moves `ln u` by `2 e`; `|ln m| <= 0.3466` comes with a relative error of
///   `3.4 e` (division 2, sum and square 1.4), adding the exponent's part costs `0.35 e + |ln u| e`: in all `3.6 e + |ln u| e`,
///   and `|ln u| >= 0.3466`. Above the seam `f` is off by `2 e`, the logarithm by `6 e`, both relative.
/// - Radius, after the square root's rounding: `(3.6 / R + 1.5 R) e <= (4.4 + 1.5 R) e` below the seam, where
///   `R >= 0.832`; `4 R e <= 3.4 e` above it.
/// - Cell of a 64-bit radius word: `2^-65 / (u R)`. Below the seam `u >= 2^-12` makes it `0.3 e`, above it
///   `R >= 2^-11.5` makes it `e`.
/// - Angle: 52 bits of place leave a cell of `1.58 e`, the product with `pi / 2` adds `1.06 e`; the series for the sine add
///   `1.95 e`, those for the cosine less: in all `4.6 e`.
/// - Products: `R e` for the first and, in units of the sample, as much for the one with `steps`.
///
/// Together `(5.4 + 1.5 R) e + 4.6 R e + 2 R e = (5.4 + 8.1 R) e`; the margin takes `(8 + 10 R) e`.
#[inline(always)]
pub(super) fn pair(radius: u64, angle: u64, steps: f64) -> Pair {
    const E: f64 = 1.0 / (1u64 << 53) as f64;
    let near_one = radius >= SEAM;
    let distance = if near_one { !radius } else { radius };
    let in_range = distance >= if near_one { 1 << 40 } else { 1 << 52 };
    let length = (-2.0 * log(distance, near_one)).sqrt();
    let (sine, cosine) = sine_cosine(angle);
    Pair {
        cosine: length * cosine * steps,
        sine: length * sine * steps,
        margin: steps * E * (8.0 + 10.0 * length),
        in_range,
    }
}

/// Correctly rounded `word as f64`, from parts that exist as vector instructions everywhere.
#[inline(always)]
fn word_to_f64(word: u64) -> f64 {
    const HIGH: u64 = 0x4530_0000_0000_0000; // 2^84, whose last place is 2^32
    const LOW: u64 = 0x4330_0000_0000_0000; // 2^52, whose last place is 1
    let high = f64::from_bits(HIGH | word >> 32);
    let low = f64::from_bits(LOW | word & 0xffff_ffff);
    (high - (f64::from_bits(HIGH) + f64::from_bits(LOW))) + low
}

/// `ln u`, where `u` or, near one, `1 - u` is `(distance + 1/2) / 2^64`.
#[inline(always)]
fn log(distance: u64, near_one: bool) -> f64 {
    const SHIFT: u64 = 0x3ff0_0000_0000_0000 - 0x3fe6_a09e_667f_3bcd;
    const MAGIC: u64 = 0x4330_0000_0000_0000;
    const LN_2_HIGH: f64 = f64::from_bits(std::f64::consts::LN_2.to_bits() & !0x7ff);
    const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17 + (std::f64::consts::LN_2 - LN_2_HIGH);
    let x = (word_to_f64(distance) + 0.5) * 0.5f64.powi(64);
    let bits = x.to_bits() + SHIFT;
    let exponent = f64::from_bits(MAGIC | bits >> 52) - (f64::from_bits(MAGIC) + 1023.0);
    let exponent = if near_one { 0.0 } else { exponent };
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + 0x3fe6_a09e_667f_3bcd);
    let f = if near_one { -x } else { m - 1.0 };
    let s = f / (2.0 + f);
    // |s| <= 0.1716: the first omitted term, z^11 / 23, is below 7e-19.
    let z = s * s;
    let mut series = 1.0 / 21.0;
    let mut n = 19.0;
    while n >= 3.0 {
        series = series * z + 1.0 / n;
        n -= 2.0;
    }
    exponent * LN_2_HIGH + (2.0 * s + 2.0 * s * z * series + exponent * LN_2_LOW)
}

/// Sine and cosine of the angle: 2 bits choose the quarter, 52 of the others the place in `[-pi/4, pi/4)`.
#[inline(always)]
fn sine_cosine(word: u64) -> (f64, f64) {
    // The place in [0, 1) is taken as [-1/2, 1/2) by flipping its first bit.
    let unit = f64::from_bits(0x3ff0_0000_0000_0000 | ((word ^ 1 << 61) << 2) >> 12) - 1.5;
    let y = (unit + 0.5f64.powi(53)) * std::f64::consts::FRAC_PI_2;
    // |y| <= 0.7854: the omitted terms y^19 / 19! and y^18 / 18! are below 1e-19 and 3e-18.
    let z = y * y;
    let (mut sine, mut cosine) = (1.0, 1.0);
    let mut n = 16.0;
    while n >= 2.0 {
        sine = 1.0 - sine * (z * (1.0 / (n * (n + 1.0))));
        cosine = 1.0 - cosine * (z * (1.0 / (n * (n - 1.0))));
        n -= 2.0;
    }
    sine *= y;
    let swap = 0u64.wrapping_sub(word >> 62 & 1);
    let (s, c) = (sine.to_bits(), cosine.to_bits());
    let (s, c) = (s & !swap | c & swap, c & !swap | s & swap);
    let sine_sign = word & 1 << 63;
    let cosine_sign = (word ^ word << 1) & 1 << 63;
    (f64::from_bits(s ^ sine_sign), f64::from_bits(c ^ cosine_sign))
}

vectorised! {
    /// Rounded samples of every pair of words; whether any is left open. `open` says which ones: 0 is decided.
    pub(super) fn round_pairs(
        words: &Words<'_>,
        steps: f64,
        cosines: &mut [i64],
        sines: &mut [i64],
        open: &mut [u64],
    ) -> bool {
        let count = words.radius_high.len();
        let (radius_low, angle_high) = (&words.radius_low[..count], &words.angle_high[..count]);
        let (angle_low, cosines) = (&words.angle_low[..count], &mut cosines[..count]);
        let (sines, open) = (&mut sines[..count], &mut open[..count]);
        let mut any = 0;
        for i in 0..count {
            let radius = u64::from(words.radius_high[i]) << 32 | u64::from(radius_low[i]);
            let angle = u64::from(angle_high[i]) << 32 | u64::from(angle_low[i]);
            let pair = pair(radius, angle, steps);
            let clear = 0.5 - pair.margin;
            // |sample| < 2^51: the sum stands between 2^52 and 2^53, where the last place is one.
            let (c, s) = (pair.cosine + ROUNDER, pair.sine + ROUNDER);
            cosines[i] = c.to_bits().wrapping_sub(ROUNDER.to_bits()) as i64;
            sines[i] = s.to_bits().wrapping_sub(ROUNDER.to_bits()) as i64;
            let off = (pair.cosine - (c - ROUNDER)).abs().max((pair.sine - (s - ROUNDER)).abs());
            // PRIVACY: a sample is taken only if no further bit could move it across a half.
            open[i] = u64::from(!(pair.in_range & (off < clear)));
            any |= open[i];
        }
        any != 0
    }
}
