//! Checkpoints, and the end of a run.

use std::time::Instant;
use undertone_run_directory::files::names::FINISHED_FILES;

use undertone_coordinator::head::RunHead;
use undertone_coordinator::outlet;
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::{EndReason, LedgerEnd, PrivacyReport};

use super::{Run, Summary};
use crate::checkpoint::{self, State};
use crate::error::Result;
use crate::evaluate::EvaluationSet;
use undertone_run_directory::initial_model::SourceName;
use undertone_run_directory::manifest::Manifest;
use undertone_run_directory::metrics::Metrics;
use undertone_run_directory::plan_inputs::config_digest;

impl Run<'_> {
    pub(super) fn checkpoint(&mut self, head: &RunHead) -> Result<()> {
        let started = Instant::now();
        self.metrics.sync()?;
        if let Some(lane) = &self.lane {
            lane.sync()?;
        }
        self.write_privacy(head, None)?;
        let state = State {
            metrics_bytes: self.metrics.length(),
            train_seconds: self.train_seconds,
            model: self.identity.name(self.config.task.model.family()),
            config_sha256: config_digest(self.config)?,
            data_sha256: self.corpus.digest().to_owned(),
            participation_key: Some(self.participation_key.clone()),
            ..State::default()
        };
        self.store.checkpoint(state, head)?;
        self.checkpoint_seconds = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Evaluates the model on the sentences of the last evaluation, and beside them on those of the evaluations on the way.
    pub(super) fn evaluate_whole(&mut self, head: &RunHead) -> Result<Metrics> {
        let evaluation = &self.config.evaluation;
        let (split, limit) = (evaluation.split, evaluation.final_max_tokens);
        let set = EvaluationSet::new(self.corpus, split, limit)?;
        let mut metrics = self.measured(&set, head, true)?;
        if self.periodic.differs_from(&set) {
            metrics.sample = Some(Box::new(self.measured(&self.periodic, head, false)?));
        }
        self.record_evaluation(head.round(), metrics.clone())?;
        Ok(metrics)
    }

    pub(super) fn measured(&self, set: &EvaluationSet, head: &RunHead, head_words: bool) -> Result<Metrics> {
        let (model, eos) = (self.model.as_ref(), self.config.evaluation.eos);
        let threads = self.options.threads;
        set.evaluate(model, head.parameters(), eos, head_words, threads, self.observer)
    }

    /// The evaluation of the initial model that the run recorded before its first round, in this process or an earlier one.
    fn initial_metrics(&self) -> Result<Option<Metrics>> {
        if self.config.initial_model.is_none() {
            return Ok(None);
        }
        Ok(undertone_run_directory::read::read(self.directory.path())?
            .initial()
            .cloned())
    }

    pub(super) fn finish(mut self, head: &RunHead) -> Result<Summary> {
        let metrics = self.evaluate_whole(head)?;
        self.checkpoint(head)?;
        let initial = self.initial_metrics()?;
        // After the checkpoint, so that a run that is killed from here on makes its end again.
        let (end, ledger_head) = self.end(head)?;
        let privacy = self.write_privacy(head, end.as_ref())?;
        let mut trained_on = self.trainings.clone();
        let source = SourceName::of(self.directory.path(), &self.config.data)?;
        let claims = self.claims(head);
        trained_on.push(claims.training(&privacy, source.public, self.config.data.source.is_of_people()));
        let obstacles = outlet::obstacles(&claims, &privacy);
        self.directory.write_model(
            &self.config.task.model,
            head.round(),
            self.corpus.vocab(),
            self.model.as_ref(),
            head.parameters(),
            trained_on,
            obstacles,
        )?;
        Manifest::of(self.directory.path(), &FINISHED_FILES, head.round(), &ledger_head)?
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

    /// The last line of the ledger of a run in which too few users may take part again, and the digest of the last line of any run. A
    /// budget that admits no further round needs no line, because everybody can compute that.
    fn end(&mut self, head: &RunHead) -> Result<(Option<LedgerEnd>, String)> {
        let entries = self.store.lines()?;
        let unexplained = self.claims(head).report(&entries, None)?.stopped.is_some();
        if !self.starved || !unexplained {
            return Ok((None, head.chain().head().to_owned()));
        }
        let mut end = LedgerEnd {
            end: EndReason::Starved,
            rounds: head.round(),
            attempts: Vec::new(),
            issuer: None,
            previous_sha256: String::new(),
        };
        let (line, chain) = head.chain().end(&mut end)?;
        self.store.append(&line)?;
        Ok((Some(end), chain.head().to_owned()))
    }

    fn claims<'h>(&'h self, head: &'h RunHead) -> Claims<'h> {
        Claims {
            task: &self.config.task,
            service: None,
            seeded: self.config.seed.is_some(),
            vocabulary: self.corpus.vocab().provenance(),
            counts: self.identity.counts(),
            plan: head.plan(),
            planned: self.planned.clone(),
            estimate: self.estimated.clone(),
            assumptions: self.config.engine.assumption().into_iter().collect(),
        }
    }

    /// Recomputes the guarantee from the ledger on disk and writes `privacy.json` and `privacy.md`.
    fn write_privacy(&mut self, head: &RunHead, end: Option<&LedgerEnd>) -> Result<PrivacyReport> {
        let entries = self.store.lines()?;
        let report = self.claims(head).report(&entries, end)?;
        self.directory.write_privacy(&self.config.task.name, &report)?;
        Ok(report)
    }
}
