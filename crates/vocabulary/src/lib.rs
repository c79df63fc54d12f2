#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`parse_words`], [`parse_tokens`], [`parse_tokenizer`] | vocabularies of the bytes of a file |
//! | [`FileRecord`], [`MadeFromPeople`], [`MadeKind`] | the record of a file that was made from people's text |
//! | [`PrivateVocabulary`] | the record of words that were chosen with a guarantee |
//! | [`record_of`], [`not_private`], [`private_record_of`] | records on disk |
//! | [`WordChoice`], [`threshold`] | the noise and the threshold of such a choice |
//! | [`record_path`], [`RECORD_SUFFIX`] | the place of a record |
//! | [`VocabularyError`] | errors, which name a file |
//!
//! [`parse_tokenizer`] refuses every file without the feature `subwords`.

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod beside;
mod choice;
mod error;
mod files;
mod private;
mod record;
pub mod threshold;

pub use beside::{not_private, private_record_of, record_of};
pub use choice::WordChoice;
pub use error::{Result, VocabularyError};
pub use files::{parse_tokenizer, parse_tokens, parse_words};
pub use private::PrivateVocabulary;
pub use record::{FileRecord, MadeFromPeople, MadeKind, RECORD_SUFFIX, record_path};
