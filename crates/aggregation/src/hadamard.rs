//! The fast Walsh-Hadamard transform, in place.
//!
//! `y[i] = sum over j of (-1)^popcount(i & j) x[j]`: the Hadamard matrix without its factor `1 / sqrt(n)`, so that whole
//! numbers stay whole and applying it twice multiplies by `n`.
//!
//! Three levels of butterflies are done at a time, on eight numbers in registers: a vector of `2^23` passes eight times
//! through the arithmetic units, but only three times through memory, as blocks that fit the second cache are finished
//! before the next one is touched.

use undertone_simd::vectorised;

use crate::error::{AggregationError, Result};

/// Numbers that fit the first cache, in `f32`.
const FIRST_CACHE: usize = 1 << 12;

/// Numbers that fit the second cache, in `f32`.
const SECOND_CACHE: usize = 1 << 17;

/// A kind of number that can be transformed: `f32`, `f64` or `i64`.
pub trait Transformable: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed: Sized {
        fn plus(self, other: Self) -> Self;
        fn minus(self, other: Self) -> Self;
        fn transform(values: &mut [Self]);
    }
}

/// Transforms `values` in place.
///
/// Over `i64` the result is exact as long as the sum of the magnitudes stays below `2^63`, and modulo `2^64` in any case.
///
/// # Errors
/// [`AggregationError::NotAPowerOfTwo`] for any other length.
///
/// # Example
/// ```
/// let mut values = [1.0f32, 0.0, 2.0, 0.0];
/// undertone_aggregation::walsh_hadamard(&mut values)?;
/// assert_eq!(values, [3.0, 3.0, -1.0, -1.0]);
/// # Ok::<(), undertone_aggregation::AggregationError>(())
/// ```
pub fn walsh_hadamard<T: Transformable>(values: &mut [T]) -> Result<()> {
    if !values.len().is_power_of_two() {
        return Err(AggregationError::NotAPowerOfTwo { got: values.len() });
    }
    T::transform(values);
    Ok(())
}

macro_rules! transformable {
    ($type:ty, $transform:ident, $plus:expr, $minus:expr) => {
        vectorised! {
            fn $transform(values: &mut [$type]) {
                levels(values)
            }
        }
        impl sealed::Sealed for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                $minus(self, other)
            }

            fn transform(values: &mut [$type]) {
                $transform(values);
            }
        }
        impl Transformable for $type {}
    };
}

transformable!(f32, transform_f32, std::ops::Add::add, std::ops::Sub::sub);
transformable!(f64, transform_f64, std::ops::Add::add, std::ops::Sub::sub);
transformable!(i64, transform_i64, i64::wrapping_add, i64::wrapping_sub);

/// All levels, innermost first.
#[inline(always)]
fn levels<T: Transformable>(values: &mut [T]) {
    if values.len() < 8 {
        return strided(values, 1);
    }
    for block in values.chunks_mut(SECOND_CACHE) {
        for block in block.chunks_mut(FIRST_CACHE) {
            for group in block.as_chunks_mut::<8>().0 {
                *group = eight(*group);
            }
            strided(block, 8);
        }
        strided(block, FIRST_CACHE);
    }
    strided(values, SECOND_CACHE);
}

/// The levels whose partners are `stride` apart or more.
#[inline(always)]
fn strided<T: Transformable>(values: &mut [T], mut stride: usize) {
    let mut left = values.len() / stride;
    while left >= 8 {
        values
            .chunks_exact_mut(8 * stride)
            .for_each(|part| radix_8(part, stride));
        (left, stride) = (left / 8, stride * 8);
    }
    match left {
        4 => values
            .chunks_exact_mut(4 * stride)
            .for_each(|part| radix_4(part, stride)),
        2 => values
            .chunks_exact_mut(2 * stride)
            .for_each(|part| radix_2(part, stride)),
        _ => {}
    }
}

#[inline(always)]
fn radix_8<T: Transformable>(part: &mut [T], stride: usize) {
    let (low, high) = part.split_at_mut(4 * stride);
    let (ab, cd) = low.split_at_mut(2 * stride);
    let (ef, gh) = high.split_at_mut(2 * stride);
    let ((a, b), (c, d)) = (ab.split_at_mut(stride), cd.split_at_mut(stride));
    let ((e, f), (g, h)) = (ef.split_at_mut(stride), gh.split_at_mut(stride));
    rows_8(a, b, c, d, e, f, g, h);
}

#[inline(always)]
fn radix_4<T: Transformable>(part: &mut [T], stride: usize) {
    let (low, high) = part.split_at_mut(2 * stride);
    let ((a, b), (c, d)) = (low.split_at_mut(stride), high.split_at_mut(stride));
    rows_4(a, b, c, d);
}

