//! `undertone mechanism show`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::{Gap, Participation, Spacing};
use undertone_accounting::sensitivity::production;
use undertone_mechanisms::optimize::Problem;
use undertone_mechanisms::{Blt, CertifiedSensitivity, Described, Errors, Losses, Objective, Strategy};
use undertone_run_directory::files::write_atomic;

use super::description;
use super::head::Head;
use super::kind::Kind;
use super::optimize::parameters;
use super::privacy::Stated;
use super::run::Run;
use super::setting::SettingArgs;
use super::sweep::{Curve, Over, Sweep};
use super::table::{self, Memory};
use crate::commands::NO_GROUP;
use crate::output::{Output, facts, value};
use undertone_present::table::grid;

/// Arguments of `undertone mechanism show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Show these files, or these named mechanisms.
    ///
    /// A file is one of `mechanism optimize --out`, or your own matrix: its rows, or the coefficients of a Toeplitz matrix, as JSON,
    /// text or an array of numpy (.npy).
    ///
    /// The names are the production sets blt-100, blt-400 and blt-1000, and the kinds that need no optimisation: independent,
    /// tree, tree-full, fhu, bisr, square-root and normalised-square-root.
    #[arg(required = true, value_name = "FILE or NAME")]
    subjects: Vec<String>,
    #[command(flatten)]
    setting: SettingArgs,
    /// Show this many coefficients.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, help_heading = NO_GROUP)]
    coefficients: usize,
    /// Show the losses for gaps or rounds that differ from the plan.
    ///
    /// Each point has as many participations as fit, up to --max-participation.
    #[arg(long, value_enum, value_name = "OVER", help_heading = "Sweep")]
    sweep: Option<Over>,
    /// Sweep over these values (default: from an eighth of the planned value to four times it).
    #[arg(
        long,
        value_name = "VALUE,...",
        value_delimiter = ',',
        requires = "sweep",
        help_heading = "Sweep"
    )]
    at: Vec<u64>,
    /// Add the best BLT with this many buffers for each value of the sweep.
    #[arg(long, value_name = "BUFFERS", requires = "sweep", help_heading = "Sweep")]
    with_optimum: Option<usize>,
    /// Draw the sweep into this SVG file.
    #[arg(long, value_name = "FILE", value_parser = crate::commands::svg_file, requires = "sweep", help_heading = "Sweep")]
    svg: Option<PathBuf>,
}

/// A mechanism with the run it is shown for.
struct Subject {
    label: String,
    strategy: Strategy,
    run: Run,
    noise_multiplier: Option<NoiseMultiplier>,
}

/// Everything about one mechanism.
#[derive(Debug, Serialize)]
struct Shown {
    subject: String,
    name: String,
    run: Run,
    workload: String,
    /// Rounds that the matrix was made for; none where it goes on for ever.
    made_for_rounds: Option<usize>,
    sensitivity: CertifiedSensitivity,
    losses: Losses,
    errors: Errors,
    memory: Memory,
    head: Head,
    sensitivities: Patterns,
    privacy: Option<Stated>,
    #[serde(skip)]
    parameters: Vec<(String, String)>,
}

/// Sensitivity by participations and gap.
#[derive(Debug, Serialize)]
struct Patterns {
    max_participation: Vec<u64>,
    rows: Vec<Pattern>,
}

#[derive(Debug, Serialize)]
struct Pattern {
    gap: u64,
    /// One value for each number of participations; `None` where so many do not fit.
    sensitivities: Vec<Option<CertifiedSensitivity>>,
}

#[derive(Debug, Serialize)]
struct Swept {
    over: Over,
    objective: Objective,
    run: Run,
    curves: Vec<Curve>,
}

pub(super) fn run(args: &ShowArgs, output: &Output) -> anyhow::Result<()> {
    args.setting.check_dim()?;
    ensure!(
        args.coefficients > 0,
        "--coefficients: expected at least 1, got 0"
    );
    let mut subjects: Vec<Subject> = Vec::new();
    for name in &args.subjects {
        let before = subjects.first().map(|subject| subject.run.clone());
        subjects.push(subject(name, args, before.as_ref())?);
    }
    if let Some(over) = args.sweep {
        return sweep(over, &subjects, args, output);
    }
    let shown = subjects
        .iter()
        .map(|subject| show(subject, args))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if output.json {
        return output.print_json(&shown);
    }
    let texts: Vec<String> = shown.iter().map(Shown::text).collect();
    output.print(&texts.join("\n\n"))
}

