//! Personalisation: the effect of a user's own text on a trained model, measured on held-out users.
//!
//! Every user trains the run's final model on the first half of its examples by plain SGD and evaluates it, before and
//! after, on the other half. A personalised model is its user's: it stays there, and nothing of it flows back into the run.
//!
//! PRIVACY: the run's guarantee holds for the model that it released. A personalised model may repeat its user's text, and
//! the figures made here are exact statistics of the held-out users: neither is covered by any guarantee.
//!
//! Source: \[UserDP\] Appendix G.2 and Figure 18: four local epochs of SGD on half of a test user's examples.

use crate::run_file::split_of;
use std::path::Path;

use serde::Serialize;
use undertone_data::{EosTargets, SpecialIds, User};
use undertone_models::{ModelError, SequenceModel, SequenceWorker, StateMode};

use crate::driver::Finished;
use crate::error::{Result, RunError};
use crate::evaluate::{BATCH, EvaluationSet};
use crate::observer::Observer;
use crate::work_items::work_items;
use undertone_coordinator::CoordinatorError;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_local::batch;
use undertone_mechanisms::draws;
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::metrics::Metrics;

/// The note about personalised models in results.
pub(crate) const STAYS_WITH_ITS_USER: &str = "Personalised models stay with their users and are outside the run's guarantee; so \
                                       are these figures, exact statistics of held-out users.";

/// Options of personalisation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PersonalizeOptions {
    /// The partition whose users personalise.
    #[serde(skip)]
    pub split: EvaluationSplit,
    /// Max number of its users, the first ones in the order of evaluations; all by default.
    #[serde(rename = "most_users")]
    pub max_users: Option<usize>,
    /// Local epochs.
    pub epochs: usize,
    /// Examples in a local batch.
    pub batch_size: usize,
    /// Learning rate of local SGD.
    pub learning_rate: f64,
    /// `Included` if the end of a sentence counts as a target.
    #[serde(skip)]
    pub eos: EosTargets,
    /// Number of cores to use; the result does not depend on it.
    #[serde(skip)]
    pub threads: usize,
}

/// The effect of personalisation, over users of equal weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Personalization {
    /// The options of personalisation.
    pub options: PersonalizeOptions,
    /// The partition.
    pub split: &'static str,
    /// Number of users that personalised.
    pub users: usize,
    /// Number of users left out: with one example, or without a target in the half that is evaluated.
    pub too_small: usize,
    /// Number of users whose training left the range of numbers. They keep the released model: no change.
    pub diverged: usize,
    /// Number of evaluated targets.
    pub targets: u64,
    /// Mean token loss in nats.
    pub loss: Change,
    /// Top-1 accuracy.
    pub top1: Change,
    /// Every user's change of the loss, ascending.
    pub loss_deltas: Vec<f64>,
    /// The note that no guarantee covers the result.
    pub note: &'static str,
}

/// A measure before and after personalisation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Mean over users before.
    pub before: f64,
    /// Mean over users after.
    pub after: f64,
    /// The changes of the users.
    pub delta: Spread,
    /// Fraction of users for whom the measure is better after than before.
    pub improved: f64,
}

/// Mean and quantiles of values; quantiles between two values are interpolated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// The 10 % quantile.
    pub p10: f64,
    /// The 25 % quantile.
    pub p25: f64,
    /// The median.
    pub median: f64,
    /// The 75 % quantile.
    pub p75: f64,
    /// The 90 % quantile.
    pub p90: f64,
}

/// Personalises the final model of a run for held-out users, one by one.
///
/// Relative paths of the run's data settings start at `base`, by default at the folder where they started when the run was
/// made.
///
/// # Guarantee
/// PRIVACY: none, see the module. The same options give the same figures at any number of threads.
///
/// # Errors
/// [`RunError`], among them a model file of a different model, and a partition in which no user has two examples.
pub fn personalize(
    run_dir: &Path,
    base: Option<&Path>,
    options: &PersonalizeOptions,
    observer: &dyn Observer,
) -> Result<Personalization> {
    for (key, count) in [
        ("epochs", options.epochs),
        ("batch-size", options.batch_size),
        ("users", options.max_users.unwrap_or(1)),
    ] {
        if count == 0 {
            return Err(RunError::value(&format!("--{key}"), "at least 1", 0));
        }
    }
    if !(options.learning_rate > 0.0 && options.learning_rate.is_finite()) {
        let expected = "a finite number above 0";
        return Err(RunError::value(
            "--learning-rate",
            expected,
            options.learning_rate,
        ));
    }
    let finished = Finished::open(run_dir, base, observer)?;
    let partition = finished.corpus.partition(split_of(options.split));
    let randomness = Randomness::seeded(0);
    let mut chosen: Vec<usize> = (0..partition.num_users())
        .filter(|&user| partition.user(user).num_examples() > 1)
        .collect();
    let mut too_small = partition.num_users() - chosen.len();
    chosen.truncate(options.max_users.unwrap_or(usize::MAX));
    let examples = || chosen.iter().flat_map(|&user| partition.user(user).examples());
    let longest = examples().map(<[u32]>::len).max().unwrap_or(0);
    observer.on_round_start(0, chosen.len());
    let mut workers: Vec<Local<'_>> = (0..options.threads.max(1))
        .map(|_| Local::new(&finished, options, longest, partition.special()))
        .collect();
    let outcomes = work_items(&mut workers, chosen.len(), |local, place| {
        let user = chosen[place];
        let outcome = local.personalize(&partition.user(user), user, &randomness)?;
        observer.on_user();
        Ok(outcome)
    })?;
    let measured: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.before.0.targets > 0)
        .collect();
    too_small += outcomes.len() - measured.len();
    if measured.is_empty() {
        return Err(RunError::EmptyPartition {
            split: options.split.name(),
            hint: "personalisation needs users with at least two examples there",
        });
    }
    let loss = |(_, loss): &(Metrics, f64)| *loss;
    let mut loss_deltas: Vec<f64> = measured
        .iter()
        .map(|outcome| loss(&outcome.after) - loss(&outcome.before))
        .collect();
    loss_deltas.sort_by(f64::total_cmp);
    Ok(Personalization {
        options: *options,
        split: options.split.name(),
        users: measured.len(),
        too_small,
        diverged: measured.iter().filter(|outcome| outcome.diverged).count(),
        targets: measured.iter().map(|outcome| outcome.before.0.targets).sum(),
        loss: Change::new(&measured, loss, |delta| delta < 0.0),
        top1: Change::new(&measured, |(metrics, _)| metrics.top1, |delta| delta > 0.0),
        loss_deltas,
        note: STAYS_WITH_ITS_USER,
    })
}