#[inline(always)]
fn radix_2<T: Transformable>(part: &mut [T], stride: usize) {
    let (a, b) = part.split_at_mut(stride);
    for (a, b) in a.iter_mut().zip(b) {
        [*a, *b] = two([*a, *b]);
    }
}

#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "as arguments the rows are known not to overlap, which is what lets the loop be vectorised"
)]
fn rows_8<T: Transformable>(
    a: &mut [T],
    b: &mut [T],
    c: &mut [T],
    d: &mut [T],
    e: &mut [T],
    f: &mut [T],
    g: &mut [T],
    h: &mut [T],
) {
    let len = a.len();
    let lengths = [b.len(), c.len(), d.len(), e.len(), f.len(), g.len(), h.len()];
    // They always are; said once, no access is checked again.
    if lengths != [len; 7] {
        return;
    }
    for i in 0..len {
        let rows = eight([a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]]);
        [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]] = rows;
    }
}

#[inline(always)]
fn rows_4<T: Transformable>(a: &mut [T], b: &mut [T], c: &mut [T], d: &mut [T]) {
    let len = a.len();
    if [b.len(), c.len(), d.len()] != [len; 3] {
        return;
    }
    for i in 0..len {
        [a[i], b[i], c[i], d[i]] = four([a[i], b[i], c[i], d[i]]);
    }
}

#[inline(always)]
fn two<T: Transformable>([a, b]: [T; 2]) -> [T; 2] {
    [a.plus(b), a.minus(b)]
}

#[inline(always)]
fn four<T: Transformable>([a, b, c, d]: [T; 4]) -> [T; 4] {
    let ([a, b], [c, d]) = (two([a, b]), two([c, d]));
    [a.plus(c), b.plus(d), a.minus(c), b.minus(d)]
}

#[inline(always)]
fn eight<T: Transformable>([a, b, c, d, e, f, g, h]: [T; 8]) -> [T; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (four([a, b, c, d]), four([e, f, g, h]));
    [
        a.plus(e),
        b.plus(f),
        c.plus(g),
        d.plus(h),
        a.minus(e),
        b.minus(f),
        c.minus(g),
        d.minus(h),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(i: usize, j: usize) -> i64 {
        1 - 2 * i64::from((i & j).count_ones() % 2)
    }

    fn sample(len: usize) -> Vec<i64> {
        (0..len as i64)
            .map(|i| (i * 7919 + i * i % 101) % 2003 - 1001)
            .collect()
    }

    /// The matrix itself, row by row, up to 2^10; every kind of number is exact on whole numbers of this size.
    #[test]
    fn is_the_matrix() {
        for level in 0..=10 {
            let x = sample(1 << level);
            let naive: Vec<i64> = (0..x.len())
                .map(|i| x.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum())
                .collect();
            let mut whole = x.clone();
            walsh_hadamard(&mut whole).unwrap();
            assert_eq!(whole, naive, "2^{level}");
            let mut single: Vec<f32> = x.iter().map(|&x| x as f32).collect();
            walsh_hadamard(&mut single).unwrap();
            assert!(
                single.iter().zip(&naive).all(|(&a, &b)| f64::from(a) == b as f64),
                "2^{level}"
            );
            let mut double: Vec<f64> = x.iter().map(|&x| x as f64).collect();
            walsh_hadamard(&mut double).unwrap();
            assert!(
                double.iter().zip(&naive).all(|(&a, &b)| a == b as f64),
                "2^{level}"
            );
        }
    }

    /// Beyond both caches: single rows of the matrix, and that twice is `n` times.
    #[test]
    fn long_vectors() {
        for level in 11..=19 {
            let n = 1usize << level;
            let x = sample(n);
            let mut y = x.clone();
            walsh_hadamard(&mut y).unwrap();
            for i in [0, 1, 7, 8, n / 3, n / 2, n - 1] {
                let naive: i64 = x.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum();
                assert_eq!(y[i], naive, "2^{level}, row {i}");
            }
            walsh_hadamard(&mut y).unwrap();
            assert!(y.iter().zip(&x).all(|(y, x)| *y == n as i64 * x), "2^{level}");
        }
    }

    #[test]
    fn whole_numbers_wrap_around_instead_of_failing() {
        let mut values = [i64::MAX; 16];
        walsh_hadamard(&mut values).unwrap();
        assert_eq!((values[0], values[1]), (i64::MAX.wrapping_mul(16), 0));
    }

    #[test]
    fn other_lengths() {
        for len in [0, 3, 6, 12, 1000] {
            let message = walsh_hadamard(&mut vec![0.0f32; len]).unwrap_err().to_string();
            assert_eq!(message, format!("expected a power of two of numbers, got {len}"));
        }
    }
}
