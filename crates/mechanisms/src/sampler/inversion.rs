//! Integer distributions whose neighbouring probabilities have rational ratios, by inversion, exactly.
//!
//! The cumulative probabilities are computed once with a proven error and kept to 64 bits. A uniform real number, of which
//! 64 bits are drawn, lies between two of them with certainty but once in some `2^45` samples; then all is computed
//! again with more bits, and more bits of the same number are drawn, until it does. So samples are exact, at a few
//! nanoseconds each.

use super::source::WordSource;

/// A distribution on `0..=last` that rises to its mode and falls from there, given by ratios of neighbours.
pub(super) trait Ladder {
    /// The number with the largest probability.
    fn mode(&self) -> u64;

    /// The last number with positive probability, if there is one.
    fn last(&self) -> Option<u64>;

    /// The probability of `number + 1` over that of `number`, for `number` before the last: a positive ratio.
    fn ratio(&self, number: u64) -> (u64, u64);
}

/// Cumulative probabilities of the numbers from `first` on: thresholds of some 64-bit words each, whole part first.
struct Cumulative {
    first: u64,
    words: usize,
    thresholds: Vec<u64>,
}

impl Cumulative {
    /// Thresholds of `words` words.
    ///
    /// # Guarantee
    /// Each true cumulative probability is at least its threshold minus one unit in the last place and less than its
    /// threshold plus two.
    ///
    /// Weights have `words + 1` words of fraction; call their unit `u = 2^(-64 (words + 1))`. Away from the mode ratios are
    /// at most one, so after `j` steps that round down a weight is less than `j + 1` units too small. A weight that
    /// reaches zero ends the table: with at most `W < 2^20` entries on a side, what the sum misses is less than
    /// `2 W^2 u < 2^41 u` in the table and, as ratios fall outward and are below `1 - 2^-14` where weights are below
    /// `2^-64` (standard deviations are at most `2^12`), less than `2^35 u` beyond it. The first pass finds the sum `S >= 1`
    /// with the weight one at the mode; the second starts from `1 / S`. Its cumulative sums are thus off by less than
    /// `2^43 u`, a `2^-21`th of a unit of the thresholds, to which they are rounded down.
    fn new(ladder: &impl Ladder, words: usize) -> Self {
        let mut one = Number::zero(words + 1);
        one.0[words + 1] = 1;
        let sum = weights(ladder, &one)
            .1
            .iter()
            .fold(Number::zero(words + 1), |sum, weight| sum.plus(weight));
        let (first, weights) = weights(ladder, &sum.reciprocal());
        let mut total = Number::zero(words + 1);
        let mut thresholds = Vec::with_capacity(words * weights.len());
        for weight in &weights {
            total = total.plus(weight);
            // A sum that errors carry past one stands for one, which is within the bound of the largest fraction.
            let past_one = total.0[words + 1] > 0;
            thresholds.extend(
                total.0[1..=words]
                    .iter()
                    .rev()
                    .map(|&word| if past_one { u64::MAX } else { word }),
            );
        }
        Self {
            first,
            words,
            thresholds,
        }
    }

    /// The number whose interval holds every real number that starts with these words, if there is one.
    fn find(&self, words: &[u64]) -> Option<u64> {
        // The first threshold plus two that is above the words: the true one may be below or above.
        let count = self.thresholds.len() / self.words;
        let threshold = |index: usize| &self.thresholds[index * self.words..(index + 1) * self.words];
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            if add(threshold(middle), 2).is_none_or(|raised| raised[..] > *words) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // It decides if it is surely above: the real number is below words + 1, the true threshold at least its own - 1.
        let above = low < count && add(words, 2).is_some_and(|raised| raised[..] <= *threshold(low));
        // Below the first entry are, if anything, numbers whose weights vanished: less than one unit of them.
        let surely = above && (low > 0 || self.first == 0 || words.iter().any(|&word| word > 0));
        surely.then(|| self.first + low as u64)
    }
}

/// `words + small` as a fraction of as many words, most significant first, unless it reaches one.
fn add(words: &[u64], small: u64) -> Option<Vec<u64>> {
    let mut sum = words.to_vec();
    let mut carry = small;
    for word in sum.iter_mut().rev() {
        let (value, overflow) = word.overflowing_add(carry);
        (*word, carry) = (value, u64::from(overflow));
    }
    (carry == 0).then_some(sum)
}

