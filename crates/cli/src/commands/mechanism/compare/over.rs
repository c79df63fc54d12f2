//! Mechanisms over several values of one quantity.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_accounting::{Delta, Epsilon};
use undertone_mechanisms::Objective;
use undertone_present::csv;
use undertone_present::curves::{Pen, logarithmic};
use undertone_present::numbers::number;
use undertone_present::table::grid;
use undertone_run_directory::files::write_atomic;

use super::{Candidate, CompareArgs};
use crate::commands::mechanism::kind::SizeArgs;
use crate::commands::mechanism::privacy;
use crate::commands::mechanism::run::Run;
use crate::commands::mechanism::sweep::{self, Sweep};
use crate::output::Output;

/// Values of epsilon without a list.
const EPSILONS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// The largest whole number, as for the rounds of a run.
const MAX_ROUNDS: u32 = 1 << 24;

/// The largest number of values: a picture shows no more.
const MAX_VALUES: usize = 200;

/// The quantity of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::commands::mechanism) enum Over {
    /// Vary epsilon, and compare the noise in the iterates.
    Epsilon,
    /// Vary the number of rounds of the run.
    Rounds,
    /// Vary the gap between two participations of a user.
    MinSep,
    /// Vary the number of bands of the matrix.
    Bands,
}

/// The mechanisms over all values.
#[derive(Debug, Serialize)]
struct Compared {
    over: Over,
    run: Run,
    workload: String,
    objective: Objective,
    epsilon: Option<Epsilon>,
    delta: Option<Delta>,
    values: Vec<f64>,
    curves: Vec<Curve>,
    /// Mechanisms that suit none of the values, and why.
    refused: Vec<(String, String)>,
}

/// One mechanism, with a figure for each value.
#[derive(Debug, Serialize)]
struct Curve {
    mechanism: String,
    /// The loss, or the noise in the iterates in clip norms where there is an epsilon; `None` where the mechanism does not suit the
    /// value.
    figures: Vec<Option<f64>>,
    /// The first reason why it does not.
    refused: Option<String>,
}

/// Compares the candidates over the values of `args`.
pub(super) fn run(
    over: Over,
    candidates: &[Candidate],
    run: &Run,
    args: &CompareArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let compared = Compared::new(over, candidates, run, args, output)?;
    if let Some(file) = &args.svg {
        write_atomic(file, compared.svg()?.as_bytes()).context("--svg")?;
    }
    if let Some(file) = &args.csv {
        write_atomic(file, compared.csv().as_bytes()).context("--csv")?;
    }
    output.show(&compared, || compared.text())
}

impl Over {
    fn name(self) -> &'static str {
        match self {
            Self::Epsilon => "epsilon",
            Self::Rounds => "rounds",
            Self::MinSep => "min-sep",
            Self::Bands => "bands",
        }
    }

    /// The values that were asked for, or some around those of the run.
    fn values(self, run: &Run, at: &[f64]) -> anyhow::Result<Vec<f64>> {
        let around = |own: u64, max: u64| {
            let steps = [
                own / 8,
                own / 4,
                own / 2,
                own,
                own.saturating_mul(2),
                own.saturating_mul(4),
            ];
            let mut values: Vec<f64> = steps.map(|value| value.clamp(1, max) as f64).to_vec();
            values.dedup();
            values
        };
        let (rounds, gap) = (run.rounds as u64, run.participation.gap().get());
        if at.is_empty() {
            return Ok(match self {
                Self::Epsilon => EPSILONS.to_vec(),
                Self::Rounds => around(rounds, MAX_ROUNDS.into()),
                Self::MinSep => around(gap.min(rounds), rounds),
                Self::Bands => around(gap.min(rounds).min(64), rounds),
            });
        }
        ensure!(
            at.len() <= MAX_VALUES,
            "--at: expected at most {MAX_VALUES} values, got {}",
            at.len()
        );
        let whole = |value: f64| value >= 1.0 && value.fract() == 0.0 && value <= f64::from(MAX_ROUNDS);
        let fits = |value: f64| match self {
            Self::Epsilon => value > 0.0 && value.is_finite(),
            _ => whole(value),
        };
        match at.iter().find(|value| !fits(**value)) {
            None => Ok(at.to_vec()),
            Some(wrong) if self == Self::Epsilon => bail!("--at: expected numbers above 0, got {wrong}"),
            Some(wrong) => bail!("--at: expected whole numbers from 1 to {MAX_ROUNDS}, got {wrong}"),
        }
    }
}

