//! Recurrences by their definition, for tests: which row of `Z` is in which round's noise, and how often.

use crate::recurrence::Recurrence;

pub(crate) fn bands(coefficients: Vec<f64>, scale: Vec<f64>) -> Recurrence {
    Recurrence::Bands { coefficients, scale }
}

pub(crate) fn taps(coefficients: Vec<f64>, scale: Vec<f64>) -> Recurrence {
    Recurrence::Taps { coefficients, scale }
}

pub(crate) fn buffers(decay_complement: Vec<f64>, output: Vec<f64>, scale: Vec<f64>) -> Recurrence {
    Recurrence::Buffers {
        decay_complement,
        output,
        scale,
    }
}

/// One recurrence of each kind, and what is special about some, for up to 64 rounds.
pub(crate) fn samples() -> Vec<(&'static str, Recurrence)> {
    const ROUNDS: usize = 64;
    let scale: Vec<f64> = (0..ROUNDS).map(|t| 2.0 - t as f64 / 50.0).collect();
    let coefficients = |bands: usize| {
        (0..bands)
            .map(|i| 0.9f64.powi(i as i32) / (1.0 + i as f64))
            .collect()
    };
    let buffers = |scale| buffers(vec![1e-9, 0.02, 0.3, 0.9], vec![0.05, 0.1, 0.2, 0.15], scale);
    let rows = |bands: usize| {
        let entry = |t: usize, i: usize| {
            if i > t {
                0.0
            } else {
                (1.0 + 0.1 * ((t + i) as f64).sin()) / (1 + i) as f64
            }
        };
        let row = |t| (0..bands).map(move |i| entry(t, i));
        Recurrence::Rows {
            bands,
            entries: (0..ROUNDS).flat_map(row).collect(),
        }
    };
    let tree = |restarts| Recurrence::Tree { restarts };
    let more_bands = bands(coefficients(200), scale.clone());
    let leaves = 16;
    let bits: usize = (0..ROUNDS).map(|t| (t % leaves).count_ones() as usize).sum();
    vec![
        ("identity", Recurrence::Identity),
        ("buffers", buffers(vec![])),
        ("scaled buffers", buffers(scale.clone())),
        ("bands", bands(coefficients(5), vec![])),
        ("scaled bands, more than rounds", more_bands),
        ("rows", rows(4)),
        ("wide rows", rows(40)),
        ("one tap", taps(vec![0.5], vec![])),
        ("two taps", taps(vec![1.0, -0.8], vec![])),
        ("scaled taps", taps(vec![1.1, -0.4, -0.2, 0.05, -0.01], scale)),
        ("tree", tree(vec![])),
        ("trees", tree(vec![5, 12, 13, 40])),
        (
            "blocks",
            Recurrence::Blocks {
                leaves,
                diagonal: (0..ROUNDS).map(|t| 0.7 + 0.01 * t as f64).collect(),
                weights: (0..bits).map(|i| 0.3 + 0.2 * (i as f64).sin()).collect(),
            },
        ),
        (
            "dense",
            Recurrence::Dense {
                rounds: ROUNDS,
                entries: (0..ROUNDS)
                    .flat_map(|t| (0..=t).map(move |s| if s == t { 1.0 } else { -0.5 / (1 + t - s) as f64 }))
                    .collect(),
            },
        ),
    ]
}

/// Rounds for which every recurrence of [`samples`] is defined.
pub(crate) const SAMPLE_ROUNDS: usize = 64;