/// Weights of all numbers around the mode until they vanish, and the first number, for a given weight of the mode.
fn weights(ladder: &impl Ladder, mode_weight: &Number) -> (u64, Vec<Number>) {
    let mode = ladder.mode();
    let mut left = Vec::new();
    let (mut number, mut weight) = (mode, mode_weight.clone());
    while number > 0 {
        let (numerator, denominator) = ladder.ratio(number - 1);
        weight = weight.times_ratio(denominator, numerator);
        if weight.is_zero() {
            break;
        }
        number -= 1;
        left.push(weight.clone());
    }
    left.reverse();
    let first = number;
    let mut all = left;
    all.push(mode_weight.clone());
    (number, weight) = (mode, mode_weight.clone());
    while ladder.last().is_none_or(|last| number < last) {
        let (numerator, denominator) = ladder.ratio(number);
        weight = weight.times_ratio(numerator, denominator);
        if weight.is_zero() {
            break;
        }
        number += 1;
        all.push(weight.clone());
    }
    (first, all)
}

/// A fixed-point number: limbs of fraction, least significant first, and one limb before the point.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Number(Vec<u64>);

impl Number {
    fn zero(fraction: usize) -> Self {
        Self(vec![0; fraction + 1])
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|&limb| limb == 0)
    }

    fn plus(&self, other: &Self) -> Self {
        let mut carry = false;
        let limbs = self.0.iter().zip(&other.0).map(|(&a, &b)| {
            let (sum, next) = a.carrying_add(b, carry);
            carry = next;
            sum
        });
        Self(limbs.collect())
    }

    /// The product with a ratio of at most one, rounded down.
    fn times_ratio(&self, numerator: u64, denominator: u64) -> Self {
        let mut carry = 0;
        let mut product: Vec<u64> = Vec::with_capacity(self.0.len() + 1);
        for &limb in &self.0 {
            let wide = u128::from(limb) * u128::from(numerator) + u128::from(carry);
            product.push(wide as u64);
            carry = (wide >> 64) as u64;
        }
        let mut rest = carry;
        // The number is at most 2^20 and the ratio at most one, so the carry is below the denominator.
        for limb in product.iter_mut().rev() {
            let wide = u128::from(rest) << 64 | u128::from(*limb);
            *limb = (wide / u128::from(denominator)) as u64;
            rest = (wide % u128::from(denominator)) as u64;
        }
        Self(product)
    }

    /// `1 / self`, rounded down, for a number of at least one; bit by bit.
    fn reciprocal(&self) -> Self {
        let fraction = self.0.len() - 1;
        let mut result = Self::zero(fraction);
        let mut rest = Self::zero(fraction);
        rest.0[fraction] = 1;
        for bit in (0..=64 * fraction).rev() {
            if rest.0.iter().rev().ge(self.0.iter().rev()) {
                let mut borrow = false;
                for (a, &b) in rest.0.iter_mut().zip(&self.0) {
                    (*a, borrow) = a.borrowing_sub(b, borrow);
                }
                result.0[bit / 64] |= 1 << (bit % 64);
            }
            rest = rest.plus(&rest);
        }
        result
    }
}

/// Samples of a distribution by inversion.
#[derive(Debug, Clone)]
pub(super) struct Inversion<L> {
    ladder: L,
    /// The number that the first threshold belongs to.
    first: u64,
    thresholds: Vec<u64>,
    /// Index of the first threshold that can be the answer, for each value of a word's leading bits.
    guide: Vec<u32>,
    shift: u32,
}

impl<L: Ladder> Inversion<L> {
    /// Tables for a distribution whose standard deviation is at most `2^12`.
    pub(super) fn new(ladder: L) -> Self {
        let cumulative = Cumulative::new(&ladder, 1);
        // Numbers so far out that no word ever leads to them need no threshold here; the exact search knows them.
        let skip = cumulative.thresholds.partition_point(|&threshold| threshold < 2);
        let thresholds = cumulative.thresholds[skip..].to_vec();
        let bits = thresholds.len().next_power_of_two().trailing_zeros().clamp(4, 16);
        let shift = 64 - bits;
        let guide = (0..1u64 << bits)
            .map(|bucket| thresholds.partition_point(|&threshold| threshold < bucket << shift) as u32)
            .collect();
        Self {
            ladder,
            first: cumulative.first + skip as u64,
            thresholds,
            guide,
            shift,
        }
    }

