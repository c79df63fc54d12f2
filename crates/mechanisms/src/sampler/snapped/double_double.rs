//! Second level: numbers as unevaluated sums of two `f64`, about 106 bits, for the few pairs that `f64` leaves open.
//!
//! The building blocks are the textbook ones (Dekker 1971, Knuth; error bounds as in Joldes, Muller, Popescu, "Tight and
//! rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS 2017), without fused
//! multiply-add, so that every machine computes the same bits. Lanes are loops over plain code without branches, which
//! compilers turn into vector instructions.

use undertone_simd::vectorised;

/// Pairs that are refined together.
pub(super) const LANES: usize = 16;

/// Leading bits of sixteen pairs: two words of radius and two of angle each.
pub(super) struct Bits {
    pub(super) radius: [[u64; LANES]; 2],
    pub(super) angle: [[u64; LANES]; 2],
}

/// Samples of sixteen pairs: high and low parts of the cosine and of the sine sample.
pub(super) struct Samples {
    pub(super) cosine: [[f64; LANES]; 2],
    pub(super) sine: [[f64; LANES]; 2],
}

/// No sample is further than this from any value that its further bits can give it, in standard deviations.
///
/// # Guarantee
/// For radius words within the limits of [`in_range`]. With `e = 2^-106`: each operation below has a relative error of at
/// most `15 e` (division), `7 e` (product), `3.2 e` (square root) or `3 e` (sum); Horner's rule in the logarithm and in
/// sine and cosine takes terms that fall by at least `0.62 / 6` each, so their errors sum to less than `60 e`; the steps of
/// `f64` below `2^-50` of a result add less than `2^-100`. Radii are at most 6.3, so in all `2^-96` would do. Cells add
/// `2^-129 / (u R) < 2^-103`, as `u >= 2^-28` and, near one, `1 - u >= 2^-50`. The rest of the factor 64 is margin.
pub(super) const ERROR: f64 = 1.0 / (1u128 << 90) as f64;

/// Returns true if a radius word is far enough from zero and one for this level.
#[inline(always)]
pub(super) fn in_range(radius: u64) -> bool {
    radius >= 1 << 36 && !radius >= 1 << 14
}

/// A number as the sum of two, the second at most half a unit in the last place of the first.
#[derive(Clone, Copy)]
struct Double(f64, f64);

const LN_2: Double = Double(std::f64::consts::LN_2, f64::from_bits(0x3c7a_bc9e_3b39_803f));
const HALF_PI: Double = Double(std::f64::consts::FRAC_PI_2, f64::from_bits(0x3c91_a626_3314_5c07));

/// The sum of two numbers and its rounding error, for `|a| >= |b|` or `a = 0`.
#[inline(always)]
const fn fast_two_sum(a: f64, b: f64) -> Double {
    let sum = a + b;
    Double(sum, b - (sum - a))
}

/// The sum of two numbers and its rounding error.
#[inline(always)]
const fn two_sum(a: f64, b: f64) -> Double {
    let sum = a + b;
    let shadow = sum - a;
    Double(sum, (a - (sum - shadow)) + (b - shadow))
}

/// The product of two numbers and its rounding error.
#[inline(always)]
const fn two_product(a: f64, b: f64) -> Double {
    const SPLITTER: f64 = 134_217_729.0; // 2^27 + 1
    let (x, y) = (SPLITTER * a, SPLITTER * b);
    let (a_high, b_high) = (x - (x - a), y - (y - b));
    let (a_low, b_low) = (a - a_high, b - b_high);
    let product = a * b;
    let error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    Double(product, error)
}

impl Double {
    #[inline(always)]
    const fn plus(self, other: Self) -> Self {
        let (high, low) = (two_sum(self.0, other.0), two_sum(self.1, other.1));
        let middle = fast_two_sum(high.0, high.1 + low.0);
        fast_two_sum(middle.0, low.1 + middle.1)
    }

    #[inline(always)]
    const fn negated(self) -> Self {
        Self(-self.0, -self.1)
    }

    #[inline(always)]
    const fn times(self, other: Self) -> Self {
        let product = two_product(self.0, other.0);
        fast_two_sum(product.0, product.1 + (self.0 * other.1 + self.1 * other.0))
    }

    #[inline(always)]
    const fn times_f64(self, factor: f64) -> Self {
        let product = two_product(self.0, factor);
        fast_two_sum(product.0, product.1 + self.1 * factor)
    }

