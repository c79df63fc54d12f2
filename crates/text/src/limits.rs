//! Limits of what is read.

/// Maximum number of words of a vocabulary, or of ids of a tokenizer.
pub const MAX_VOCABULARY_WORDS: usize = 2_000_000;
