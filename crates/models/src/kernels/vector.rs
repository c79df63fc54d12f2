//! Elementwise and reducing loops over rows.

use super::isa::kernel;
use crate::scalar::Scalar;

kernel! {
    /// `target += factor * source`.
    pub(crate) fn add_scaled<FUSED>(target: &mut [T], factor: T, source: &[T]) {
        for (t, &s) in target.iter_mut().zip(source) {
            *t = factor.multiply_add::<FUSED>(s, *t);
        }
    }
}

kernel! {
    /// `target = source + addend` row by row; rows have the width of `addend`.
    pub(crate) fn add_to_rows<FUSED>(target: &mut [T], source: &[T], addend: &[T]) {
        let width = addend.len();
        for (target, source) in target.chunks_exact_mut(width).zip(source.chunks_exact(width)) {
            for i in 0..width {
                target[i] = source[i] + addend[i];
            }
        }
    }
}

kernel! {
    /// `target = target * factors`, value by value.
    pub(crate) fn multiply<FUSED>(target: &mut [T], factors: &[T]) {
        for (t, &factor) in target.iter_mut().zip(factors) {
            *t *= factor;
        }
    }
}

kernel! {
    /// Multiplies each row of the given width by its factor.
    pub(crate) fn scale_rows<FUSED>(rows: &mut [T], width: usize, factors: &[T]) {
        for (row, &factor) in rows.chunks_exact_mut(width).zip(factors) {
            for value in row {
                *value *= factor;
            }
        }
    }
}

kernel! {
    /// Adds `factor` times the sum of the rows of `matrix` (width of `target`) to `target`.
    pub(crate) fn add_column_sums<FUSED>(target: &mut [T], factor: T, matrix: &[T]) {
        let width = target.len();
        for (strip, target) in target.chunks_mut(STRIP).enumerate() {
            let mut sums = [T::ZERO; STRIP];
            let sums = &mut sums[..target.len()];
            for line in matrix.chunks_exact(width) {
                for (sum, &value) in sums.iter_mut().zip(&line[strip * STRIP..]) {
                    *sum += value;
                }
            }
            for (t, &sum) in target.iter_mut().zip(sums.iter()) {
                *t = factor.multiply_add::<FUSED>(sum, *t);
            }
        }
    }
}

const STRIP: usize = 64;

kernel! {
    /// Dot product in a fixed order of 16 lanes.
    pub(crate) fn dot<FUSED>(a: &[T], b: &[T]) -> T {
        dot_body::<T, FUSED>(a, b)
    }
}

const LANES: usize = 16;

#[inline(always)]
pub(crate) fn dot_body<T: Scalar, const FUSED: bool>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        for j in 0..LANES {
            lanes[j] = a[j].multiply_add::<FUSED>(b[j], lanes[j]);
        }
    }
    for (j, (&a, &b)) in rest_a.iter().zip(rest_b).enumerate() {
        lanes[j] = a.multiply_add::<FUSED>(b, lanes[j]);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for j in 0..width {
            lanes[j] += lanes[j + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// One over the L2 norm of a row; rows shorter than this count as this long, so that nothing divides by zero.
const SHORTEST: f64 = 1e-12;

kernel! {
    /// `inverse[i] = 1 / |row i|`, with rows of the given width.
    pub(crate) fn inverse_norms<FUSED>(rows: &[T], width: usize, inverse: &mut [T]) {
        for (row, inverse) in rows.chunks_exact(width).zip(inverse) {
            let norm = dot_body::<T, FUSED>(row, row).square_root();
            *inverse = T::ONE / norm.larger(T::of(SHORTEST));
        }
    }
}

kernel! {
    /// Backward of division by the norm: `target += factor * (g - u (u . g))` with `u = inverse_norm * row` and
    /// `g` already multiplied by the inverse norm.
    pub(crate) fn add_projected<FUSED>(
        target: &mut [T],
        factor: T,
        gradient: &[T],
        row: &[T],
        inverse_norm: T,
    ) {
        let along = dot_body::<T, FUSED>(gradient, row) * inverse_norm * inverse_norm;
        for ((t, &g), &w) in target.iter_mut().zip(gradient).zip(row) {
            let across = (-along).multiply_add::<FUSED>(w, g);
            *t = factor.multiply_add::<FUSED>(across, *t);
        }
    }
}

kernel! {
    /// Does the work of [`add_projected`] with the row itself as the target.
    pub(crate) fn step_projected<FUSED>(row: &mut [T], factor: T, gradient: &[T], inverse_norm: T) {
        let along = dot_body::<T, FUSED>(gradient, row) * inverse_norm * inverse_norm;
        for (w, &g) in row.iter_mut().zip(gradient) {
            let across = (-along).multiply_add::<FUSED>(*w, g);
            *w = factor.multiply_add::<FUSED>(across, *w);
        }
    }
}
