//! The comparison of the runs of a sweep, read from their files.

use std::path::Path;

use serde::Serialize;

use super::{Sweep, Trial, TrialState};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_run::evaluate::{Measure, UserCounts, standard_error};
use undertone_run::{Result, Silent};
use undertone_run_directory::metrics::{EvaluationRecord, Metrics};
use undertone_run_directory::read::RunData;

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
    /// The reason why standard errors are over seeds alone, where they are: the first run whose users could not be measured again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_users: Option<String>,
}

/// One combination of values over its finished seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The value on each axis, by name.
    pub values: Vec<String>,
    /// The seeds that have finished; empty where the sweep has none.
    pub seeds: Vec<u64>,
    /// Top-1 of a keyboard at the end.
    pub top1: Spread,
    /// Top-1 over the targets inside the vocabulary.
    pub in_vocab_top1: Option<Spread>,
    /// Perplexity at the end.
    pub perplexity: Spread,
    /// Loss at the end in nats per target, the logarithm of perplexity.
    pub loss: Spread,
    /// The difference of `loss` to the first value of the last axis, over pairs of equal seed and equal users.
    pub loss_difference: Option<Difference>,
    /// The difference of `in_vocab_top1` to the first value of the last axis, over pairs of equal seed and equal users.
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
    /// Standard error of the mean: over the held-out users, and over the seeds where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
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
        Some(Self {
            mean,
            deviation,
            standard_error: deviation.map(|deviation| deviation / n.sqrt()),
        })
    }

    /// The difference with the standard error over users beside that over seeds. Equal users are under all seeds, so the error over seeds holds nothing
    /// of theirs, and the two add up as variances.
    fn over_users(self, users: Option<f64>) -> Self {
        let parts = [self.standard_error, users.filter(|error| error.is_finite())];
        Self {
            standard_error: parts.into_iter().flatten().reduce(f64::hypot),
            ..self
        }
    }
}

/// A paired difference over seeds and users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Mean of the differences.
    pub mean: f64,
    /// Standard error of that mean: over the held-out users, paired, and over the seeds where there are several.
    pub standard_error: Option<f64>,
    /// Number of pairs of runs.
    pub pairs: usize,
}

impl Difference {
    fn of(differences: &[f64], users: Option<f64>) -> Option<Self> {
        let spread = Spread::of(differences)?.over_users(users);
        Some(Self {
            mean: spread.mean,
            standard_error: spread.standard_error,
            pairs: differences.len(),
        })
    }
}

/// A finished run.
struct Outcome<'a> {
    trial: &'a Trial,
    run: RunData,
    last: EvaluationRecord,
    /// The counts of its held-out users. PRIVACY: they stay in memory.
    users: Option<UserCounts>,
}

impl Outcome<'_> {
    /// Measures the held-out users again, on the targets of the last evaluation.
    fn measure(&mut self, folder: &Path, threads: usize) -> std::result::Result<(), String> {
        if self.last.metrics.users.is_none() {
            return Err("an older version evaluated it, on users that it drew for itself".to_owned());
        }
        let users = undertone_run::evaluate_users(folder, None, threads, &Silent)
            .map_err(|error| error.to_string())?;
        let (expected, got) = (self.last.metrics.targets, users.targets());
        if expected != got {
            return Err(format!(
                "its last evaluation had {expected} targets, and its data now has {got}"
            ));
        }
        self.users = Some(users);
        Ok(())
    }

    fn accuracy(&self) -> f64 {
        accuracy(&self.last.metrics)
    }

    fn loss(&self) -> f64 {
        self.last.metrics.perplexity.ln()
    }

    /// Accuracies by round, to the last one. In a run of an older version the last evaluation, and that of an initial model, may be on
    /// more targets than the others: an evaluation on other targets than the first after a round is no point of the curve.
    fn curve(&self) -> Vec<(u64, f64)> {
        let mut evaluations = self.run.evaluations.iter();
        let first = evaluations.find(|evaluation| evaluation.round > 0);
        let targets = first.map(|first| first.metrics.on_curve().targets);
        let points = self.run.evaluations.iter();
        points
            .map(|evaluation| (evaluation.round, evaluation.metrics.on_curve()))
            .filter(|(_, metrics)| Some(metrics.targets) == targets)
            .map(|(round, metrics)| (round, accuracy(metrics)))
            .collect()
    }
}

/// In-vocabulary accuracy; 0 without a target inside the vocabulary.
fn accuracy(metrics: &Metrics) -> f64 {
    metrics.in_vocab_top1.unwrap_or(0.0)
}

/// The mean over runs of the influence of each user on a figure; `None` where the users are not equal.
fn mean_influence(users: &[Option<&UserCounts>], measure: Measure) -> Option<Vec<f64>> {
    let all: Vec<&UserCounts> = users.iter().copied().collect::<Option<_>>()?;
    let (first, others) = all.split_first()?;
    let mut sum = first.influence(measure);
    for other in others {
        if !first.same_users(other) {
            return None;
        }
        let next = other.influence(measure);
        sum.iter_mut().zip(next).for_each(|(sum, value)| *sum += value);
    }
    sum.iter_mut().for_each(|sum| *sum /= all.len() as f64);
    Some(sum)
}