    /// The product with a power of two, which is exact.
    #[inline(always)]
    const fn scaled(self, power: f64) -> Self {
        Self(self.0 * power, self.1 * power)
    }

    #[inline(always)]
    const fn divided_by(self, divisor: Self) -> Self {
        let quotient = self.0 / divisor.0;
        let product = divisor.times_f64(quotient);
        let rest = (self.0 - product.0) + (self.1 - product.1);
        fast_two_sum(quotient, rest / divisor.0)
    }

    /// The square root of a positive number.
    #[inline(always)]
    fn sqrt(self) -> Self {
        let root = self.0.sqrt();
        let square = two_product(root, root);
        let rest = ((self.0 - square.0) - square.1) + self.1;
        fast_two_sum(root, rest / (2.0 * root))
    }

    #[inline(always)]
    fn choose(condition: bool, yes: Self, no: Self) -> Self {
        Self(
            if condition { yes.0 } else { no.0 },
            if condition { yes.1 } else { no.1 },
        )
    }
}

/// `1 / n` for a whole number below `2^53`.
const fn reciprocal(n: u64) -> Double {
    Double(1.0, 0.0).divided_by(Double(n as f64, 0.0))
}

/// `1 / n!` for `n <= 18`, whose factorials are below `2^53`.
const fn inverse_factorial(n: u64) -> Double {
    let (mut factorial, mut i) = (1, 2);
    while i <= n {
        factorial *= i;
        i += 1;
    }
    reciprocal(factorial)
}

/// Horner's rule in straight-line code: `c + x (...)`, innermost coefficient first.
macro_rules! horner {
    ($start:expr, $x:expr, $($coefficient:expr),+) => {{
        let mut value = $start;
        $(
            value = const { $coefficient }.plus(value.times($x));
        )+
        value
    }};
}

/// Evaluates a polynomial by Horner's rule in plain `f64`.
macro_rules! plain_horner {
    ($x:expr, $first:expr $(, $coefficient:expr)+) => {{
        let mut value: f64 = $first;
        $(
            value = $coefficient + value * $x;
        )+
        value
    }};
}

/// The number `(bits + 1/2) / 2^128` of 128 bits in two words.
#[inline(always)]
fn fraction(high: u64, low: u64) -> Double {
    // Three exact pieces of 43, 43 and 42 bits, the last with the half.
    let piece =
        |bits: u64| f64::from_bits(0x4330_0000_0000_0000 | bits) - f64::from_bits(0x4330_0000_0000_0000);
    let top = piece(high >> 21) * 0.5f64.powi(43);
    let middle = piece((high << 43 >> 21) | low >> 42) * 0.5f64.powi(86);
    let bottom = (piece(low & ((1 << 42) - 1)) + 0.5) * 0.5f64.powi(128);
    let sum = fast_two_sum(top, middle);
    fast_two_sum(sum.0, sum.1 + bottom)
}

/// `-2 ln u` for the 128 bits of a radius.
#[inline(always)]
fn minus_twice_log(high: u64, low: u64) -> Double {
    const SHIFT: u64 = 0x3ff0_0000_0000_0000 - 0x3fe6_a09e_667f_3bcd;
    const MAGIC: u64 = 0x4330_0000_0000_0000;
    let near_one = high >= super::plain::SEAM;
    let flip = if near_one { u64::MAX } else { 0 };
    let distance = fraction(high ^ flip, low ^ flip);
    // Elsewhere, u = 2^exponent m with m in [sqrt(1/2), sqrt(2)).
    let field = (distance.0.to_bits() + SHIFT) >> 52;
    let exponent = f64::from_bits(MAGIC | field) - (f64::from_bits(MAGIC) + 1023.0);
    let m = distance.scaled(f64::from_bits((2046 - field) << 52));
    let f = Double::choose(near_one, distance.negated(), fast_two_sum(m.0 - 1.0, m.1));
    let exponent = if near_one { 0.0 } else { exponent };
    let s = f.divided_by(Double(2.0, 0.0).plus(f));
    // |s| <= 0.1716, z <= 0.0295: z^10 is below 2^-50, and the first omitted term, z^22 / 45, below 2^-117.
    let z = s.times(s);
    let tail = plain_horner!(
        z.0,
        1.0 / 43.0,
        1.0 / 41.0,
        1.0 / 39.0,
        1.0 / 37.0,
        1.0 / 35.0,
        1.0 / 33.0,
        1.0 / 31.0,
        1.0 / 29.0,
        1.0 / 27.0,
        1.0 / 25.0,
        1.0 / 23.0,
        1.0 / 21.0
    );
    let series = horner!(
        Double(tail, 0.0),
        z,
        reciprocal(19),
        reciprocal(17),
        reciprocal(15),
        reciprocal(13),
        reciprocal(11),
        reciprocal(9),
        reciprocal(7),
        reciprocal(5),
        reciprocal(3),
        reciprocal(1)
    );
    let log = LN_2.times_f64(exponent).plus(series.times(s).scaled(2.0));
    log.scaled(-2.0)
}

