//! The f32 fused-multiply-add peak of one core, by CPU time.

use crate::bench::usage::clocked;
use std::hint::black_box;

/// Independent chains: latency times throughput is 8 to 10 on current cores, and 12 chains fit 16 registers.
const CHAINS: usize = 12;
const ROUNDS: usize = 60_000_000;

/// GFLOP/s of a loop of nothing but multiply-adds in registers.
pub(crate) fn gflops() -> anyhow::Result<f64> {
    let (lanes, seconds) = clocked(run)?;
    Ok((ROUNDS * CHAINS * lanes * 2) as f64 / seconds / 1e9)
}

/// Runs the widest loop the machine has; returns its lanes.
fn run() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just detected.
            unsafe { avx512() };
            return 16;
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the features were just detected.
            unsafe { avx2() };
            return 8;
        }
    }
    portable();
    4
}

/// A loop of multiply-adds on named registers: over an array of chains, the compiler rotates registers through memory.
#[cfg(target_arch = "x86_64")]
macro_rules! register_loop {
    ($set:ident, $multiply_add:ident, $finish:ident) => {
        register_loop!(
            $set, $multiply_add, $finish, a = 0.0, b = 0.1, c = 0.2, d = 0.3, e = 0.4, f = 0.5,
            g = 0.6, h = 0.7, i = 0.8, j = 0.9, k = 1.0, l = 1.1
        );
    };
    ($set:ident, $multiply_add:ident, $finish:ident, $($chain:ident = $start:literal),*) => {
        let (factor, addend) = ($set(black_box(0.999_999)), $set(black_box(1e-9)));
        $(let mut $chain = $set(black_box($start));)*
        for _ in 0..ROUNDS {
            $($chain = $multiply_add($chain, factor, addend);)*
            // SAFETY: the assembly is empty; it keeps the rounds from being merged or reordered.
            unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) };
        }
        $(black_box($finish($chain));)*
    };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512() {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    register_loop!(_mm512_set1_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2() {
    use std::arch::x86_64::{_mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    register_loop!(_mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32);
}

/// Four lanes of whatever the target guarantees.
fn portable() {
    let (factor, addend) = (black_box(0.999_999f32), black_box(1e-9f32));
    let mut chains = [[black_box(1.0f32); 4]; CHAINS];
    for _ in 0..ROUNDS {
        for chain in &mut chains {
            for lane in chain {
                *lane = if cfg!(target_arch = "aarch64") {
                    lane.mul_add(factor, addend)
                } else {
                    *lane * factor + addend
                };
            }
        }
    }
    black_box(chains);
}
