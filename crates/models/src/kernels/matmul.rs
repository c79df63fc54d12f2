//! Matrix products `C = alpha A B` and `C += alpha A B` over strided operands.
//!
//! One tile shape serves every product of the models: the left operand is read element by element and may have
//! any strides (a transposed left operand costs nothing), the right operand has unit column stride and is read in
//! panels of [`PANEL`] columns. A right operand that is needed transposed, or many times, is first packed into
//! panels.

use super::isa::{Isa, kernel};
use super::pack::{pack_panel, panels_len};
use crate::scalar::Scalar;

/// Columns of the right operand that one tile covers: three AVX-512 vectors of `f32`.
pub(crate) const PANEL: usize = 48;
/// Rows of the left operand that one tile covers.
pub(crate) const TILE_ROWS: usize = 8;

/// One tile: `c[i][j] (+)= alpha * sum_k a[i * a_row + k * a_col] * b[k * b_stride + j]`.
///
/// Public only because a sealed trait names it; the pointers are valid for `rows x depth`, `depth x cols` and
/// `rows x cols` elements at their strides, and `c` overlaps neither of the others.
#[derive(Debug)]
pub struct Tile<T> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) depth: usize,
    pub(crate) alpha: T,
    pub(crate) accumulate: bool,
    pub(crate) a: *const T,
    pub(crate) a_row: usize,
    pub(crate) a_col: usize,
    pub(crate) b: *const T,
    pub(crate) b_stride: usize,
    pub(crate) c: *mut T,
    pub(crate) c_stride: usize,
    /// Start of the memory that will be read soon, and number of its cache lines to ask for per stretch of `depth`.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only AVX-512 tiles ask")
    )]
    pub(crate) ahead: *const T,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only AVX-512 tiles ask")
    )]
    pub(crate) ahead_lines: usize,
}

/// Stretches of `depth` between which a tile asks for memory.
pub(crate) const STRETCHES: usize = 12;
/// Bytes of a cache line.
const LINE: usize = 64;

/// A left operand with any strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left<'a, T> {
    data: &'a [T],
    row: usize,
    col: usize,
    /// Distance between two groups of [`TILE_ROWS`] rows.
    tile: usize,
}

impl<'a, T> Left<'a, T> {
    /// Element `(i, k)` at `i * row + k * col`.
    pub(crate) fn strided(data: &'a [T], row: usize, col: usize) -> Self {
        Self {
            data,
            row,
            col,
            tile: TILE_ROWS * row,
        }
    }

    /// Packed by [`pack_left`](super::pack::pack_left) for the given depth.
    pub(crate) fn packed(data: &'a [T], depth: usize) -> Self {
        Self {
            data,
            row: 1,
            col: TILE_ROWS,
            tile: TILE_ROWS * depth,
        }
    }
}

/// A right operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right<'a, T> {
    /// Row-major with the given row stride.
    Rows(&'a [T], usize),
    /// Packed by [`pack_panels`](super::pack::pack_panels) or its transposed form.
    Panels(&'a [T]),
}

/// Extents of a product: `rows x depth` times `depth x cols`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) depth: usize,
}

/// Computes `c = alpha a b`, or `c += alpha a b` when `accumulate`; `c` is row-major with stride `c_stride`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul<T: Scalar>(
    isa: Isa,
    extent: Extent,
    alpha: T,
    a: Left<'_, T>,
    b: Right<'_, T>,
    c: &mut [T],
    c_stride: usize,
    accumulate: bool,
) {
    matmul_ahead(isa, extent, alpha, a, b, c, c_stride, accumulate, &[]);
}

