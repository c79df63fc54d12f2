//! Matrices made for the plan's question, side by side at equal privacy.

use anyhow::{Context, anyhow, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_mechanisms::optimize::{Kind, Sizes};
use undertone_mechanisms::population_plan::{
    Candidate, FeasibleRange, Outlook, Planned, Planner, PopulationQuestion,
};
use undertone_mechanisms::{Objective, Workload};
use undertone_present::numbers::{number, upper_bound};
use undertone_present::table::grid;

use crate::shown::Progress;
#[cfg(feature = "pictures")]
use undertone_present::curves::{Pen, logarithmic};

/// Lengths of a curve over rounds.
#[cfg(feature = "pictures")]
const LENGTHS: u64 = 8;

/// Options of matrices that are made for the question.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Optimised matrices")]
pub(super) struct MadeArgs {
    /// Optimise matrices of these kinds for each report goal, and compare their noise at the target.
    ///
    /// The kinds are those of `undertone mechanism compare`, and tree-restarts. Without --mechanism, only these kinds are
    /// planned.
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = candidate)]
    kinds: Vec<Candidate>,
    /// Minimise the noise in the worst iterate, or the root mean square over the iterates.
    #[arg(long, value_enum, default_value = "rms", requires = "kinds")]
    objective: Noise,
    /// Set the momentum of the server optimizer, in [0, 1).
    #[arg(
        long,
        default_value_t = 0.0,
        allow_negative_numbers = true,
        requires = "kinds"
    )]
    momentum: f64,
    /// Set the number of buffers of a BLT (default: as many as lower the loss by 0.1 % each).
    #[arg(long, requires = "kinds")]
    buffers: Option<usize>,
    /// Set the number of bands (default: the gap, 64 for a single participation, and 4 for an inverse).
    #[arg(long, requires = "kinds")]
    bands: Option<usize>,
    /// Set the number of rounds of the first tree of tree-restarts and of each later tree (default: 128,1024).
    #[arg(long, value_name = "FIRST,PERIOD", value_delimiter = ',', requires = "kinds")]
    restarts: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Noise {
    /// Minimise the noise in the worst iterate.
    Max,
    /// Minimise the root mean square of the noise over the iterates.
    Rms,
}

fn candidate(name: &str) -> anyhow::Result<Candidate> {
    let restarts = Candidate::PRODUCTION_RESTARTS;
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name || (name == "bandmf" && *kind == Kind::Banded));
    match kind {
        Some(kind) => Ok(Candidate::Made(kind, Sizes::default())),
        None if name == restarts.name() => Ok(restarts),
        None => {
            let known = Kind::ALL.map(Kind::name).join(", ");
            Err(anyhow!(
                "expected one of {known}, {}, got '{name}'",
                restarts.name()
            ))
        }
    }
}

/// All candidates, the one with the min noise at the report goal first.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    objective: Objective,
    momentum: f64,
    /// Noise in the iterates of averages, in clip norms, that keeps utility.
    utility_noise: f64,
    /// The candidate and report goal with the min noise at the target guarantee.
    #[serde(rename = "least_noise")]
    min_noise: MinNoise,
    candidates: Vec<Row>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct MinNoise {
    candidate: &'static str,
    report_goal: u64,
    iterate_noise: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    candidate: &'static str,
    #[serde(flatten)]
    outlook: Outlook,
}

impl MadeArgs {
    /// `true` if matrices are to be made.
    pub(super) fn is_asked(&self) -> bool {
        !self.kinds.is_empty()
    }

    fn objective(&self) -> Objective {
        match self.objective {
            Noise::Max => Objective::MaxLoss,
            Noise::Rms => Objective::RmsLoss,
        }
    }

