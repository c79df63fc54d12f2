//! Convolutions of plain sequences: term by term where few numbers are not zero, else by Fourier transforms.

use super::super::fourier::{self, Spectrum};

/// A Fourier transform of `n` points costs about as much as this many products for each point.
const TRANSFORM: usize = 100;

fn support(values: &[f64]) -> Vec<(usize, f64)> {
    let numbered = values.iter().copied().enumerate();
    numbered.filter(|(_, value)| *value != 0.0).collect()
}

/// The convolution of two sequences of numbers that are not negative.
#[must_use]
pub fn convolve(first: &[f64], second: &[f64]) -> Vec<f64> {
    if first.is_empty() || second.is_empty() {
        return Vec::new();
    }
    let length = first.len() + second.len() - 1;
    let (some, others) = (support(first), support(second));
    if some.len().saturating_mul(others.len()) <= TRANSFORM.saturating_mul(length) {
        let mut sums = vec![0.0; length];
        for (place, value) in &some {
            for (other, factor) in &others {
                sums[place + other] += value * factor;
            }
        }
        return sums;
    }
    let circle = fourier::length(length);
    let mut product = Spectrum::new(first, circle);
    let other = Spectrum::new(second, circle);
    for (bin, factor) in product.bins.iter_mut().zip(other.bins.iter()) {
        *bin *= factor;
    }
    product.sequence(0)[..length].to_vec()
}

/// The `times`-fold convolution of a sequence with itself, at the places from `first` to `last`.
///
/// Numbers outside the window are wrapped around into it, so the sum of all numbers stays.
#[must_use]
pub fn self_convolve(values: &[f64], times: u64, first: usize, last: usize) -> Vec<f64> {
    let window = last.saturating_sub(first) + 1;
    let full = (values.len().max(1) as u128 - 1) * u128::from(times) + 1;
    // Short sequences get a circle that holds all of them, so that each number is wrapped from its own place.
    let is_whole = full <= 4 * window as u128 || full <= 4096;
    let needed = if is_whole {
        full as usize
    } else {
        window.max(values.len())
    };
    let circle = fourier::length(needed);
    let mut power = Spectrum::new(values, circle);
    for bin in power.bins.iter_mut() {
        *bin = powered(*bin, times);
    }
    let mut sums = vec![0.0; window];
    if is_whole {
        let sequence = power.sequence(0);
        for (place, value) in sequence[..needed].iter().enumerate() {
            sums[(place as i64 - first as i64).rem_euclid(window as i64) as usize] += value;
        }
    } else {
        let sequence = power.sequence(first as i64);
        for (place, value) in sequence.iter().enumerate() {
            sums[place % window] += value;
        }
    }
    sums
}

type Number = realfft::num_complex::Complex64;

/// A power by squaring: the angle of a number keeps its precision, which a logarithm would lose.
fn powered(mut base: Number, mut exponent: u64) -> Number {
    let mut result = Number::new(1.0, 0.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