/// One user, before and after.
#[derive(Debug, Clone)]
struct Outcome {
    /// The measures, and the mean loss.
    before: (Metrics, f64),
    after: (Metrics, f64),
    diverged: bool,
}

/// The model and parameters of one thread.
struct Local<'a> {
    worker: Box<dyn SequenceWorker>,
    parameters: Vec<f32>,
    start: &'a [f32],
    model: &'a dyn SequenceModel,
    options: &'a PersonalizeOptions,
    special: SpecialIds,
}

impl<'a> Local<'a> {
    fn new(
        finished: &'a Finished,
        options: &'a PersonalizeOptions,
        longest: usize,
        special: SpecialIds,
    ) -> Self {
        let model = finished.model.as_ref();
        let sequences = BATCH.max(options.batch_size);
        Self {
            worker: model.worker(sequences, sequences * longest),
            parameters: finished.parameters.clone(),
            start: &finished.parameters,
            model,
            options,
            special,
        }
    }

    fn personalize(&mut self, user: &User<'_>, index: usize, randomness: &Randomness) -> Result<Outcome> {
        let mut own: Vec<&[u32]> = user.examples().collect();
        // In the order in which they were written: the past is trained on, the rest evaluated.
        let held_out = EvaluationSet::of_user(own.split_off(own.len() / 2).into_iter(), self.special);
        let eos = self.options.eos;
        let before = held_out.measure(self.worker.as_mut(), self.start, eos)?;
        let trained = self.train(&mut own, index, randomness);
        let diverged = match trained {
            Err(RunError::Coordinator(CoordinatorError::Model(ModelError::NonFiniteLoss { .. }))) => true,
            other => other.map(|()| !self.parameters.iter().all(|value| value.is_finite()))?,
        };
        let after = match diverged {
            true => before.clone(),
            false => held_out.measure(self.worker.as_mut(), &self.parameters, eos)?,
        };
        Ok(Outcome {
            before,
            after,
            diverged,
        })
    }

    fn train(&mut self, own: &mut [&[u32]], index: usize, randomness: &Randomness) -> Result<()> {
        self.parameters.copy_from_slice(self.start);
        let mut generator = randomness.generator(Purpose::LocalOrder, 0, index as u64);
        for _ in 0..self.options.epochs {
            draws::shuffle(own, &mut generator);
            for batch in batch::sentences(own, self.options.batch_size, self.special.bos) {
                let rate = self.options.learning_rate as f32;
                self.worker
                    .sgd_step(&mut self.parameters, &batch.batch(), rate, StateMode::Zero)?;
            }
        }
        self.model.constrain(&mut self.parameters);
        Ok(())
    }
}

impl Change {
    fn new(
        outcomes: &[&Outcome],
        measure: impl Fn(&(Metrics, f64)) -> f64,
        better: impl Fn(f64) -> bool,
    ) -> Self {
        let users = outcomes.len() as f64;
        let mean =
            |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(|outcome| of(outcome)).sum::<f64>() / users;
        let mut deltas: Vec<f64> = outcomes
            .iter()
            .map(|outcome| measure(&outcome.after) - measure(&outcome.before))
            .collect();
        deltas.sort_by(f64::total_cmp);
        Self {
            before: mean(&|outcome| measure(&outcome.before)),
            after: mean(&|outcome| measure(&outcome.after)),
            improved: deltas.iter().filter(|&&delta| better(delta)).count() as f64 / users,
            delta: Spread::of_sorted(&deltas),
        }
    }
}

impl Spread {
    /// The spread of ascending values, at least one.
    fn of_sorted(values: &[f64]) -> Self {
        let quantile = |fraction: f64| {
            let place = fraction * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p10: quantile(0.1),
            p25: quantile(0.25),
            median: quantile(0.5),
            p75: quantile(0.75),
            p90: quantile(0.9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_between_values_are_interpolated() {
        let spread = Spread::of_sorted(&[0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            (spread.mean, spread.p25, spread.median, spread.p75),
            (2.0, 1.0, 2.0, 3.0)
        );
        assert!((spread.p10 - 0.4).abs() < 1e-12 && (spread.p90 - 3.6).abs() < 1e-12);
        let one = Spread::of_sorted(&[7.0]);
        assert_eq!((one.mean, one.p10, one.p90), (7.0, 7.0, 7.0));
    }
}