/// A mechanism that brings no run of its own takes that of the first one, `before`.
fn subject(name: &str, args: &ShowArgs, before: Option<&Run>) -> anyhow::Result<Subject> {
    let label = name.to_owned();
    if let Some(blt) = production::all().into_iter().find(|blt| blt.name == name) {
        let made_for = Run::new(
            usize::try_from(blt.rounds)?,
            Participation::at_least(Gap::new(blt.gap)?, blt.max_participation)?,
        )?;
        return Ok(Subject {
            label,
            strategy: Strategy::Blt(Blt::production(blt)?),
            run: args.setting.run.run(Some(&made_for))?,
            noise_multiplier: None,
        });
    }
    if let Ok(kind) = Kind::from_str(name, false) {
        ensure!(
            !kind.is_optimised(),
            "{name}: this kind must be optimised first; give the file that `undertone mechanism optimize {name} --out FILE` writes"
        );
        args.setting.sizes.check(kind)?;
        let run = args.setting.run.run(before)?;
        let problem = Problem::new(run.rounds, run.participation);
        return Ok(Subject {
            label,
            strategy: kind.make(&problem, &args.setting.sizes)?.strategy,
            run,
            noise_multiplier: None,
        });
    }
    if !Path::new(name).exists() {
        let sets = production::all().map(|blt| blt.name.to_owned());
        let kinds = Kind::value_variants().iter().filter(|kind| !kind.is_optimised());
        let known: Vec<String> = sets
            .into_iter()
            .chain(kinds.map(|kind| kind.name().to_owned()))
            .collect();
        bail!("{name}: no such file or name; the names are {}", known.join(", "));
    }
    let (strategy, made_for, noise_multiplier) = match description::read(Path::new(name))? {
        Described::Mechanism(mechanism) => (
            mechanism.strategy().clone(),
            Some(Run::new(mechanism.rounds(), mechanism.participation())?),
            Some(mechanism.noise_multiplier()),
        ),
        Described::Strategy(strategy) => (strategy, None, None),
    };
    let run = args
        .setting
        .run
        .run(made_for.as_ref().or(before))
        .with_context(|| format!("{name} holds {} without a run", strategy.name()))?;
    if let Some(made) = strategy.rounds() {
        ensure!(
            run.rounds <= made,
            "--rounds: {name} holds {} for {made} rounds; expected at most {made}, got {}",
            strategy.name(),
            run.rounds
        );
    }
    Ok(Subject {
        label,
        strategy,
        run,
        noise_multiplier,
    })
}

fn show(subject: &Subject, args: &ShowArgs) -> anyhow::Result<Shown> {
    let Subject { strategy, run, .. } = subject;
    let workload = args.setting.workload.workload(run.rounds)?;
    let sensitivity = strategy.squared_sensitivity(run.rounds, &run.participation)?;
    let errors = strategy.errors(run.rounds, &workload)?;
    Ok(Shown {
        subject: subject.label.clone(),
        name: strategy.name(),
        run: run.clone(),
        workload: args.setting.workload.shown(),
        made_for_rounds: strategy.rounds(),
        sensitivity,
        losses: errors.losses(sensitivity.squared),
        errors,
        memory: Memory::new(strategy, run, args.setting.dim),
        head: Head::of(strategy, run.rounds, args.coefficients)?,
        sensitivities: patterns(strategy, run)?,
        privacy: args
            .setting
            .privacy
            .state(strategy, run, subject.noise_multiplier)?,
        parameters: match strategy {
            Strategy::Blt(_) | Strategy::NormalisedBlt(_) => parameters(strategy, run.rounds)?,
            _ => Vec::new(),
        },
    })
}

/// Around the run's own gap, up to its own number of participations.
fn patterns(strategy: &Strategy, run: &Run) -> anyhow::Result<Patterns> {
    let rounds = run.rounds as u64;
    let own = run.participation.gap().get().min(rounds);
    let mut gaps: Vec<u64> = [own / 4, own / 2, own, own.saturating_mul(2)]
        .into_iter()
        .map(|gap| gap.clamp(1, rounds))
        .collect();
    gaps.dedup();
    let max = run.participation.max_participation();
    let mut counts: Vec<u64> = if max <= 8 {
        (1..=max).collect()
    } else {
        (0..)
            .map(|power| 1 << power)
            .take_while(|count| *count < max)
            .collect()
    };
    if counts.last() != Some(&max) {
        counts.push(max);
    }
    let mut rows = Vec::new();
    for gap in gaps {
        let gap = Gap::new(gap)?;
        let cell = |count: &u64| -> anyhow::Result<Option<CertifiedSensitivity>> {
            if gap.fitting(rounds) < *count {
                return Ok(None);
            }
            let schema = match run.participation.spacing() {
                Spacing::AtLeast => Participation::at_least(gap, *count)?,
                Spacing::Exactly => Participation::fixed_epochs(gap, *count)?,
            };
            Ok(Some(strategy.squared_sensitivity(run.rounds, &schema)?))
        };
        rows.push(Pattern {
            gap: gap.get(),
            sensitivities: counts.iter().map(cell).collect::<anyhow::Result<_>>()?,
        });
    }
    Ok(Patterns {
        max_participation: counts,
        rows,
    })
}

