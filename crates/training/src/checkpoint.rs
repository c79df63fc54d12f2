//! A run's state between two rounds, in one file that is replaced atomically: `checkpoint/state.safetensors`.
//!
//! The tensors are the parameters and the optimizer's moments; the rest is metadata of the same file, so parameters,
//! optimizer, round and file positions can never be of different rounds. No generator state is kept: all randomness is
//! derived from the run's key and the round.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainingError};
use crate::files;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// What the tensors belong to.
    pub state: State,
    /// Flat parameters.
    pub parameters: Vec<f32>,
    /// Optimizer: first moment or momentum; may be empty.
    pub first: Vec<f32>,
    /// Optimizer: second moment; may be empty.
    pub second: Vec<f32>,
}

/// The part of a checkpoint that is not a vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Rounds finished.
    pub rounds: u64,
    /// Optimizer steps made.
    pub steps: u64,
    /// Bytes of `ledger.jsonl` that belong to those rounds.
    pub ledger_bytes: u64,
    /// Bytes of `metrics.jsonl`.
    pub metrics_bytes: u64,
    /// Seconds of training so far.
    pub train_seconds: f64,
    /// Model family and size.
    pub model: String,
    /// Digest of the configuration.
    pub config_sha256: String,
    /// Digest of the corpus.
    pub data_sha256: String,
}

const STATE_KEY: &str = "undertone";
const NAMES: [&str; 3] = ["parameters", "optimizer.first", "optimizer.second"];

/// The checkpoint file of a run directory.
#[must_use]
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("checkpoint").join("state.safetensors")
}

impl Checkpoint {
    /// Writes the checkpoint; afterwards the file is this one, or still the one before.
    ///
    /// # Errors
    /// [`TrainingError::Io`].
    pub fn write(&self, run_dir: &Path) -> Result<()> {
        let path = path(run_dir);
        let damaged = |message: String| TrainingError::Damaged {
            path: path.clone(),
            message,
        };
        let vectors = [&self.parameters, &self.first, &self.second];
        let bytes: Vec<Vec<u8>> = vectors
            .iter()
            .map(|vector| vector.iter().flat_map(|value| value.to_le_bytes()).collect())
            .collect();
        let mut views = Vec::new();
        for ((name, vector), bytes) in NAMES.iter().zip(vectors).zip(&bytes) {
            let view = TensorView::new(Dtype::F32, vec![vector.len()], bytes)
                .map_err(|error| damaged(error.to_string()))?;
            views.push((*name, view));
        }
        let state = serde_json::to_string(&self.state).map_err(|error| damaged(error.to_string()))?;
        let metadata = HashMap::from([(STATE_KEY.to_owned(), state)]);
        let file =
            safetensors::serialize(views, Some(metadata)).map_err(|error| damaged(error.to_string()))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|source| TrainingError::io("creating", folder, source))?;
        }
        files::write_atomic(&path, &file)
    }

    /// Reads the checkpoint of a run directory.
    ///
    /// # Errors
    /// [`TrainingError::NothingToResume`], [`TrainingError::Io`], [`TrainingError::Damaged`].
    pub fn read(run_dir: &Path) -> Result<Self> {
        let path = path(run_dir);
        if !path.exists() {
            return Err(TrainingError::NothingToResume {
                path: run_dir.to_owned(),
                expected: path,
            });
        }
        let bytes = files::read(&path)?;
        let damaged = |message: String| TrainingError::Damaged {
            path: path.clone(),
            message,
        };
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
        let state = header
            .metadata()
            .as_ref()
            .and_then(|metadata| metadata.get(STATE_KEY));
        let state = state.ok_or_else(|| damaged("it has no run state; it is not a checkpoint".to_owned()))?;
        let state = serde_json::from_str(state).map_err(|error| damaged(error.to_string()))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
        let vector = |name: &str| -> Result<Vec<f32>> {
            let tensor = tensors.tensor(name).map_err(|error| damaged(error.to_string()))?;
            if tensor.dtype() != Dtype::F32 {
                return Err(damaged(format!(
                    "tensor {name}: expected F32, got {:?}",
                    tensor.dtype()
                )));
            }
            Ok(tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect())
        };
        let [parameters, first, second] = NAMES.map(vector);
        Ok(Self {
            state,
            parameters: parameters?,
            first: first?,
            second: second?,
        })
    }

    /// Refuses a checkpoint of another model, configuration or corpus.
    ///
    /// # Errors
    /// [`TrainingError::CheckpointMismatch`].
    pub fn check_belongs(
        &self,
        run_dir: &Path,
        model: &str,
        config_sha256: &str,
        data_sha256: &str,
    ) -> Result<()> {
        let pairs = [
            ("model", model, &self.state.model),
            ("configuration", config_sha256, &self.state.config_sha256),
            ("corpus", data_sha256, &self.state.data_sha256),
        ];
        for (what, expected, found) in pairs {
            if expected != found {
                return Err(TrainingError::CheckpointMismatch {
                    path: path(run_dir),
                    what,
                    expected: expected.to_owned(),
                    found: found.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            state: State {
                rounds: 3,
                steps: 3,
                ledger_bytes: 10,
                metrics_bytes: 20,
                train_seconds: 1.5,
                model: "dplm (4 parameters)".to_owned(),
                config_sha256: "c".to_owned(),
                data_sha256: "d".to_owned(),
            },
            parameters: vec![1.0, -2.5, f32::MIN_POSITIVE, 0.0],
            first: vec![0.5; 4],
            second: Vec::new(),
        }
    }

    #[test]
    fn round_trips() {
        let folder = tempfile::tempdir().unwrap();
        checkpoint().write(folder.path()).unwrap();
        assert_eq!(Checkpoint::read(folder.path()).unwrap(), checkpoint());
    }

    #[test]
    fn another_run_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let check = |model, config, data| checkpoint().check_belongs(folder.path(), model, config, data);
        check("dplm (4 parameters)", "c", "d").unwrap();
        for (result, what) in [
            (
                check("stackoverflow (9 parameters)", "c", "d"),
                "another model: expected stackoverflow (9 parameters), found dplm (4 parameters)",
            ),
            (
                check("dplm (4 parameters)", "x", "d"),
                "another configuration: expected x, found c",
            ),
            (
                check("dplm (4 parameters)", "c", "y"),
                "another corpus: expected y, found d",
            ),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn missing_and_damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = Checkpoint::read(folder.path()).unwrap_err().to_string();
        assert!(message.starts_with("no checkpoint to resume in "), "{message}");
        checkpoint().write(folder.path()).unwrap();
        let file = path(folder.path());
        let bytes = files::read(&file).unwrap();
        for cut in [0, 5, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&file, &bytes[..cut]).unwrap();
            assert!(
                matches!(
                    Checkpoint::read(folder.path()),
                    Err(TrainingError::Damaged { .. })
                ),
                "cut at {cut}"
            );
        }
    }
}
