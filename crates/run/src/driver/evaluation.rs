//! The evaluation of a finished run, and of the model that it started from, on equal targets.

use std::path::{Path, PathBuf};

use undertone_coordinator::random::Randomness;
use undertone_data::EosTargets;
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::initial_model::{add_adapters, starting_parameters};
use undertone_run_directory::metrics::Metrics;

use super::Finished;
use crate::error::{Result, RunError};
use crate::evaluate::{EvaluationSet, UserCounts, unigram_standard_error};
use crate::observer::Observer;

/// A finished run that is open, with the targets of a partition.
#[expect(missing_debug_implementations, reason = "a model is too large to print")]
pub struct Evaluation {
    run_dir: PathBuf,
    finished: Finished,
    set: EvaluationSet,
    split: EvaluationSplit,
    eos: EosTargets,
}

impl Evaluation {
    /// Opens a run, with its corpus. Relative paths of its settings start at `base`, as in [`evaluate`](super::evaluate).
    ///
    /// # Errors
    /// The errors of [`evaluate`](super::evaluate).
    pub fn open(
        run_dir: &Path,
        base: Option<&Path>,
        split: EvaluationSplit,
        eos: EosTargets,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let finished = Finished::open(run_dir, base, observer)?;
        Ok(Self {
            run_dir: run_dir.to_owned(),
            set: EvaluationSet::new(&finished.corpus, split, None)?,
            finished,
            split,
            eos,
        })
    }

    /// The digest of the corpus: of its text, its words and its settings.
    #[must_use]
    pub fn corpus_sha256(&self) -> &str {
        self.finished.corpus.digest()
    }

    /// The accuracy of always predicting the commonest word, with its standard error over users.
    #[must_use]
    pub fn unigram(&self) -> Option<(f64, Option<f64>)> {
        let (corpus, split) = (&self.finished.corpus, crate::run_file::split_of(self.split));
        let accuracy = corpus.unigram_accuracy(split, self.eos)?;
        Some((accuracy, unigram_standard_error(corpus, self.split, self.eos)))
    }

    /// Measures the model of the run, and the counts of each user.
    ///
    /// # Errors
    /// From the model; [`RunError::Interrupted`] where the observer ends the evaluation.
    pub fn measure(&self, threads: usize, observer: &dyn Observer) -> Result<(Metrics, UserCounts)> {
        let Finished {
            corpus,
            evaluation,
            parameters,
            ..
        } = &self.finished;
        let (split, eos) = (self.split, self.eos);
        let model = self.finished.model.as_ref();
        let which = self.finished.which(split, None, eos);
        let (mut metrics, users) =
            self.set
                .by_user(model, parameters, (which, eos), true, threads, observer)?;
        if (evaluation.split, evaluation.eos) == (split, eos) {
            let sample = EvaluationSet::new(corpus, split, evaluation.sample_tokens())?;
            if sample.differs_from(&self.set) {
                let measured = sample.evaluate(model, parameters, eos, false, threads, observer)?;
                metrics.sample = Some(Box::new(measured));
            }
        }
        Ok((metrics, users))
    }

    /// Measures the model that the run started from; `None` for a start from random parameters.
    ///
    /// # Errors
    /// [`RunError::CopiedRun`] for a copy without a folder for its paths; a file that is gone or of another model.
    pub fn measure_start(&self, threads: usize, observer: &dyn Observer) -> Result<Option<Metrics>> {
        let Finished {
            config,
            corpus,
            base,
            model,
            ..
        } = &self.finished;
        if config.initial_model.is_none() {
            return Ok(None);
        }
        let path = self.run_dir.clone();
        let base = base.as_ref().ok_or(RunError::CopiedRun { path })?;
        let (spec, initial) = (&config.model, config.initial_model.as_deref());
        // Fresh adapters add nothing to the model, whatever they are drawn from.
        let drawn = Randomness::seeded(0);
        let (model, words) = (model.as_ref(), corpus.vocab());
        let mut start = starting_parameters(spec, initial, base, model, words, &drawn)?;
        if let Some(folder) = &config.initial_adapters {
            add_adapters(spec, folder, base, model, words, &mut start)?;
        }
        let measured = (self.set).evaluate(model, &start, self.eos, false, threads, observer)?;
        Ok(Some(measured))
    }
}