impl Compared {
    fn new(
        over: Over,
        candidates: &[Candidate],
        run: &Run,
        args: &CompareArgs,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let delta = args.delta.map(Delta::new).transpose().context("--delta")?;
        let epsilon = args.target_epsilon.map(Epsilon::new).transpose();
        let epsilon = epsilon.context("--target-epsilon")?;
        ensure!(
            args.iterate_noise.is_none() && !args.measure_time,
            "--over compares losses, or the noise of --target-epsilon; remove --iterate-noise and --measure-time"
        );
        match over {
            Over::Epsilon => ensure!(
                delta.is_some() && epsilon.is_none(),
                "--over epsilon needs --delta, and its values stand in --at; remove --target-epsilon"
            ),
            Over::MinSep => ensure!(
                run.participation.gap().get() < u64::MAX,
                "--over min-sep needs the planned gap: --min-sep or --rounds-between"
            ),
            Over::Bands => ensure!(
                args.sizes.bands().is_none(),
                "--over bands: the numbers of bands stand in --at; remove --bands"
            ),
            Over::Rounds => {}
        }
        ensure!(
            delta.is_some() == (epsilon.is_some() || over == Over::Epsilon),
            "--delta needs --target-epsilon or --over epsilon"
        );
        let mut compared = Self {
            over,
            values: over.values(run, &args.at)?,
            run: run.clone(),
            workload: args.workload.shown(),
            objective: args.workload.objective(),
            epsilon,
            delta,
            curves: Vec::new(),
            refused: Vec::new(),
        };
        for candidate in candidates {
            let bar = output.spinner(&format!("comparing {}", candidate.name()));
            let curve = compared.curve(candidate, args);
            bar.finish_and_clear();
            if curve.figures.iter().any(Option::is_some) {
                compared.curves.push(curve);
            } else {
                let why = anyhow::anyhow!(curve.refused.unwrap_or_default());
                compared.refused.push(candidate.refused(args, why)?);
            }
        }
        ensure!(
            !compared.curves.is_empty(),
            "none of the mechanisms suits any of these values"
        );
        Ok(compared)
    }

    fn curve(&self, candidate: &Candidate, args: &CompareArgs) -> Curve {
        let mut curve = Curve {
            mechanism: candidate.name(),
            figures: Vec::new(),
            refused: None,
        };
        for value in &self.values {
            let figure = self.figure(candidate, *value, args);
            if let Err(error) = &figure {
                curve
                    .refused
                    .get_or_insert_with(|| format!("at {}: {error:#}", number(*value)));
            }
            curve.figures.push(figure.ok());
        }
        curve
    }

    /// The loss of a candidate at a value, or the noise in its iterates where there is an epsilon.
    fn figure(&self, candidate: &Candidate, value: f64, args: &CompareArgs) -> anyhow::Result<f64> {
        let run = self.at(value, args)?;
        let problem = args.workload.problem(&run)?;
        let sizes = match self.over {
            Over::Bands => SizeArgs::with_bands(value as usize),
            _ => args.sizes.clone(),
        };
        let strategy = candidate.strategy(&problem, &sizes)?;
        let sensitivity = strategy.squared_sensitivity(run.rounds, &run.participation)?;
        let losses = strategy
            .errors(run.rounds, &problem.workload)?
            .losses(sensitivity.squared);
        let loss = losses.get(self.objective);
        let epsilon = match self.over {
            Over::Epsilon => Some(Epsilon::new(value)?),
            _ => self.epsilon,
        };
        match epsilon.zip(self.delta) {
            None => Ok(loss),
            Some((epsilon, delta)) => {
                let noise = privacy::noise_multiplier(sensitivity, epsilon, delta)?;
                Ok(noise.get() / losses.sensitivity * loss)
            }
        }
    }

