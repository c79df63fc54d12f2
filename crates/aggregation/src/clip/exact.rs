//! Clipping in integers, for what a sum adds.
//!
//! The rule and its proof are with [`BoundedSum`](crate::BoundedSum), in whose words `q`, `N`, `L` and `f` are used here. Values
//! that share a clip norm share a factor. Every path of the processor gives the same integers, because nothing is rounded.

use undertone_mechanisms::FRACTION_BITS;
use undertone_simd::vectorised;

use super::norm::{ExactNorm, magnitude};
use crate::sum::UPDATE_LIMIT;
use crate::weight::weight_steps;

/// Bits of a factor: `2^30` stands for one.
const FACTOR_BITS: u32 = 30;

/// Turns the values of one group into the integers that a sum takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scaling {
    /// `f`.
    factor: u32,
    /// Values are divided by two to this power first.
    halvings: u32,
    /// `true` if `N` exceeds the square of the limit.
    exceeds: bool,
}

impl Scaling {
    /// The scaling of finite values whose norm is clearly within the clip norm. It equals that of [`of_norm`](Self::of_norm).
    ///
    /// `square` is the sum of the squares of the values, with a relative error of at most `slack`. `None` where this does not decide.
    pub(super) fn of_short(square: f64, slack: f64, clip_norm: f64, weight: f64) -> Option<Self> {
        // PRIVACY: `sqrt N` is at most the norm in steps, and `L` is less than a step below the clip norm. Two steps of room and a
        // relative room above all roundings here leave `N` at most `L^2`. A norm below `2^22` bounds each value, so none is halved.
        let room = clip_norm - 2.0 / (1u64 << FRACTION_BITS) as f64;
        let decided = clip_norm <= UPDATE_LIMIT
            && room > 0.0
            && square <= room * room * (1.0 - 2.0 * slack - 16.0 * f64::EPSILON);
        decided.then(|| Self {
            factor: (weight_steps(weight) << FACTOR_BITS >> 28) as u32,
            halvings: 0,
            exceeds: false,
        })
    }

    /// The scaling of finite values with this norm.
    pub(crate) fn of_norm(norm: &ExactNorm, clip_norm: f64, weight: f64) -> Self {
        let root = norm.root();
        // Floor, and exact: the factor is a power of two, and the conversion truncates and saturates.
        let limit = (clip_norm * (1u64 << FRACTION_BITS) as f64) as u128;
        let exceeds = root > limit;
        // `root` is below 2^79, so the shift loses nothing.
        let unweighted = match exceeds {
            true => ((limit << FACTOR_BITS) / root) as u64,
            false => 1 << FACTOR_BITS,
        };
        Self {
            factor: ((weight_steps(weight) * unweighted) >> 28) as u32,
            halvings: norm.halvings(),
            exceeds,
        }
    }

    /// `f`, and the number of times that the values are divided by two.
    pub(crate) fn numbers(self) -> (u32, u32) {
        (self.factor, self.halvings)
    }

    /// The largest magnitude that a value of this norm can have after scaling: `floor(f ceil(sqrt N) / 2^30)`.
    pub(crate) fn reach(self, norm: &ExactNorm) -> u128 {
        (u128::from(self.factor) * norm.root()) >> FACTOR_BITS
    }

    /// Returns `true` if the sum takes anything but the values times the weight.
    pub(crate) fn shortens(self) -> bool {
        self.exceeds || self.halvings > 0
    }

    /// Returns `true` if only the range of `q` shortens the values, and not the clip norm.
    pub(crate) fn leaves_range(self) -> bool {
        self.halvings > 0 && !self.exceeds
    }

    /// Adds the scaled values to a part of a sum; whether any place overflowed.
    pub(crate) fn add(self, sum: &mut [i64], values: &[f32]) -> bool {
        match self.factor == 1 << FACTOR_BITS {
            true => add_whole(sum, values, self.halvings),
            false => add_scaled(sum, values, self.factor, self.halvings),
        }
    }
}

vectorised! {
    /// `sum += q`; whether any place overflowed.
    fn add_whole(sum: &mut [i64], values: &[f32], halvings: u32) -> bool {
        let mut overflow = 0i64;
        for (place, &value) in sum.iter_mut().zip(values) {
            let sign = i64::from(value.to_bits() as i32 >> 31);
            let added = (magnitude(value, halvings) as i64 ^ sign) - sign;
            let new = place.wrapping_add(added);
            // Overflow if and only if both terms have the sign that the sum has not.
            overflow |= (*place ^ new) & (added ^ new);
            *place = new;
        }
        overflow < 0
    }
}

