//! Counts of the words that merges are chosen by, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use tokenizers::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer,
};

use super::failed;
use crate::error::{DataError, Result};
use crate::rows::Rows;

/// Distinct words held while counting: some 400 MB.
const MAX_WORDS: usize = 4_000_000;

/// Words of more bytes (encoded data, mostly) do not count.
const LONGEST_WORD: usize = 256;

/// Maximum number of occurrences of one pair that the trainer can count.
const MAX_PAIRS: u64 = i32::MAX as u64;

type Counts = HashMap<Box<str>, u64>;

/// Counts words as a tokenizer cuts them.
pub(super) struct PieceCounts<'a> {
    tokenizer: &'a Tokenizer,
    counts: Counts,
    max: usize,
    total: u64,
    forgotten: u64,
}

impl<'a> PieceCounts<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> PieceCounts<'a> {
        PieceCounts::within(tokenizer, MAX_WORDS)
    }

    pub(super) fn within(tokenizer: &'a Tokenizer, max: usize) -> PieceCounts<'a> {
        PieceCounts {
            tokenizer,
            counts: Counts::new(),
            max,
            total: 0,
            forgotten: 0,
        }
    }

    pub(super) fn add(&mut self, rows: &Rows) -> Result<()> {
        let tokenizer = self.tokenizer;
        let parts: Vec<Counts> = (0..rows.len())
            .into_par_iter()
            .with_min_len(256)
            .try_fold(Counts::new, |mut counts, row| {
                count(tokenizer, rows.texts.get(row), &mut counts)?;
                Ok::<_, DataError>(counts)
            })
            .collect::<Result<_>>()?;
        for (word, count) in parts.into_iter().flatten() {
            self.total += count;
            *self.counts.entry(word).or_insert(0) += count;
        }
        // Between batches, whose rows are the same at any number of threads.
        let mut rare = 1;
        while self.counts.len() > self.max {
            let before = self.counts.len();
            self.counts.retain(|_, count| *count > rare);
            self.forgotten += (before - self.counts.len()) as u64;
            rare *= 2;
        }
        Ok(())
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The counts in alphabetical order, scaled down together where a pair could occur more often than the trainer counts.
    pub(super) fn finish(self) -> Vec<(Box<str>, u64)> {
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        counts.sort_unstable();
        scale(&mut counts, MAX_PAIRS);
        counts
    }
}

fn scale(counts: &mut [(Box<str>, u64)], max: u64) {
    let letters = |counts: &[(Box<str>, u64)]| -> u128 {
        let of = |(word, count): &(Box<str>, u64)| word.len() as u128 * u128::from(*count);
        counts.iter().map(of).sum()
    };
    // Rounding up keeps rare words, at most one letter each: the second round is for them.
    while letters(counts) > u128::from(max) {
        let divisor = (letters(counts) / u128::from(max)) as u64 + 1;
        if counts.iter().all(|(_, count)| *count == 1) {
            return;
        }
        counts
            .iter_mut()
            .for_each(|(_, count)| *count = count.div_ceil(divisor));
    }
}

fn count(tokenizer: &Tokenizer, text: &str, counts: &mut Counts) -> Result<()> {
    let mut text = NormalizedString::from(text);
    if let Some(normalizer) = tokenizer.get_normalizer() {
        normalizer.normalize(&mut text).map_err(failed)?;
    }
    let mut pieces = PreTokenizedString::from(text);
    if let Some(cut) = tokenizer.get_pre_tokenizer() {
        cut.pre_tokenize(&mut pieces).map_err(failed)?;
    }
    for (word, ..) in pieces.get_splits(OffsetReferential::Original, OffsetType::None) {
        if word.is_empty() || word.len() > LONGEST_WORD {
            continue;
        }
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                counts.insert(word.into(), 1);
            }
        }
    }
    Ok(())
}

/// The `max` most frequent characters, then those of them that continue a word, as `##x`; each in the order of code points.
pub(super) fn alphabet(counts: &[(Box<str>, u64)], max: usize) -> Vec<String> {
    // By character: how often, and whether inside of words.
    let mut letters: BTreeMap<char, (u64, bool)> = BTreeMap::new();
    for (word, count) in counts {
        for (place, letter) in word.chars().enumerate() {
            let (times, continues) = letters.entry(letter).or_default();
            *times += count;
            *continues |= place > 0;
        }
    }
    let mut kept: Vec<(char, (u64, bool))> = letters.into_iter().collect();
    kept.sort_by_key(|&(_, (times, _))| std::cmp::Reverse(times));
    kept.truncate(max);
    kept.sort_unstable_by_key(|&(letter, _)| letter);
    let starts = kept.iter().map(|(letter, _)| letter.to_string());
    let continuing = kept.iter().filter(|(_, (_, continues))| *continues);
    starts
        .chain(continuing.map(|(letter, _)| format!("##{letter}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_what_the_trainer_counts() {
        fn check(counts: &[(&str, u64)], max: u64, expected: &[u64]) {
            let mut counts: Vec<_> = counts.iter().map(|&(word, count)| (word.into(), count)).collect();
            scale(&mut counts, max);
            let got: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
            assert_eq!(got, expected);
        }
        check(&[("ab", 50), ("c", 1)], 101, &[50, 1]);
        check(&[("ab", 50), ("c", 1)], 100, &[25, 1]);
        check(&[("ab", u64::MAX / 4)], 10, &[5]);
        // More words than can be counted even once: nothing is left to divide.
        check(&[("abc", 1), ("def", 1)], 4, &[1, 1]);
    }

    #[test]
    fn alphabets_are_the_most_frequent_characters_in_order() {
        let counts = [("ba".into(), 3), ("c".into(), 2), ("da".into(), 1)];
        assert_eq!(alphabet(&counts, 3), ["a", "b", "c", "##a"]);
        assert_eq!(alphabet(&counts, 9), ["a", "b", "c", "d", "##a"]);
    }
}
