//! The state of a run between two rounds, in one file that is replaced atomically: `checkpoint/state.safetensors`.
//!
//! The tensors are the parameters and the optimizer's moments; the rest is metadata of the same file, so parameters,
//! optimizer, round and file positions can never be of different rounds. The state of correlated noise is in its own file,
//! written first and named by the checkpoint. No generator state is kept: all randomness is derived from the run's key and the
//! round.

pub(crate) mod store;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use undertone_run_directory::error::DirectoryError;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};
use undertone_mechanisms::MechanismError;

use crate::error::{Result, RunError};
use undertone_coordinator::CoordinatorError;
use undertone_coordinator::adaptive_clip::AdaptiveClip;
use undertone_coordinator::head::RunHead;
use undertone_coordinator::participation::ParticipationKey;
use undertone_run_directory::files;

/// A checkpoint that was read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The metadata of the tensors.
    pub state: State,
    /// Flat parameters.
    pub parameters: Vec<f32>,
    /// Optimizer: first moment or momentum; may be empty.
    pub first: Vec<f32>,
    /// Optimizer: second moment; may be empty.
    pub second: Vec<f32>,
}

/// A checkpoint to write, without a copy of the vectors.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The metadata of the tensors.
    pub state: State,
    /// Flat parameters.
    pub parameters: &'a [f32],
    /// Optimizer: first moment or momentum; may be empty.
    pub first: &'a [f32],
    /// Optimizer: second moment; may be empty.
    pub second: &'a [f32],
}

/// The part of a checkpoint that is not a vector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Number of finished rounds.
    pub rounds: u64,
    /// Number of optimizer steps.
    pub steps: u64,
    /// Bytes of `ledger.jsonl` that belong to those rounds.
    pub ledger_bytes: u64,
    /// Bytes of `metrics.jsonl` that belong to those rounds.
    pub metrics_bytes: u64,
    /// Seconds of training so far.
    pub train_seconds: f64,
    /// Model family and size.
    pub model: String,
    /// Digest of the configuration.
    pub config_sha256: String,
    /// Digest of the corpus.
    pub data_sha256: String,
    /// The key of orders of epochs, simulated devices and pseudonyms; noise does not follow from it. Pre-training has no
    /// participants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participation_key: Option<ParticipationKey>,
    /// The estimate and the norm in force, where clipping is adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_clip: Option<AdaptiveClip>,
    /// The file beside this one with the state of correlated noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_state: Option<String>,
}

const STATE_KEY: &str = "undertone";
const NOISE_PREFIX: &str = "noise-";
const NOISE_SUFFIX: &str = ".state";
/// Max bytes per parameter: the parameter and two values of the optimizer, of 4 bytes each.
const MAX_BYTES_PER_PARAMETER: u64 = 12;
/// Max bytes of the header, and of the values that a factored optimizer keeps beyond one per parameter.
const MAX_HEADER: u64 = 16 << 20;
const NAMES: [&str; 3] = ["parameters", "optimizer.first", "optimizer.second"];

/// The checkpoint file of a run directory.
#[must_use]
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("checkpoint").join("state.safetensors")
}

/// Removes the checkpoint of a run that is over, with the key of participation and the state of the noise in it.
///
/// PRIVACY: a reader of the ledger who knows the key can tell which users were sampled in which round, and then sampling adds
/// nothing to the guarantee. A run that is over needs neither.
///
/// # Errors
/// [`DirectoryError::Io`].
pub fn remove(run_dir: &Path) -> Result<()> {
    let path = path(run_dir);
    let folder = path.parent().unwrap_or(run_dir);
    // A link is removed as a link.
    match std::fs::remove_dir_all(folder) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(RunError::io("remove", folder, source))
        }
        _ => Ok(()),
    }
}

