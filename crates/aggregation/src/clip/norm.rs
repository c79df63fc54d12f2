//! The exact norm of values in integers, as a sum measures them and as a GPU delivers them.

use std::ops::Range;

use undertone_mechanisms::FRACTION_BITS;
use undertone_simd::vectorised;

/// Biased exponent of the largest values whose `|q|` stays below `2^62`.
pub(super) const MAX_EXPONENT: u32 = 127 + 61 - FRACTION_BITS;

/// Values whose squares are added up in one go; a `u64` has room for the partial sums of `2^20`.
pub(super) const CHUNK: usize = 1 << 16;

/// The largest bits of a finite magnitude are below these.
const INFINITY: u32 = 0x7f80_0000;

/// The norm of one clip group of one unit, in integers, as a GPU computes it.
///
/// The GPU takes `q = trunc(g 2^40)` of each value `g` of the group, splits `q^2` into four digits of 32 bits, and adds up each
/// digit in 64 bits. Values whose magnitude has a biased exponent above 148 make all values of the group smaller: `q` is divided by
/// two to the power of the excess of the largest one. Integers have no rounding, so the order of additions does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limbs {
    /// The largest magnitude in the group, as the bits of an `f32` without its sign. Infinities and NaN are above all others.
    pub largest: u32,
    /// The sums of the digits of `q^2`, the lowest first. They mean nothing if a value is not finite.
    pub sums: [u64; 4],
}

impl Limbs {
    /// Returns `true` if so many values can have these digits.
    pub(crate) fn fits(&self, values: usize) -> bool {
        // A square is below 2^124, so its highest digit has 28 bits.
        let most = |bits: u32| values as u128 * ((1 << bits) - 1);
        let [low @ .., high] = self.sums;
        self.largest < 1 << 31
            && values <= u32::MAX as usize
            && (self.largest >= INFINITY
                || u128::from(high) <= most(28) && low.iter().all(|&sum| u128::from(sum) <= most(32)))
    }
}

/// The norm of a group of values: `N`, and what makes `q` from the values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExactNorm {
    largest: u32,
    square: Wide,
}

impl ExactNorm {
    /// The norm of the values at these spans of an update.
    pub(crate) fn of(update: &[f32], spans: &[Range<usize>]) -> Self {
        let values = || spans.iter().map(|span| &update[span.clone()]);
        let largest = values().map(largest).max().unwrap_or_default();
        let halvings = halvings(largest);
        let mut parts = [0u128; 5];
        for chunk in values().flat_map(|values| values.chunks(CHUNK)) {
            for (part, sum) in parts.iter_mut().zip(squares(chunk, halvings)) {
                *part += u128::from(sum);
            }
        }
        Self {
            largest,
            square: Wide::from_parts(parts),
        }
    }

    /// A norm for tests.
    #[cfg(test)]
    pub(super) fn new(largest: u32, square: Wide) -> Self {
        Self { largest, square }
    }

    /// The norm that a GPU measured.
    pub(crate) fn of_limbs(limbs: &Limbs) -> Self {
        Self {
            largest: limbs.largest,
            square: Wide::from_limbs(limbs.sums.map(u128::from)),
        }
    }

    /// Returns `true` if no value is infinite or NaN.
    pub(crate) fn is_finite(&self) -> bool {
        self.largest < INFINITY
    }

    /// The number of times that the values are divided by two.
    pub(super) fn halvings(&self) -> u32 {
        halvings(self.largest)
    }

    /// `ceil(sqrt N)`, below `2^79`.
    pub(super) fn root(&self) -> u128 {
        self.square.ceil_sqrt()
    }

    /// The squared norm of the values, rounded.
    pub(crate) fn square(&self) -> f64 {
        let steps = self.square.high as f64 * 2f64.powi(84) + self.square.low as f64;
        steps * 4f64.powi(self.halvings() as i32 - FRACTION_BITS as i32)
    }
}

/// The number of times that values up to this magnitude are divided by two, so that `|q|` stays below `2^62`.
fn halvings(largest: u32) -> u32 {
    (largest >> 23).saturating_sub(MAX_EXPONENT)
}

vectorised! {
    /// The bits of the largest magnitude.
    fn largest(values: &[f32]) -> u32 {
        // Magnitudes of floats are ordered like their bits.
        values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff))
    }
}

vectorised! {
    /// The sum of the parts of `q^2`, see [`parts`].
    fn squares(values: &[f32], halvings: u32) -> [u64; 5] {
        let mut sums = [0; 5];
        for &value in values {
            let parts = parts(magnitude(value, halvings));
            for i in 0..5 {
                sums[i] += parts[i];
            }
        }
        sums
    }
}

/// `|q| = floor(|value| 2^(40 - halvings))`, below `2^62`. The value is finite and its exponent at most `MAX_EXPONENT + halvings`.
#[inline(always)]
pub(super) fn magnitude(value: f32, halvings: u32) -> u64 {
    let bits = value.to_bits();
    // Values without the leading bit are below 2^-126: all of their bits are shifted out, this one too.
    let mantissa = u64::from(bits & 0x7f_ffff | 1 << 23) << 38;
    mantissa >> (MAX_EXPONENT + halvings).wrapping_sub(bits >> 23 & 0xff).min(63)
}

/// Five numbers below `2^44` with `q^2 = p0 + 2^22 p1 + 2^42 p2 + 2^64 p3 + 2^84 p4`, for `q` below `2^62`.
#[inline(always)]
pub(super) fn parts(q: u64) -> [u64; 5] {
    let mask = (1 << 21) - 1;
    let (a, b, c) = (q & mask, q >> 21 & mask, q >> 42);
    [a * a, a * b, b * b + 2 * (a * c), b * c, c * c]
}

/// The number `high 2^84 + low`, with `low` below `2^84`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wide {
    pub(super) high: u128,
    pub(super) low: u128,
}

impl Wide {
    /// The sum of the parts of up to `2^32` squares.
    pub(super) fn from_parts(p: [u128; 5]) -> Self {
        let low = p[0] + (p[1] << 22) + (p[2] << 42) + ((p[3] & 0xf_ffff) << 64);
        Self::carried(p[4] + (p[3] >> 20), low)
    }

    /// The sum of the digits of up to `2^32` squares.
    pub(super) fn from_limbs(limbs: [u128; 4]) -> Self {
        let low = limbs[0] + (limbs[1] << 32) + ((limbs[2] & 0xf_ffff) << 64);
        Self::carried((limbs[2] >> 20) + (limbs[3] << 12), low)
    }

    pub(super) fn carried(high: u128, low: u128) -> Self {
        Self {
            high: high + (low >> 84),
            low: low & ((1 << 84) - 1),
        }
    }

    /// `root^2` for a root below `2^79`.
    pub(super) fn square(root: u128) -> Self {
        let (high, low) = (root >> 42, root & ((1 << 42) - 1));
        Self::carried(high * high, low * low + ((high * low) << 43))
    }

    /// The least integer whose square is not below this one, for numbers below `2^156`.
    pub(super) fn ceil_sqrt(&self) -> u128 {
        // Bit by bit, the number of roots whose squares are below.
        let mut below = 0;
        for bit in (0..79).rev() {
            if Self::square(below | 1 << bit) < *self {
                below |= 1 << bit;
            }
        }
        below + u128::from(*self > Self::square(0))
    }
}
