//! The checks of a run file that its types do not make: its tables against the corpus, and the driver's own ranges.

use undertone_data::CorpusSpec;
use undertone_models::ModelSpec;

use super::{EvaluationConfig, RunConfig};
use crate::error::{Result, RunError};
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::{at_least_one, needs_initial_model, trained_here};

impl RunConfig {
    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// An error that names the key, what was expected and what was found.
    pub fn validate(&self) -> Result<()> {
        if self.task.cohort.sampling == Sampling::CheckIn {
            return Err(RunError::value(
                "cohort.sampling",
                "a scheme that `undertone train` can draw (`device_timers` simulates devices); a task with `check_in` is for \
                 `undertone serve`",
                "check_in",
            ));
        }
        trained_here(&self.task.model)?;
        self.task.validate()?;
        fits_context(&self.task.model, &self.data)?;
        needs_initial_model(&self.task.model, self.initial_model.is_some())?;
        at_least_one("checkpoint.every", self.checkpoint.every as usize)?;
        token_limits(&self.evaluation)
    }
}

/// Checks that no sentence is longer than the context of a transformer.
pub(crate) fn fits_context(model: &ModelSpec, data: &CorpusSpec) -> Result<()> {
    let ModelSpec::Transformer { context, .. } = *model else {
        return Ok(());
    };
    // EOS, or BOS, is one more.
    if data.max_sentence_tokens < context {
        return Ok(());
    }
    Err(RunError::value(
        "data.max_sentence_tokens",
        format!("less than model.context = {context}"),
        data.max_sentence_tokens,
    ))
}

/// Refuses an evaluation of no tokens.
pub(crate) fn token_limits(evaluation: &EvaluationConfig) -> Result<()> {
    for (key, tokens) in [
        ("evaluation.max_tokens", evaluation.max_tokens),
        ("evaluation.final_max_tokens", evaluation.final_max_tokens),
    ] {
        if tokens == Some(0) {
            return Err(RunError::value(key, "at least 1", 0));
        }
    }
    Ok(())
}
