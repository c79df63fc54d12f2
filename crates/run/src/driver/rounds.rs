//! The rounds of a run, and the evaluations between them.

use std::time::Instant;

use super::orders::{Order, RoundOrder};
use super::work::Work;
use super::{Run, workspace};
use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::evaluate::Metrics;
use crate::files::Lines;
use crate::files::names::METRICS_FILE;
use crate::metrics::{EvaluationRecord, MetricsLine, PhaseSeconds, RoundRecord};
use crate::round::{self, Release, RoundUsers};
use undertone_aggregation::NonFinite;
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::error::CoordinatorError;
use undertone_coordinator::plan::{Cost, PrivacyPlan, RoundPlan};
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::task::ClipConfig;
use undertone_local::{LocalTask, UserSeeds};

impl Run<'_> {
    pub(super) fn rounds(&mut self) -> Result<()> {
        self.evaluate_again()?;
        while self.round < self.config.task.rounds {
            let started = Instant::now();
            let plan = self.round_plan();
            let cohort = match self.admit(&plan) {
                Ok(cohort) => cohort,
                Err(error) if error.refuses_round() => {
                    self.stopped_early = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            };
            self.one_round(&plan, &cohort, started)?;
            let evaluates = self.evaluates();
            // PRIVACY: a model whose accuracy is shown is a released model; its round can then no longer be made again.
            if evaluates
                || self.round.is_multiple_of(self.config.checkpoint.every)
                || self.round == self.config.task.rounds
            {
                self.checkpoint()?;
            }
            if evaluates {
                self.evaluate_periodic()?;
            }
        }
        if self.stopped_early.is_some() {
            self.checkpoint()?;
        }
        Order::Over.send(&[], self.ranks)
    }

    /// Where the trees restart, the clip norm that was estimated comes into force.
    fn begin_segment(&mut self) -> Result<()> {
        let Some(clip) = &self.adaptive_clip else {
            return Ok(());
        };
        let mut next = *clip;
        next.restart();
        if self
            .noise
            .begin_segment(self.round, next.active(), &self.randomness)?
        {
            self.adaptive_clip = Some(next);
        }
        Ok(())
    }

    fn round_plan(&self) -> RoundPlan {
        match &self.adaptive_clip {
            Some(clip) => self.plan.round_clipped(self.round, clip.active()),
            None => self.plan.round(self.round),
        }
    }

    /// The cohort of the next round, if budget and participation admit the round.
    fn admit(&mut self, plan: &RoundPlan) -> Result<Cohort> {
        if self.plan.bounded().is_none() {
            self.spending
                .check_budget(&self.plan, self.round, Cost::from(plan))?;
        }
        let cohort = self.cohorts.draw(self.round, &self.randomness)?;
        if cohort.widened
            && let Some(participation) = self.cohorts.accounted()?
        {
            // PRIVACY: a violation that is accounted costs all rounds more, those that are out already included.
            let spending = self.spending.clone().under(participation);
            spending.check_budget(&self.plan, self.round, Cost::from(plan))?;
            self.spending = spending;
        }
        Ok(cohort)
    }

    fn one_round(&mut self, plan: &RoundPlan, cohort: &Cohort, started: Instant) -> Result<()> {
        let round = self.round;
        let mut phases = PhaseSeconds {
            cohort: started.elapsed().as_secs_f64(),
            checkpoint: std::mem::take(&mut self.checkpoint_seconds),
            ..PhaseSeconds::default()
        };
        let pieces = cohort.microbatches.as_ref().map_or(cohort.users.len(), Vec::len);
        self.observer.on_round_start(round, pieces);
        let task = LocalTask {
            round,
            theta: &self.parameters,
            layout: self.model.layout(),
            clipping: &plan.clipping,
            estimate: self.adaptive_clip.map(|clip| clip.estimate()),
            special: self.users.special(),
            settings: &self.config.task.user_update,
            non_finite: if self.plan.is_private() {
                NonFinite::Zero
            } else {
                NonFinite::Refuse
            },
        };
        let seeds: Vec<UserSeeds> = cohort
            .users
            .iter()
            .map(|&user| self.randomness.user_seeds(round, user as u64))
            .collect();
        let observer = self.observer;
        let noise_key = self.noise.key_id()?;
        let mut release = Release {
            plan,
            estimator: self.plan.estimator(),
            noise: &mut self.noise,
            secure: self.secure.as_ref(),
            randomness: &self.randomness,
            ranks: self.ranks,
        };
        Order::Round(RoundOrder::new(&task, cohort, &seeds)).send(&self.parameters, self.ranks)?;
        let (users, workers) = (&self.users, &mut self.workers[..]);
        let on_piece = || observer.on_user();
        let (released, work): (_, Work) = match &cohort.microbatches {
            Some(microbatches) => {
                let (released, outcomes) =
                    round::release_examples(microbatches, users, &task, &mut release, workers, &on_piece)?;
                (released, outcomes.into_iter().collect())
            }
            None => {
                let round_users = RoundUsers {
                    cohort: &cohort.users,
                    seeds: &seeds,
                    partition: users,
                };
                let (released, outcomes) =
                    round::release(&round_users, &task, &mut release, workers, &on_piece)?;
                (released, outcomes.into_iter().collect())
            }
        };
        let times = released.times;
        phases.training = (times.users.saturating_sub(times.clip + times.sum)).as_secs_f64();
        phases.clip = times.clip.as_secs_f64();
        phases.sum = times.sum.as_secs_f64();
        phases.noise = times.noise.as_secs_f64();
        let serving = Instant::now();
        let mut release_norm = 0.0;
        // Of an abandoned round nothing is released: the parameters stay as they are.
        let abandoned = released.average.is_none();
        if let Some(average) = released.average {
            release_norm = norm_of(average.values());
            let average = match normalising_norm(self.config, plan) {
                Some(clip_norm) => average.scaled(1.0 / clip_norm),
                None => average,
            };
            self.optimizer.apply(round, &average, &mut self.parameters)?;
            self.model.constrain(&mut self.parameters);
        }
        if let (Some(clip), Some(bits)) = (&mut self.adaptive_clip, released.centred_bits) {
            clip.observe(bits);
        }
        phases.server = serving.elapsed().as_secs_f64();
        let entering = Instant::now();
        self.spending.compose(&self.plan, Cost::from(plan), 1)?;
        self.files.ledger.append(LedgerEntry {
            round,
            sampling: self.config.task.cohort.sampling.name().to_owned(),
            sampling_probability: self.plan.sampling_probability(),
            population: self.users.num_users() as u64,
            total_weight: self.plan.population().total_weight,
            cohort_size: cohort.users.len() as u64,
            group_size: self.config.task.user_update.group_size,
            examples: self.config.task.user_update.group_size.map(|_| work.examples),
            survivors: released.survivors,
            abandoned,
            participants: cohort.pseudonyms.clone(),
            clip_norm: plan.clipping.bound(),
            sensitivity: plan.sensitivity,
            noise_std: plan.noise_std,
            noise_multiplier: plan.noise_multiplier,
            noise_key,
            parameters_sha256: self.identity.digest(&self.parameters),
            previous_sha256: String::new(),
        })?;
        phases.ledger = entering.elapsed().as_secs_f64();
        self.round += 1;
        self.begin_segment()?;
        let seconds = started.elapsed().as_secs_f64();
        self.train_seconds += seconds;
        let mut record = self.record(round, plan, &work, release_norm, seconds)?;
        record.phases = Some(phases);
        record.cohort_size = cohort.users.len();
        record.survivors = released.survivors;
        record.abandoned = abandoned;
        record.ledger_sha256 = Some(self.files.ledger.head().to_owned());
        self.tokens += record.tokens;
        self.files.metrics.append(&MetricsLine::Round(record.clone()))?;
        self.observer.on_round(&record);
        Ok(())
    }

    fn record(
        &self,
        round: u64,
        plan: &RoundPlan,
        work: &Work,
        release_norm: f64,
        seconds: f64,
    ) -> Result<RoundRecord> {
        Ok(RoundRecord {
            round,
            cohort_size: work.parts,
            survivors: None,
            abandoned: false,
            cohort_weight: work.weight,
            examples: self.config.task.user_update.group_size.map(|_| work.examples),
            tokens: work.tokens,
            train_loss: work.loss_sum / work.tokens.max(1) as f64,
            clip_norm: plan.clipping.bound(),
            discarded: work.discarded,
            clipped_fraction: work.clipped as f64 / work.parts.max(1) as f64,
            update_norms: workspace::histogram(&work.norms, 24),
            release_norm,
            noise_std: plan.noise_std,
            signal_to_noise: signal_to_noise(&self.plan, plan.noise_std, self.parameters.len(), release_norm),
            epsilon: self.running_epsilon()?,
            estimated_clip_norm: self.adaptive_clip.map(|clip| clip.estimate()),
            ledger_sha256: None,
            seconds,
            phases: None,
        })
    }

    fn running_epsilon(&self) -> Result<Option<f64>> {
        match shows_epsilon(self.config, &self.plan, self.round) {
            true => Ok(self.spending.epsilon(&self.plan)?),
            false => Ok(None),
        }
    }

    /// Whether the model is evaluated after so many rounds, before the last.
    fn evaluates(&self) -> bool {
        evaluates(self.config, self.round)
    }

    /// A resumed run whose checkpoint is older than the evaluation that followed it evaluates again.
    fn evaluate_again(&mut self) -> Result<()> {
        if !self.evaluates() {
            return Ok(());
        }
        let mut lines = Lines::open(&self.directory.file(METRICS_FILE))?;
        let mut evaluated = false;
        while let Some(line) = lines.next()? {
            let record = serde_json::from_slice(line.bytes);
            evaluated = matches!(record, Ok(MetricsLine::Evaluation(last)) if last.round == self.round);
        }
        match evaluated {
            true => Ok(()),
            false => self.evaluate_periodic(),
        }
    }

    fn evaluate_periodic(&mut self) -> Result<()> {
        let eos = self.config.evaluation.eos;
        let metrics =
            self.periodic
                .evaluate(self.model, &self.parameters, eos, false, self.options.threads)?;
        self.record_evaluation(metrics)
    }

    pub(super) fn record_evaluation(&mut self, metrics: Metrics) -> Result<()> {
        let record = EvaluationRecord {
            round: self.round,
            split: self.config.evaluation.split.name().to_owned(),
            train_seconds: self.train_seconds,
            metrics,
        };
        self.files
            .metrics
            .append(&MetricsLine::Evaluation(record.clone()))?;
        self.observer.on_evaluation(&record);
        Ok(())
    }
}

