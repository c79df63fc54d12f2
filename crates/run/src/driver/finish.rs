//! Checkpoints, and the end of a run.

use std::time::Instant;

use undertone_coordinator::head::RunHead;

use super::workspace;
use super::{FINISHED_FILES, Run, Summary};
use crate::checkpoint::{self, State};
use crate::error::Result;
use crate::evaluate::{EvaluationSet, Metrics};
use crate::initial_model::source_sha256;
use crate::manifest::Manifest;
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::PrivacyReport;

impl Run<'_> {
    pub(super) fn checkpoint(&mut self, head: &RunHead) -> Result<()> {
        let started = Instant::now();
        self.metrics.sync()?;
        if let Some(lane) = &self.lane {
            lane.sync()?;
        }
        self.write_privacy(head)?;
        let state = State {
            metrics_bytes: self.metrics.length(),
            train_seconds: self.train_seconds,
            model: self.identity.name(self.config.task.model.family()),
            config_sha256: workspace::config_digest(self.config)?,
            data_sha256: self.corpus.digest().to_owned(),
            participation_key: Some(self.participation_key.clone()),
            ..State::default()
        };
        self.store.checkpoint(state, head)?;
        self.checkpoint_seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Evaluates the model on the sentences of the last evaluation.
    pub(super) fn evaluate_whole(&mut self, head: &RunHead) -> Result<Metrics> {
        let evaluation = &self.config.evaluation;
        let (split, limit) = (evaluation.split, evaluation.final_max_tokens);
        let set = EvaluationSet::new(self.corpus, split, limit, &self.randomness, 1)?;
        let (model, threads) = (self.model.as_ref(), self.options.threads);
        let metrics = set.evaluate(
            model,
            head.parameters(),
            evaluation.eos,
            true,
            threads,
            self.observer,
        )?;
        self.record_evaluation(head.round(), metrics.clone())?;
        Ok(metrics)
    }

    /// The evaluation of the initial model that the run recorded before its first round, in this process or an earlier one.
    fn initial_metrics(&self) -> Result<Option<Metrics>> {
        if self.config.initial_model.is_none() {
            return Ok(None);
        }
        Ok(crate::read::read(self.directory.path())?.initial().cloned())
    }

    pub(super) fn finish(mut self, head: &RunHead) -> Result<Summary> {
        let metrics = self.evaluate_whole(head)?;
        self.checkpoint(head)?;
        let initial = self.initial_metrics()?;
        let privacy = self.write_privacy(head)?;
        let mut trained_on = self.trainings.clone();
        trained_on.push(
            self.claims(head)
                .training(&privacy, source_sha256(&self.config.data)?),
        );
        self.directory.write_model(
            &self.config.task.model,
            head.round(),
            self.corpus.vocab(),
            self.model.as_ref(),
            head.parameters(),
            trained_on,
        )?;
        Manifest::of(
            self.directory.path(),
            &FINISHED_FILES,
            head.round(),
            head.chain().head(),
        )?
        .write(self.directory.path())?;
        // PRIVACY: with its manifest the run is over. Nothing that would tell who was sampled, or take noise off, stays.
        checkpoint::remove(self.directory.path())?;
        Ok(Summary {
            run_dir: self.directory.path().to_owned(),
            rounds: head.round(),
            stopped_early: self.stopped_early,
            train_seconds: self.train_seconds,
            tokens: self.tokens,
            initial,
            metrics,
            unigram_accuracy: self.start.unigram_accuracy,
            best_accuracy: self.start.best_accuracy,
            warning: self.start.warning,
            privacy,
        })
    }

    fn claims<'h>(&'h self, head: &'h RunHead) -> Claims<'h> {
        Claims {
            task: &self.config.task,
            service: None,
            seeded: self.config.seed.is_some(),
            vocabulary: self.config.data.vocabulary_provenance(),
            counts: self.identity.counts(),
            plan: head.plan(),
            planned: self.planned.clone(),
            estimate: self.estimated.clone(),
            assumption: self.config.engine.assumption(),
        }
    }

    /// Recomputes the guarantee from the ledger on disk and writes `privacy.json` and `privacy.md`.
    fn write_privacy(&mut self, head: &RunHead) -> Result<PrivacyReport> {
        let entries = self.store.lines()?;
        let report = self.claims(head).report(&entries, None)?;
        self.directory.write_privacy(&self.config.task.name, &report)?;
        Ok(report)
    }
}
