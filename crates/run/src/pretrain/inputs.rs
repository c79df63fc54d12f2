//! The inputs of a pre-training, which do not change: files, corpus, model, and values that follow from them.

use undertone_data::{Corpus, Partition, Split};
use undertone_models::SequenceModel;

use super::{NOT_PRIVATE, PretrainFile};
use crate::driver::RunOptions;
use crate::driver::workspace::{self, RunDirectory};
use crate::error::Result;
use crate::evaluate::EvaluationSet;
use crate::observer::Observer;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::record::PrivacyReport;
use undertone_run_directory::metrics::{Metrics, StartRecord};

/// The inputs of a pre-training, which do not change.
#[derive(Clone, Copy)]
pub(super) struct TrainingInputs<'a> {
    pub(super) file: &'a PretrainFile,
    pub(super) directory: &'a RunDirectory,
    pub(super) corpus: &'a Corpus,
    pub(super) model: &'a dyn SequenceModel,
    pub(super) identity: &'a ModelIdentity,
    pub(super) users: &'a Partition<'a>,
    pub(super) options: &'a RunOptions,
    pub(super) observer: &'a dyn Observer,
}

impl TrainingInputs<'_> {
    /// The held-out text of the configured split, within a limit.
    pub(super) fn evaluation_set(&self, max_tokens: Option<u64>) -> Result<EvaluationSet> {
        EvaluationSet::new(self.corpus, self.file.config.evaluation.split, max_tokens)
    }

    /// Measures parameters on an evaluation set.
    pub(super) fn measured(
        &self,
        set: &EvaluationSet,
        parameters: &[f32],
        head_words: bool,
    ) -> Result<Metrics> {
        let (eos, threads) = (self.file.config.evaluation.eos, self.options.threads);
        set.evaluate(self.model, parameters, eos, head_words, threads, self.observer)
    }

    pub(super) fn start_record(&self) -> StartRecord {
        let config = &self.file.config;
        let (model, rounds) = (&config.model, config.steps);
        workspace::start_record(
            &config.name,
            model,
            rounds,
            &config.evaluation,
            (self.corpus, &self.corpus.partition(Split::Train)),
            self.identity,
        )
    }

    /// The name of the model in checkpoints. A private run never has this name, so neither resumes from the other's.
    pub(super) fn model_name(&self) -> String {
        format!(
            "pre-training of {}",
            self.identity.name(self.file.config.model.family())
        )
    }

    /// Writes a `privacy.json` and a `privacy.md` that promise nothing.
    pub(super) fn write_privacy(&self) -> Result<PrivacyReport> {
        let report = PrivacyReport {
            warnings: vec![NOT_PRIVATE.to_owned()],
            ..PrivacyReport::default()
        };
        self.directory.write_privacy(&self.file.config.name, &report)?;
        Ok(report)
    }
}