/// Multiplies like [`matmul`] and fetches `ahead`, which the caller reads next, into the cache.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul_ahead<T: Scalar>(
    isa: Isa,
    extent: Extent,
    alpha: T,
    a: Left<'_, T>,
    b: Right<'_, T>,
    c: &mut [T],
    c_stride: usize,
    accumulate: bool,
    ahead: &[T],
) {
    let Extent { rows, cols, depth } = extent;
    if rows == 0 || cols == 0 {
        return;
    }
    assert!(
        c_stride >= cols && (rows - 1) * c_stride + cols <= c.len(),
        "output too small"
    );
    if depth > 0 {
        // Rows within a tile never reach past the same rows of the next tile, so the last row is the furthest.
        assert!(
            (TILE_ROWS - 1) * a.row <= a.tile || rows <= TILE_ROWS,
            "left operand's tiles overlap"
        );
        let last = (rows - 1) / TILE_ROWS * a.tile + (rows - 1) % TILE_ROWS * a.row + (depth - 1) * a.col;
        assert!(last < a.data.len(), "left operand too small");
        match b {
            Right::Rows(data, stride) => {
                assert!(
                    stride >= cols && (depth - 1) * stride + cols <= data.len(),
                    "right operand too small"
                );
            }
            Right::Panels(data) => assert!(panels_len(depth, cols) <= data.len(), "right operand too small"),
        }
    }
    let multiply = pick::<T>(isa);
    let tiles = cols.div_ceil(PANEL) * rows.div_ceil(TILE_ROWS);
    let ahead_lines = size_of_val(ahead).div_ceil(LINE * tiles * STRETCHES);
    let ahead_step = ahead_lines * STRETCHES * LINE / size_of::<T>();
    let mut ahead = ahead.as_ptr();
    for col in (0..cols).step_by(PANEL) {
        let width = PANEL.min(cols - col);
        let (panel, b_stride) = match b {
            Right::Rows(data, stride) => (data.as_ptr().wrapping_add(col), stride),
            Right::Panels(data) => (data.as_ptr().wrapping_add(col * depth), PANEL),
        };
        for row in (0..rows).step_by(TILE_ROWS) {
            let tile = Tile {
                rows: TILE_ROWS.min(rows - row),
                cols: width,
                depth,
                alpha,
                accumulate,
                a: a.data.as_ptr().wrapping_add(row / TILE_ROWS * a.tile),
                a_row: a.row,
                a_col: a.col,
                b: panel,
                b_stride,
                c: c.as_mut_ptr().wrapping_add(row * c_stride + col),
                c_stride,
                ahead,
                ahead_lines,
            };
            ahead = ahead.wrapping_add(ahead_step);
            // SAFETY: the assertions above keep every tile inside the three slices; `c` is borrowed mutably, so it
            // overlaps neither operand; `pick` returns a tile for features that `isa` stands for.
            unsafe { multiply(&tile) };
        }
    }
}

/// Multiplies like [`matmul`] with a tall left operand: the rows of `b` are copied to `scratch` one panel at a time and then used
/// by every row of `a`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul_tall<T: Scalar>(
    isa: Isa,
    extent: Extent,
    alpha: T,
    a: Left<'_, T>,
    b: (&[T], usize),
    c: &mut [T],
    c_stride: usize,
    accumulate: bool,
    scratch: &mut [T],
) {
    let Extent { rows, cols, depth } = extent;
    let (data, stride) = b;
    for col in (0..cols).step_by(PANEL) {
        let width = PANEL.min(cols - col);
        let packed = &mut scratch[..depth * PANEL];
        pack_panel(isa, &data[col..], stride, width, packed);
        let panel = Extent {
            rows,
            cols: width,
            depth,
        };
        matmul(
            isa,
            panel,
            alpha,
            a,
            Right::Panels(packed),
            &mut c[col..],
            c_stride,
            accumulate,
        );
    }
}

