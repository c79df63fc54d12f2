//! The comparison of the runs of a sweep, read from their files.

use std::path::Path;

use serde::Serialize;

use super::{Sweep, Trial, TrialState};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_run::Result;
use undertone_run::metrics::EvaluationRecord;
use undertone_run::read::RunData;

/// The comparison of the runs of a sweep, seeds taken together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the sweep.
    pub name: String,
    /// Names of the axes.
    pub axes: Vec<String>,
    /// One row per combination, in the order of the sweep file; those without a finished run are left out.
    pub rows: Vec<Row>,
    /// Number of runs of the sweep.
    pub trials: usize,
    /// Number of finished runs.
    pub finished: usize,
}

/// One combination of values over its finished seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The value on each axis, by name.
    pub values: Vec<String>,
    /// The seeds that have finished; empty where the sweep has none.
    pub seeds: Vec<u64>,
    /// AccuracyTop1 at the end.
    pub top1: Spread,
    /// Top-1 over the targets inside the vocabulary.
    pub in_vocab_top1: Option<Spread>,
    /// Perplexity at the end.
    pub perplexity: Spread,
    /// Loss at the end in nats per target, the logarithm of perplexity.
    pub loss: Spread,
    /// The difference of `loss` to the first value of the last axis, over pairs of equal seed.
    pub loss_difference: Option<Difference>,
    /// The difference of `in_vocab_top1` to the first value of the last axis, over pairs of equal seed.
    pub difference: Option<Difference>,
    /// The guarantee: that of the larger run where the runs stand for one, otherwise the observed one. The largest over
    /// the seeds.
    pub guarantee: Option<GuaranteeRecord>,
    /// `true` if `guarantee` is an estimate for a larger run, and so no guarantee of these runs.
    pub is_estimate: bool,
    /// Noise per coordinate of the average in the last round.
    pub noise_std: f64,
    /// Clip norm of the last round.
    pub clip_norm: Option<f64>,
    /// Wall-clock seconds of training.
    pub train_seconds: Spread,
    /// Mean over the seeds of the in-vocabulary accuracy by rounds finished, of evaluations on the same targets.
    pub curve: Vec<(u64, f64)>,
}

/// Mean and sample standard deviation over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; `None` for a single value.
    pub deviation: Option<f64>,
}

impl Spread {
    /// The mean and deviation of some values; `None` without any.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        Some(Self { mean, deviation })
    }
}

/// A paired difference over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Mean of the differences.
    pub mean: f64,
    /// Standard error of that mean; `None` for a single pair.
    pub standard_error: Option<f64>,
    /// Number of pairs.
    pub pairs: usize,
}

impl Difference {
    fn of(differences: &[f64]) -> Option<Self> {
        let spread = Spread::of(differences)?;
        Some(Self {
            mean: spread.mean,
            standard_error: spread
                .deviation
                .map(|deviation| deviation / (differences.len() as f64).sqrt()),
            pairs: differences.len(),
        })
    }
}

/// A finished run.
struct Outcome<'a> {
    trial: &'a Trial,
    run: RunData,
    last: EvaluationRecord,
}

impl Outcome<'_> {
    fn accuracy(&self) -> f64 {
        accuracy(&self.last)
    }

    fn loss(&self) -> f64 {
        self.last.metrics.perplexity.ln()
    }

    /// Accuracies by round. The last evaluation, and that of an initial model, may be on more targets than the others: an
    /// evaluation on other targets than the first after a round is no point of the curve.
    fn curve(&self) -> Vec<(u64, f64)> {
        let mut evaluations = self.run.evaluations.iter();
        let first = evaluations.find(|evaluation| evaluation.round > 0);
        let targets = first.map(|first| first.metrics.targets);
        let same = |evaluation: &&EvaluationRecord| Some(evaluation.metrics.targets) == targets;
        let point = |evaluation: &EvaluationRecord| (evaluation.round, accuracy(evaluation));
        self.run.evaluations.iter().filter(same).map(point).collect()
    }
}

/// In-vocabulary accuracy; 0 without a target inside the vocabulary.
fn accuracy(evaluation: &EvaluationRecord) -> f64 {
    evaluation.metrics.in_vocab_top1.unwrap_or(0.0)
}

impl Comparison {
    pub(super) fn of(sweep: &Sweep, folder: &Path) -> Result<Self> {
        let mut outcomes = Vec::new();
        for trial in &sweep.trials {
            if trial.state(folder)? == TrialState::Finished {
                let run = undertone_run::read::read(&folder.join(&trial.file.config.task.name))?;
                if let Some(last) = run.evaluations.last().cloned() {
                    outcomes.push(Outcome { trial, run, last });
                }
            }
        }
        let rows = super::places(&sweep.config.axes)
            .iter()
            .filter_map(|place| row(sweep, place, &outcomes))
            .collect();
        Ok(Self {
            name: sweep.config.name.clone(),
            axes: sweep.config.axes.iter().map(|axis| axis.name.clone()).collect(),
            rows,
            trials: sweep.trials.len(),
            finished: outcomes.len(),
        })
    }
}

