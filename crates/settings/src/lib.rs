#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`CorpusSpec`], [`SourceSpec`], [`VocabularySpec`], [`SplitSpec`] | the table `[data]`: text, words and partitions |
//! | [`UserSettings`], [`Algorithm`], [`Batching`], [`BatchShape`] | the table `[user_update]`: the work of one user |
//! | [`EngineConfig`], [`Precision`] | the table `[engine]`: the machine that trains |
//! | [`time`], [`Pointer`] | times and places below the top of a JSON value, as people write them |
//! | [`SettingsError`] | the errors, which name a key |

#![forbid(unsafe_code)]

mod corpus;
mod engine;
mod error;
#[cfg(test)]
mod testing;
pub mod time;
mod user;

pub use corpus::{
    CorpusSpec, CsvSource, Dialect, GroupedSource, Keep, MemorySource, Pointer, SourceSpec, SplitSpec,
    SyntheticSource, TableSource, VocabularySpec, name_of_source,
};
pub use engine::{EngineConfig, Precision};
pub use error::{Result, SettingsError};
pub use time::{NotATimeUnit, TimePoint, TimeUnit};
pub use user::{Algorithm, BatchShape, Batching, FEDSGD_CHUNK, UserSettings};
