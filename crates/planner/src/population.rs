//! `undertone plan`.

#[cfg(feature = "pictures")]
mod chart;
mod made;

#[cfg(feature = "pictures")]
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use undertone_accounting::participation::largest_gap;
use undertone_accounting::plan::ProductionSetting;
use undertone_accounting::{Delta, Epsilon, Rho};
use undertone_mechanisms::population_plan::{Feasible, Goal, PopulationQuestion};
use undertone_present::numbers::{number, upper_bound};
use undertone_present::table::grid;

use crate::shown::{Progress, Shown};

/// Arguments of `undertone plan`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("target"))]
pub struct PlanArgs {
    /// Set the number of users who can take part.
    #[arg(long)]
    pub population: Option<u64>,
    /// Set the number of rounds of the run.
    #[arg(long)]
    rounds: Option<u64>,
    /// Set the max number of clients per round that the system supports.
    #[arg(long, default_value_t = 6500)]
    report_goal: u64,
    /// Set the delta of the guarantee (for example 1e-10).
    #[arg(long, default_value = "1e-10", help_heading = "Target")]
    delta: f64,
    /// Meet at most this epsilon at --delta (for example 8).
    #[arg(long, group = "target", help_heading = "Target")]
    epsilon: Option<f64>,
    /// Meet at most this rho (zCDP, for example 0.5).
    #[arg(long, group = "target", help_heading = "Target")]
    rho: Option<f64>,
    /// Set the max number of participations per user (default: as many as the separation allows).
    #[arg(long)]
    max_participation: Option<u64>,
    /// Set the fraction, in (0, 1], of the max possible separation that the device timers reach.
    #[arg(long, default_value_t = 1.0)]
    separation_share: f64,
    /// Multiply the noise multipliers of the production runs by this factor.
    #[arg(long, default_value_t = 1.0)]
    noise_scale: f64,
    /// Plan with these mechanisms of production runs (default: all, or with --kinds only the optimised matrices).
    ///
    /// The names are tree, blt-100, blt-400, blt-1000 and independent. The BandMF matrices of production runs are not
    /// published, but `--kinds banded` computes such a matrix.
    #[arg(long = "mechanism", value_name = "NAME,...", value_delimiter = ',', value_parser = mechanism)]
    mechanisms: Vec<ProductionSetting>,
    #[command(flatten)]
    made: made::MadeArgs,
    /// Draw epsilon or rho into this SVG file. With --kinds, draw the noise at the target.
    #[cfg(feature = "pictures")]
    #[arg(long, value_name = "FILE", help_heading = "Picture")]
    svg: Option<PathBuf>,
    /// Draw over report goals up to --report-goal, or over rounds up to --rounds.
    #[cfg(feature = "pictures")]
    #[arg(long, value_enum, default_value = "report-goal", help_heading = "Picture")]
    over: Over,
}

#[cfg(feature = "pictures")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Draw over report goals, at --rounds.
    ReportGoal,
    /// Draw over rounds, at --report-goal.
    Rounds,
}

fn mechanism(name: &str) -> anyhow::Result<ProductionSetting> {
    let known = ProductionSetting::ALL.map(ProductionSetting::name).join(", ");
    ProductionSetting::by_name(name).ok_or_else(|| anyhow!("expected one of {known}, got '{name}'"))
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Plan<'a> {
    question: &'a PopulationQuestion,
    adjacency: &'static str,
    at_report_goal: Vec<Feasible>,
    /// The smallest report goal of two significant digits that meets the target, for each mechanism.
    smallest_report_goal: Vec<Smallest>,
    /// Matrices made for the question, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<made::Comparison>,
}

#[derive(Serialize)]
struct Smallest {
    mechanism: ProductionSetting,
    option: Option<Feasible>,
}

