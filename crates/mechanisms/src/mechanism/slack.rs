//! The slack of rounding: a bound for every coordinate on how far rounding moves the noised release, computed from the
//! program.
//!
//! # The argument
//! Everything is an integer number of grid steps: the average `x_t`, the fresh noise `k_t` and the release
//! `r_t = x_t + n_t`. `k_t` is a Gaussian of `s g_t` steps rounded to integers, with `s` the noise's standard deviation in
//! steps and `g_t = 1 / C[t][t]`. The exact recurrence would be `n_t = g_t z_t - V_t(n_1 .. n_{t-1})` with `V_t` linear
//! (or, for inverses given whole, `n_t = g_t z_t + V_t(z_1 .. z_{t-1})`). What runs is
//!
//! ```text
//! n_t = k_t - round(W_t),      W_t = V_t as floating-point or fixed-point arithmetic evaluates it.
//! ```
//!
//! 1. *What is released in round `t`, given the earlier releases, is one rounded Gaussian around an integer.* The inputs
//!    and `r_1 .. r_{t-1}` determine `n_1 .. n_{t-1}` and so `round(W_t)`: given them, `r_t = c_t + k_t` with
//!    `c_t = x_t - round(W_t)`. As `c_t` is an integer, `r_t = round(c_t + s g_t N(0, 1))`: post-processing of a Gaussian
//!    mechanism whose standard deviation does not depend on the data.
//! 2. *How far a neighbour moves it.* Let `d_t = x_t - x'_t`, and let both runs have released the same. Then
//!    `n_t - n'_t = -d_t`, and since `V_t` is linear
//!    `c_t - c'_t = d_t + V_t(d_1 .. d_{t-1}) + e_t = g_t (C d)_t + e_t` with
//!    `|e_t| <= 1 + 2 max |W_t - V_t|` in every coordinate: each of the two roundings adds at most 1/2 step.
//!    For recurrences over fresh noise `k_t - k'_t = -a_t` solves `a_t = d_t + e_t - V_t(a_1 .. a_{t-1})`, so the move is
//!    `a = G C (d + e)` with `G = diag(g)`: here the errors go through `C`, too.
//! 3. *Adding up.* In units of the rounds' standard deviations the moves `a_t / (s g_t)` have together at most the norm
//!    `(|C d| + slack) / s`, where `slack^2 = sum over rounds and coordinates of (e_t / g_t)^2` (for fresh noise: of
//!    `(C e)_t^2`). This holds for every sequence of releases, however later inputs depend on earlier releases, so the
//!    composition is as private as one Gaussian with that shift (Smith and Thakurta, "Fully Adaptive Composition for
//!    Gaussian Differential Privacy", 2022, Theorem 1; for zCDP Feldman and Zrnic, 2021).
//! 4. *The reach of the sampler.* The bounds on `W_t - V_t` need bounded noise: 15 standard deviations. Compare the
//!    mechanism with one whose sampler is the ideal one and which, where a number would exceed what samples within that
//!    reach can lead to, evaluates `V_t` exactly: for that one step 2 holds without exception. The two differ with at most
//!    the sampler's total variation and the probability of leaving the reach, both a sample; the release states their sum
//!    ([`CorrelatedGaussian::sampler_delta`](crate::CorrelatedGaussian::sampler_delta)).
//!
//! Trees need none of this: their noise is exact post-processing of integer node sums with integer noise, see
//! [`rounded`](super::rounded). Neither does independent noise.
//!
//! # What it assumes
//! Coefficients are the `f64` numbers of the program; that the certified sensitivity belongs to exactly these, and was itself
//! computed in `f64`, is covered by a relative margin of `1e-9` ([`MARGIN`]). The averages of neighbours differ in a round
//! by at most the stated norm: for fixed denominators user updates are truncated toward zero before they are summed, which
//! lengthens none; for floored weights the quotient is truncated, which adds a step per coordinate (counted).

use crate::stream::program::{RecurrenceProgram, Source, Weights};

/// Reach of a sample of fresh noise, in standard deviations, rounding included.
pub(crate) const LARGEST: f64 = super::reach::LARGEST;

/// Relative room for the evaluation of the sensitivity itself in floating point.
pub(crate) const MARGIN: f64 = 1e-9;

/// Half the distance of 1 to the next `f64`.
const ROUNDOFF: f64 = f64::EPSILON / 2.0;

/// The effect of rounding on a program at a noise level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slack {
    /// Sum over the rounds of the squared move of one coordinate, in squared steps.
    pub(crate) squared_per_coordinate: f64,
    /// Fractional bits of the buffers.
    pub(crate) fraction_bits: u32,
}

/// Standard deviation of the fresh noise of a round for standard deviation 1 in `Z`: `g_t`, positive.
pub(crate) fn fresh_factor(program: &RecurrenceProgram, round: usize) -> f64 {
    lead(program, round).abs()
}

