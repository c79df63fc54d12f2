//! Products with a matrix of 8 bits per weight, for drafts that an exact product checks.

use super::isa::kernel;
use super::matmul::PANEL;
use crate::scalar::Scalar;

/// Neighbouring weights of a column that share a scale.
pub(crate) const GROUP: usize = 64;
/// Rows of the left operand that share one reading of the weights.
const ROWS: usize = 4;
/// Lines between one that is used and the one that is asked for.
const AHEAD: usize = 64;

/// Writes the weights of one panel as whole numbers from -127 to 127, and a scale per column and group: the largest weight of each
/// group becomes 127 or -127.
pub(crate) fn round_panel(
    panel: &[[f32; PANEL]],
    bytes: &mut Vec<[i8; PANEL]>,
    scales: &mut Vec<[f32; PANEL]>,
) {
    for group in panel.chunks(GROUP) {
        let mut largest = [0.0_f32; PANEL];
        for line in group {
            for (largest, weight) in largest.iter_mut().zip(line) {
                *largest = largest.max(weight.abs());
            }
        }
        // The reciprocal of a subnormal number may overflow. Such weights change no prediction, and count as zero.
        let factors = largest.map(|largest| {
            Some(127.0 / largest)
                .filter(|factor| factor.is_finite())
                .unwrap_or(0.0)
        });
        // Adding this number and taking it away rounds, which is faster than a call. A conversion turns NaN into zero.
        let round = |value: f32| (value + 12_582_912.0) - 12_582_912.0;
        bytes.extend(
            group
                .iter()
                .map(|line| std::array::from_fn(|col| round(line[col] * factors[col]) as i8)),
        );
        scales.push(std::array::from_fn(|col| match factors[col] == 0.0 {
            true => 0.0,
            false => largest[col] / 127.0,
        }));
    }
}

kernel! {
    /// `target = source * panels`, or `+=` where `accumulate`. Rows of `source` are `depth` wide, and those of `target` `cols`.
    pub(crate) fn multiply_coarse<FUSED>(
        source: &[T],
        bytes: &[[i8; PANEL]],
        scales: &[[T; PANEL]],
        depth: usize,
        cols: usize,
        target: &mut [T],
        accumulate: bool,
    ) {
        let groups = depth.div_ceil(GROUP);
        let panels = bytes.chunks_exact(depth).zip(scales.chunks_exact(groups));
        for (panel, (bytes, scales)) in panels.enumerate() {
            let width = PANEL.min(cols - panel * PANEL);
            let mut lines = source.chunks_exact(depth).zip(target.chunks_exact_mut(cols));
            let mut left = source.len() / depth;
            let write = |target: &mut [T], totals: &[T; PANEL]| {
                for (target, &total) in target[panel * PANEL..][..width].iter_mut().zip(totals) {
                    *target = if accumulate { *target + total } else { total };
                }
            };
            while left >= ROWS {
                let mut sources: [&[T]; ROWS] = [&[]; ROWS];
                let mut targets: [&mut [T]; ROWS] = Default::default();
                for ((source, target), line) in sources.iter_mut().zip(&mut targets).zip(&mut lines) {
                    (*source, *target) = line;
                }
                let totals = panel_product::<T, ROWS, FUSED>(&sources, bytes, scales);
                for (target, totals) in targets.into_iter().zip(&totals) {
                    write(target, totals);
                }
                left -= ROWS;
            }
            for (source, target) in lines {
                let totals = panel_product::<T, 1, FUSED>(&[source], bytes, scales);
                write(target, &totals[0]);
            }
        }
    }
}

