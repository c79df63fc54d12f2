//! Bounds on the sizes of texts, lines and vocabularies: every reader of this crate stays within them, so that a hostile file cannot
//! exhaust memory.

/// Maximum length of one text (or user name) in bytes: 16 MiB. Errors call it `max_text_bytes`.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;

/// Maximum length of one line of JSONL or plain text, or of one CSV record, in bytes: 32 MiB. Errors call it
/// `max_line_bytes`.
pub(crate) const MAX_LINE_BYTES: usize = 32 << 20;

/// Maximum size of a vocabulary file or a tokenizer file in bytes: 64 MiB.
pub(crate) const MAX_VOCABULARY_BYTES: u64 = 64 << 20;