vectorised! {
    /// `sum += trunc(q factor / 2^30)`; whether any place overflowed.
    fn add_scaled(sum: &mut [i64], values: &[f32], factor: u32, halvings: u32) -> bool {
        let mut overflow = 0i64;
        for (place, &value) in sum.iter_mut().zip(values) {
            let (q, factor) = (magnitude(value, halvings), u64::from(factor));
            // PRIVACY: with q = high 2^31 + low this is floor(q factor / 2^30) exactly. Both products stay below 2^62.
            let (high, low) = (q >> 31, q & 0x7fff_ffff);
            let length = (((high * factor) << 1) + ((low * factor) >> FACTOR_BITS)) as i64;
            let sign = i64::from(value.to_bits() as i32 >> 31);
            let added = (length ^ sign) - sign;
            let new = place.wrapping_add(added);
            // Overflow if and only if both terms have the sign that the sum has not.
            overflow |= (*place ^ new) & (added ^ new);
            *place = new;
        }
        overflow < 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::norm::{CHUNK, Limbs, MAX_EXPONENT, Wide, parts};
    use super::*;
    use proptest::prelude::*;

    /// A natural number in digits of 32 bits, the lowest first.
    type Digits = [u64; 16];

    fn digits(number: u128) -> Digits {
        std::array::from_fn(|i| {
            if i < 4 {
                (number >> (32 * i)) as u64 & 0xffff_ffff
            } else {
                0
            }
        })
    }

    /// `sum + a b`.
    fn plus_product(mut sum: Digits, a: &Digits, b: &Digits) -> Digits {
        for (i, a) in a.iter().enumerate() {
            let mut carry = 0;
            for (j, b) in b.iter().enumerate().take(16 - i) {
                let total = sum[i + j] + a * b + carry;
                (sum[i + j], carry) = (total & 0xffff_ffff, total >> 32);
            }
            assert_eq!(carry, 0, "the test's numbers have room");
        }
        sum
    }

    fn squared(number: u128) -> Digits {
        plus_product(digits(0), &digits(number), &digits(number))
    }

    fn sum_of_squares(all: impl IntoIterator<Item = i64>) -> Digits {
        let add = |sum, one: i64| {
            let one = digits(u128::from(one.unsigned_abs()));
            plus_product(sum, &one, &one)
        };
        all.into_iter().fold(digits(0), add)
    }

    fn at_most(a: &Digits, b: &Digits) -> bool {
        a.iter().rev().le(b.iter().rev())
    }

    /// The least number whose square is not below `square`.
    fn ceil_sqrt(square: &Digits) -> u128 {
        let (mut low, mut high) = (0u128, 1 << 100);
        while low < high {
            let middle = low.midpoint(high);
            if at_most(square, &squared(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// `floor(S 2^40)` of a clip norm.
    fn limit(clip_norm: f64) -> u128 {
        (clip_norm * 2f64.powi(40)).floor() as u128
    }

    /// The rule line by line: the integers that it adds. The weight is in steps of `2^-28`.
    fn plain(update: &[f32], clip_norm: f64, weight: u128) -> Vec<i64> {
        let scaled = |halvings: i32| {
            let q = move |&g: &f32| (f64::from(g) * 2f64.powi(40 - halvings)).trunc();
            update.iter().map(q).collect::<Vec<f64>>()
        };
        let fits = |q: &Vec<f64>| q.iter().all(|q| q.abs() < 2f64.powi(62));
        let q = (0..).map(scaled).find(fits).unwrap();
        let q: Vec<i64> = q.into_iter().map(|q| q as i64).collect();
        let root = ceil_sqrt(&sum_of_squares(q.iter().copied()));
        let share = match root {
            0 => 1 << 30,
            root => limit(clip_norm).min(1 << 90) * (1 << 30) / root,
        };
        let f = weight * share.min(1 << 30) / (1 << 28);
        let r = |&q: &i64| (i128::from(q) * f as i128 / (1 << 30)) as i64;
        q.iter().map(r).collect()
    }

    /// Tame values, any bit pattern, one value that is not zero, and equal values.
    fn updates() -> impl Strategy<Value = Vec<f32>> {
        let finite = |bits| Some(f32::from_bits(bits)).filter(|value| value.is_finite());
        let wild = any::<u32>().prop_filter_map("finite", finite).boxed();
        let tame = (-1.0..1.0f32).boxed();
        let len = 1..150usize;
        prop_oneof![
            prop::collection::vec(tame.clone(), len.clone()),
            prop::collection::vec(prop_oneof![9 => tame.clone(), 1 => wild.clone()], len.clone()),
            prop::collection::vec(wild.clone(), len.clone()),
            (wild.clone(), len.clone()).prop_map(|(value, len)| vec![value; len]),
            (tame, len.clone()).prop_map(|(value, len)| vec![value; len]),
            (wild, len, any::<prop::sample::Index>()).prop_map(|(value, len, place)| {
                let mut update = vec![0.0; len];
                update[place.index(len)] = value;
                update
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_kernels_do_what_the_rule_says_and_keep_the_bound(
            update in updates(),
            magnitude in -14.0..7.0f64,
            weight in prop_oneof![Just(1.0), 0.0..=1.0f64],
        ) {
            let clip_norm = 10f64.powf(magnitude);
            let steps = (weight * f64::from(1 << 28)) as u128;
            let spans = [0..update.len() / 3, update.len() / 3..update.len()];
            let scaling = Scaling::of_norm(&ExactNorm::of(&update, &spans), clip_norm, weight);
            let mut sum = vec![0; update.len()];
            prop_assert!(!scaling.add(&mut sum, &update));
            prop_assert_eq!(&sum, &plain(&update, clip_norm, steps));
            // The squared norm times 2^56 is at most the square of the limit times the weight's steps.
            let norm = plus_product(digits(0), &sum_of_squares(sum.iter().copied()), &digits(1 << 56));
            prop_assert!(at_most(&norm, &squared(steps * limit(clip_norm))));
            // The factor is short of the quotient by less than two of its steps, and truncation takes less than two steps a value.
            let exact = update.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            let norm = sum.iter().map(|&r| (r as f64).powi(2)).sum::<f64>().sqrt() * 2f64.powi(-40);
            if exact < 2f64.powi(21) {
                let expected = exact.min(clip_norm) * steps as f64 * 2f64.powi(-28);
                let lost = (2.0 * exact + update.len() as f64) * 2f64.powi(-30);
                prop_assert!(norm >= expected - lost, "{norm} {expected}");
            }
        }

        /// Norms on both sides of the clip norm, from far away to one unit in the last place.
        #[test]
        fn a_norm_that_decides_gives_the_scaling_of_the_integers(
            update in updates(),
            ratio in prop_oneof![0.0..3.0f64, 0.999_999..1.000_001f64, Just(1.0)],
            steps in -40i64..40,
            weight in prop_oneof![Just(1.0), 0.0..=1.0f64],
        ) {
            let square: f64 = update.iter().map(|&g| f64::from(g).powi(2)).sum();
            let clip_norm = (ratio * square.sqrt() + steps as f64 * 2f64.powi(-40)).clamp(1e-100, 1e30);
            let slack = super::super::kernel::slack(update.len());
            let whole = 0..update.len();
            let spans = std::slice::from_ref(&whole);
            if let Some(short) = Scaling::of_short(square, slack, clip_norm, weight) {
                prop_assert_eq!(short, Scaling::of_norm(&ExactNorm::of(&update, spans), clip_norm, weight));
            } else {
                // It decides wherever the norm is not near the clip norm.
                prop_assert!(square.sqrt() >= 0.99 * clip_norm || !(1e-9..=UPDATE_LIMIT).contains(&clip_norm));
            }
        }

        #[test]
        fn roots_are_exact(low in any::<u128>(), high in 0..(1u128 << 72), exact in any::<u128>()) {
            let low = low >> 44;
            let number = plus_product(digits(low), &digits(high), &digits(1 << 84));
            prop_assert_eq!(Wide { high, low }.ceil_sqrt(), ceil_sqrt(&number));
            let root = exact >> 50;
            prop_assert_eq!(Wide::square(root).ceil_sqrt(), root);
            let Wide { high, low } = Wide::square(root);
            prop_assert_eq!(Wide::carried(high, low + 1).ceil_sqrt(), root + 1);
        }
    }

    #[test]
    fn the_longest_update_of_the_largest_values_has_room() {
        let (values, q) = (u128::from(u32::MAX), (1u64 << 62) - 1);
        let all = Wide::from_parts(parts(q).map(|part| values * u128::from(part)));
        let number = plus_product(digits(0), &squared(q.into()), &digits(values));
        // It fits four digits of 32 bits, each of them added up in 64 bits.
        assert!(number[5..].iter().all(|&digit| digit == 0));
        assert_eq!(all.ceil_sqrt(), ceil_sqrt(&number));
        for part in parts(q) {
            assert!(part.checked_mul(CHUNK as u64).is_some());
        }
        // The same from the digits of a GPU, none of which leaves its 64 bits.
        let square = digits(u128::from(q).pow(2));
        let largest = ((MAX_EXPONENT + 1) << 23) - 1;
        let sums = std::array::from_fn(|i| square[i].checked_mul(u64::from(u32::MAX)).unwrap());
        let limbs = Limbs { largest, sums };
        assert!(limbs.fits(u32::MAX as usize) && !limbs.fits(u32::MAX as usize - 1));
        assert_eq!(ExactNorm::of_limbs(&limbs), ExactNorm::new(largest, all));
        // The largest product of a value and a factor.
        let mut sum = [0, 0];
        let (largest, half) = (2f32.powi(22).next_down(), 2f32.powi(21));
        assert!(!add_scaled(&mut sum, &[largest, -half], 1 << 30, 0));
        assert_eq!(sum, [(1 << 62) - (1 << 38), -(1 << 61)]);
        // A third one leaves the range.
        assert!(!add_scaled(&mut sum[..1], &[largest], 1 << 30, 0));
        assert!(add_scaled(&mut sum[..1], &[largest], 1 << 30, 0));
    }
}
