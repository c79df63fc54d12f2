//! The rule of sentences and words for every language.
//!
//! The convention (docs/guide/data.md): text in ASCII is cut as by the rule of English. Beyond ASCII, the general category of a character
//! takes the place of a list of characters, and dictionaries cut the scripts that are written without spaces.
//!
//! The cut of a text is part of a trained model. The versions of the tables of Unicode and of the dictionaries are therefore fixed in
//! `Cargo.toml`, and a golden test notices another cut.

mod kind;
mod sentence;
#[cfg(test)]
mod tests;
mod word;

pub(crate) use kind::is_prose;
pub(crate) use sentence::{open_sentence, sentences};
pub(crate) use word::{is_spaced, pieces, spelled, words};