impl Shown {
    fn text(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("run", self.run.shown());
        if let Some(rounds) = self.made_for_rounds {
            row("made for", format!("{rounds} rounds"));
        }
        row("workload", self.workload.clone());
        row(
            "MaxLoss, RmsLoss",
            format!("{:.6}, {:.6}", self.losses.max_loss, self.losses.rms_loss),
        );
        row(
            "MaxError, RmsError",
            format!("{:.6}, {:.6}", self.errors.max_error, self.errors.rms_error),
        );
        row("sensitivity", table::certified(self.sensitivity));
        row("memory", self.memory.shown());
        rows.extend(self.parameters.iter().cloned().chain(self.head.rows()));
        if let Some(stated) = &self.privacy {
            rows.extend(stated.rows());
        }
        let title = if self.subject == self.name {
            self.name.clone()
        } else {
            format!("{}: {}", self.subject, self.name)
        };
        let mut text = format!("{}\n\n{}", value(&title), facts(rows));
        if let Some(lowered) = &self.run.lowered {
            text += &format!("\n\nnote: {lowered}");
        }
        text + &format!(
            "\n\nSensitivity by gap and by number of participations (k):\n{}",
            self.sensitivities.text()
        )
    }
}

impl Patterns {
    fn text(&self) -> String {
        let header = ["gap".to_owned()]
            .into_iter()
            .chain(self.max_participation.iter().map(|count| format!("k = {count}")));
        let mut bounded = false;
        let rows = self.rows.iter().map(|row| {
            let cells = row.sensitivities.iter().map(|cell| {
                bounded |= cell.is_some_and(|certified| !certified.exact);
                cell.map_or_else(|| "-".to_owned(), table::sensitivity)
            });
            [row.gap.to_string()].into_iter().chain(cells).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let mut text = grid(header, rows, 0);
        if bounded {
            text += "\n~ marks a proved upper bound.";
        }
        text
    }
}

fn sweep(over: Over, subjects: &[Subject], args: &ShowArgs, output: &Output) -> anyhow::Result<()> {
    let first = subjects
        .first()
        .context("expected the name or file of a mechanism")?;
    let limit = first.run.participation.max_participation();
    let sweep = Sweep {
        over,
        run: &first.run,
        limit: args.setting.run.limits_participation().then_some(limit),
        workload: &args.setting.workload,
    };
    ensure!(
        over == Over::Rounds || first.run.participation.gap().get() < u64::MAX,
        "--sweep min-sep needs the planned gap: --min-sep or --rounds-between"
    );
    let strategies: Vec<&Strategy> = subjects.iter().map(|subject| &subject.strategy).collect();
    let values = sweep.values(&args.at, &strategies)?;
    let bar = output.spinner("sweeping");
    let mut curves = Vec::new();
    for subject in subjects {
        curves.push(sweep.curve(subject.label.clone(), &subject.strategy, &values)?);
    }
    if let Some(buffers) = args.with_optimum {
        curves.push(sweep.optimum(buffers, &values)?);
    }
    bar.finish_and_clear();
    let objective = args.setting.workload.objective();
    if let Some(file) = &args.svg {
        write_atomic(file, sweep.draw(&curves, objective)?.as_bytes()).context("--svg")?;
    }
    let swept = Swept {
        over,
        objective,
        run: first.run.clone(),
        curves,
    };
    output.show(&swept, || swept.text(&values))
}

impl Swept {
    fn text(&self, values: &[u64]) -> String {
        let (name, fixed) = match self.over {
            Over::MinSep => ("gap", format!("{} rounds", self.run.rounds)),
            Over::Rounds => ("rounds", format!("gap {}", self.run.participation.gap().get())),
        };
        let header = [name.to_owned(), "k".to_owned()]
            .into_iter()
            .chain(self.curves.iter().map(|curve| curve.name.clone()));
        let mut bounded = false;
        let rows: Vec<Vec<String>> = (0..values.len())
            .map(|index| {
                let count = self
                    .curves
                    .first()
                    .map(|curve| curve.points[index].max_participation);
                let mut cells = vec![values[index].to_string(), count.unwrap_or_default().to_string()];
                for curve in &self.curves {
                    let point = &curve.points[index];
                    bounded |= !point.sensitivity.exact;
                    let sign = if point.sensitivity.exact { "" } else { "~" };
                    cells.push(format!("{sign}{:.4}", point.losses.get(self.objective)));
                }
                cells
            })
            .collect();
        let mut text = format!(
            "{} over the actual {name}; {fixed}; k is the number of participations: as many as fit, or the limit\n\n{}",
            self.objective,
            grid(header, rows, 0)
        );
        if bounded {
            text += "\n~ marks a proved upper bound.";
        }
        text
    }
}
