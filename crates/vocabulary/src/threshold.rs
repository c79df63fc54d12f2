//! The threshold that hides a word of one user alone.
//!
//! Weights and noise are whole steps of a grid; a user's whole weight is [`UNIT`] steps. All words that one user has to
//! themselves pass the threshold with a probability that is a closed form, because noise on the grid is the rounded real
//! Gaussian: `h + round(s G) > T` means `s G >= T - h + 1/2`.

use std::f64::consts::FRAC_1_SQRT_2;

/// L2 norm of what a user may add, in grid steps. Sums of 2^32 users stay within 62 bits.
pub const UNIT: u64 = 1 << 30;

/// Part of delta that is kept back for the rounding of the formula, whose relative error is below it.
const ROUNDING: f64 = 1e-12;

/// Number of standard deviations beyond which a tail is zero in `f64`.
const REACH: f64 = 40.0;

/// The vote for each word of a user with this many words: `1 / sqrt(words)` of [`UNIT`], rounded down.
#[must_use]
pub fn weight(words: u32) -> i64 {
    // PRIVACY: words * weight^2 <= UNIT^2 in whole numbers, so no rounding lets a user exceed the norm.
    (UNIT * UNIT / u64::from(words.max(1))).isqrt() as i64
}

/// Probability that at least one word passes `threshold`, of a user who has `words` words that nobody else has. The noise has a standard
/// deviation of `steps`; both are in grid steps.
#[must_use]
pub fn delta(steps: f64, words: u32, threshold: i64) -> f64 {
    let distance = ((threshold - weight(words)) as f64 + 0.5) / steps;
    let one = 0.5 * libm::erfc(distance * FRAC_1_SQRT_2);
    // 1 - (1 - one)^words, also where `one` is far below the precision of 1.
    -libm::expm1(f64::from(words) * libm::log1p(-one))
}

/// The largest delta over all numbers of words up to `max_words`.
pub(crate) fn worst_delta(steps: f64, max_words: u32, threshold: i64) -> f64 {
    let deltas = (1..=max_words).map(|words| delta(steps, words, threshold));
    deltas.fold(0.0, f64::max)
}

/// Returns `true` if every user passes `threshold` with words of their own with a probability of at most `target`.
pub(crate) fn holds(steps: f64, max_words: u32, threshold: i64, target: f64) -> bool {
    worst_delta(steps, max_words, threshold) <= target * (1.0 - ROUNDING)
}

/// The smallest threshold, at least 0, that [`holds`].
///
/// Few words weigh more each, many words have more chances: which number is worst depends on the noise, so all are tried.
pub(crate) fn smallest(steps: f64, max_words: u32, target: f64) -> i64 {
    let mut threshold = 0;
    for words in 1..=max_words {
        let holds = |threshold| delta(steps, words, threshold) <= target * (1.0 - ROUNDING);
        if holds(threshold) {
            continue;
        }
        let mut safe = weight(words) + (REACH * steps).ceil() as i64;
        while safe - threshold > 1 {
            let middle = threshold + (safe - threshold) / 2;
            if holds(middle) {
                safe = middle;
            } else {
                threshold = middle;
            }
        }
        threshold = safe;
    }
    threshold
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_users_weights_have_at_most_the_unit_norm() {
        for words in (1..5000).chain([1 << 20, u32::MAX]) {
            let (count, weight) = (u128::from(words), weight(words) as u128);
            let whole = u128::from(UNIT) * u128::from(UNIT);
            assert!(count * weight * weight <= whole, "{words}");
            // And no more than a step is lost.
            assert!(count * (weight + 1) * (weight + 1) > whole, "{words}");
        }
    }

    /// Each word passes or not, in every combination, with probabilities that come from summing the density.
    #[test]
    fn delta_is_the_sum_over_all_outcomes() {
        let tail = |from: f64| -> f64 {
            // Simpson's rule on the standard normal density; error far below the tolerance.
            let (n, end) = (20_000, 12.0_f64);
            let h = (end - from) / f64::from(n);
            let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let inner: f64 = (1..n)
                .map(|i| density(from + f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 })
                .sum();
            (density(from) + density(end) + inner) * h / 3.0
        };
        for (steps, threshold) in [(0.3, 0.9), (0.3, 2.2), (2.0, 1.0), (2.0, 9.0), (1.0, -0.5)] {
            let (steps, threshold) = (steps * UNIT as f64, (threshold * UNIT as f64) as i64);
            for words in 1..=6_u32 {
                let one = tail(((threshold - weight(words)) as f64 + 0.5) / steps);
                let some: f64 = (1..1_u32 << words)
                    .map(|passed| {
                        let k = passed.count_ones();
                        one.powi(k as i32) * (1.0 - one).powi((words - k) as i32)
                    })
                    .sum();
                let got = delta(steps, words, threshold);
                assert!((got - some).abs() <= 1e-9 * some + 1e-15, "{words}: {got} {some}");
            }
        }
    }

    /// Expected values, computed by mpmath at 40 digits: 1 - Phi((T - w + 1/2) / s)^k with w = floor(2^30 / sqrt(k)).
    #[test]
    fn far_tails_equal_values_of_mpmath() {
        let check = |words: u32, z: f64, threshold: i64, want: f64| {
            let got = delta(z * UNIT as f64, words, threshold);
            assert!((got / want - 1.0).abs() < 1e-12, "{got:e} {want:e}");
        };
        check(1, 1.0, 10 << 30, 1.128_588_401_166_948e-19);
        check(100, 4.0, 30 << 30, 3.860_192_701_244_486e-12);
        check(1000, 20.0, 200 << 30, 7.742_482_168_925_767e-21);
    }

    #[test]
    fn the_worst_number_of_words_is_neither_always_one_nor_always_the_most() {
        let worst = |z: f64| {
            let steps = z * UNIT as f64;
            let threshold = smallest(steps, 50, 1e-6);
            let deltas: Vec<f64> = (1..=50).map(|words| delta(steps, words, threshold)).collect();
            1 + (0..50).max_by(|&a, &b| deltas[a].total_cmp(&deltas[b])).unwrap()
        };
        assert_eq!((worst(0.05), worst(5.0)), (1, 50));
    }

    proptest! {
        #[test]
        fn the_threshold_is_the_smallest_that_holds(z in 0.01f64..100.0, max_words in 1u32..300, log_delta in -60.0f64..-0.1) {
            let (steps, target) = (z * UNIT as f64, log_delta.exp());
            let threshold = smallest(steps, max_words, target);
            prop_assert!(holds(steps, max_words, threshold, target));
            prop_assert!(worst_delta(steps, max_words, threshold) <= target);
            prop_assert!(threshold == 0 || !holds(steps, max_words, threshold - 1, target));
        }
    }
}