    /// The kinds with their sizes; a size that none of them has is an error.
    fn candidates(&self) -> anyhow::Result<Vec<Candidate>> {
        let any = |has: fn(Kind) -> bool| {
            let mut kinds = self.kinds.iter();
            kinds.any(|kind| matches!(kind, Candidate::Made(kind, _) if has(*kind)))
        };
        ensure!(
            self.buffers.is_none() || any(Kind::is_buffered),
            "--buffers needs a kind with buffers, blt or normalised-blt, in --kinds"
        );
        ensure!(
            self.bands.is_none() || any(Kind::is_banded),
            "--bands needs a banded kind in --kinds"
        );
        let restarts = Candidate::PRODUCTION_RESTARTS;
        ensure!(
            self.restarts.is_empty() || self.kinds.contains(&restarts),
            "--restarts needs tree-restarts in --kinds"
        );
        let restarts = match self.restarts.as_slice() {
            [] => restarts,
            &[first, period] if first > 0 && period > 0 => Candidate::RestartedTree { first, period },
            other => {
                let got: Vec<String> = other.iter().map(u64::to_string).collect();
                return Err(anyhow!(
                    "--restarts: expected two whole numbers of at least 1, got {}",
                    got.join(",")
                ));
            }
        };
        let mut candidates: Vec<Candidate> = Vec::new();
        for kind in &self.kinds {
            let candidate = match *kind {
                Candidate::Made(kind, _) => Candidate::Made(
                    kind,
                    Sizes {
                        buffers: self.buffers.filter(|_| kind.is_buffered()),
                        bands: self.bands.filter(|_| kind.is_banded()),
                    },
                ),
                _ => restarts,
            };
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
        Ok(candidates)
    }

    fn planner(&self, question: PopulationQuestion, candidate: Candidate) -> anyhow::Result<Planner> {
        let workload = Workload::momentum(self.momentum).context("--momentum")?;
        Ok(Planner::new(question, candidate, self.objective(), workload)?)
    }

    /// Compares the candidates up to a report goal.
    pub(super) fn compare(
        &self,
        question: &PopulationQuestion,
        report_goal: u64,
        progress: Progress<'_>,
    ) -> anyhow::Result<Comparison> {
        let mut utility_noise = 0.0;
        let mut candidates = Vec::new();
        for candidate in self.candidates()? {
            progress(Some(&format!("making {}", candidate.name())));
            let mut planner = self.planner(*question, candidate)?;
            utility_noise = planner.utility_noise();
            let outlook = planner.outlook(report_goal);
            progress(None);
            candidates.push(Row {
                candidate: candidate.name(),
                outlook: outlook.with_context(|| format!("--kinds {}", candidate.name()))?,
            });
        }
        let noise = |row: &Row| row.outlook.at_report_goal.at_target.iterate_noise;
        candidates.sort_by(|a, b| noise(a).total_cmp(&noise(b)));
        Ok(Comparison {
            objective: self.objective(),
            momentum: self.momentum,
            utility_noise,
            min_noise: by_best_noise(&candidates).first().copied().context("--kinds")?,
            candidates,
        })
    }

    /// Noise at the target guarantee over report goals, or over lengths at the report goal, as a picture.
    #[cfg(feature = "pictures")]
    pub(super) fn draw(
        &self,
        question: &PopulationQuestion,
        report_goal: u64,
        over_rounds: bool,
        progress: Progress<'_>,
    ) -> anyhow::Result<String> {
        let mut curves = Vec::new();
        let mut keeps_utility = Vec::new();
        for candidate in self.candidates()? {
            let name = candidate.name();
            progress(Some(&format!("drawing {name}")));
            let mut points = Vec::new();
            if over_rounds {
                let mut lengths: Vec<u64> = (1..=LENGTHS)
                    .map(|i| (question.rounds * i).div_ceil(LENGTHS))
                    .collect();
                lengths.dedup();
                for rounds in lengths {
                    let mut planner = self.planner(PopulationQuestion { rounds, ..*question }, candidate)?;
                    let option = planner.option(report_goal);
                    points.push((rounds as f64, noise(&option.context(name)?)));
                    keeps_utility.push((rounds as f64, planner.utility_noise()));
                }
            } else {
                let mut planner = self.planner(*question, candidate)?;
                for option in planner.over_report_goals(report_goal).context(name)? {
                    points.push((option.report_goal as f64, noise(&option)));
                    keeps_utility.push((option.report_goal as f64, planner.utility_noise()));
                }
            }
            progress(None);
            curves.push((name.to_owned(), points));
        }
        keeps_utility.sort_by(|a, b| a.0.total_cmp(&b.0));
        keeps_utility.dedup();
        let (users, rounds) = (question.population, question.rounds);
        let title = if over_rounds {
            format!("Noise at the target over rounds, {users} users, report goal {report_goal}")
        } else {
            format!("Noise at the target over report goals, {users} users, {rounds} rounds")
        };
        let x_label = if over_rounds {
            "rounds"
        } else {
            "report goal (y axis: noise in the iterates, clip norms)"
        };
        let lines = curves.into_iter().enumerate();
        let lines = lines.map(|(index, (name, points))| (name, Pen::numbered(index), points));
        let limit = ("keeps utility".to_owned(), Pen::LIMIT, keeps_utility);
        logarithmic(title, x_label, lines.chain([limit]))
            .map_err(|message| anyhow!("cannot draw the plan: {message}"))
    }
}

fn noise(option: &Planned) -> f64 {
    option.at_target.iterate_noise
}

impl Comparison {
    pub(super) fn text(&self, report_goal: u64) -> String {
        let spread = match self.objective {
            Objective::MaxLoss => "in the worst iterate",
            Objective::RmsLoss => "root mean square over the iterates",
        };
        let workload = if self.momentum == 0.0 {
            String::new()
        } else {
            format!(", momentum {}", self.momentum)
        };
        let mut text = format!(
            "Matrices optimised for this run, at the target and at report goal {report_goal}. Noise is that of averages in clip \
             norms, {spread}{workload}. Noise up to {} keeps utility.\n{}\n",
            number(self.utility_noise),
            self.table(|row| &row.outlook.at_report_goal)
        );
        let moved = self
            .candidates
            .iter()
            .any(|row| row.best().report_goal != report_goal);
        if moved {
            text += &format!(
                "\nReport goals with the least noise at the target (a smaller goal can save a participation):\n{}\n",
                self.table(Row::best)
            );
        }
        text += "\nReport goals that meet the target and keep utility:\n";
        for row in &self.candidates {
            text += &format!("  {}: {}\n", row.candidate, ranges(&row.outlook.feasible));
        }
        let by_noise = by_best_noise(&self.candidates);
        if let Some((first, others)) = by_noise.split_first() {
            text += &format!(
                "\nLeast noise at equal guarantee: {} at report goal {}",
                first.candidate, first.report_goal
            );
            if let Some(next) = others.first() {
                let over = next.iterate_noise / first.iterate_noise - 1.0;
                text += &format!(
                    " ({} at report goal {} has {:.1} % more)",
                    next.candidate,
                    next.report_goal,
                    100.0 * over
                );
            }
            text += "\n";
        }
        let is_bound =
            |row: &Row| !row.outlook.at_report_goal.sensitivity.exact || !row.best().sensitivity.exact;
        if self.candidates.iter().any(is_bound) {
            text += "~ marks a sensitivity that is a proved upper bound.\n";
        }
        text
    }

