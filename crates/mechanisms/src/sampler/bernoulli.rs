//! Coins with rational and exponential probabilities, tossed with whole numbers only.
//!
//! Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, algorithm 1.

use super::source::WordSource;

/// True with probability `numerator / denominator`, for `0 <= numerator <= denominator`.
#[inline]
pub(super) fn ratio(source: &mut WordSource, numerator: u128, denominator: u128) -> bool {
    source.below_wide(denominator) < numerator
}

/// True with probability `exp(-numerator / denominator)`.
pub(super) fn exponential(source: &mut WordSource, numerator: u128, denominator: u128) -> bool {
    let (whole, rest) = divide(numerator, denominator);
    exponential_of_mixed(source, whole, rest, denominator)
}

/// True with probability `exp(-(root^2) / denominator)`, where the square may exceed 128 bits.
pub(super) fn exponential_of_square(source: &mut WordSource, root: u128, denominator: u128) -> bool {
    if let Some(square) = root.checked_mul(root) {
        return exponential(source, square, denominator);
    }
    let (whole, rest) = divide_square(root, denominator);
    exponential_of_mixed(source, whole, rest, denominator)
}

/// True with probability `exp(-1)`.
#[inline]
pub(super) fn inverse_e(source: &mut WordSource) -> bool {
    let mut k = 2;
    while source.below(k) == 0 {
        k += 1;
    }
    // The first toss, with probability 1, is not made: k counts from the second one.
    k & 1 == 1
}

/// True with probability `exp(-(whole + rest / denominator))`, for `rest < denominator`.
fn exponential_of_mixed(source: &mut WordSource, whole: u128, rest: u128, denominator: u128) -> bool {
    for _ in 0..whole {
        if !inverse_e(source) {
            return false;
        }
    }
    exponential_of_fraction(source, rest, denominator)
}

/// Algorithm 1 for an exponent of at most one: the number of coins until the first tail, of probabilities `gamma / k` for
/// heads, is odd with probability `exp(-gamma)`.
fn exponential_of_fraction(source: &mut WordSource, numerator: u128, denominator: u128) -> bool {
    let mut k = 1;
    // A coin of probability gamma / k is two coins, gamma and 1 / k: so the denominator need not grow.
    while (k == 1 || source.below(k) == 0) && ratio(source, numerator, denominator) {
        k += 1;
    }
    k & 1 == 1
}

/// Quotient and remainder; mostly small quotients, for which division is slow.
fn divide(numerator: u128, denominator: u128) -> (u128, u128) {
    let mut rest = numerator;
    for whole in 0..4 {
        if rest < denominator {
            return (whole, rest);
        }
        rest -= denominator;
    }
    (4 + rest / denominator, rest % denominator)
}

/// Quotient and remainder of a square of up to 256 bits, bit by bit. A quotient past `2^128` is given as its maximum:
/// the coin behind it would have to come up true that often in a row.
fn divide_square(root: u128, divisor: u128) -> (u128, u128) {
    let (high, low) = (root >> 64, root & u128::from(u64::MAX));
    let cross = high * low;
    let (square_low, carry) = (low * low).overflowing_add(cross << 65);
    let square_high = high * high + (cross >> 63) + u128::from(carry);
    if square_high >= divisor {
        return (u128::MAX, 0);
    }
    let (mut quotient, mut rest) = (0, square_high);
    for bit in (0..128).rev() {
        let overflow = rest >> 127 == 1;
        rest = rest << 1 | square_low >> bit & 1;
        quotient <<= 1;
        if overflow || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    (quotient, rest)
}

#[cfg(test)]
mod tests {
    use super::super::statistics::check_counts;
    use super::super::uniform::{NoiseKey, Purpose};
    use super::*;

    const TOSSES: u64 = 60_000;

    fn check(probability: f64, mut toss: impl FnMut(&mut WordSource) -> bool) {
        let key = NoiseKey::from_bytes([8; 32]);
        let mut source = WordSource::new(&key.stream(Purpose::DiscreteLaplace, 1).unwrap(), 0);
        let heads = (0..TOSSES).filter(|_| toss(&mut source)).count() as u64;
        check_counts(&[heads, TOSSES - heads], &[probability, 1.0 - probability]);
    }

    #[test]
    fn coins_have_their_probabilities() {
        check(0.3, |source| ratio(source, 3, 10));
        check(0.3, |source| ratio(source, 3 << 100, 10 << 100));
        check((-1.0f64).exp(), inverse_e);
        for (numerator, denominator) in [(1, 2), (1, 1), (1, 1000), (999, 1000), (7, 3), (9, 2)] {
            let probability = (-(numerator as f64) / denominator as f64).exp();
            check(probability, |source| exponential(source, numerator, denominator));
        }
        // Through 256 bits: (2^65)^2 / 2^127 = 8, (2^64)^2 / (5 2^125) = 1.6.
        check((-8.0f64).exp(), |source| {
            exponential_of_square(source, 1 << 65, 1 << 127)
        });
        check((-1.6f64).exp(), |source| {
            exponential_of_square(source, 1 << 64, 5 << 125)
        });
        check((-0.25f64).exp(), |source| exponential_of_square(source, 5, 100));
    }

    #[test]
    fn zero_exponents_are_certain() {
        let key = NoiseKey::from_bytes([8; 32]);
        let mut source = WordSource::new(&key.stream(Purpose::DiscreteLaplace, 2).unwrap(), 0);
        assert!((0..1000).all(|_| exponential(&mut source, 0, 7)));
        assert!((0..1000).all(|_| ratio(&mut source, 7, 7) && !ratio(&mut source, 0, 7)));
    }

    #[test]
    fn wide_squares_are_divided_exactly_or_saturate() {
        let check = |root: u128, divisor: u128, expected: (u128, u128)| {
            assert_eq!(divide_square(root, divisor), expected, "{root}^2 / {divisor}");
        };
        check(7, 5, (9, 4));
        check(1 << 100, 1 << 90, (1 << 110, 0));
        check((1 << 64) + 3, 1 << 64, ((1 << 64) + 6, 9));
        check(u128::MAX, u128::MAX, (u128::MAX, 0));
        // (2^127 + 1)^2 = 2^254 + 2^128 + 1 = (2^127 - 1)(2^127 + 3) + 4.
        check((1 << 127) + 1, (1 << 127) + 3, ((1 << 127) - 1, 4));
        check(u128::MAX, 5, (u128::MAX, 0));
    }
}