impl PlanArgs {
    /// The answer: what each mechanism promises at the report goal, and the smallest report goal that meets the target; and what
    /// matrices made for the question would leave of noise. `progress` hears what is being made.
    ///
    /// # Errors
    /// An error names the option, the expected value and the value found.
    pub fn answer(&self, progress: Progress<'_>) -> anyhow::Result<Shown> {
        let question = question(self)?;
        largest_gap(question.population, self.report_goal).context("--report-goal")?;
        let is_made = self.made.is_asked();
        let mechanisms = if self.mechanisms.is_empty() && !is_made {
            ProductionSetting::ALL.to_vec()
        } else {
            self.mechanisms.clone()
        };
        let made = is_made.then(|| self.made.compare(&question, self.report_goal, progress));
        let made = made.transpose()?;
        let mut at_report_goal = Vec::new();
        let mut smallest_report_goal = Vec::new();
        for &mechanism in &mechanisms {
            at_report_goal.push(question.option(mechanism, self.report_goal)?);
            let over_report_goals = question.over_report_goals(mechanism, self.report_goal)?;
            smallest_report_goal.push(Smallest {
                mechanism,
                option: over_report_goals
                    .iter()
                    .find(|option| option.meets_target)
                    .copied(),
            });
        }
        #[cfg(feature = "pictures")]
        if let Some(file) = &self.svg {
            let svg = self.svg(&question, &mechanisms, progress)?;
            std::fs::write(file, &svg).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let mut parts = vec![header(&question)];
        if !at_report_goal.is_empty() {
            parts.push(text(&at_report_goal, &smallest_report_goal, self.report_goal));
        }
        parts.extend(
            made.as_ref()
                .map(|made| made.text(self.report_goal).trim_end().to_owned()),
        );
        let plan = Plan {
            question: &question,
            adjacency: "zero-out",
            at_report_goal,
            smallest_report_goal,
            made,
        };
        Shown::new(&plan, parts.join("\n\n"))
    }

    /// The picture that `--svg` asks for.
    #[cfg(feature = "pictures")]
    fn svg(
        &self,
        question: &PopulationQuestion,
        mechanisms: &[ProductionSetting],
        progress: Progress<'_>,
    ) -> anyhow::Result<String> {
        let over_rounds = self.over == Over::Rounds;
        if self.made.is_asked() {
            return self.made.draw(question, self.report_goal, over_rounds, progress);
        }
        let curves = mechanisms.iter().map(|&mechanism| match self.over {
            Over::ReportGoal => question.over_report_goals(mechanism, self.report_goal),
            Over::Rounds => question.over_rounds(mechanism, self.report_goal),
        });
        chart::draw(question, &curves.collect::<Result<Vec<_>, _>>()?, over_rounds)
    }
}

fn question(args: &PlanArgs) -> anyhow::Result<PopulationQuestion> {
    let target = match (args.epsilon, args.rho) {
        (Some(epsilon), None) => Goal::Epsilon(Epsilon::new(epsilon)?),
        (None, Some(rho)) => Goal::Rho(Rho::new(rho)?),
        _ => bail!("--epsilon or --rho: expected the target of the plan, got none"),
    };
    let required = |option: &str, number: Option<u64>, what: &str| {
        number.ok_or_else(|| anyhow!("{option}: expected the number of {what}, got none"))
    };
    let population = required("--population", args.population, "users who can take part")?;
    let rounds = required("--rounds", args.rounds, "rounds of the run")?;
    let question = PopulationQuestion::new(population, rounds, Delta::new(args.delta)?, target)?
        .with_separation_share(args.separation_share)?
        .with_noise_scale(args.noise_scale)?;
    Ok(match args.max_participation {
        Some(max) => question.with_max_participation(max)?,
        None => question,
    })
}

fn header(question: &PopulationQuestion) -> String {
    let target = match question.target {
        Goal::Epsilon(epsilon) => format!("epsilon {epsilon} (rho {})", number(question.target_rho.get())),
        Goal::Rho(rho) => format!("rho {rho}"),
    };
    format!(
        "{} users, {} rounds, target {target} at delta {}; zero-out, no sampling assumed, separation enforced by timers",
        question.population,
        question.rounds,
        upper_bound(question.delta.get())
    )
}

fn text(at_report_goal: &[Feasible], smallest: &[Smallest], report_goal: u64) -> String {
    let mut text = format!("At report goal {report_goal}:\n{}\n", table(at_report_goal));
    let lowered = at_report_goal
        .iter()
        .find(|option| option.participation.is_lowered());
    if let Some(option) = lowered {
        text += &format!("note: {}\n", option.participation);
    }
    let found: Vec<Feasible> = smallest.iter().filter_map(|smallest| smallest.option).collect();
    if !found.is_empty() {
        text += &format!(
            "\nSmallest report goal that meets the target, of those with two significant digits:\n{}\n",
            table(&found)
        );
    }
    let missing = smallest.iter().filter(|smallest| smallest.option.is_none());
    let missing: Vec<&str> = missing.map(|smallest| smallest.mechanism.name()).collect();
    if !missing.is_empty() {
        text += &format!(
            "\nThe target is not met at any report goal up to {report_goal} by: {}. Raise the noise multiplier to `noise for \
             target`, at a cost in utility, or find more users.\n",
            missing.join(", ")
        );
    }
    if at_report_goal.iter().chain(&found).any(|option| !option.exact) {
        text += "\n~ marks an upper bound on rho, for more than 100 participations.\n";
    }
    text +=
        "\nMinS: rounds strictly between two participations of a user. MaxP: max participations per user.\n";
    text.trim_end().to_owned()
}

fn table(options: &[Feasible]) -> String {
    let header = [
        "mechanism",
        "report goal",
        "noise multiplier",
        "MinS",
        "MaxP",
        "rho",
        "epsilon",
        "target",
        "noise for target",
    ];
    let rows = options.iter().map(|option| {
        let sign = if option.exact { "" } else { "~" };
        vec![
            option.mechanism.name().to_owned(),
            option.report_goal.to_string(),
            number(option.noise_multiplier.get()),
            option.min_sep.get().to_string(),
            option.participation.participation.max_participation().to_string(),
            format!("{sign}{}", upper_bound(option.rho.get())),
            upper_bound(option.epsilon.get()),
            if option.meets_target { "met" } else { "missed" }.to_owned(),
            upper_bound(option.noise_for_target.get()),
        ]
    });
    grid(header, rows, 1)
}
