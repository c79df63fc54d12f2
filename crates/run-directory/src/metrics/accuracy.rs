//! The accuracies of an evaluation by their names in the papers.

use super::Metrics;

/// Right words among the words that a keyboard offers, which are all but UNK: `top1`.
pub const KEYBOARD: &str = "keyboard top-1";
/// Right words of a keyboard over the targets inside the vocabulary: `in_vocab_top1`.
pub const KNOWN_WORDS: &str = "keyboard top-1, known words";
/// Right ids among all ids: `top1_all_ids`.
const ALL_IDS: &str = "AccuracyTop1 [DPLM]";
/// Right ids among all ids, over the targets inside the vocabulary.
const IN_VOCABULARY: &str = "in-vocabulary accuracy [Gboard, BLT]";

/// An accuracy under its name, with its standard error where it is known.
pub type Named = (&'static str, f64, Option<f64>);

impl Metrics {
    /// The accuracy beside AccuracyTop1 over the targets inside the vocabulary alone; `None` where there are none.
    ///
    /// # Source
    /// \[Gboard\] and \[BLT\]: a prediction is right if it is the target and no UNK.
    #[must_use]
    pub fn in_vocabulary_accuracy(&self) -> Option<f64> {
        let known = self.targets.checked_sub(self.out_of_vocabulary)?;
        (known > 0).then(|| self.top1_all_ids * self.targets as f64 / known as f64)
    }

    /// The accuracies beside [`KEYBOARD`], by name.
    #[must_use]
    pub fn other_accuracies(&self) -> Vec<Named> {
        let known = self.in_vocab_top1;
        let known = known.map(|value| (KNOWN_WORDS, value, self.in_vocab_top1_standard_error));
        let all_ids = (ALL_IDS, self.top1_all_ids, self.top1_all_ids_standard_error);
        let in_vocabulary = self.in_vocabulary_accuracy();
        let in_vocabulary = in_vocabulary.map(|value| (IN_VOCABULARY, value, None));
        known.into_iter().chain([all_ids]).chain(in_vocabulary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 targets, of which 40 are unknown. A keyboard has 32 right, and with UNK among the candidates 24 are left.
    fn metrics(unknown: u64) -> Metrics {
        let text = format!(
            "{{\"top1\":0.16,\"top3\":0.2,\"top5\":0.3,\"top1_all_ids\":0.12,\"in_vocab_top1\":0.2,\"perplexity\":9.0,\
              \"targets\":200,\"out_of_vocabulary\":{unknown},\"top1_all_ids_standard_error\":0.01}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_accuracy_has_the_name_of_its_paper() {
        let named = metrics(40).other_accuracies();
        let expected = [
            ("keyboard top-1, known words", 0.2, None),
            ("AccuracyTop1 [DPLM]", 0.12, Some(0.01)),
            ("in-vocabulary accuracy [Gboard, BLT]", 24.0 / 160.0, None),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn without_a_known_target_there_is_no_accuracy_of_them() {
        assert_eq!(metrics(200).in_vocabulary_accuracy(), None);
        assert_eq!(metrics(201).in_vocabulary_accuracy(), None);
    }
}