impl Snapshot<'_> {
    /// Writes the checkpoint, and beside it the state of the noise. Afterwards the checkpoint is this one, or still the one before
    /// with the noise that belongs to it.
    ///
    /// PRIVACY: the state of the noise is as secret as the noise; only the newest is kept, and none after the last round.
    ///
    /// # Errors
    /// [`DirectoryError::Io`]; from the noise.
    pub(crate) fn write(mut self, run_dir: &Path, head: Option<&RunHead>) -> Result<()> {
        let path = path(run_dir);
        let folder = path.parent().unwrap_or(run_dir);
        files::secret_folder(folder)?;
        // The state of the noise has a name of its own round, so that it is there before the checkpoint points to it.
        self.state.noise_state = match head.filter(|head| head.has_secret()) {
            Some(head) => {
                let name = format!("{NOISE_PREFIX}{}{NOISE_SUFFIX}", self.state.rounds);
                let path = folder.join(&name);
                files::write_secret_with(&path, |file| {
                    head.save_secret(file).map_err(|error| named(error, &path))
                })?;
                Some(name)
            }
            None => None,
        };
        let damaged = |error: String| DirectoryError::damaged(&path, error);
        let state = serde_json::to_string(&self.state).map_err(|error| damaged(error.to_string()))?;
        let metadata = HashMap::from([(STATE_KEY.to_owned(), state)]);
        let tensors = NAMES
            .into_iter()
            .zip([self.parameters, self.first, self.second].map(Floats::new));
        files::write_secret_at(&path, |temporary| {
            safetensors::serialize_to_file(tensors, Some(metadata), temporary).map_err(|error| match error {
                SafeTensorError::IoError(source) => DirectoryError::io("write", &path, source),
                other => damaged(other.to_string()),
            })
        })?;
        remove_other_noise(folder, self.state.noise_state.as_deref());
        Ok(())
    }
}

/// The error of a state that could not be written, with the name of its file.
fn named(error: CoordinatorError, path: &Path) -> DirectoryError {
    match error {
        CoordinatorError::Mechanism(MechanismError::StateIo { kind, message, .. }) => {
            DirectoryError::io("write", path, std::io::Error::new(kind, message))
        }
        other => other.into(),
    }
}

/// Removes states of noise that no checkpoint points to. A file that cannot be removed now is removed next time.
fn remove_other_noise(folder: &Path, keep: Option<&str>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(NOISE_PREFIX) && Some(name.as_ref()) != keep {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Floats as a tensor, without a copy where the machine stores them as the file does.
struct Floats<'a> {
    values: &'a [f32],
    shape: [usize; 1],
}

impl<'a> Floats<'a> {
    fn new(values: &'a [f32]) -> Self {
        Self {
            values,
            shape: [values.len()],
        }
    }
}

impl View for Floats<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        if cfg!(target_endian = "little") {
            return Cow::Borrowed(bytemuck::cast_slice(self.values));
        }
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn data_len(&self) -> usize {
        size_of_val(self.values)
    }
}

