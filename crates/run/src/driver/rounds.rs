//! The rounds of a run, and the evaluations between them.

use std::time::Instant;

use undertone_coordinator::CoordinatorError;
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::head::{CloseError, Next, Opened, RunHead, Step};
use undertone_coordinator::plan::{LaneSum, RoundPlan};
use undertone_coordinator::source::Diagnostics;

use super::Run;
use super::orders::Order;
use super::workspace::{self, RunDirectory};
use crate::error::{Result, RunError};
use crate::observer::{Watched, proceed};
use undertone_run_directory::entropy::round_entropy;
use undertone_run_directory::files::Lines;
use undertone_run_directory::files::names::METRICS_FILE;
use undertone_run_directory::metrics::{EvaluationRecord, Metrics, MetricsLine, PhaseSeconds, RoundRecord};
use undertone_run_directory::plan_inputs::{evaluates, shows_epsilon, signal_to_noise};

impl Run<'_> {
    pub(super) fn rounds(&mut self, mut head: RunHead) -> Result<RunHead> {
        self.evaluate_again(&head)?;
        let mut kept = head.round();
        while head.round() < self.config.task.rounds {
            if let Err(ended) = proceed(self.observer) {
                // Every round that was released stays, so that none is made again.
                if kept < head.round() {
                    self.checkpoint(&head)?;
                }
                return Err(ended);
            }
            let started = Instant::now();
            let (opened, cohort) = match self.admit(&head) {
                Ok(admitted) => admitted,
                Err(error) if error.refuses_round() => {
                    // Who may take part follows from participation alone. So does the schema that a cohort has widened, and with it the
                    // budget that refuses such a cohort.
                    self.starved = true;
                    self.stopped_early = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            };
            head = self.one_round(head, opened, &cohort, started)?;
            let evaluates = evaluates(self.config, head.round());
            // PRIVACY: a model whose accuracy is shown is a released model; its round can then no longer be made again.
            if evaluates
                || head.round().is_multiple_of(self.config.checkpoint.every)
                || head.round() == self.config.task.rounds
            {
                self.checkpoint(&head)?;
                kept = head.round();
            }
            if evaluates {
                self.evaluate_periodic(&head)?;
            }
        }
        if self.stopped_early.is_some() {
            self.checkpoint(&head)?;
        }
        Order::Over.send(&[], self.ranks)?;
        Ok(head)
    }

    /// Opens the next round and draws its cohort, if participation and budget admit it.
    pub(super) fn admit(&mut self, head: &RunHead) -> Result<(Opened, Cohort)> {
        let cohort = self.cohorts.draw(head.round(), &self.randomness)?;
        let widened = match cohort.widened {
            true => self.cohorts.accounted()?,
            false => None,
        };
        Ok((head.open(widened)?, cohort))
    }

    fn one_round(
        &mut self,
        head: RunHead,
        opened: Opened,
        cohort: &Cohort,
        started: Instant,
    ) -> Result<RunHead> {
        let round = opened.round();
        let mut phases = PhaseSeconds {
            cohort: started.elapsed().as_secs_f64(),
            checkpoint: std::mem::take(&mut self.checkpoint_seconds),
            ..PhaseSeconds::default()
        };
        let pieces = cohort.microbatches.as_ref().map_or(cohort.users.len(), Vec::len);
        self.observer.on_round_start(round, pieces);
        let watch = Watched(self.observer);
        let mut gathered = self.source.gather(&opened, cohort, head.parameters(), &watch)?;
        let diagnostics = std::mem::take(&mut gathered.diagnostics);
        let times = diagnostics.times;
        phases.training = (times.users.saturating_sub(times.clip + times.sum)).as_secs_f64();
        phases.clip = times.clip.as_secs_f64();
        phases.sum = times.sum.as_secs_f64();
        let plan = opened.plan().clone();
        let entropy = round_entropy(self.config.seed)?;
        gathered.lane = self.lane_of(&opened, cohort)?;
        let audited = self.audited(&head, &opened, cohort, &mut gathered, &entropy)?;
        let mut closing = Instant::now();
        let next = head.close(opened, gathered, &entropy, &mut |step| {
            let seconds = closing.elapsed().as_secs_f64();
            closing = Instant::now();
            match step {
                Step::Noise => phases.noise = seconds,
                Step::Server => phases.server = seconds,
                Step::Entry => phases.ledger = seconds,
            }
        });
        let next = next.map_err(CloseError::why)?;
        self.store.append(&next.line)?;
        let kept = match &mut self.live {
            Some(live) => live.keep(audited, &next),
            None => Ok(()),
        };
        let Next {
            head,
            entry,
            lane,
            quarantined,
            release_norm,
            ..
        } = next;
        if let (Some(file), Some(released)) = (&mut self.lane, lane) {
            file.append(&released)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.train_seconds += seconds;
        let record = RoundRecord {
            cohort_size: cohort.users.len(),
            survivors: entry.survivors,
            abandoned: entry.abandoned,
            ledger_sha256: Some(head.chain().head().to_owned()),
            phases: Some(phases),
            ..self.record(&head, &plan, &diagnostics, release_norm, seconds)?
        };
        self.tokens += diagnostics.tokens;
        self.metrics.append(&MetricsLine::Round(record.clone()))?;
        self.observer.on_round(&record);
        if let Err(RunError::Contradicted { .. }) = kept {
            // PRIVACY: the noise of the round was drawn, so the round is spent and is never made again.
            self.checkpoint(&head)?;
        }
        kept?;
        if quarantined {
            // PRIVACY: the noise of the round was drawn, so the round is spent and is never made again.
            self.checkpoint(&head)?;
            return Err(CoordinatorError::Diverged { round }.into());
        }
        Ok(head)
    }

    /// The contributions to the lane of a round, where the run has one.
    pub(super) fn lane_of(&self, opened: &Opened, cohort: &Cohort) -> Result<Option<LaneSum>> {
        let lane = self.lane.as_ref();
        lane.map(|lane| lane.contributions(opened, &cohort.pseudonyms))
            .transpose()
    }

    fn record(
        &self,
        head: &RunHead,
        plan: &RoundPlan,
        work: &Diagnostics,
        release_norm: f64,
        seconds: f64,
    ) -> Result<RoundRecord> {
        let parameters = head.parameters().len();
        Ok(RoundRecord {
            round: head.round() - 1,
            cohort_weight: work.weight,
            examples: self.config.task.user_update.group_size.map(|_| work.examples),
            tokens: Some(work.tokens),
            train_loss: Some(work.loss_sum / work.tokens.max(1) as f64),
            clip_norm: plan.clipping.bound(),
            discarded: Some(work.discarded),
            clipped_fraction: Some(work.clipped as f64 / work.parts.max(1) as f64),
            update_norms: Some(workspace::histogram(&work.norms, 24)),
            release_norm,
            noise_std: plan.noise_std,
            signal_to_noise: signal_to_noise(head.plan(), plan.noise_std, parameters, release_norm),
            epsilon: match shows_epsilon(self.config, head.plan(), head.round()) {
                true => head.epsilon()?,
                false => None,
            },
            estimated_clip_norm: head.clip().map(|clip| clip.estimate()),
            seconds,
            ..RoundRecord::default()
        })
    }

    /// Repeats the evaluation of a resumed run whose checkpoint is older than the evaluation that followed it.
    fn evaluate_again(&mut self, head: &RunHead) -> Result<()> {
        if !evaluates(self.config, head.round()) {
            return Ok(());
        }
        match ends_with_evaluation(self.directory, head.round())? {
            true => Ok(()),
            false => self.evaluate_periodic(head),
        }
    }

    fn evaluate_periodic(&mut self, head: &RunHead) -> Result<()> {
        let metrics = self.measured(&self.periodic, head, false)?;
        self.record_evaluation(head.round(), metrics)
    }

    pub(super) fn record_evaluation(&mut self, round: u64, metrics: Metrics) -> Result<()> {
        let record = EvaluationRecord {
            round,
            split: self.config.evaluation.split.name().to_owned(),
            train_seconds: self.train_seconds,
            metrics,
        };
        self.metrics.append(&MetricsLine::Evaluation(record.clone()))?;
        self.observer.on_evaluation(&record);
        Ok(())
    }
}

/// `true` if the metrics of a run end with the evaluation after this round.
pub(crate) fn ends_with_evaluation(directory: &RunDirectory, round: u64) -> Result<bool> {
    let mut lines = Lines::open(&directory.file(METRICS_FILE))?;
    let mut evaluated = false;
    while let Some(line) = lines.next()? {
        let record = serde_json::from_slice(line.bytes);
        evaluated = matches!(record, Ok(MetricsLine::Evaluation(last)) if last.round == round);
    }
    Ok(evaluated)
}

impl RunError {
    /// `true` if the error refuses a round, so that the run ends with the rounds before it.
    pub(super) fn refuses_round(&self) -> bool {
        matches!(
            self,
            Self::Coordinator(
                CoordinatorError::BudgetExceeded { .. }
                    | CoordinatorError::Participation(_)
                    | CoordinatorError::TooFewEligible { .. }
            )
        )
    }
}
