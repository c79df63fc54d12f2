//! The file of a pre-training: the model, the public text and the optimizer.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_models::ModelSpec;
use undertone_settings::CorpusSpec;

use crate::error::{Result, RunError};
use undertone_coordinator::CoordinatorError;
use undertone_coordinator::task::{
    DecayConfig, OptimizerConfig, ServerConfig, at_least_one, check_initial_model, folder_name,
};
use undertone_run_directory::config::{
    CheckpointConfig, EvaluationConfig, Override, RunConfig, fits_context, parse_as, token_limits,
};

/// A whole pre-training. `[data]`, `[model]`, `[evaluation]` and `[checkpoint]` are those of a run file, with steps in
/// the place of rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Name of the run directory under the output folder.
    pub name: String,
    /// The seed of initial parameters and of the order of the examples.
    #[serde(default)]
    pub seed: u64,
    /// Number of optimizer steps.
    pub steps: u64,
    /// A `model.safetensors` to start from, relative to this file; without it parameters are random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_model: Option<PathBuf>,
    /// The corpus; its text has to be public.
    pub data: CorpusSpec,
    /// The model.
    pub model: ModelSpec,
    /// The optimizer and the batches of the steps.
    pub training: CentralTrainingConfig,
    /// The steps and the text of evaluations; `every` counts steps.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// The steps of checkpoints, from which the pre-training can be resumed; `every` counts steps.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
}

/// `[training]`: mini-batch training over the examples of all users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CentralTrainingConfig {
    /// Number of examples per step, drawn across users without replacement within an epoch.
    pub batch_size: usize,
    /// SGD with momentum, or Adam.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// Learning rate after the warm-up.
    pub learning_rate: f64,
    /// Number of steps over which the learning rate rises linearly.
    #[serde(default)]
    pub warm_up_steps: u64,
    /// Linear decay of the learning rate over the last part of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<DecayConfig>,
}

impl CentralTrainingConfig {
    /// The optimizer, as the server of a federated run has it.
    pub(super) fn optimizer(&self) -> ServerConfig {
        ServerConfig {
            optimizer: self.optimizer,
            learning_rate: self.learning_rate,
            decay: self.decay,
        }
    }
}

/// A pre-training file that was read: the configuration, and the folder where its relative paths start.
#[derive(Debug, Clone)]
pub struct PretrainFile {
    /// The checked configuration, overrides applied.
    pub config: PretrainConfig,
    /// Folder of the file.
    pub base: PathBuf,
}

impl PretrainFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io), [`DirectoryError::ConfigSyntax`](undertone_run_directory::error::DirectoryError::ConfigSyntax) with line and column, [`RunError::Coordinator`].
    pub fn read(path: &Path, overrides: &[Override]) -> Result<Self> {
        let text = undertone_run_directory::files::read_given_text(path)?;
        let config: PretrainConfig = parse_as(&text, path, overrides)?;
        config.validate()?;
        Ok(Self {
            config,
            base: RunConfig::base_of(path).to_owned(),
        })
    }
}

impl PretrainConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// [`RunError::Coordinator`] naming the key, the expected and the actual value.
    pub fn validate(&self) -> Result<()> {
        folder_name(&self.name)?;
        at_least_one("steps", self.steps as usize)?;
        at_least_one("training.batch_size", self.training.batch_size)?;
        fits_context(&self.model, &self.data)?;
        check_initial_model(&self.model, self.initial_model.is_some())?;
        if self.training.warm_up_steps > self.steps {
            return Err(RunError::value(
                "training.warm_up_steps",
                format!("at most steps = {}", self.steps),
                self.training.warm_up_steps,
            ));
        }
        // The optimizer is checked where it is defined; here it stands in another table.
        self.training
            .optimizer()
            .validate()
            .map_err(|error| match error {
                CoordinatorError::ConfigValue { key, expected, got } => CoordinatorError::ConfigValue {
                    key: key.replacen("server", "training", 1),
                    expected,
                    got,
                },
                other => other,
            })?;
        at_least_one("checkpoint.every", self.checkpoint.every as usize)?;
        Ok(token_limits(&self.evaluation)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "public"
steps = 10
[data]
source = { kind = "synthetic", users = 20, words = 30 }
[model]
family = "cifg"
[training]
batch_size = 8
learning_rate = 0.1
"#;

    fn check(change: &str, expected: &str) {
        let result = parse_as::<PretrainConfig>(SMALL, Path::new("p.toml"), &[change.parse().unwrap()])
            .map_err(RunError::from)
            .and_then(|config| config.validate());
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{change}: {message}");
    }

    #[test]
    fn defaults_are_filled_in() {
        let config: PretrainConfig = parse_as(SMALL, Path::new("p.toml"), &[]).unwrap();
        config.validate().unwrap();
        assert_eq!((config.seed, config.training.warm_up_steps), (0, 0));
        assert_eq!(config.training.optimizer().learning_rate, 0.1);
    }

    #[test]
    fn bad_values_are_refused_by_key() {
        check("name=../x", "`name`: expected a folder name");
        check("steps=0", "`steps`: expected at least 1, got 0");
        check(
            "training.batch_size=0",
            "`training.batch_size`: expected at least 1",
        );
        check(
            "training.warm_up_steps=11",
            "`training.warm_up_steps`: expected at most steps = 10, got 11",
        );
        check(
            "training.learning_rate=-1",
            "`training.learning_rate`: expected a finite number above 0",
        );
        check(
            "training.optimizer={kind='adam',beta1=1.0}",
            "`training.optimizer.beta1`: expected a number in [0, 1)",
        );
        check("evaluation.max_tokens=0", "`evaluation.max_tokens`");
        check("training.noise=1", "unknown field `noise`");
        check("privacy={noise_multiplier=1.0}", "unknown field `privacy`");
    }
}
