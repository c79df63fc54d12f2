//! Ids that are no text.

/// The ids of a vocabulary that stand for no text, and where its words begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialIds {
    /// The id of text outside the vocabulary. A byte-level tokenizer may have none, and never needs one.
    pub unk: Option<u32>,
    /// Start of an example; never a target, unless a tokenizer has one id for start and end.
    pub bos: u32,
    /// End of a text.
    pub eos: u32,
    /// Id of the most frequent word, where ids rise from there as words become rarer.
    pub first_word: Option<u32>,
}

impl SpecialIds {
    /// Id of the first word of a word list.
    pub const FIRST_WORD: u32 = 3;
    /// The special ids of word lists: `<unk>`, `<bos>`, `<eos>`, then words, most frequent first.
    pub const WORDS: SpecialIds = SpecialIds {
        unk: Some(0),
        bos: 1,
        eos: 2,
        first_word: Some(Self::FIRST_WORD),
    };
    /// Their names, by id; tokenizers trained here begin with the same three.
    pub const NAMES: [&'static str; 3] = ["<unk>", "<bos>", "<eos>"];

    /// Returns `true` if a model may predict `id`: neither UNK nor a BOS that is not also the end, and EOS only with `with_eos`.
    #[must_use]
    pub fn is_candidate(&self, id: u32, with_eos: bool) -> bool {
        if id == self.eos {
            return with_eos;
        }
        id != self.bos && Some(id) != self.unk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_and_a_wanted_end_are_candidates() {
        let candidates = |ids: SpecialIds, with_eos| -> Vec<u32> {
            (0..5).filter(|&id| ids.is_candidate(id, with_eos)).collect()
        };
        assert_eq!(candidates(SpecialIds::WORDS, true), [2, 3, 4]);
        assert_eq!(candidates(SpecialIds::WORDS, false), [3, 4]);
        // One id for both ends, and no UNK.
        let shared = SpecialIds {
            unk: None,
            bos: 4,
            eos: 4,
            first_word: None,
        };
        assert_eq!(candidates(shared, true), [0, 1, 2, 3, 4]);
        assert_eq!(candidates(shared, false), [0, 1, 2, 3]);
    }
}
