use crate::kernels::matmul::Tile;
use std::fmt::{Debug, Display};
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// Source, its stride, rows, columns, target, its stride.
pub(crate) type Transpose<T> = unsafe fn(*const T, usize, usize, usize, *mut T, usize);

/// The floating-point types of models: `f32` for training, `f64` for checks.
///
/// In `f32` the transcendental functions are branch-free polynomials that vectorise, with a relative error below
/// 3e-7 over the finite range; in `f64` they are the standard library's.
pub trait Scalar: sealed::Arithmetic {
    /// Zero.
    const ZERO: Self;
    /// Rounds from double precision.
    fn of(value: f64) -> Self;
    /// Widens to double precision.
    fn wide(self) -> f64;
}

pub(crate) use sealed::Arithmetic;

mod sealed {
    use super::*;

    /// The arithmetic of the kernels.
    pub trait Arithmetic:
        Copy
        + Send
        + Sync
        + Debug
        + Display
        + PartialOrd
        + Add<Output = Self>
        + Sub<Output = Self>
        + Mul<Output = Self>
        + Div<Output = Self>
        + Neg<Output = Self>
        + AddAssign
        + SubAssign
        + MulAssign
        + 'static
    {
        /// One.
        const ONE: Self;
        /// Negative infinity.
        const LOWEST: Self;
        /// A whole number of 8 bits.
        fn of_byte(value: i8) -> Self;
        /// `self * factor + addend`, fused when `FUSED` (the caller knows that the machine can).
        fn multiply_add<const FUSED: bool>(self, factor: Self, addend: Self) -> Self;
        /// Square root.
        fn square_root(self) -> Self;
        /// The larger of two numbers that are not NaN.
        fn larger(self, other: Self) -> Self;
        /// Exponential; results below the normal range are flushed towards zero.
        fn exponential<const FUSED: bool>(self) -> Self;
        /// Exponential of a number that is not positive. The result for positive numbers is unspecified.
        fn exponential_of_negative<const FUSED: bool>(self) -> Self;
        /// Hyperbolic tangent.
        fn hyperbolic_tangent<const FUSED: bool>(self) -> Self;

        /// Logistic function.
        #[inline(always)]
        fn logistic<const FUSED: bool>(self) -> Self {
            Self::ONE / (Self::ONE + (-self).exponential::<FUSED>())
        }

        /// The AVX-512 matrix tile, where there is one for this type.
        const WIDE_TILE: Option<unsafe fn(&Tile<Self>)> = None;
        /// The AVX-512 transpose, where there is one for this type.
        const WIDE_TRANSPOSE: Option<Transpose<Self>> = None;
    }
}

/// The logarithm of the smallest normal `f32`.
const LOWEST_EXPONENT: f32 = -87.336_54;

/// `exp(x) = mantissa * 2^exponent`: reduction to `[-ln 2 / 2, ln 2 / 2]`, then a degree-7 polynomial. NaN stays NaN.
#[inline(always)]
fn exponential_parts<const FUSED: bool>(x: f32) -> (f32, i32) {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to the nearest integer
    let shifted = x.multiply_add::<FUSED>(std::f32::consts::LOG2_E, MAGIC);
    let whole = shifted - MAGIC;
    let rest = whole.multiply_add::<FUSED>(-0.693_359_4, x);
    let rest = whole.multiply_add::<FUSED>(2.121_944_4e-4, rest);
    let poly = 1.987_569_1e-4f32;
    let poly = poly.multiply_add::<FUSED>(rest, 1.398_199_9e-3);
    let poly = poly.multiply_add::<FUSED>(rest, 8.333_452e-3);
    let poly = poly.multiply_add::<FUSED>(rest, 4.166_579_6e-2);
    let poly = poly.multiply_add::<FUSED>(rest, 1.666_666_5e-1);
    let poly = poly.multiply_add::<FUSED>(rest, 0.5);
    let mantissa = poly.multiply_add::<FUSED>(rest * rest, rest) + 1.0;
    // The low bits of the shifted number hold the integer.
    (
        mantissa,
        (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32),
    )
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}

