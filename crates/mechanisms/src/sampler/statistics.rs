//! Statistical tests of samplers, shared by their unit tests.
//!
//! Every check has a false-alarm rate below 1e-6 over random keys. The tests use fixed keys, so they cannot flake: a
//! failure after a deliberate change of a sampler's words is a one in a million accident, or a mistake.

use super::uniform::NoiseKey;
use crate::error::Result;

/// Two-sided normal threshold of false-alarm rate 1e-7.
pub(super) const SIGMAS: f64 = 5.33;

/// Checks a large set of samples against the standard normal distribution: four moments (4e-7 in all), counts beyond
/// 3 and 4 standard deviations (2e-7) and 64 equal bins (2e-7).
pub(super) fn check_standard_normal(x: &[f64]) {
    let n = x.len() as f64;
    for (k, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
        let moment = x.iter().map(|v| v.powi(k)).sum::<f64>() / n;
        let z = (moment - expected) / (variance / n).sqrt();
        assert!(z.abs() < SIGMAS, "moment {k} is {moment}: {z} sigmas");
    }
    for threshold in [3.0, 4.0] {
        let p = 2.0 * normal_cdf(-threshold);
        check_count(x.iter().filter(|v| v.abs() > threshold).count(), n * p);
    }
    let edges: Vec<f64> = (1..64).map(|i| normal_quantile(f64::from(i) / 64.0)).collect();
    let mut counts = [0u64; 64];
    for v in x {
        counts[edges.partition_point(|edge| edge < v)] += 1;
    }
    check_counts(&counts, &[1.0 / 64.0; 64]);
}

/// Checks a Poisson or binomial count against its mean, at false-alarm rate 1e-7 by Bernstein's inequality.
pub(super) fn check_count(count: usize, mean: f64) {
    // P(|X - mean| > d) <= 2 exp(-d^2 / (2 mean + 2 d / 3)) = 1e-7 for d^2 = 16.8 (2 mean + 2 d / 3).
    let d = 5.6 + (5.6f64.powi(2) + 33.6 * mean).sqrt();
    assert!((count as f64 - mean).abs() <= d, "{count} against {mean} +- {d}");
}

