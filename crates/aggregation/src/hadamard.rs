//! The fast Walsh-Hadamard transform, in place.
//!
//! `y[i] = sum over j of (-1)^popcount(i & j) x[j]`: the Hadamard matrix without its factor `1 / sqrt(n)`, so that whole
//! numbers stay whole and applying it twice multiplies by `n`.
//!
//! Three levels of butterflies are done at a time, on eight numbers in registers, and a block is finished as soon as its
//! eighths are: however large the caches, few levels pass through memory. Levels follow each other from the innermost one
//! outward, on every processor, so that sums are rounded alike everywhere.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod signed;

use std::ops::{Add, Sub};

use undertone_simd::vectorised;

use crate::error::{AggregationError, Result};
pub(crate) use signed::{Signed, signed_walsh_hadamard};

/// Numbers whose levels are done before any other is touched; they fit the first cache.
const BLOCK: usize = 1 << 11;

/// Does the levels of a block of [`BLOCK`] numbers, or of all if there are fewer; told the index of the first.
type First<'a, T> = &'a mut dyn FnMut(usize, &mut [T]);

/// A kind of number that can be transformed: `f32` or `f64`.
pub trait Transformable: Copy + Add<Output = Self> + Sub<Output = Self> + sealed::Sealed {}

mod sealed {
    pub trait Sealed: Sized {
        fn block(values: &mut [Self]);
        fn transform(values: &mut [Self], first: super::First<'_, Self>);
    }
}

/// Transforms `values` in place.
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
    T::transform(values, &mut |_, block| T::block(block));
    Ok(())
}

macro_rules! transformable {
    ($type:ty, $transform:ident, $block:path) => {
        vectorised! {
            fn $transform(values: &mut [$type], first: First<'_, $type>) {
                levels(values, first)
            }
        }
        impl sealed::Sealed for $type {
            fn block(values: &mut [Self]) {
                $block(values);
            }

            fn transform(values: &mut [Self], first: First<'_, Self>) {
                $transform(values, first);
            }
        }
        impl Transformable for $type {}
    };
}

transformable!(f32, transform_f32, block_f32);
transformable!(f64, transform_f64, block_f64);

/// All levels, innermost first.
#[inline(always)]
fn levels<T: Transformable>(values: &mut [T], first: First<'_, T>) {
    if values.len() < BLOCK {
        return first(0, values);
    }
    for end in (BLOCK..=values.len()).step_by(BLOCK) {
        let mut size = BLOCK;
        let values = &mut values[..end];
        first(end - size, &mut values[end - size..]);
        while end.is_multiple_of(8 * size) {
            radix_8(&mut values[end - 8 * size..], size);
            size *= 8;
        }
    }
    let eighths = (values.len() / BLOCK).ilog2() / 3;
    strided(values, BLOCK << (3 * eighths));
}

fn block_f32(values: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if values.len() == BLOCK && is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature was detected on this processor.
        return unsafe { avx512::block(values) };
    }
    portable_block_f32(values);
}

vectorised! {
    fn portable_block_f32(values: &mut [f32]) {
        block(values);
    }
}

vectorised! {
    fn block_f64(values: &mut [f64]) {
        block(values);
    }
}

/// The levels of [`BLOCK`] numbers or fewer.
#[inline(always)]
fn block<T: Transformable>(values: &mut [T]) {
    if values.len() < 8 {
        return strided(values, 1);
    }
    for group in values.as_chunks_mut::<8>().0 {
        *group = eight(*group);
    }
    strided(values, 8);
}

/// The levels whose partners are `stride` apart or more.
#[inline(always)]
fn strided<T: Transformable>(values: &mut [T], mut stride: usize) {
    // Loops, not `for_each`: a closure that is not inlined is compiled for the baseline.
    let mut left = values.len() / stride;
    while left >= 8 {
        for part in values.chunks_exact_mut(8 * stride) {
            radix_8(part, stride);
        }
        (left, stride) = (left / 8, stride * 8);
    }
    if left == 4 {
        for part in values.chunks_exact_mut(4 * stride) {
            radix_4(part, stride);
        }
    } else if left == 2 {
        for part in values.chunks_exact_mut(2 * stride) {
            radix_2(part, stride);
        }
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
    [a + b, a - b]
}

#[inline(always)]
fn four<T: Transformable>([a, b, c, d]: [T; 4]) -> [T; 4] {
    let ([a, b], [c, d]) = (two([a, b]), two([c, d]));
    [a + c, b + d, a - c, b - d]
}

#[inline(always)]
fn eight<T: Transformable>([a, b, c, d, e, f, g, h]: [T; 8]) -> [T; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (four([a, b, c, d]), four([e, f, g, h]));
    [a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h]
}

#[cfg(test)]
mod tests;
