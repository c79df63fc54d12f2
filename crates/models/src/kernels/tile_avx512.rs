//! The AVX-512 tile of the matrix product: up to 8 rows by 48 columns of `C`, held in registers over all of `k`.

use super::matmul::{STRETCHES, TILE_ROWS, Tile};
use std::arch::x86_64::{
    _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

const LANES: usize = 16;
/// Bytes of a packed right operand between a line that is used and the one that is asked for. Products that wait for a line keep the
/// processor from looking further ahead itself, the more rows there are the less.
const AHEAD: usize = 3072;

/// Computes one tile.
///
/// # Safety
/// The machine has AVX-512 F, and the tile's pointers are valid for its extents (see [`Tile`]).
pub(crate) unsafe fn multiply(tile: &Tile<f32>) {
    debug_assert!(tile.rows >= 1 && tile.rows <= TILE_ROWS && tile.cols >= 1 && tile.cols <= 3 * LANES);
    macro_rules! rows {
        ($vectors:literal) => {
            match tile.rows {
                1 => run::<1, $vectors>(tile),
                2 => run::<2, $vectors>(tile),
                3 => run::<3, $vectors>(tile),
                4 => run::<4, $vectors>(tile),
                5 => run::<5, $vectors>(tile),
                6 => run::<6, $vectors>(tile),
                7 => run::<7, $vectors>(tile),
                _ => run::<8, $vectors>(tile),
            }
        };
    }
    // SAFETY: forwarded from the caller.
    unsafe {
        match tile.cols.div_ceil(LANES) {
            1 => rows!(1),
            2 => rows!(2),
            _ => rows!(3),
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn run<const ROWS: usize, const VECTORS: usize>(tile: &Tile<f32>) {
    let tail = tile.cols - (VECTORS - 1) * LANES;
    let mask = u16::MAX >> (LANES - tail);
    let last = VECTORS - 1;
    // SAFETY: `a`, `b` and `c` are valid for rows x depth, depth x cols and rows x cols elements at their strides;
    // the last vector of a row is masked to the columns that exist; prefetches may touch any address.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
        let (mut a, mut b) = (tile.a, tile.b);
        // Lines of `c` come from far away; asked for all at once they would hold up the loads of the loop.
        let stretch = tile.depth.div_ceil(STRETCHES).max(1);
        let mut remaining = tile.depth;
        let mut row_ahead = 0;
        let mut ahead = tile.ahead;
        while remaining > 0 {
            if row_ahead < ROWS {
                for vector in 0..VECTORS {
                    let line = tile.c.wrapping_add(row_ahead * tile.c_stride + vector * LANES);
                    _mm_prefetch::<_MM_HINT_T0>(line.cast());
                }
                row_ahead += 1;
            }
            for _ in 0..tile.ahead_lines {
                _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                ahead = ahead.wrapping_add(LANES);
            }
            let steps = stretch.min(remaining);
            remaining -= steps;
            for _ in 0..steps {
                let mut right = [_mm512_setzero_ps(); VECTORS];
                for vector in 0..last {
                    right[vector] = _mm512_loadu_ps(b.add(vector * LANES));
                }
                right[last] = _mm512_maskz_loadu_ps(mask, b.add(last * LANES));
                if ROWS > 1 {
                    for vector in 0..VECTORS {
                        let line = b.wrapping_add(AHEAD / size_of::<f32>() + vector * LANES);
                        _mm_prefetch::<_MM_HINT_T0>(line.cast());
                    }
                }
                for row in 0..ROWS {
                    let left = _mm512_set1_ps(*a.add(row * tile.a_row));
                    for vector in 0..VECTORS {
                        sums[row][vector] = _mm512_fmadd_ps(left, right[vector], sums[row][vector]);
                    }
                }
                a = a.wrapping_add(tile.a_col);
                b = b.wrapping_add(tile.b_stride);
            }
        }
        let alpha = _mm512_set1_ps(tile.alpha);
        for row in 0..ROWS {
            for vector in 0..VECTORS {
                let c = tile.c.add(row * tile.c_stride + vector * LANES);
                let sum = sums[row][vector];
                let whole = vector != last;
                let result = if tile.accumulate {
                    let old = if whole {
                        _mm512_loadu_ps(c)
                    } else {
                        _mm512_maskz_loadu_ps(mask, c)
                    };
                    _mm512_fmadd_ps(alpha, sum, old)
                } else {
                    _mm512_mul_ps(alpha, sum)
                };
                if whole {
                    _mm512_storeu_ps(c, result);
                } else {
                    _mm512_mask_storeu_ps(c, mask, result);
                }
            }
        }
    }
}