fn pick<T: Scalar>(isa: Isa) -> unsafe fn(&Tile<T>) {
    unsafe fn portable<T: Scalar>(tile: &Tile<T>) {
        narrow_tile(Isa::Portable, tile);
    }
    #[cfg(target_arch = "x86_64")]
    {
        unsafe fn avx2<T: Scalar>(tile: &Tile<T>) {
            narrow_tile(Isa::Avx2, tile);
        }
        unsafe fn avx512<T: Scalar>(tile: &Tile<T>) {
            narrow_tile(Isa::Avx512, tile);
        }
        match isa {
            Isa::Avx512 => T::WIDE_TILE.unwrap_or(avx512::<T>),
            Isa::Avx2 => avx2::<T>,
            Isa::Portable => portable::<T>,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        portable::<T>
    }
}

kernel! {
    /// The tile for machines without a hand-written one.
    fn narrow_tile<FUSED>(tile: &Tile<T>) {
        for col in (0..tile.cols).step_by(NARROW_COLS) {
            for row in (0..tile.rows).step_by(NARROW_ROWS) {
                let rows = NARROW_ROWS.min(tile.rows - row);
                let cols = NARROW_COLS.min(tile.cols - col);
                if rows == NARROW_ROWS && cols == NARROW_COLS {
                    block::<T, FUSED>(tile, row, col);
                } else {
                    edge::<T, FUSED>(tile, row, col, rows, cols);
                }
            }
        }
    }
}

const NARROW_ROWS: usize = 4;
const NARROW_COLS: usize = 16;

#[inline(always)]
fn block<T: Scalar, const FUSED: bool>(tile: &Tile<T>, row: usize, col: usize) {
    let mut sums = [[T::ZERO; NARROW_COLS]; NARROW_ROWS];
    for k in 0..tile.depth {
        // SAFETY: `col + NARROW_COLS <= cols` and `row + NARROW_ROWS <= rows`; the tile's pointers cover them.
        unsafe {
            let right = &*tile.b.add(k * tile.b_stride + col).cast::<[T; NARROW_COLS]>();
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = *tile.a.add((row + i) * tile.a_row + k * tile.a_col);
                for j in 0..NARROW_COLS {
                    sums[j] = left.multiply_add::<FUSED>(right[j], sums[j]);
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        // SAFETY: as above, for `c`, which nothing else refers to during the call.
        let line = unsafe {
            &mut *tile
                .c
                .add((row + i) * tile.c_stride + col)
                .cast::<[T; NARROW_COLS]>()
        };
        for (c, &sum) in line.iter_mut().zip(sums) {
            *c = if tile.accumulate {
                tile.alpha.multiply_add::<FUSED>(sum, *c)
            } else {
                tile.alpha * sum
            };
        }
    }
}

#[inline(always)]
fn edge<T: Scalar, const FUSED: bool>(tile: &Tile<T>, row: usize, col: usize, rows: usize, cols: usize) {
    for i in row..row + rows {
        let mut sums = [T::ZERO; NARROW_COLS];
        for k in 0..tile.depth {
            // SAFETY: `i < rows` and the columns from `col` are fewer than `cols` of the tile.
            unsafe {
                let left = *tile.a.add(i * tile.a_row + k * tile.a_col);
                let right = tile.b.add(k * tile.b_stride + col);
                for (j, sum) in sums[..cols].iter_mut().enumerate() {
                    *sum = left.multiply_add::<FUSED>(*right.add(j), *sum);
                }
            }
        }
        for (j, &sum) in sums[..cols].iter().enumerate() {
            // SAFETY: as above, for `c`.
            let c = unsafe { &mut *tile.c.add(i * tile.c_stride + col + j) };
            *c = if tile.accumulate {
                tile.alpha.multiply_add::<FUSED>(sum, *c)
            } else {
                tile.alpha * sum
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{pack_left, pack_panels, packed_left_len};
    use super::*;
    use std::ops::Range;

    fn numbers<T: Scalar>(len: usize, seed: u32) -> Vec<T> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::of(f64::from(state >> 8) / f64::from(1u32 << 24) - 0.5)
        };
        (0..len).map(|_| next()).collect()
    }

    fn check<T: Scalar>(rows: usize, cols: usize, depth: usize, tolerance: f64) {
        let extent = Extent { rows, cols, depth };
        let (a, b): (Vec<T>, Vec<T>) = (numbers(rows * depth, 1), numbers(depth * cols, 2));
        let start: Vec<T> = numbers(rows * (cols + 3), 3);
        let transposed: Vec<T> = (0..rows * depth)
            .map(|i| a[i % rows * depth + i / rows])
            .collect();
        for isa in Isa::available() {
            let mut panels = vec![T::ZERO; panels_len(depth, cols)];
            pack_panels(isa, &b, cols, depth, cols, &mut panels);
            let mut scratch = vec![T::ZERO; depth * PANEL];
            for accumulate in [false, true] {
                let left = Left::strided(&a, depth, 1);
                let turned = Left::strided(&transposed, 1, rows);
                let mut packed = vec![T::ZERO; packed_left_len(rows, depth)];
                pack_left(&transposed, rows, rows, depth, 0, depth, &mut packed);
                let packed = Left::packed(&packed, depth);
                let alpha = T::of(-0.75);
                let mut results = vec![start.clone(); 3];
                matmul(
                    isa,
                    extent,
                    alpha,
                    left,
                    Right::Rows(&b, cols),
                    &mut results[0],
                    cols + 3,
                    accumulate,
                );
                matmul(
                    isa,
                    extent,
                    alpha,
                    turned,
                    Right::Panels(&panels),
                    &mut results[1],
                    cols + 3,
                    accumulate,
                );
                if accumulate {
                    let c = &mut results[2];
                    matmul_tall(
                        isa,
                        extent,
                        alpha,
                        packed,
                        (&b, cols),
                        c,
                        cols + 3,
                        true,
                        &mut scratch,
                    );
                } else {
                    results.pop();
                }
                for result in results {
                    for (index, &got) in result.iter().enumerate() {
                        let (i, j) = (index / (cols + 3), index % (cols + 3));
                        let mut expected = start[index].wide();
                        if j < cols {
                            let sum: f64 = (0..depth)
                                .map(|k| a[i * depth + k].wide() * b[k * cols + j].wide())
                                .sum();
                            expected = if accumulate { expected } else { 0.0 } - 0.75 * sum;
                        }
                        let error = (got.wide() - expected).abs();
                        assert!(
                            error <= tolerance,
                            "{isa:?} {rows}x{cols}x{depth} at {i},{j}: {got} {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn products_match_the_definition() {
        for (rows, cols, depth) in [
            (1, 1, 1),
            (8, 48, 5),
            (9, 49, 3),
            (7, 31, 17),
            (16, 100, 33),
            (3, 16, 0),
        ] {
            check::<f32>(rows, cols, depth, 2e-5);
            check::<f64>(rows, cols, depth, 1e-13);
        }
        for rows in 1..=8 {
            check::<f32>(rows, 5 + 13 * (rows % 4), 20, 2e-5);
        }
    }

    /// Each row of a product is the same sum in the same order, whatever rows and columns stand beside it. Decoding relies on it.
    #[test]
    fn the_bits_of_a_row_depend_on_that_row_and_its_column_alone() {
        let (rows, cols, depth) = (13, 101, 37);
        let (a, b): (Vec<f32>, Vec<f32>) = (numbers(rows * depth, 1), numbers(depth * cols, 2));
        for isa in Isa::available() {
            let product = |rows: Range<usize>, cols_of: Range<usize>, packed: bool, accumulate: bool| {
                let extent = Extent {
                    rows: rows.len(),
                    cols: cols_of.len(),
                    depth,
                };
                let right: Vec<f32> = b
                    .chunks_exact(cols)
                    .flat_map(|line| line[cols_of.clone()].iter().copied())
                    .collect();
                let mut panels = vec![0.0; panels_len(depth, cols_of.len())];
                pack_panels(isa, &right, cols_of.len(), depth, cols_of.len(), &mut panels);
                let right = match packed {
                    true => Right::Panels(&panels),
                    false => Right::Rows(&right, cols_of.len()),
                };
                let left = Left::strided(&a[rows.start * depth..], depth, 1);
                let mut c = vec![0.5_f32; extent.rows * extent.cols];
                matmul(isa, extent, 1.0, left, right, &mut c, extent.cols, accumulate);
                c
            };
            for accumulate in [false, true] {
                let whole = product(0..rows, 0..cols, true, accumulate);
                for (some_rows, some_cols) in
                    [(0..1, 0..cols), (3..11, 0..48), (12..13, 48..101), (2..7, 96..99)]
                {
                    for packed in [false, true] {
                        let part = product(some_rows.clone(), some_cols.clone(), packed, accumulate);
                        let mut part = part.iter();
                        for row in some_rows.clone() {
                            for col in some_cols.clone() {
                                let got = part.next().unwrap();
                                assert_eq!(
                                    got.to_bits(),
                                    whole[row * cols + col].to_bits(),
                                    "{isa:?} {row},{col}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
