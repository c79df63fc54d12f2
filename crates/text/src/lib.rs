#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Vocab`], [`VocabProvenance`], [`SpecialIds`] | words or tokens as ids, their origin, and the ids that stand for no text |
//! | [`ExampleCutter`], [`Examples`], [`EosTargets`] | the rules that cut a text into sentences or windows |
//! | [`WordRule`] | the rules that cut plain text into sentences and words |
//! | [`sentences`], [`words`], [`open_sentence`] | sentences and words by the rule of English |
//! | [`TextRules`] | the settings of these rules in run files |
//! | [`guard`] | panics of libraries that decode files, turned into errors |
//! | [`TextError`], [`quoted`], [`short`], [`shortened`] | errors, and text of a file in them |
//!
//! # Notes
//!
//! The convention of examples follows McMahan et al., *Learning differentially private recurrent language models* (ICLR 2018),
//! section 4.

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod eos;
mod error;
mod examples;
pub mod guard;
mod limits;
mod rule;
mod rules;
mod special;
#[cfg(feature = "subwords")]
mod subwords;
mod tokenize;
mod tokens;
#[cfg(feature = "unicode")]
mod unicode;
#[cfg(all(feature = "unicode-name", not(feature = "unicode")))]
#[path = "unicode_name.rs"]
mod unicode;
mod vocab;

pub use eos::EosTargets;
pub use error::{Result, TextError, quoted, short, shortened};
pub use examples::{ExampleCutter, Examples, Scratch};
pub use limits::MAX_VOCABULARY_WORDS;
pub use rule::WordRule;
pub use rules::TextRules;
pub use special::SpecialIds;
pub use tokenize::{open_sentence, sentences, words};
pub use vocab::{Vocab, VocabProvenance};
