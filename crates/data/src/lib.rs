#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Corpus`], [`Partition`], [`User`] | users with tokenised examples, in a mapped file |
//! | [`PrivateSelection`], [`WordVotes`], [`SelectedWords`] | the private choice of words |
//! | [`record_of_source`] | the record of a text that was made from people's text |
//! | [`read_words`], [`read_tokenizer`], [`Vocab`] | vocabularies of files |
//! | [`group()`], [`Grouper`], [`Grouped`], [`UserStream`] | text grouped by user on disk, at any size |
//! | [`train_tokenizer`], [`TokenizerKind`] | training of sub-word tokenizers |
//! | [`dedup()`] | removal of near-duplicates of private text from public text |
//! | [`import()`], [`import_git`], [`prose()`] | text from other tables, from git logs and from source code |
//! | [`import_export`], [`ExportSource`] | text from exports of people, such as those of chat programs |
//! | [`MemoryTable`] | a table in memory as a source |
//! | [`BestAccuracy`] | the best accuracy that a model of the synthetic population can have |
//! | [`CorpusStats`], [`Distribution`], [`Noted`] | exact statistics of a corpus, and what its readers replaced, skipped or cut |
//! | [`DataError`], [`Place`] | errors, which name a file and a row |
//!
//! # Notes
//!
//! The crate adds noise in one place only, when it chooses words with a [`PrivateSelection`].
//!
//! The example convention and the caps per user follow McMahan et al., *Learning differentially private recurrent language models* (ICLR
//! 2018), section 4. The formats and the synthetic process are described in `docs/guide/data.md` of the repository.

// Imports, groups and near-duplicates use what else there is.
#![cfg_attr(not(feature = "tables"), allow(dead_code))]

mod builder;
mod byte_size;
mod cache;
mod columns;
mod corpus;
mod count;
#[cfg(feature = "tables")]
mod dedup;
mod error;
mod examples;
mod file;
#[cfg(feature = "tables")]
mod grouped;
mod hash;
#[cfg(feature = "tables")]
mod import;
mod limits;
mod made_from;
mod names;
mod noted;
mod path;
mod places;
mod private_vocab;
mod progress;
mod prose;
mod random;
mod rows;
mod source;
mod split;
mod splitter;
mod stats;
mod synthetic;
#[cfg(test)]
mod testing;
#[cfg(feature = "subwords")]
mod tokenizer;
mod vocabulary;
mod vote_collector;

pub use byte_size::{ByteSize, NotAByteSize};
pub use corpus::{Corpus, Partition, User};
pub use count::WordCounts;
#[cfg(feature = "tables")]
pub use dedup::{DedupOptions, DedupSource, DedupSummary, dedup};
pub use error::{DataError, Place, Result};
pub use file::FolderBuilder;
#[cfg(feature = "tables")]
pub use grouped::{
    GroupOptions, Grouped, GroupedManifest, GroupedRow, Grouper, GrouperOptions, Shard, StreamOptions,
    UserRows, UserStream, group,
};
#[cfg(feature = "sqlite")]
pub use import::import_sqlite;
#[cfg(feature = "tables")]
pub use import::{ImportOptions, ImportSummary, import, import_export, import_git};
pub use made_from::record_of_source;
pub use names::UserNames;
pub use noted::Noted;
pub use places::{Place as LocalPlace, places_of};
pub use private_vocab::{PrivateSelection, SelectedWords, WordVotes};
pub use progress::{NoProgress, Progress, Stage};
pub use prose::{ProseSummary, prose};
#[cfg(feature = "sqlite")]
pub use source::SqliteSource;
#[cfg(feature = "tables")]
pub use source::exports::{DateOrder, ExportKind, ExportSource};
#[cfg(feature = "tables")]
pub use source::{GitSource, MemoryTable};
pub use source::{column_names, has_column};
pub use split::Split;
pub use stats::{CorpusStats, Distribution, PartitionStats};
pub use synthetic::BestAccuracy;
#[cfg(feature = "subwords")]
pub use tokenizer::{TokenizerKind, TokenizerSummary, train_tokenizer};
pub use undertone_text::{
    EosTargets, Examples, MAX_VOCABULARY_WORDS, SpecialIds, Vocab, VocabProvenance, WordRule, open_sentence,
};
pub use vocabulary::{read_tokenizer, read_words, vocabulary_in_file};