impl Checkpoint {
    /// Reads the checkpoint of a run directory, of a run that trains this number of parameters.
    ///
    /// # Errors
    /// [`RunError::NothingToResume`], [`DirectoryError::Io`], [`DirectoryError::Damaged`],
    /// [`DirectoryError::UnusableFile`] for a file that is larger than such a run's.
    pub fn read(run_dir: &Path, parameters: usize) -> Result<Self> {
        let path = path(run_dir);
        if !files::exists(&path) {
            return Err(RunError::NothingToResume {
                path: run_dir.to_owned(),
                expected: path,
            });
        }
        let max = (parameters as u64).saturating_mul(MAX_BYTES_PER_PARAMETER);
        let bytes = files::read_at_most(&path, max.saturating_add(MAX_HEADER))?;
        let damaged = |message: String| RunError::damaged(&path, message);
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

    /// The file with the state of the noise; `None` where it has none.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`] for a name that no checkpoint gives a state, such as a path to another folder.
    pub(crate) fn noise_state(&self, run_dir: &Path) -> Result<Option<PathBuf>> {
        let Some(name) = self.state.noise_state.as_deref() else {
            return Ok(None);
        };
        let path = path(run_dir);
        let rounds = name
            .strip_prefix(NOISE_PREFIX)
            .and_then(|rest| rest.strip_suffix(NOISE_SUFFIX));
        if rounds.is_some_and(|rounds| rounds.bytes().all(|byte| byte.is_ascii_digit())) {
            return Ok(Some(path.with_file_name(name)));
        }
        let message = format!("expected a state of noise named {NOISE_PREFIX}N{NOISE_SUFFIX}, got {name:?}");
        Err(RunError::damaged(&path, message))
    }

    /// Refuses a checkpoint of a different model, configuration or corpus.
    ///
    /// # Errors
    /// [`RunError::CheckpointMismatch`].
    pub(crate) fn check_belongs(
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
                return Err(RunError::CheckpointMismatch {
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
                participation_key: Some(ParticipationKey::from_bytes([3; 32])),
                adaptive_clip: None,
                noise_state: None,
            },
            parameters: vec![1.0, -2.5, f32::MIN_POSITIVE, 0.0],
            first: vec![0.5; 4],
            second: Vec::new(),
        }
    }

    fn write(folder: &Path) {
        let checkpoint = checkpoint();
        let snapshot = Snapshot {
            state: checkpoint.state,
            parameters: &checkpoint.parameters,
            first: &checkpoint.first,
            second: &checkpoint.second,
        };
        snapshot.write(folder, None).unwrap();
    }

    #[test]
    fn a_checkpoint_reads_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        assert_eq!(Checkpoint::read(folder.path(), 4).unwrap(), checkpoint());
    }

    #[test]
    fn a_state_of_noise_is_never_looked_for_in_another_folder() {
        let mut checkpoint = checkpoint();
        checkpoint.state.noise_state = Some("noise-3.state".to_owned());
        let found = checkpoint.noise_state(Path::new("run")).unwrap();
        assert_eq!(found.as_deref(), Some(Path::new("run/checkpoint/noise-3.state")));
        for name in [
            "/etc/passwd",
            "../noise-3.state",
            "noise-/../../x.state",
            "noise-3",
            "state.safetensors",
        ] {
            checkpoint.state.noise_state = Some(name.to_owned());
            let message = checkpoint.noise_state(Path::new("run")).unwrap_err().to_string();
            assert!(
                message.contains(&format!(
                    "expected a state of noise named noise-N.state, got {name:?}"
                )),
                "{message}"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_checkpoint_and_its_folder_are_their_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let file = path(folder.path());
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_checkpoint_larger_than_the_run_s_is_refused_unread() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let file = std::fs::File::options()
            .write(true)
            .open(path(folder.path()))
            .unwrap();
        file.set_len(1 << 40).unwrap();
        let message = Checkpoint::read(folder.path(), 4).unwrap_err().to_string();
        assert!(
            message.contains("state.safetensors: expected at most 16777264 bytes"),
            "{message}"
        );
    }

    #[test]
    fn another_run_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let check = |model, config, data| checkpoint().check_belongs(folder.path(), model, config, data);
        check("dplm (4 parameters)", "c", "d").unwrap();
        for (result, what) in [
            (
                check("stackoverflow (9 parameters)", "c", "d"),
                "different model: expected stackoverflow (9 parameters), found dplm (4 parameters)",
            ),
            (
                check("dplm (4 parameters)", "x", "d"),
                "different configuration: expected x, found c",
            ),
            (
                check("dplm (4 parameters)", "c", "y"),
                "different corpus: expected y, found d",
            ),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn missing_and_damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = Checkpoint::read(folder.path(), 4).unwrap_err().to_string();
        assert!(message.starts_with("no checkpoint to resume in "), "{message}");
        write(folder.path());
        let file = path(folder.path());
        let bytes = files::read(&file).unwrap();
        for cut in [0, 5, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&file, &bytes[..cut]).unwrap();
            assert!(
                matches!(
                    Checkpoint::read(folder.path(), 4),
                    Err(RunError::Directory(DirectoryError::Damaged { .. }))
                ),
                "cut at {cut}"
            );
        }
    }
}
