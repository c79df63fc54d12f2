//! The losses of a mechanism in runs other than the one it was made for.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_mechanisms::optimize::Problem;
use undertone_mechanisms::{CertifiedSensitivity, Losses, Objective, Strategy};

use super::kind::{Kind, SizeArgs};
use super::run::Run;
use super::workload::WorkloadArgs;
use undertone_present::curves::{Pen, logarithmic};

/// Points of a sweep without a list.
const POINTS: usize = 13;

/// The quantity that a sweep varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Over {
    /// Vary the gap between two participations of a user.
    MinSep,
    /// Vary the number of rounds of the run.
    Rounds,
}

/// One mechanism over the values of a sweep.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Point {
    pub(super) value: u64,
    pub(super) max_participation: u64,
    pub(super) sensitivity: CertifiedSensitivity,
    pub(super) losses: Losses,
}

/// The question of a sweep.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    pub(super) over: Over,
    pub(super) run: &'a Run,
    /// Max number of participations at each point; as many as fit if `None`.
    pub(super) limit: Option<u64>,
    pub(super) workload: &'a WorkloadArgs,
}

impl Sweep<'_> {
    /// Values of the sweep: the list, or values from an eighth of the run's own to four times it. None is beyond what all strategies
    /// can do.
    pub(super) fn values(&self, list: &[u64], strategies: &[&Strategy]) -> anyhow::Result<Vec<u64>> {
        let (own, max) = match self.over {
            Over::MinSep => (self.run.participation.gap().get(), self.run.rounds as u64),
            Over::Rounds => {
                let made = strategies.iter().filter_map(|strategy| strategy.rounds()).min();
                (
                    self.run.rounds as u64,
                    made.map_or(u64::MAX, |rounds| rounds as u64),
                )
            }
        };
        if !list.is_empty() {
            let name = match self.over {
                Over::MinSep => "gaps",
                Over::Rounds => "rounds",
            };
            let wrong = list.iter().find(|value| **value == 0 || **value > max);
            ensure!(
                wrong.is_none(),
                "--at: expected {name} from 1 to {max}, got {}",
                wrong.copied().unwrap_or_default()
            );
            return Ok(list.to_vec());
        }
        let own = own.min(max) as f64;
        let step = |i: usize| own * 2f64.powf(i as f64 * 5.0 / (POINTS - 1) as f64 - 3.0);
        let mut values: Vec<u64> = (0..POINTS)
            .map(|i| (step(i).round() as u64).clamp(1, max))
            .collect();
        values.dedup();
        Ok(values)
    }

    /// A strategy at every value.
    pub(super) fn curve(&self, name: String, strategy: &Strategy, values: &[u64]) -> anyhow::Result<Curve> {
        let point = |value| self.point(strategy, value);
        Ok(Curve {
            name,
            points: values.iter().copied().map(point).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The curve of the best BLT with this number of buffers for each value.
    pub(super) fn optimum(&self, buffers: usize, values: &[u64]) -> anyhow::Result<Curve> {
        let sizes = SizeArgs::with_buffers(buffers);
        let point = |value: &u64| {
            let problem = self.problem(&self.at(*value)?)?;
            let made = Kind::BLT.make(&problem, &sizes)?;
            self.point(&made.strategy, *value)
        };
        Ok(Curve {
            name: format!("optimum({buffers})"),
            points: values.iter().map(point).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The run at a value.
    pub(super) fn at(&self, value: u64) -> anyhow::Result<Run> {
        let own = &self.run.participation;
        let (rounds, gap) = match self.over {
            Over::MinSep => (self.run.rounds, Gap::new(value)?),
            Over::Rounds => (usize::try_from(value)?, own.gap()),
        };
        let max = self.limit.unwrap_or(u64::MAX);
        let schema = match own.spacing() {
            Spacing::AtLeast => Participation::at_least(gap, max)?,
            Spacing::Exactly => Participation::fixed_epochs(gap, max)?,
        };
        Run::new(rounds, schema)
    }

    fn problem(&self, run: &Run) -> anyhow::Result<Problem> {
        self.workload.problem(run)
    }

    fn point(&self, strategy: &Strategy, value: u64) -> anyhow::Result<Point> {
        let run = self.at(value)?;
        let problem = self.problem(&run)?;
        let place = || format!("{} at {value}", strategy.name());
        let sensitivity = strategy
            .squared_sensitivity(run.rounds, &run.participation)
            .with_context(place)?;
        let errors = strategy
            .errors(run.rounds, &problem.workload)
            .with_context(place)?;
        Ok(Point {
            value,
            max_participation: run.participation.max_participation(),
            sensitivity,
            losses: errors.losses(sensitivity.squared),
        })
    }

    /// The curves as a picture.
    pub(super) fn draw(&self, curves: &[Curve], objective: Objective) -> anyhow::Result<String> {
        let loss = |point: &Point| (point.value as f64, point.losses.get(objective));
        let (axis, fixed) = match self.over {
            Over::MinSep => ("actual gap, rounds", format!("{} rounds", self.run.rounds)),
            Over::Rounds => (
                "actual rounds",
                format!("gap {}", self.run.participation.gap().get()),
            ),
        };
        let lines = curves.iter().enumerate().map(|(index, curve)| {
            let points = curve.points.iter().map(loss).collect();
            (curve.name.clone(), Pen::numbered(index), points)
        });
        logarithmic(format!("{objective} over {axis}; {fixed}"), axis, lines)
            .map_err(|message| anyhow::anyhow!("cannot draw the sweep: {message}"))
    }
}
