//! Counts of a corpus.

use serde::{Deserialize, Serialize};

use crate::names::UserNames;
use crate::noted::Noted;
use undertone_text::{EosTargets, SpecialIds, Vocab, VocabProvenance};

/// Counts of what a corpus holds, and of what was left out on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorpusStats {
    /// The source, in a few words.
    pub source: String,
    /// Words or tokens in the vocabulary, without the special ids.
    pub vocabulary_words: usize,
    /// Origin of the vocabulary.
    pub vocabulary_provenance: VocabProvenance,
    /// Rows read.
    pub rows: u64,
    /// Users seen in the source.
    pub users: u64,
    /// Users without a sentence of two or more words, in no partition.
    pub users_without_text: u64,
    /// Training users left out by `min_examples` or `min_tokens`.
    pub users_below_minimum: u64,
    /// Training examples left out by `max_examples` or `max_tokens`.
    pub examples_capped: u64,
    /// Training tokens left out by `max_examples` or `max_tokens`.
    pub tokens_capped: u64,
    /// Words or sub-word tokens of all texts, before any cut, for each piece between white space; caches written before it
    /// was counted have none.
    #[serde(default)]
    pub tokens_per_word: Option<f64>,
    /// Counts of what readers replaced, skipped or cut, by kind.
    #[serde(default, skip_serializing_if = "Noted::is_empty")]
    pub noted: Noted,
    /// Names of users that may not be one person each. Caches written before they were looked at have none.
    #[serde(default, skip_serializing_if = "UserNames::is_empty")]
    pub names: UserNames,
    /// The training partition.
    pub train: PartitionStats,
    /// The validation partition.
    pub validation: PartitionStats,
    /// The test partition.
    pub test: PartitionStats,
}

/// Counts of one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionStats {
    /// Users.
    pub users: u64,
    /// Examples (sentences or windows).
    pub examples: u64,
    /// Targets: words and EOS.
    pub tokens: u64,
    /// Targets that are not EOS: words or sub-word tokens.
    pub words: u64,
    /// Words outside the vocabulary.
    pub unknown_words: u64,
    /// `unknown_words / words`.
    pub unknown_rate: Option<f64>,
    /// Top-1 accuracy of always predicting the most frequent training target (a word or EOS), EOS targets counted.
    pub unigram_with_eos: Option<f64>,
    /// Top-1 accuracy of always predicting the most frequent training word, EOS targets left out.
    pub unigram_without_eos: Option<f64>,
    /// Examples of a user.
    pub examples_per_user: Distribution,
    /// Tokens of a user.
    pub tokens_per_user: Distribution,
}

/// The distribution of a size over users.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Mean, 0 without users.
    pub mean: f64,
    /// Smallest.
    pub min: u64,
    /// 25 % of users are at or below.
    pub p25: u64,
    /// Median.
    pub median: u64,
    /// 75 % of users are at or below.
    pub p75: u64,
    /// 90 % of users are at or below.
    pub p90: u64,
    /// 99 % of users are at or below.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Bin edges of the histogram: powers of two; bin `i` is `edges[i] <= size < edges[i + 1]`.
    pub edges: Vec<u64>,
    /// Users per bin.
    pub counts: Vec<u64>,
}

impl Distribution {
    pub(crate) fn of(mut sizes: Vec<u64>) -> Distribution {
        sizes.sort_unstable();
        let (Some(&min), Some(&max)) = (sizes.first(), sizes.last()) else {
            return Distribution::default();
        };
        let quantile = |fraction: f64| {
            sizes[((fraction * sizes.len() as f64).ceil() as usize).clamp(1, sizes.len()) - 1]
        };
        let bins = max.max(1).ilog2() as usize + 1;
        let mut counts = vec![0; bins];
        sizes
            .iter()
            .for_each(|&size| counts[size.max(1).ilog2() as usize] += 1);
        Distribution {
            mean: sizes.iter().sum::<u64>() as f64 / sizes.len() as f64,
            min,
            p25: quantile(0.25),
            median: quantile(0.5),
            p75: quantile(0.75),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max,
            edges: (0..=bins).map(|bin| 1_u64 << bin.min(63)).collect(),
            counts,
        }
    }
}

/// Gathers the numbers of one partition while it is written.
#[derive(Debug, Default)]
pub(crate) struct PartitionCounter {
    pub(crate) examples_per_user: Vec<u64>,
    pub(crate) tokens_per_user: Vec<u64>,
    /// Targets by id.
    pub(crate) targets: Vec<u64>,
}

impl PartitionCounter {
    pub(crate) fn new(vocab: &Vocab) -> PartitionCounter {
        PartitionCounter {
            targets: vec![0; vocab.len()],
            ..PartitionCounter::default()
        }
    }

    /// `train` holds the training partition's targets by id.
    pub(crate) fn finish(self, train: &[u64], special: SpecialIds) -> PartitionStats {
        let tokens: u64 = self.targets.iter().sum();
        let end = self.targets[special.eos as usize];
        let words = tokens - end;
        let unknown_words = special.unk.map_or(0, |unk| self.targets[unk as usize]);
        let fraction = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let word = constant_prediction(train, special, EosTargets::Excluded);
        let target = constant_prediction(train, special, EosTargets::Included);
        PartitionStats {
            users: self.examples_per_user.len() as u64,
            examples: self.examples_per_user.iter().sum(),
            tokens,
            words,
            unknown_words,
            unknown_rate: fraction(unknown_words, words),
            unigram_with_eos: target.and_then(|id| fraction(self.targets[id], tokens)),
            unigram_without_eos: word.and_then(|id| fraction(self.targets[id], words)),
            examples_per_user: Distribution::of(self.examples_per_user),
            tokens_per_user: Distribution::of(self.tokens_per_user),
        }
    }
}

/// The id that always to predict is best on the training targets. UNK is never right, so it is no candidate.
pub(crate) fn constant_prediction(train: &[u64], special: SpecialIds, eos: EosTargets) -> Option<usize> {
    (0..train.len())
        .filter(|&id| special.is_candidate(id as u32, eos == EosTargets::Included))
        .reduce(|best, id| if train[id] > train[best] { id } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_quantiles_and_counts() {
        fn check(sizes: &[u64], expected: (u64, u64, u64, u64), counts: &[u64]) {
            let got = Distribution::of(sizes.to_vec());
            assert_eq!((got.min, got.median, got.p90, got.max), expected);
            assert_eq!(got.counts, counts);
            assert_eq!(
                got.edges.len(),
                if sizes.is_empty() { 0 } else { counts.len() + 1 }
            );
        }
        check(&[], (0, 0, 0, 0), &[]);
        check(&[1], (1, 1, 1, 1), &[1]);
        check(&[8, 3, 1, 2], (1, 2, 8, 8), &[1, 2, 0, 1]);
        check(&[5; 10], (5, 5, 5, 5), &[0, 0, 10]);
    }

    #[test]
    fn the_constant_prediction_is_the_most_frequent_candidate() {
        // UNK, BOS, EOS, two words.
        assert_eq!(
            constant_prediction(&[90, 0, 50, 20, 30], SpecialIds::WORDS, EosTargets::Included),
            Some(2)
        );
        assert_eq!(
            constant_prediction(&[90, 0, 50, 20, 30], SpecialIds::WORDS, EosTargets::Excluded),
            Some(4)
        );
        assert_eq!(
            constant_prediction(&[90, 0, 5, 20, 20], SpecialIds::WORDS, EosTargets::Included),
            Some(3)
        );
    }
}