/// The items that are the same for both types.
macro_rules! arithmetic {
    () => {
        const ONE: Self = 1.0;
        const LOWEST: Self = Self::NEG_INFINITY;

        #[inline(always)]
        fn multiply_add<const FUSED: bool>(self, factor: Self, addend: Self) -> Self {
            if FUSED {
                self.mul_add(factor, addend)
            } else {
                self * factor + addend
            }
        }

        #[inline(always)]
        fn of_byte(value: i8) -> Self {
            Self::from(value)
        }

        #[inline(always)]
        fn square_root(self) -> Self {
            self.sqrt()
        }

        #[inline(always)]
        fn larger(self, other: Self) -> Self {
            if self > other { self } else { other }
        }
    };
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Arithmetic for f32 {
    arithmetic!();

    /// Half of the exponent twice, so that neither power of two leaves the normal range.
    #[inline(always)]
    fn exponential<const FUSED: bool>(self) -> Self {
        let clamped = if self < LOWEST_EXPONENT {
            LOWEST_EXPONENT
        } else {
            self
        };
        let clamped = if clamped > 88.722_83 { 88.722_83 } else { clamped };
        let (mantissa, exponent) = exponential_parts::<FUSED>(clamped);
        let first = exponent >> 1;
        mantissa * power_of_two(first) * power_of_two(exponent.wrapping_sub(first))
    }

    #[inline(always)]
    fn exponential_of_negative<const FUSED: bool>(self) -> Self {
        let clamped = if self < LOWEST_EXPONENT {
            LOWEST_EXPONENT
        } else {
            self
        };
        let (mantissa, exponent) = exponential_parts::<FUSED>(clamped);
        mantissa * power_of_two(exponent)
    }

    #[inline(always)]
    fn hyperbolic_tangent<const FUSED: bool>(self) -> Self {
        let magnitude = self.abs();
        let square = self * self;
        let poly = -5.704_988_7e-3f32;
        let poly = poly.multiply_add::<FUSED>(square, 2.063_909e-2);
        let poly = poly.multiply_add::<FUSED>(square, -5.373_971_6e-2);
        let poly = poly.multiply_add::<FUSED>(square, 1.333_144_2e-1);
        let poly = poly.multiply_add::<FUSED>(square, -3.333_328e-1);
        let small = (poly * square).multiply_add::<FUSED>(self, self);
        let large = 1.0 - 2.0 / ((magnitude + magnitude).exponential::<FUSED>() + 1.0);
        let large = large.copysign(self);
        if magnitude < 0.625 { small } else { large }
    }

    #[cfg(target_arch = "x86_64")]
    const WIDE_TILE: Option<unsafe fn(&Tile<Self>)> = Some(crate::kernels::tile_avx512::multiply);
    #[cfg(target_arch = "x86_64")]
    const WIDE_TRANSPOSE: Option<Transpose<Self>> = Some(crate::kernels::transpose_avx512::transpose);
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

impl Arithmetic for f64 {
    arithmetic!();

    #[inline(always)]
    fn exponential<const FUSED: bool>(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn exponential_of_negative<const FUSED: bool>(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn hyperbolic_tangent<const FUSED: bool>(self) -> Self {
        self.tanh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ours: fn(f32) -> f32, exact: fn(f64) -> f64, low: f32, high: f32) {
        let count = 400_000u32;
        let mut worst = (0.0f64, 0.0f32);
        for i in 0..=count {
            let x = low + (high - low) * (i as f32 / count as f32);
            let expected = exact(f64::from(x));
            let error = (f64::from(ours(x)) - expected).abs() / expected.abs().max(1e-37);
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(
            worst.0 <= 3e-7,
            "{name}: relative error {} at {}",
            worst.0,
            worst.1
        );
    }

    #[test]
    fn polynomials_are_close() {
        check("exp", f32::exponential::<true>, f64::exp, -87.0, 88.7);
        check("exp, unfused", f32::exponential::<false>, f64::exp, -87.0, 88.7);
        check(
            "exp of negative",
            f32::exponential_of_negative::<true>,
            f64::exp,
            -87.0,
            0.0,
        );
        check("tanh", f32::hyperbolic_tangent::<true>, f64::tanh, -12.0, 12.0);
        check(
            "tanh near 0",
            f32::hyperbolic_tangent::<true>,
            f64::tanh,
            1e-6,
            0.7,
        );
        check(
            "logistic",
            f32::logistic::<true>,
            |x| 1.0 / (1.0 + (-x).exp()),
            -80.0,
            30.0,
        );
    }

    #[test]
    fn extreme_arguments_saturate_and_keep_nan() {
        assert_eq!(f32::exponential::<true>(f32::NEG_INFINITY).max(2e-38), 2e-38);
        assert!(f32::exponential::<true>(f32::NAN).is_nan());
        assert!(f32::exponential_of_negative::<true>(-1e30) < 2e-38);
        assert!(f32::exponential_of_negative::<true>(f32::NAN).is_nan());
        assert_eq!(f32::logistic::<true>(200.0), 1.0);
        assert!(f32::logistic::<true>(-200.0) < 1e-30);
        assert_eq!(f32::hyperbolic_tangent::<true>(50.0), 1.0);
        assert_eq!(f32::hyperbolic_tangent::<true>(-50.0), -1.0);
    }
}