/// Row `t` holds the weight of every row of `Z` in the noise of round `t`; there are twice as many rows of `Z` as rounds.
///
/// The letters of the formulas: `z_t` is row `t` of `Z`, `n_t` the noise of round `t`, and `y_t` that before its factor `f_t`, which is 1
/// where there is none. Buffer `S_j` has the decay complement `d_j` and the output `w_j`. `c_i` are coefficients, `C` has the entries of
/// `Rows`, `B` those of `Dense`; `g_t` and `w_h` are the diagonal and the weights of `Blocks`.
pub(crate) fn matrix(recurrence: &Recurrence, rounds: usize) -> Vec<Vec<f64>> {
    let width = 2 * rounds;
    let unit = |t: usize| {
        let mut row = vec![0.0; width];
        row[t] = 1.0;
        row
    };
    let factor = |scale: &[f64], t: usize| scale.get(t).copied().unwrap_or(1.0);
    let mut noise: Vec<Vec<f64>> = Vec::new();
    match recurrence {
        Recurrence::Identity => noise.extend((0..rounds).map(unit)),
        Recurrence::Buffers {
            decay_complement,
            output,
            scale,
        } => {
            let mut state = vec![vec![0.0; width]; output.len()];
            // y_t = z_t - sum_j w_j S_j, then S_j = (1 - d_j) S_j + y_t; n_t = f_t y_t
            for t in 0..rounds {
                let mut y = unit(t);
                for (state, weight) in state.iter().zip(output) {
                    add(&mut y, -weight, state);
                }
                for (state, complement) in state.iter_mut().zip(decay_complement) {
                    state.iter_mut().for_each(|value| *value *= 1.0 - complement);
                    add(state, 1.0, &y);
                }
                noise.push(times(&y, factor(scale, t)));
            }
        }
        Recurrence::Bands { coefficients, scale } => {
            let mut earlier: Vec<Vec<f64>> = Vec::new();
            // y_t = (z_t - sum_{i>=1} c_i y_{t-i}) / c_0; n_t = f_t y_t
            for t in 0..rounds {
                let mut y = unit(t);
                for i in 1..coefficients.len().min(t + 1) {
                    add(&mut y, -coefficients[i], &earlier[t - i]);
                }
                earlier.push(times(&y, 1.0 / coefficients[0]));
                noise.push(times(&earlier[t], factor(scale, t)));
            }
        }
        Recurrence::Rows { bands, entries } => {
            // n_t = (z_t - sum_{i>=1} C_{t,t-i} n_{t-i}) / C_{t,t}
            for t in 0..rounds {
                let mut y = unit(t);
                for i in 1..(*bands).min(t + 1) {
                    add(&mut y, -entries[t * bands + i], &noise[t - i]);
                }
                noise.push(times(&y, 1.0 / entries[t * bands]));
            }
        }
        Recurrence::Taps { coefficients, scale } => {
            // n_t = f_t sum_i c_i z_{t-i}
            for t in 0..rounds {
                let mut row = vec![0.0; width];
                for i in 0..coefficients.len().min(t + 1) {
                    row[t - i] = factor(scale, t) * coefficients[i];
                }
                noise.push(row);
            }
        }
        Recurrence::Dense { entries, .. } => {
            // n_t = sum_{s<=t} B_{t,s} z_s
            for t in 0..rounds {
                let mut row = vec![0.0; width];
                row[..=t].copy_from_slice(&entries[t * (t + 1) / 2..][..=t]);
                noise.push(row);
            }
        }
        Recurrence::Tree { restarts } => {
            let mut begins = vec![0];
            begins.extend(restarts.iter().copied().filter(|&restart| restart < rounds));
            begins.push(rounds);
            // n_t = H_k - H_{k-1}, where t is leaf k of its tree, from 1; H_k is the estimate of the sum of k leaves, and H_0 = 0.
            for pair in begins.windows(2) {
                let mut before = vec![0.0; width];
                for t in 1..=pair[1] - pair[0] {
                    let now = honaker(t, 2 * pair[0], width);
                    let mut row = now.clone();
                    add(&mut row, -1.0, &before);
                    noise.push(row);
                    before = now;
                }
            }
        }
        Recurrence::Blocks {
            leaves,
            diagonal,
            weights,
        } => {
            let mut weights = weights.iter();
            // n_t = g_t z_t - sum_h w_h N_h, over the set bits h of the leaf; N_h = sum of n_s over the next 2^h rounds of the block.
            for (t, factor) in diagonal.iter().enumerate().take(rounds) {
                let mut row = times(&unit(t), *factor);
                let leaf = t % leaves;
                let mut begin = t - leaf;
                for h in (0..usize::BITS).rev().filter(|h| leaf >> h & 1 == 1) {
                    let weight = weights.next().unwrap();
                    for earlier in &noise[begin..begin + (1 << h)] {
                        add(&mut row, -weight, earlier);
                    }
                    begin += 1 << h;
                }
                noise.push(row);
            }
        }
    }
    noise
}

/// The estimate of the sum of `t` leaves, by the definition: complete nodes of the binary digits of `t`, each estimated
/// from all nodes below it. Nodes are numbered as they become complete.
fn honaker(t: usize, first: usize, width: usize) -> Vec<f64> {
    let mut sum = vec![0.0; width];
    let (mut begin, mut number) = (0, first);
    for h in (0..usize::BITS).rev().filter(|h| t >> h & 1 == 1) {
        let (estimate, _) = node(h, &mut number, width);
        add(&mut sum, 1.0, &estimate);
        begin += 1 << h;
    }
    assert_eq!(begin, t);
    sum
}

/// Estimate and variance of a node: own noise and the children's estimates, weighted by inverse variance.
fn node(height: u32, number: &mut usize, width: usize) -> (Vec<f64>, f64) {
    let mut estimate = vec![0.0; width];
    if height == 0 {
        estimate[*number] = 1.0;
        *number += 1;
        return (estimate, 1.0);
    }
    let (left, variance) = node(height - 1, number, width);
    let (right, _) = node(height - 1, number, width);
    let precision = 1.0 + 1.0 / (2.0 * variance);
    estimate[*number] = 1.0 / precision;
    *number += 1;
    for child in [left, right] {
        add(&mut estimate, 1.0 / (2.0 * variance) / precision, &child);
    }
    (estimate, 1.0 / precision)
}

/// Checks variances and covariances over the rounds of noise of variance 1. For 8 rounds of the 14 [`samples`] these are 504
/// numbers, each beyond 6.2 sigmas with probability 6e-10: false-alarm rate 3e-7.
pub(crate) fn check_covariance(name: &str, recurrence: &Recurrence, noise: &[Vec<f64>]) {
    let (rounds, dim) = (noise.len(), noise[0].len() as f64);
    let matrix = matrix(recurrence, rounds);
    let covariance =
        |a: usize, b: usize| -> f64 { matrix[a].iter().zip(&matrix[b]).map(|(a, b)| a * b).sum() };
    for a in 0..rounds {
        for b in 0..=a {
            let products = noise[a].iter().zip(&noise[b]).map(|(a, b)| a * b);
            let mean = products.sum::<f64>() / dim;
            let variance = covariance(a, a) * covariance(b, b) + covariance(a, b).powi(2);
            let sigmas = (mean - covariance(a, b)) / (variance / dim).sqrt();
            assert!(sigmas.abs() < 6.2, "{name}, rounds {a} and {b}: {sigmas}");
        }
    }
}

fn add(sum: &mut [f64], weight: f64, values: &[f64]) {
    sum.iter_mut()
        .zip(values)
        .for_each(|(sum, value)| *sum += weight * value);
}

fn times(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|value| factor * value).collect()
}