fn lead(program: &RecurrenceProgram, round: usize) -> f64 {
    match program {
        RecurrenceProgram::Identity | RecurrenceProgram::Tree { .. } => 1.0,
        RecurrenceProgram::Buffers { .. } => program.scale(round),
        RecurrenceProgram::History { weights, .. } => program.scale(round) * weights.lead(round),
        RecurrenceProgram::Blocks { diagonal, .. } => diagonal[round],
    }
}

/// The weight of an earlier round's integers in a round's integer recurrence: outputs, or fresh noise.
pub(crate) fn integer_weight(program: &RecurrenceProgram, round: usize, lag: usize) -> f64 {
    let RecurrenceProgram::History { weights, source, .. } = program else {
        return 0.0;
    };
    let earlier = match source {
        Source::Outputs => program.scale(round - lag),
        Source::Fresh => lead(program, round - lag),
    };
    program.scale(round) * weights.later(round, lag) / earlier
}

/// Bounds for `rounds` rounds with noise of `steps` steps; `None` where the memory's integers would not hold the noise.
pub(crate) fn bound(program: &RecurrenceProgram, rounds: usize, steps: f64) -> Option<Slack> {
    let slack = match program {
        RecurrenceProgram::Identity | RecurrenceProgram::Tree { .. } => Some(Slack {
            squared_per_coordinate: 0.0,
            fraction_bits: 0,
        }),
        RecurrenceProgram::Buffers {
            complement, output, ..
        } => buffers(program, complement, output, rounds, steps),
        RecurrenceProgram::History { weights, source, .. } => match source {
            Source::Outputs => outputs(program, weights, rounds, steps),
            Source::Fresh => fresh(program, weights, rounds, steps),
        },
        RecurrenceProgram::Blocks {
            leaves,
            diagonal,
            begins,
            weights,
        } => blocks(*leaves, diagonal, begins, weights, rounds, steps),
    };
    slack.filter(|slack| slack.squared_per_coordinate.is_finite())
}

/// Bits that integers of the memory may have, signs and headroom apart.
const INTEGER_BITS: f64 = 61.0;

/// Integers up to here are exact in an `f64`.
const EXACT: f64 = (1u64 << 53) as f64;

/// The largest entry of `Z` in steps, with what rounding adds to it: far less than one standard deviation, see `checked`.
fn largest_entry(steps: f64) -> f64 {
    (LARGEST + 1.0) * steps
}

/// Errors of a round have to stay below the standard deviation that [`largest_entry`] leaves for them.
fn checked(error: f64, steps: f64, factor: f64) -> Option<f64> {
    (error < 0.5 * steps * factor).then_some(error)
}

fn buffers(
    program: &RecurrenceProgram,
    complement: &[f64],
    output: &[f64],
    rounds: usize,
    steps: f64,
) -> Option<Slack> {
    // Sums of absolute responses to a unit of Z: of the output y, and of each buffer.
    let mut state = vec![0.0; output.len()];
    let (mut of_output, mut of_state) = (0.0, vec![0.0; output.len()]);
    for t in 0..rounds {
        let dot: f64 = state
            .iter()
            .zip(output)
            .map(|(state, weight)| state * weight)
            .sum();
        let y = if t == 0 { 1.0 } else { 0.0 } - dot;
        of_output += y.abs();
        for ((state, complement), sum) in state.iter_mut().zip(complement).zip(&mut of_state) {
            *state += y - complement * *state;
            *sum += state.abs();
        }
    }
    let entry = largest_entry(steps);
    let largest = of_state.iter().fold(of_output, |largest, sum| largest.max(*sum)) * entry;
    let fraction_bits = (INTEGER_BITS - largest.log2()).floor().min(40.0);
    if fraction_bits.is_nan() || fraction_bits < 0.0 {
        return None;
    }
    let unit = 0.5f64.powi(fraction_bits as i32);
    // Error of W / scale in a round: what the buffers have gathered, and the sum over them.
    let mut error = 0.0;
    for ((complement, weight), sum) in complement.iter().zip(output).zip(&of_state) {
        // A step rounds the decay and the output to units; the decay's product is of two rounded factors.
        let gathered = (rounds as f64).min(complement.recip());
        let decay = 2.5 * ROUNDOFF * sum * entry * (complement * gathered);
        let buffer = gathered * unit + decay;
        error += weight.abs() * (buffer + (output.len() + 6) as f64 * ROUNDOFF * sum * entry);
    }
    let mut squared = 0.0;
    for t in 0..rounds {
        let scale = program.scale(t);
        checked(1.0 + scale * error, steps, scale)?;
        squared += (scale.recip() + 2.0 * error).powi(2);
    }
    Some(Slack {
        squared_per_coordinate: squared,
        fraction_bits: fraction_bits as u32,
    })
}

/// Rounding of a sum of `terms` products of rounded weights with exact numbers, relative to the sum of magnitudes.
fn sum_error(terms: usize) -> f64 {
    (terms + 20) as f64 * ROUNDOFF
}