fn row<'a>(sweep: &Sweep, place: &[usize], outcomes: &[Outcome<'a>]) -> Option<Row> {
    let at = |place: Vec<usize>| {
        outcomes
            .iter()
            .filter(move |outcome| outcome.trial.place == place)
    };
    let mine: Vec<&Outcome<'a>> = at(place.to_vec()).collect();
    let last_round = mine.last().and_then(|outcome| outcome.run.rounds.last());
    let mut first = place.to_vec();
    *first.last_mut()? = 0;
    let difference = |value: fn(&Outcome<'a>) -> f64| {
        let pairs = mine.iter().filter_map(|outcome| {
            let other = at(first.clone()).find(|other| other.trial.seed == outcome.trial.seed)?;
            Some(value(outcome) - value(other))
        });
        Difference::of(&pairs.collect::<Vec<_>>()).filter(|_| first != place)
    };
    let (guarantee, is_estimate) = guarantee(&mine);
    Some(Row {
        values: (sweep.config.axes.iter().zip(place))
            .map(|(axis, &value)| axis.values[value].name.clone())
            .collect(),
        seeds: mine.iter().filter_map(|outcome| outcome.trial.seed).collect(),
        top1: spread(&mine, |outcome| outcome.last.metrics.top1)?,
        in_vocab_top1: spread(&mine, Outcome::accuracy).filter(|_| {
            mine.iter()
                .any(|outcome| outcome.last.metrics.in_vocab_top1.is_some())
        }),
        perplexity: spread(&mine, |outcome| outcome.last.metrics.perplexity)?,
        loss: spread(&mine, Outcome::loss)?,
        loss_difference: difference(Outcome::loss),
        difference: difference(Outcome::accuracy),
        guarantee,
        is_estimate,
        noise_std: last_round.map_or(0.0, |round| round.noise_std),
        clip_norm: last_round.and_then(|round| round.clip_norm),
        train_seconds: spread(&mine, |outcome| outcome.last.train_seconds)?,
        curve: mean_curve(&mine),
    })
}

fn spread<'a>(outcomes: &[&Outcome<'a>], value: impl Fn(&Outcome<'a>) -> f64) -> Option<Spread> {
    Spread::of(&outcomes.iter().map(|outcome| value(outcome)).collect::<Vec<_>>())
}

/// The weakest statement of the runs. All are of one kind: `[estimate]` is there or not.
fn guarantee(outcomes: &[&Outcome<'_>]) -> (Option<GuaranteeRecord>, bool) {
    let privacy = || outcomes.iter().filter_map(|outcome| outcome.run.privacy.as_ref());
    let weakest = |records: Vec<&GuaranteeRecord>| {
        let larger = |a: &&GuaranteeRecord, b: &&GuaranteeRecord| a.epsilon.total_cmp(&b.epsilon);
        records.into_iter().max_by(larger).cloned()
    };
    let estimates: Vec<_> = privacy().filter_map(|report| report.estimate.as_ref()).collect();
    if estimates.is_empty() {
        (
            weakest(privacy().filter_map(|report| report.alone()).collect()),
            false,
        )
    } else {
        (weakest(estimates), true)
    }
}

/// Means at the rounds at which all runs were evaluated.
fn mean_curve(outcomes: &[&Outcome<'_>]) -> Vec<(u64, f64)> {
    let curves: Vec<_> = outcomes.iter().map(|outcome| outcome.curve()).collect();
    let Some((first, others)) = curves.split_first() else {
        return Vec::new();
    };
    let at =
        |curve: &[(u64, f64)], round: u64| curve.iter().find(|point| point.0 == round).map(|point| point.1);
    let mean = |&(round, value): &(u64, f64)| {
        let rest: Option<Vec<f64>> = others.iter().map(|curve| at(curve, round)).collect();
        Some((round, (value + rest?.iter().sum::<f64>()) / curves.len() as f64))
    };
    first.iter().filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_differences_are_those_of_small_samples() {
        assert_eq!(Spread::of(&[]), None);
        let one = Spread::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.deviation), (3.0, None));
        let three = Spread::of(&[1.0, 2.0, 6.0]).unwrap();
        // Squares about the mean of 3: 4 + 1 + 9, over two.
        assert_eq!((three.mean, three.deviation), (3.0, Some(7f64.sqrt())));
        let paired = Difference::of(&[1.0, 2.0, 6.0]).unwrap();
        assert_eq!(paired.pairs, 3);
        assert!((paired.standard_error.unwrap() - (7f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