/// Pearson's chi-square of counts against probabilities that sum to one, both tails at 1e-7 each (Wilson-Hilferty).
///
/// Neighbouring bins are merged until each expects 20 samples.
pub(super) fn check_counts(counts: &[u64], probabilities: &[f64]) {
    assert_eq!(counts.len(), probabilities.len());
    let total: f64 = probabilities.iter().sum();
    assert!((total - 1.0).abs() < 1e-9, "probabilities sum to {total}");
    let n = counts.iter().sum::<u64>() as f64;
    let mut bins: Vec<(f64, f64)> = Vec::new();
    for (&count, &p) in counts.iter().zip(probabilities) {
        match bins.last_mut() {
            Some((observed, expected)) if *expected < 20.0 => {
                *observed += count as f64;
                *expected += n * p;
            }
            _ => bins.push((count as f64, n * p)),
        }
    }
    if let Some(&(observed, expected)) = bins.last().filter(|(_, expected)| *expected < 20.0) {
        bins.pop();
        let last = bins.last_mut().expect("more than 20 samples");
        *last = (last.0 + observed, last.1 + expected);
    }
    let freedom = (bins.len() - 1) as f64;
    assert!(freedom >= 1.0, "one bin tests nothing");
    let chi2: f64 = bins
        .iter()
        .map(|(observed, expected)| (observed - expected).powi(2) / expected)
        .sum();
    let spread = 2.0 / (9.0 * freedom);
    let z = ((chi2 / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    // The approximation is poor far below the mean when there are few bins, so only the upper tail is asked of those.
    assert!(
        z < SIGMAS && (freedom < 10.0 || z > -SIGMAS),
        "chi2 {chi2} with {freedom} degrees: {z} sigmas"
    );
}

/// The first `count` samples of a round under a key of equal bytes.
pub(super) fn drawn(
    fill: impl Fn(&NoiseKey, u64, &mut [i64]) -> Result<()>,
    (key, round): (u8, u64),
    count: usize,
) -> Vec<i64> {
    let mut out = vec![0; count];
    fill(&NoiseKey::from_bytes([key; 32]), round, &mut out).unwrap();
    out
}

/// Integers in units of their standard deviation.
pub(super) fn scaled(samples: &[i64], mean: i64, deviation: f64) -> Vec<f64> {
    let standard = |&x: &i64| (x - mean) as f64 / deviation;
    samples.iter().map(standard).collect()
}

/// [`check_independence`] of 50,000 integers.
pub(super) fn check_integers_are_independent(fill: impl Fn(&NoiseKey, u64, &mut [i64]) -> Result<()>) {
    check_independence(|key, round| scaled(&drawn(&fill, (key, round), 50_000), 0, 1.0));
}

/// Checks integer samples against a probability mass function that is negligible outside `low..=high`.
pub(super) fn check_integers(samples: &[i64], low: i64, high: i64, mass: impl Fn(i64) -> f64) {
    let mut counts = vec![0u64; (high - low + 1) as usize];
    for &x in samples {
        counts[(x.clamp(low, high) - low) as usize] += 1;
    }
    let probabilities: Vec<f64> = (low..=high).map(mass).collect();
    check_counts(&counts, &probabilities);
}

/// Checks that two equally long sets of samples are uncorrelated, in value and in square: 2e-7 and, as products of
/// squares have heavier tails, 1e-7 with half a standard deviation more.
pub(super) fn check_uncorrelated(a: &[f64], b: &[f64]) {
    let standardised = |x: &[f64]| -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        x.iter().map(|v| (v - mean) / variance.sqrt()).collect()
    };
    let correlation = |a: &[f64], b: &[f64]| -> f64 {
        let (a, b) = (standardised(a), standardised(b));
        a.iter().zip(&b).map(|(x, y)| x * y).sum::<f64>() / (a.len() as f64).sqrt()
    };
    let squares = |x: &[f64]| -> Vec<f64> { standardised(x).iter().map(|v| v * v).collect() };
    let (plain, squared) = (correlation(a, b), correlation(&squares(a), &squares(b)));
    assert!(plain.abs() < SIGMAS, "correlation of {plain} sigmas");
    assert!(
        squared.abs() < SIGMAS + 0.5,
        "correlation of squares of {squared} sigmas"
    );
}

/// Checks independence of neighbouring coordinates, of the two halves, of another round and of another key.
pub(super) fn check_independence(samples: impl Fn(u8, u64) -> Vec<f64>) {
    let x = samples(5, 0);
    let half = x.len() / 2;
    check_uncorrelated(&x[..half], &x[half..2 * half]);
    check_uncorrelated(&x[1..], &x[..x.len() - 1]);
    check_uncorrelated(&x, &samples(5, 1));
    check_uncorrelated(&x, &samples(6, 0));
}

/// Checks that the two halves of every block, cosines and sines of the same radii, are uncorrelated.
pub(super) fn check_halves(x: &[f64], block: usize) {
    let half = |first: bool| -> Vec<f64> {
        let part = |block: &[f64]| {
            let (cosines, sines) = block.split_at(block.len() / 2);
            if first { cosines.to_vec() } else { sines.to_vec() }
        };
        x.chunks_exact(block).flat_map(part).collect()
    };
    check_uncorrelated(&half(true), &half(false));
}

/// Standard normal CDF by the series of the error function, to about 1e-13.
pub(super) fn normal_cdf(x: f64) -> f64 {
    // Series: Phi(x) = 1/2 + phi(x) * sum x^(2k+1) / (1 * 3 * ... * (2k+1)); converges for all x.
    if x.abs() > 7.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-18 {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The point below which a standard normal sample falls with probability `p`.
pub(super) fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if normal_cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}
