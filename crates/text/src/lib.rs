#![doc = include_str!("../README.md")]
//!
//! The convention of examples follows McMahan et al., *Learning differentially private recurrent language models* (ICLR 2018),
//! section 4.

#![forbid(unsafe_code)]

mod eos;
mod error;
mod examples;
pub mod guard;
mod rules;
mod special;
#[cfg(feature = "subwords")]
mod subwords;
mod tokenize;
mod vocab;

pub use eos::EosTargets;
pub use error::{Result, TextError, quoted, short, shortened};
pub use examples::{ExampleCutter, Examples, Scratch};
pub use rules::TextRules;
pub use special::SpecialIds;
pub use tokenize::{open_sentence, sentences, words};
pub use vocab::{MAX_VOCABULARY_WORDS, Vocab, VocabProvenance};
