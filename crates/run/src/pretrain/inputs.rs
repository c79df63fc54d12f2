//! The inputs of a pre-training, which do not change: files, corpus, model, and values that follow from them.

use undertone_data::{Corpus, EosTargets, Partition};
use undertone_models::SequenceModel;

use super::{NOT_PRIVATE, PretrainFile};
use crate::driver::workspace::{self, RunDirectory};
use crate::driver::{Observer, RunOptions, data_split};
use crate::error::Result;
use crate::evaluate::EvaluationSet;
use crate::metrics::StartRecord;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::record::PrivacyReport;

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
    /// The held-out text of the configured split; `which` distinguishes the last evaluation from those before it.
    pub(super) fn evaluation_set(
        &self,
        max_tokens: Option<u64>,
        randomness: &Randomness,
        which: u64,
    ) -> Result<EvaluationSet> {
        let split = self.file.config.evaluation.split;
        let held_out = self.corpus.partition(data_split(split));
        let mut generator = randomness.generator(Purpose::Evaluation, which, 0);
        EvaluationSet::new(&held_out, split.name(), max_tokens, &mut generator)
    }

    pub(super) fn start_record(&self) -> StartRecord {
        let config = &self.file.config;
        let (split, eos) = (config.evaluation.split, config.evaluation.eos);
        StartRecord {
            run: config.name.clone(),
            model: config.model.family().to_owned(),
            parameters: self.identity.counts().trained,
            frozen_parameters: self.identity.counts().frozen,
            train_users: self.users.num_users(),
            train_tokens: self.users.total_tokens(),
            rounds: config.steps,
            user_sizes: workspace::user_sizes(self.users),
            best_accuracy: self.corpus.best_accuracy().map(|best| match eos {
                EosTargets::Included => best.with_eos,
                EosTargets::Excluded => best.without_eos,
            }),
            unigram_accuracy: self.corpus.unigram_accuracy(data_split(split), eos),
            warning: None,
        }
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
            private: false,
            statements: Vec::new(),
            warnings: vec![NOT_PRIVATE.to_owned()],
            planned: None,
            worst_case: None,
            with_vocabulary: None,
            with_initial_model: None,
            observed: None,
            estimate: None,
        };
        self.directory.write_privacy(&self.file.config.name, &report)?;
        Ok(report)
    }
}