    fn table(&self, option: impl Fn(&Row) -> &Planned) -> String {
        let header = [
            "mechanism",
            "report goal",
            "MinS",
            "MaxP",
            "sensitivity",
            "noise multiplier",
            "noise",
            "noise / utility noise",
            "rho at utility noise",
            "epsilon at utility noise",
        ];
        let rows = self.candidates.iter().map(|row| {
            let option = option(row);
            let sign = if option.sensitivity.exact { "" } else { "~" };
            vec![
                row.candidate.to_owned(),
                option.report_goal.to_string(),
                option.min_sep.get().to_string(),
                option.participation.participation.max_participation().to_string(),
                format!("{sign}{}", upper_bound(option.sensitivity.squared.sensitivity())),
                upper_bound(option.at_target.noise_multiplier.get()),
                number(noise(option)),
                format!("{:.3}", noise(option) / self.utility_noise),
                upper_bound(option.at_utility.rho.get()),
                upper_bound(option.at_utility.epsilon.get()),
            ]
        });
        grid(header, rows, 1)
    }
}

/// Every candidate at its best report goal, the least noise first.
fn by_best_noise(candidates: &[Row]) -> Vec<MinNoise> {
    let mut by_noise: Vec<MinNoise> = candidates
        .iter()
        .map(|row| MinNoise {
            candidate: row.candidate,
            report_goal: row.best().report_goal,
            iterate_noise: noise(row.best()),
        })
        .collect();
    by_noise.sort_by(|a, b| a.iterate_noise.total_cmp(&b.iterate_noise));
    by_noise
}

impl Row {
    fn best(&self) -> &Planned {
        &self.outlook.best
    }
}

fn ranges(feasible: &[FeasibleRange]) -> String {
    if feasible.is_empty() {
        return "no report goal".to_owned();
    }
    let shown = feasible.iter().map(|range| {
        let max = range.max.participation.participation.max_participation();
        format!(
            "{} to {} (MaxP {max})",
            range.min.report_goal, range.max.report_goal
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}