    /// One sample.
    #[inline]
    pub(super) fn sample(&self, source: &mut WordSource) -> u64 {
        let word = source.word();
        let mut index = self.guide[(word >> self.shift) as usize] as usize;
        while index < self.thresholds.len() && self.thresholds[index] <= word {
            index += 1;
        }
        // The true thresholds are at least theirs - 1 and below theirs + 2, the number at least the word and below it + 1.
        // Thresholds that were skipped are at most one.
        let below = index.checked_sub(1).map_or(1, |index| self.thresholds[index]);
        let certain = index < self.thresholds.len()
            && word >= below.saturating_add(2)
            && self.thresholds[index] - word >= 2;
        if certain {
            self.first + index as u64
        } else {
            self.exact(word, source)
        }
    }

    /// The sample of a number that starts with `word`, by as many further words as it takes.
    #[cold]
    fn exact(&self, word: u64, source: &mut WordSource) -> u64 {
        let mut words = vec![word];
        loop {
            words.extend((0..words.len()).map(|_| source.word()).collect::<Vec<_>>());
            if let Some(number) = Cumulative::new(&self.ladder, words.len()).find(&words) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::uniform::{NoiseKey, Purpose};
    use super::*;

    /// Probabilities 1/8, 3/8, 3/8, 1/8.
    #[derive(Debug, Clone)]
    struct ThreeCoins;

    impl Ladder for ThreeCoins {
        fn mode(&self) -> u64 {
            1
        }
        fn last(&self) -> Option<u64> {
            Some(3)
        }
        fn ratio(&self, number: u64) -> (u64, u64) {
            (3 - number, number + 1)
        }
    }

    #[test]
    fn cumulative_probabilities_are_within_their_bounds() {
        for words in [1, 2, 5] {
            let cumulative = Cumulative::new(&ThreeCoins, words);
            assert_eq!((cumulative.first, cumulative.thresholds.len()), (0, 4 * words));
            for (index, eighths) in [(0, 1u64), (1, 4), (2, 7)] {
                // The true threshold is a whole number of eighths, so the computed one is that or up to two units less.
                let mut exact = vec![0; words];
                exact[0] = eighths << 61;
                let computed = &cumulative.thresholds[index * words..(index + 1) * words];
                let close = (0..2).any(|units| add(computed, units).is_some_and(|value| value == exact));
                assert!(
                    close || add(&exact, 1).is_some_and(|value| value == computed),
                    "{computed:x?}"
                );
            }
        }
    }

    #[test]
    fn numbers_close_to_a_threshold_are_found_by_further_words() {
        let cumulative = Cumulative::new(&ThreeCoins, 2);
        let eighth = 1 << 61;
        assert_eq!(cumulative.find(&[0, 0]), Some(0));
        assert_eq!(cumulative.find(&[0, 9]), Some(0));
        assert_eq!(cumulative.find(&[eighth - 1, 0]), Some(0));
        assert_eq!(cumulative.find(&[eighth, 9]), Some(1));
        assert_eq!(cumulative.find(&[eighth, 0]), None);
        assert_eq!(cumulative.find(&[eighth - 1, u64::MAX]), None);
        assert_eq!(cumulative.find(&[4 * eighth - 1, u64::MAX - 9]), Some(1));
        assert_eq!(cumulative.find(&[7 * eighth, 1 << 40]), Some(3));
        assert_eq!(cumulative.find(&[u64::MAX, u64::MAX - 9]), Some(3));
        assert_eq!(cumulative.find(&[u64::MAX, u64::MAX]), None);
    }

    #[test]
    fn open_words_go_on_to_an_exact_answer() {
        let inversion = Inversion::new(ThreeCoins);
        let key = NoiseKey::from_bytes([1; 32]);
        let stream = key.stream(Purpose::DiscreteLaplace, 0).unwrap();
        let eighth = 1 << 61;
        for (word, expected) in [
            (0, [0, 0]),
            (eighth - 1, [0, 0]),
            (eighth, [1, 1]),
            (7 * eighth, [3, 3]),
            (u64::MAX, [3, 3]),
        ] {
            for index in 0..8 {
                let sample = inversion.exact(word, &mut WordSource::new(&stream, index));
                assert!(expected.contains(&sample), "{word:x}: {sample}");
            }
        }
    }
}
