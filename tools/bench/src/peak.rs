//! The f32 fused-multiply-add peak of one core, by CPU time.

use crate::usage::cpu_time;
use anyhow::Context;
use std::hint::black_box;

/// Independent chains: more than latency times throughput of any current core.
const CHAINS: usize = 16;
const ROUNDS: usize = 20_000_000;

/// GFLOP/s of a loop of nothing but multiply-adds in registers.
pub(crate) fn gflops() -> anyhow::Result<f64> {
    let start = cpu_time().context("this system does not tell CPU time")?;
    let lanes = run();
    let seconds = (cpu_time().context("this system does not tell CPU time")? - start).as_secs_f64();
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

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512() {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (factor, addend) = (
        _mm512_set1_ps(black_box(0.999_999)),
        _mm512_set1_ps(black_box(1e-9)),
    );
    let mut chains = [_mm512_set1_ps(black_box(1.0)); CHAINS];
    for _ in 0..ROUNDS {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, factor, addend);
        }
    }
    for chain in chains {
        black_box(_mm512_reduce_add_ps(chain));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2() {
    use std::arch::x86_64::{_mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (factor, addend) = (
        _mm256_set1_ps(black_box(0.999_999)),
        _mm256_set1_ps(black_box(1e-9)),
    );
    // 12 chains would fit the 16 registers; two groups of 8 keep the count and never spill.
    for _ in 0..2 {
        let mut chains = [_mm256_set1_ps(black_box(1.0)); CHAINS / 2];
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, addend);
            }
        }
        for chain in chains {
            black_box(_mm256_cvtss_f32(chain));
        }
    }
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