impl RunError {
    /// Whether a round was refused, so that the run ends with what it has.
    fn refuses_round(&self) -> bool {
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

/// Whether a run evaluates its model after so many rounds, before the last.
pub(crate) fn evaluates(config: &RunConfig, rounds: u64) -> bool {
    let every = config.evaluation.every;
    rounds > 0 && every > 0 && rounds.is_multiple_of(every) && rounds < config.task.rounds
}

/// A run states its epsilon after so many of its rounds, evenly spaced, beside those that it evaluates.
const EPSILON_POINTS: u64 = 100;

/// Whether the metrics of a round state the guarantee of so many rounds. Under a participation schema it is a search over the
/// rounds' matrix: made when the model is evaluated. Otherwise it is a composition of loss distributions.
pub(crate) fn shows_epsilon(config: &RunConfig, plan: &PrivacyPlan, rounds: u64) -> bool {
    let point =
        plan.participation().is_none() && rounds.is_multiple_of(config.task.rounds.div_ceil(EPSILON_POINTS));
    point || rounds == config.task.rounds || evaluates(config, rounds)
}

/// The signal's energy is what the release has beyond the noise's; an estimate, and post-processing. Of correlated noise
/// a round's share is not known here.
pub(crate) fn signal_to_noise(
    plan: &PrivacyPlan,
    noise_std: f64,
    parameters: usize,
    release_norm: f64,
) -> Option<f64> {
    let noise_norm = noise_std * (parameters as f64).sqrt();
    let independent = plan.bounded().is_none() && noise_norm > 0.0;
    independent.then(|| (release_norm.powi(2) - noise_norm.powi(2)).max(0.0).sqrt() / noise_norm)
}

/// What the released average is divided by before the optimizer sees it: post-processing of a release.
fn normalising_norm(config: &RunConfig, plan: &RoundPlan) -> Option<f64> {
    match config.task.clip {
        ClipConfig::Flat { normalised: true, .. } => plan.clipping.bound(),
        _ => None,
    }
}

fn norm_of(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&value| f64::from(value).powi(2));
    squares.sum::<f64>().sqrt()
}