fn outputs(program: &RecurrenceProgram, weights: &Weights, rounds: usize, steps: f64) -> Option<Slack> {
    let responses = absolute_responses(weights, rounds);
    let entry = largest_entry(steps);
    let output = |t: usize| program.scale(t) * responses[t] * entry;
    let mut squared = 0.0;
    for t in 0..rounds {
        if output(t) >= EXACT {
            return None;
        }
        let lags = weights.bands().min(t + 1) - 1;
        let magnitude: f64 = (1..=lags)
            .map(|lag| integer_weight(program, t, lag).abs() * output(t - lag))
            .sum();
        let factor = fresh_factor(program, t);
        let error = checked(1.0 + 2.0 * sum_error(lags) * magnitude, steps, factor)?;
        squared += (error / factor).powi(2);
    }
    Some(Slack {
        squared_per_coordinate: squared,
        fraction_bits: 0,
    })
}

/// Row sums of the absolute values of the recurrence's matrix (before the rounds' factors).
fn absolute_responses(weights: &Weights, rounds: usize) -> Vec<f64> {
    let mut sums = vec![0.0; rounds];
    // A Toeplitz matrix is its first column.
    let columns = if matches!(weights, Weights::Toeplitz { .. }) {
        1
    } else {
        rounds
    };
    let mut column = vec![0.0; rounds];
    for first in 0..columns {
        for t in first..rounds {
            let lags = (weights.bands() - 1).min(t - first);
            let earlier: f64 = (1..=lags)
                .map(|lag| weights.later(t, lag) * column[t - lag])
                .sum();
            column[t] = earlier + if t == first { weights.lead(t) } else { 0.0 };
            sums[t] += column[t].abs();
        }
    }
    if columns == 1 {
        let mut sum = 0.0;
        for value in &mut sums {
            sum += *value;
            *value = sum;
        }
    }
    sums
}

fn fresh(program: &RecurrenceProgram, weights: &Weights, rounds: usize, steps: f64) -> Option<Slack> {
    let sample = |t: usize| fresh_factor(program, t) * largest_entry(steps);
    // Moves of the fresh noise: |a_t| <= |e_t| + sum |V| |a|, which is |C| |e| where C^-1 has no positive entry off its
    // diagonal, and above it otherwise.
    let mut moves: Vec<f64> = Vec::with_capacity(rounds);
    let mut squared = 0.0;
    for t in 0..rounds {
        let lags = weights.bands().min(t + 1) - 1;
        let (mut magnitude, mut through) = (0.0, 0.0);
        for lag in 1..=lags {
            let weight = integer_weight(program, t, lag).abs();
            magnitude += weight * sample(t - lag);
            through += weight * moves[t - lag];
        }
        if magnitude + sample(t) >= EXACT {
            return None;
        }
        let factor = fresh_factor(program, t);
        let error = checked(1.0 + 2.0 * sum_error(lags) * magnitude, steps, factor)?;
        moves.push(error + through);
        squared += (moves[t] / factor).powi(2);
    }
    Some(Slack {
        squared_per_coordinate: squared,
        fraction_bits: 0,
    })
}

fn blocks(
    leaves: usize,
    diagonal: &[f64],
    begins: &[usize],
    weights: &[f64],
    rounds: usize,
    steps: f64,
) -> Option<Slack> {
    let heights = crate::stream::tree::heights(leaves.min(rounds));
    // Sums over the columns of absolute values: of what a round takes off, and of the blocks' sums.
    let mut taken = vec![0.0; rounds];
    let mut sums = vec![0.0f64; rounds * heights];
    for first in 0..rounds {
        let mut counter = vec![0.0; heights];
        // Other trees do not feel this column.
        let end = rounds.min(first - first % leaves + leaves);
        for t in first..end {
            let leaf = t % leaves;
            let bits = (0..heights).rev().filter(|&h| leaf >> h & 1 == 1);
            let mut earlier = 0.0;
            for (h, weight) in bits.zip(&weights[begins[t]..]) {
                earlier += weight * counter[h];
                taken[t] += (weight * counter[h]).abs();
            }
            let mut sum = if t == first { diagonal[t] } else { 0.0 } - earlier;
            let merged = leaf.trailing_ones() as usize;
            counter[..merged].iter().for_each(|part| sum += part);
            counter[merged] = sum;
            sums[t * heights + merged] += sum.abs();
        }
    }
    let entry = largest_entry(steps);
    if sums.iter().any(|sum| sum * entry >= INTEGER_BITS.exp2()) {
        return None;
    }
    let mut squared = 0.0;
    for t in 0..rounds {
        let factor = diagonal[t].abs();
        let error = 1.0 + 2.0 * sum_error(heights) * taken[t] * entry;
        squared += (checked(error, steps, factor)? / factor).powi(2);
    }
    Some(Slack {
        squared_per_coordinate: squared,
        fraction_bits: 0,
    })
}
