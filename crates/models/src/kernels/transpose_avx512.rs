//! The AVX-512 transpose: blocks of 16 by 16, held in registers.

use std::arch::x86_64::{
    __m512, _MM_HINT_T1, _mm_prefetch, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

const LANES: usize = 16;
/// Columns copied aside together: rows a page apart share cache sets, and would evict each other's unaligned lines
/// between two loads of 16.
const STRIP: usize = 64;

#[repr(align(64))]
struct Strip([[f32; STRIP]; LANES]);

/// Writes the transpose of a row-major `rows x cols` matrix.
///
/// # Safety
/// The machine has AVX-512 F; `source` is valid for `rows x cols` elements at `stride`, `target` for `cols x rows` at
/// `target_stride`, and they do not overlap.
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn transpose(
    source: *const f32,
    stride: usize,
    rows: usize,
    cols: usize,
    target: *mut f32,
    target_stride: usize,
) {
    let mut strip = Strip([[0.0; STRIP]; LANES]);
    for col in (0..cols).step_by(STRIP) {
        let width = STRIP.min(cols - col);
        for row in (0..rows).step_by(LANES) {
            let height = LANES.min(rows - row);
            let from = source.wrapping_add(row * stride + col);
            for (i, line) in strip.0[..height].iter_mut().enumerate() {
                let address = from.wrapping_add(i * stride);
                for start in (0..width).step_by(LANES) {
                    let mask = u16::MAX >> (LANES - LANES.min(width - start));
                    // SAFETY: masked to the columns that row `row + i < rows` has, and to those of the strip; a
                    // prefetch may touch anything.
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T1>(address.wrapping_add(start + STRIP).cast());
                        let values = _mm512_maskz_loadu_ps(mask, address.wrapping_add(start));
                        _mm512_storeu_ps(line.as_mut_ptr().wrapping_add(start), values);
                    }
                }
            }
            let mask = u16::MAX >> (LANES - height);
            for start in (0..width).step_by(LANES) {
                let mut lines = [_mm512_setzero_ps(); LANES];
                for (line, strip) in lines.iter_mut().zip(&strip.0) {
                    // SAFETY: `start + LANES <= STRIP`.
                    *line = unsafe { _mm512_loadu_ps(strip.as_ptr().wrapping_add(start)) };
                }
                let turned = turn(lines);
                let to = target.wrapping_add((col + start) * target_stride + row);
                for (j, line) in turned[..LANES.min(width - start)].iter().enumerate() {
                    // SAFETY: masked to the `height` columns that row `col + start + j < cols` of the target has.
                    unsafe { _mm512_mask_storeu_ps(to.wrapping_add(j * target_stride), mask, *line) };
                }
            }
        }
    }
}

/// The transpose of a block of registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn(lines: [__m512; LANES]) -> [__m512; LANES] {
    let zero = _mm512_setzero_ps();
    // Within each 128-bit lane: pairs of rows, then groups of four rows.
    let mut pairs = [zero; LANES];
    for i in 0..LANES / 2 {
        pairs[2 * i] = _mm512_unpacklo_ps(lines[2 * i], lines[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(lines[2 * i], lines[2 * i + 1]);
    }
    let mut fours = [zero; LANES];
    for i in 0..LANES / 4 {
        for half in 0..2 {
            let low = _mm512_castps_pd(pairs[4 * i + half]);
            let high = _mm512_castps_pd(pairs[4 * i + 2 + half]);
            fours[4 * i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            fours[4 * i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    // `fours[4 * i + j]` holds column `4 * lane + j` of rows `4 * i..4 * i + 4`: now a transpose of 4 x 4 lanes.
    let mut turned = [zero; LANES];
    for j in 0..4 {
        let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        let even_ab = _mm512_shuffle_f32x4::<0x88>(a, b);
        let odd_ab = _mm512_shuffle_f32x4::<0xdd>(a, b);
        let even_cd = _mm512_shuffle_f32x4::<0x88>(c, d);
        let odd_cd = _mm512_shuffle_f32x4::<0xdd>(c, d);
        turned[j] = _mm512_shuffle_f32x4::<0x88>(even_ab, even_cd);
        turned[4 + j] = _mm512_shuffle_f32x4::<0x88>(odd_ab, odd_cd);
        turned[8 + j] = _mm512_shuffle_f32x4::<0xdd>(even_ab, even_cd);
        turned[12 + j] = _mm512_shuffle_f32x4::<0xdd>(odd_ab, odd_cd);
    }
    turned
}