/// Sine and cosine of the place that 62 + 64 bits of an angle describe, before its quarter turns it.
#[inline(always)]
fn sine_cosine(high: u64, low: u64) -> (Double, Double) {
    // The 126 bits without the quarter, as a fraction of a quarter turn in [0, 1), then in [-1/2, 1/2).
    let place = fraction(high << 2 | low >> 62, low << 2);
    let y = HALF_PI.times(place.plus(Double(if high >> 61 & 1 == 1 { -1.0 } else { 0.0 }, 0.0)));
    // z <= 0.617: terms past those in double words are below 2^-50 of the result, and omitted ones below 2^-110.
    let z = y.times(y);
    let minus_z = z.negated();
    let sine_tail = plain_horner!(
        minus_z.0,
        1.0 / 8.841_761_993_739_702e30,
        1.0 / 1.088_886_945_041_835_2e28,
        1.0 / 1.551_121_004_333_098_6e25,
        1.0 / 2.585_201_673_888_498e22,
        1.0 / 51_090_942_171_709_440_000.0,
        1.0 / 121_645_100_408_832_000.0
    );
    let sine = horner!(
        Double(sine_tail, 0.0),
        minus_z,
        inverse_factorial(17),
        inverse_factorial(15),
        inverse_factorial(13),
        inverse_factorial(11),
        inverse_factorial(9),
        inverse_factorial(7),
        inverse_factorial(5),
        inverse_factorial(3),
        inverse_factorial(1)
    );
    let cosine_tail = plain_horner!(
        minus_z.0,
        1.0 / 3.048_883_446_117_138_7e29,
        1.0 / 4.032_914_611_266_056_5e26,
        1.0 / 6.204_484_017_332_394e23,
        1.0 / 1.124_000_727_777_607_7e21,
        1.0 / 2_432_902_008_176_640_000.0
    );
    let cosine = horner!(
        Double(cosine_tail, 0.0),
        minus_z,
        inverse_factorial(18),
        inverse_factorial(16),
        inverse_factorial(14),
        inverse_factorial(12),
        inverse_factorial(10),
        inverse_factorial(8),
        inverse_factorial(6),
        inverse_factorial(4),
        inverse_factorial(2),
        inverse_factorial(0)
    );
    (sine.times(y), cosine)
}

vectorised! {
    /// `factor` times the samples of sixteen pairs, in double words.
    pub(super) fn sixteen_pairs(bits: &Bits, factor: f64, samples: &mut Samples) {
        for lane in 0..LANES {
            let length = minus_twice_log(bits.radius[0][lane], bits.radius[1][lane]).sqrt();
            let (sine, cosine) = sine_cosine(bits.angle[0][lane], bits.angle[1][lane]);
            let quarter = bits.angle[0][lane] >> 62;
            let swap = quarter & 1 == 1;
            let c = Double::choose(swap, sine, cosine).times(length).times_f64(factor);
            let s = Double::choose(swap, cosine, sine).times(length).times_f64(factor);
            // Quarters 1 and 2 negate the cosine, 2 and 3 the sine.
            let c_sign = if quarter == 1 || quarter == 2 { -1.0 } else { 1.0 };
            let s_sign = if quarter >= 2 { -1.0 } else { 1.0 };
            samples.cosine[0][lane] = c.0 * c_sign;
            samples.cosine[1][lane] = c.1 * c_sign;
            samples.sine[0][lane] = s.0 * s_sign;
            samples.sine[1][lane] = s.1 * s_sign;
        }
    }
}
