//! `model.safetensors.index.json`: which of several files holds which tensor.

use crate::error::{ModelError, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a model, and which tensors each of them holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Names of files, each with the names of its tensors.
    shards: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Deserialize)]
struct File {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    /// Reads the content of an index.
    ///
    /// # Errors
    /// [`ModelError::ShardIndex`] for a file that is no index, that names no tensor, or that names a file outside its folder.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bad = |expected: &str, got: String| ModelError::ShardIndex {
            expected: expected.to_owned(),
            got,
        };
        let file: File = serde_json::from_slice(bytes).map_err(|error| {
            bad(
                "an object with `weight_map`, from tensors to files",
                error.to_string(),
            )
        })?;
        let mut shards = BTreeMap::<String, BTreeSet<String>>::new();
        for (tensor, name) in file.weight_map {
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !plain || name.starts_with('.') || !name.ends_with(".safetensors") {
                let expected = "names of files NAME.safetensors in the same folder, of letters, digits, `-`, `_` and `.`";
                return Err(bad(expected, format!("{name:?} for the tensor {tensor:?}")));
            }
            shards.entry(name).or_default().insert(tensor);
        }
        match shards.is_empty() {
            true => Err(bad(
                "at least one tensor in `weight_map`",
                "an empty one".to_owned(),
            )),
            false => Ok(Self { shards }),
        }
    }

    /// Names of the files, in order.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shards.keys().map(String::as_str)
    }

    /// Checks that a file holds the tensors that the index says, and no others.
    ///
    /// # Errors
    /// An unreadable file, and the first tensor that is in one of both alone.
    pub fn check(&self, shard: &str, bytes: &[u8]) -> Result<()> {
        let (_, header) = safetensors::SafeTensors::read_metadata(bytes).map_err(super::malformed)?;
        let found: BTreeSet<String> = header.offset_keys().into_iter().collect();
        let expected = self.shards.get(shard);
        let differing = match expected {
            Some(expected) => expected.symmetric_difference(&found).next(),
            None => found.first(),
        };
        let Some(tensor) = differing else {
            return Ok(());
        };
        Err(ModelError::ShardIndex {
            expected: format!("each tensor in the file that `weight_map` says, and no other in {shard}"),
            got: match found.contains(tensor) {
                true => format!("{tensor:?} in {shard}, which the index does not say"),
                false => format!("no {tensor:?} in {shard}"),
            },
        })
    }
}
