//! The first eight levels over `f32` in AVX-512: partners within one register need shuffles, which no compiler finds.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_mul_ps,
    _mm512_permute_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps,
    _mm512_sub_ps,
};

use super::strided;

const LANES: usize = 16;

/// Numbers of a group: sixteen registers.
const GROUP: usize = 16 * LANES;

/// Neighbours change places, by one and by two; of elements within 128 bits or of such quarters of a register.
const BY_ONE: i32 = 0b10_11_00_01;
const BY_TWO: i32 = 0b01_00_11_10;

/// Minus where a lane is the second of a pair, by level.
const PAIRS: [[f32; LANES]; 4] = {
    let mut signs = [[1.0; LANES]; 4];
    let mut i = 0;
    while i < 4 * LANES {
        let (level, lane) = (i / LANES, i % LANES);
        if lane >> level & 1 == 1 {
            signs[level][lane] = -1.0;
        }
        i += 1;
    }
    signs
};

/// The levels of a block.
#[target_feature(enable = "avx512f")]
pub(super) fn block(values: &mut [f32]) {
    groups(None, None, values);
    strided(values, GROUP);
}

/// The levels of a block that first becomes `factor update`, or `factor values`, with signs. All slices have one length.
#[target_feature(enable = "avx512f")]
pub(super) fn signed_block(update: Option<&[f32]>, signs: &[u32], factor: f32, values: &mut [f32]) {
    groups(update, Some((signs, factor)), values);
    strided(values, GROUP);
}

/// All levels within each group of [`GROUP`] numbers.
#[target_feature(enable = "avx512f")]
fn groups(update: Option<&[f32]>, signed: Option<(&[u32], f32)>, values: &mut [f32]) {
    let pairs = [load(&PAIRS[0]), load(&PAIRS[1]), load(&PAIRS[2]), load(&PAIRS[3])];
    let (update, _) = update
        .unwrap_or_default()
        .as_chunks::<LANES>()
        .0
        .as_chunks::<16>();
    let (signs, factor) = signed.unwrap_or_default();
    let signs = signs.as_chunks::<8>().0;
    let (plus, minus) = (_mm512_set1_ps(factor), _mm512_set1_ps(-factor));
    for (group, values) in values
        .as_chunks_mut::<LANES>()
        .0
        .as_chunks_mut::<16>()
        .0
        .iter_mut()
        .enumerate()
    {
        let from = update.get(group).unwrap_or(values);
        let mut x = [_mm512_setzero_ps(); 16];
        for i in 0..16 {
            x[i] = load(&from[i]);
        }
        if let Some(signs) = signs.get(group) {
            for i in 0..16 {
                let mask = (signs[i / 2] >> (16 * (i % 2))) as u16;
                x[i] = _mm512_mul_ps(x[i], _mm512_mask_blend_ps(mask, plus, minus));
            }
        }
        for x in &mut x {
            *x = within(*x, &pairs);
        }
        across::<1>(&mut x);
        across::<2>(&mut x);
        across::<4>(&mut x);
        across::<8>(&mut x);
        for i in 0..16 {
            store(&mut values[i], x[i]);
        }
    }
}

/// The level whose partners are `SPAN` registers apart.
#[target_feature(enable = "avx512f")]
#[inline]
fn across<const SPAN: usize>(x: &mut [__m512; 16]) {
    for i in 0..16 {
        if i & SPAN == 0 {
            let (a, b) = (x[i], x[i + SPAN]);
            (x[i], x[i + SPAN]) = (_mm512_add_ps(a, b), _mm512_sub_ps(a, b));
        }
    }
}

/// Four levels within a register: each lane, negated where it is the second of a pair, plus its partner. The product is
/// exact, so that this is the rounded sum or difference.
#[target_feature(enable = "avx512f")]
#[inline]
fn within(x: __m512, pairs: &[__m512; 4]) -> __m512 {
    let x = _mm512_fmadd_ps(x, pairs[0], _mm512_permute_ps::<BY_ONE>(x));
    let x = _mm512_fmadd_ps(x, pairs[1], _mm512_permute_ps::<BY_TWO>(x));
    let x = _mm512_fmadd_ps(x, pairs[2], _mm512_shuffle_f32x4::<BY_ONE>(x, x));
    _mm512_fmadd_ps(x, pairs[3], _mm512_shuffle_f32x4::<BY_TWO>(x, x))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(line: &[f32; LANES]) -> __m512 {
    // SAFETY: a line holds as many numbers as a register, and need not be aligned.
    unsafe { _mm512_loadu_ps(line.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(line: &mut [f32; LANES], x: __m512) {
    // SAFETY: as in `load`; the line is borrowed mutably.
    unsafe { _mm512_storeu_ps(line.as_mut_ptr(), x) };
}