    /// The run at a value.
    fn at(&self, value: f64, args: &CompareArgs) -> anyhow::Result<Run> {
        let over = match self.over {
            Over::Epsilon | Over::Bands => return Ok(self.run.clone()),
            Over::Rounds => sweep::Over::Rounds,
            Over::MinSep => sweep::Over::MinSep,
        };
        let limit = self.run.participation.max_participation();
        let sweep = Sweep {
            over,
            run: &self.run,
            limit: args.run.limits_participation().then_some(limit),
            workload: &args.workload,
        };
        sweep.at(value as u64)
    }

    /// The name of the figures, with their unit.
    fn figures_are(&self) -> String {
        match (self.over, self.epsilon, self.delta) {
            (Over::Epsilon, _, Some(delta)) => {
                format!(
                    "noise in the iterates ({}), clip norms, delta {}",
                    self.objective,
                    number(delta.get())
                )
            }
            (_, Some(epsilon), Some(delta)) => format!(
                "noise in the iterates ({}), clip norms, epsilon {}, delta {}",
                self.objective,
                number(epsilon.get()),
                number(delta.get())
            ),
            _ => format!("{}, clip norms at equal privacy", self.objective),
        }
    }

    fn svg(&self) -> anyhow::Result<String> {
        let unit = match self.over {
            Over::Epsilon => "epsilon",
            Over::Rounds => "rounds of the run",
            Over::MinSep => "gap between two participations, rounds",
            Over::Bands => "bands of the matrix",
        };
        let lines = self.curves.iter().enumerate().map(|(index, curve)| {
            let points = self.values.iter().zip(&curve.figures);
            let points = points.filter_map(|(value, figure)| Some((*value, (*figure)?)));
            (curve.mechanism.clone(), Pen::numbered(index), points.collect())
        });
        logarithmic(self.figures_are(), unit, lines)
            .map_err(|message| anyhow::anyhow!("cannot draw the comparison: {message}"))
    }

    /// One line per mechanism and value.
    fn csv(&self) -> String {
        let header = vec![
            "mechanism".to_owned(),
            self.over.name().to_owned(),
            "figure".to_owned(),
        ];
        let rows = self.curves.iter().flat_map(|curve| {
            let points = self.values.iter().zip(&curve.figures);
            points.filter_map(|(value, figure)| {
                Some(vec![
                    curve.mechanism.clone(),
                    value.to_string(),
                    (*figure)?.to_string(),
                ])
            })
        });
        csv::lines([header].into_iter().chain(rows))
    }

    fn text(&self) -> String {
        let header = ["mechanism".to_owned()].into_iter();
        let header = header.chain(
            self.values
                .iter()
                .map(|value| format!("{} {}", self.over.name(), number(*value))),
        );
        let rows = self.curves.iter().map(|curve| {
            let figures = curve.figures.iter();
            let figures =
                figures.map(|figure| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.4}")));
            [curve.mechanism.clone()].into_iter().chain(figures).collect()
        });
        let mut text = format!(
            "{}; {}; {}\n\n{}",
            self.figures_are(),
            self.run.shown(),
            self.workload,
            grid(header, rows, 1)
        );
        let some = self.curves.iter();
        let some = some.filter_map(|curve| Some((&curve.mechanism, curve.refused.as_ref()?)));
        for (name, why) in some.chain(self.refused.iter().map(|(name, why)| (name, why))) {
            text += &format!("\nnot possible: {name} {why}");
        }
        text
    }
}