/// Asks for a line of weights. Products that wait for a line keep the processor from looking far ahead itself.
#[inline(always)]
fn ask_for(line: *const [i8; PANEL]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 machine has the instruction, which may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[inline(always)]
fn panel_product<T: Scalar, const COUNT: usize, const FUSED: bool>(
    sources: &[&[T]; COUNT],
    bytes: &[[i8; PANEL]],
    scales: &[[T; PANEL]],
) -> [[T; PANEL]; COUNT] {
    let mut totals = [[T::ZERO; PANEL]; COUNT];
    for (group, (bytes, scales)) in bytes.chunks(GROUP).zip(scales).enumerate() {
        let left: [&[T]; COUNT] =
            std::array::from_fn(|row| &sources[row][group * GROUP..group * GROUP + bytes.len()]);
        let mut sums = [[T::ZERO; PANEL]; COUNT];
        for k in 0..bytes.len() {
            ask_for(bytes.as_ptr().wrapping_add(k + AHEAD));
            for row in 0..COUNT {
                let left = left[row][k];
                for col in 0..PANEL {
                    sums[row][col] = left.multiply_add::<FUSED>(T::of_byte(bytes[k][col]), sums[row][col]);
                }
            }
        }
        for row in 0..COUNT {
            for col in 0..PANEL {
                totals[row][col] = sums[row][col].multiply_add::<FUSED>(scales[col], totals[row][col]);
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;
    use crate::testing::numbers;

    /// Each weight comes back within one half of the step of its group, and products are those of the rounded weights.
    #[test]
    fn products_are_those_of_weights_rounded_to_steps_of_their_group() {
        for (rows, depth, cols) in [(1, 1, 1), (3, 64, 48), (5, 130, 50), (4, 65, 96), (9, 7, 100)] {
            let weights = numbers(depth * cols, 3, 1.0);
            let source: Vec<f32> = numbers(rows * depth, 4, 1.0).iter().map(|&x| x as f32).collect();
            let (mut bytes, mut scales) = (Vec::new(), Vec::new());
            for first in (0..cols).step_by(PANEL) {
                let line = |k: usize| {
                    std::array::from_fn(|col| match first + col < cols {
                        // The first group of each column is ten times as large.
                        true => (weights[k * cols + first + col] * if k < GROUP { 10.0 } else { 1.0 }) as f32,
                        false => 0.0,
                    })
                };
                let panel: Vec<[f32; PANEL]> = (0..depth).map(line).collect();
                round_panel(&panel, &mut bytes, &mut scales);
            }
            let groups = depth.div_ceil(GROUP);
            let rounded = |k: usize, col: usize| {
                let (panel, place) = (col / PANEL, col % PANEL);
                f64::from(bytes[panel * depth + k][place])
                    * f64::from(scales[panel * groups + k / GROUP][place])
            };
            for k in 0..depth {
                for col in 0..cols {
                    let exact = weights[k * cols + col] * if k < GROUP { 10.0 } else { 1.0 };
                    let step = f64::from(scales[col / PANEL * groups + k / GROUP][col % PANEL]);
                    assert!((rounded(k, col) - exact).abs() <= 0.5001 * step, "{k} {col}");
                }
            }
            for isa in Isa::available() {
                for accumulate in [false, true] {
                    let mut target = vec![3.0_f32; rows * cols];
                    multiply_coarse(
                        isa,
                        &source,
                        &bytes,
                        &scales,
                        depth,
                        cols,
                        &mut target,
                        accumulate,
                    );
                    for (place, &got) in target.iter().enumerate() {
                        let (row, col) = (place / cols, place % cols);
                        let sum: f64 = (0..depth)
                            .map(|k| f64::from(source[row * depth + k]) * rounded(k, col))
                            .sum();
                        let expected = sum + if accumulate { 3.0 } else { 0.0 };
                        assert!(
                            (f64::from(got) - expected).abs() < 1e-3,
                            "{isa:?} {got} {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn weights_without_a_usable_scale_count_as_zero() {
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        let mut line = [0.0_f32; PANEL];
        (line[1], line[2], line[3]) = (1e-44, f32::NAN, f32::INFINITY);
        round_panel(&[line], &mut bytes, &mut scales);
        let mut target = [7.0_f32; PANEL];
        multiply_coarse(
            Isa::detect(),
            &[1.0],
            &bytes,
            &scales,
            1,
            PANEL,
            &mut target,
            false,
        );
        assert_eq!(target, [0.0; PANEL]);
    }
}