/// The standard error over users of the mean difference of two rows of runs, paired where the users are equal. Where they are not,
/// because the vocabulary or the limit is another one, the two errors add up as those of strangers.
fn paired_error(
    mine: &[Option<&UserCounts>],
    other: &[Option<&UserCounts>],
    measure: Measure,
) -> Option<f64> {
    let (ours, theirs) = (mean_influence(mine, measure)?, mean_influence(other, measure)?);
    let (one, another) = (mine.first().copied()??, other.first().copied()??);
    if !one.same_users(another) {
        return Some(standard_error(&ours)?.hypot(standard_error(&theirs)?));
    }
    let differences: Vec<f64> = ours
        .iter()
        .zip(&theirs)
        .map(|(mine, other)| mine - other)
        .collect();
    standard_error(&differences)
}

impl Comparison {
    pub(super) fn of(sweep: &Sweep, folder: &Path, threads: usize) -> Result<Self> {
        let mut outcomes = Vec::new();
        let mut without_users = None;
        for trial in &sweep.trials {
            if trial.state(folder)? == TrialState::Finished {
                let name = &trial.file.config.task.name;
                let run_dir = folder.join(name);
                let run = undertone_run_directory::read::read(&run_dir)?;
                if let Some(last) = run.evaluations.last().cloned() {
                    let mut outcome = Outcome {
                        trial,
                        run,
                        last,
                        users: None,
                    };
                    // The data may be elsewhere by now, and the runs' own figures still stand.
                    if let Err(error) = outcome.measure(&run_dir, threads) {
                        without_users.get_or_insert_with(|| format!("{name}: {error}"));
                    }
                    outcomes.push(outcome);
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
            without_users,
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
    let pairs: Vec<(&Outcome<'a>, &Outcome<'a>)> = (mine.iter())
        .filter_map(|outcome| {
            let other = at(first.clone()).find(|other| other.trial.seed == outcome.trial.seed)?;
            Some((*outcome, other))
        })
        .filter(|_| first != place)
        .collect();
    let (ours, theirs): (Vec<_>, Vec<_>) = (pairs.iter())
        .map(|(mine, other)| (mine.users.as_ref(), other.users.as_ref()))
        .unzip();
    let difference = |value: fn(&Outcome<'a>) -> f64, measure| {
        let values: Vec<f64> = pairs
            .iter()
            .map(|(mine, other)| value(mine) - value(other))
            .collect();
        Difference::of(&values, paired_error(&ours, &theirs, measure))
    };
    let users: Vec<Option<&UserCounts>> = mine.iter().map(|outcome| outcome.users.as_ref()).collect();
    let of_users = |value: fn(&Outcome<'a>) -> f64, measure| {
        let error = mean_influence(&users, measure).and_then(|influence| standard_error(&influence));
        Some(spread(&mine, value)?.over_users(error))
    };
    let (guarantee, is_estimate) = guarantee(&mine);
    Some(Row {
        values: (sweep.config.axes.iter().zip(place))
            .map(|(axis, &value)| axis.values[value].name.clone())
            .collect(),
        seeds: mine.iter().filter_map(|outcome| outcome.trial.seed).collect(),
        top1: of_users(|outcome| outcome.last.metrics.top1, Measure::Top1)?,
        in_vocab_top1: of_users(Outcome::accuracy, Measure::InVocabTop1).filter(|_| {
            mine.iter()
                .any(|outcome| outcome.last.metrics.in_vocab_top1.is_some())
        }),
        perplexity: spread(&mine, |outcome| outcome.last.metrics.perplexity)?,
        loss: of_users(Outcome::loss, Measure::Loss)?,
        loss_difference: difference(Outcome::loss, Measure::Loss),
        difference: difference(Outcome::accuracy, Measure::InVocabTop1),
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
        assert_eq!((one.mean, one.deviation, one.standard_error), (3.0, None, None));
        // The error over users stands alone with one seed, and beside that of the seeds with several.
        assert_eq!(one.over_users(Some(0.5)).standard_error, Some(0.5));
        assert_eq!(one.over_users(Some(f64::NAN)).standard_error, None);
        let three = Spread::of(&[1.0, 2.0, 6.0]).unwrap();
        // Squares about the mean of 3: 4 + 1 + 9, over two.
        assert_eq!((three.mean, three.deviation), (3.0, Some(7f64.sqrt())));
        let paired = Difference::of(&[1.0, 2.0, 6.0], None).unwrap();
        assert_eq!(paired.pairs, 3);
        assert!((paired.standard_error.unwrap() - (7f64 / 3.0).sqrt()).abs() < 1e-12);
        let of_users = Difference::of(&[1.0, 2.0, 6.0], Some(2.0)).unwrap();
        assert!((of_users.standard_error.unwrap() - (7f64 / 3.0 + 4.0).sqrt()).abs() < 1e-12);
    }
}
