#![doc = include_str!("../README.md")]
//!
//! The cache of a corpus is keyed by a digest of its source and settings. The crate does not sample users and does not train. It adds
//! noise in one place only, when it chooses the words of a [`PrivateVocabulary`]. User names do not leave it.
//!
//! The example convention and the caps per user follow McMahan et al., *Learning differentially private recurrent language models* (ICLR
//! 2018), section 4. The formats and the synthetic process are described in `docs/guide/data.md` of the repository.

mod builder;
mod byte_size;
mod cache;
mod corpus;
mod count;
mod dedup;
mod error;
mod examples;
mod file;
mod grouped;
mod hash;
mod import;
mod limits;
mod path;
mod private_vocab;
mod progress;
mod prose;
mod random;
mod rows;
mod source;
mod spec;
mod split;
mod splitter;
mod stats;
mod synthetic;
#[cfg(test)]
mod testing;
mod time;
mod tokenizer;
mod vocabulary;

pub use byte_size::{ByteSize, NotAByteSize};
pub use corpus::{Corpus, Partition, User};
pub use count::WordCounts;
pub use dedup::{DedupOptions, DedupSource, DedupSummary, dedup};
pub use error::{DataError, Place, Result};
pub use file::FolderBuilder;
pub use grouped::{
    GroupOptions, Grouped, GroupedManifest, GroupedRow, Grouper, GrouperOptions, Shard, StreamOptions,
    UserRows, UserStream, group,
};
pub use hash::pseudonym;
pub use import::{ImportOptions, ImportSummary, import, import_git};
pub use limits::{MAX_LINE_BYTES, MAX_TEXT_BYTES, MAX_VOCABULARY_BYTES};
pub use private_vocab::{PrivateSelection, PrivateVocabulary, SelectedWords, WordVotes};
pub use progress::{NoProgress, Progress, Stage};
pub use prose::{ProseSummary, prose};
pub use source::{GitSource, MemoryTable};
pub use spec::{
    CorpusSpec, CsvSource, GroupedSource, Keep, MemorySource, SourceSpec, SplitSpec, SyntheticSource,
    TableSource, VocabularySpec,
};
pub use split::Split;
pub use stats::{CorpusStats, Distribution, PartitionStats};
pub use synthetic::BestAccuracy;
pub use time::TimePoint;
pub use tokenizer::{TokenizerKind, TokenizerSummary, train_tokenizer};
pub use undertone_text::{
    EosTargets, Examples, MAX_VOCABULARY_WORDS, SpecialIds, Vocab, VocabProvenance, open_sentence,
};
pub use vocabulary::{parse_tokenizer, parse_words, read_tokenizer, read_words};
