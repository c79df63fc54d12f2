//! `undertone mechanism compare`.

mod over;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, gaussian};
use undertone_mechanisms::optimize::Problem;
use undertone_mechanisms::{CertifiedSensitivity, Losses, Objective, Strategy};
use undertone_present::csv;
use undertone_present::numbers::{number, upper_bound};
use undertone_run_directory::files::write_atomic;

use super::kind::{Kind, SizeArgs};
use super::run::{Run, RunArgs};
use super::table::{self, Memory};
use super::workload::WorkloadArgs;
use super::{bars, description, privacy, timing};
use crate::commands::{NO_GROUP, svg_file};
use crate::output::Output;
use undertone_present::table::grid;

/// Arguments of `undertone mechanism compare`.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Add these files of `mechanism optimize --out`, or your own matrices, to the comparison.
    ///
    /// A matrix is given by its rows, or by the coefficients of a Toeplitz matrix, as JSON, text or an array of numpy (.npy).
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    sizes: SizeArgs,
    /// Compare these kinds (default: all kinds except banded and dense). BandMF is the kind banded.
    #[arg(long = "kinds", value_name = "KIND,...", value_delimiter = ',', value_enum, help_heading = NO_GROUP)]
    kinds: Vec<Kind>,
    /// Add BandMF, the kind banded. It takes about 20 CPU seconds for 2000 rounds and 342 bands.
    #[arg(long, help_heading = NO_GROUP)]
    with_bandmf: bool,
    /// Compute the noise of each mechanism that meets this epsilon at --delta (for example 8).
    #[arg(
        long,
        help_heading = "Guarantee",
        allow_negative_numbers = true,
        requires = "delta",
        conflicts_with = "iterate_noise"
    )]
    target_epsilon: Option<f64>,
    /// Compute epsilon at --delta for noise in the iterates of this standard deviation, in clip norms.
    ///
    /// The objective decides whether it is the noise of the worst iterate or the root mean square over the iterates.
    #[arg(
        long,
        help_heading = "Guarantee",
        allow_negative_numbers = true,
        requires = "delta",
        value_name = "STD"
    )]
    iterate_noise: Option<f64>,
    /// Set the delta of the guarantee (for example 1e-6).
    #[arg(long, allow_negative_numbers = true, help_heading = "Guarantee")]
    delta: Option<f64>,
    /// Set the number of model parameters, for the memory and the time per round.
    #[arg(long, default_value_t = 1_000_000, help_heading = NO_GROUP)]
    dim: u64,
    /// Measure the time of the noise per round on this machine, for --dim parameters.
    #[arg(long, help_heading = NO_GROUP)]
    measure_time: bool,
    /// Compare over several values of this quantity, with a line for each mechanism.
    ///
    /// Each kind is made anew for each value. A file stays as it is.
    #[arg(long, value_enum, value_name = "QUANTITY", help_heading = "Sweep")]
    over: Option<over::Over>,
    /// Set the values of --over (default: five to seven around the run's own).
    #[arg(
        long,
        value_name = "VALUE,...",
        value_delimiter = ',',
        requires = "over",
        help_heading = "Sweep"
    )]
    at: Vec<f64>,
    /// Draw the comparison into this SVG file.
    #[arg(long, value_name = "FILE", value_parser = svg_file, help_heading = NO_GROUP)]
    svg: Option<PathBuf>,
    /// Write the comparison into this file of comma-separated values.
    #[arg(long, value_name = "FILE", help_heading = NO_GROUP)]
    csv: Option<PathBuf>,
}

/// The question about privacy.
#[derive(Debug, Clone, Copy)]
enum Question {
    Losses,
    Noise(Epsilon, Delta),
    Epsilon(f64, Delta),
}

/// A mechanism to compare: a kind, which is made for each run, or a matrix of a file.
#[derive(Debug)]
enum Candidate {
    Kind(Kind),
    File(String, Box<Strategy>),
}

/// One mechanism.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// The kind; `None` for a matrix of a file.
    kind: Option<Kind>,
    /// The file; `None` for a kind.
    file: Option<String>,
    pub(super) name: String,
    sensitivity: CertifiedSensitivity,
    pub(super) losses: Losses,
    pub(super) memory: Memory,
    /// To make the matrix, its losses and its sensitivity.
    made_in_seconds: f64,
    noise_multiplier: Option<NoiseMultiplier>,
    /// Standard deviation of the noise in the iterates, in clip norms.
    iterate_noise: Option<f64>,
    epsilon: Option<Epsilon>,
    #[serde(rename = "seconds_a_round")]
    seconds_per_round: Option<f64>,
}

/// All mechanisms, the smallest loss first.
#[derive(Debug, Serialize)]
struct Comparison {
    run: Run,
    workload: String,
    objective: Objective,
    delta: Option<f64>,
    rows: Vec<Row>,
    /// Kinds that the run does not suit, and why.
    refused: Vec<(String, String)>,
}

pub(super) fn run(args: &CompareArgs, output: &Output) -> anyhow::Result<()> {
    ensure!(args.dim > 0, "--dim: expected at least 1, got 0");
    let run = args.run.run(None)?;
    let candidates = candidates(args)?;
    if let Some(over) = args.over {
        return over::run(over, &candidates, &run, args, output);
    }
    let question = question(args)?;
    let problem = args.workload.problem(&run)?;
    let mut rows = Vec::new();
    let mut refused = Vec::new();
    for candidate in candidates {
        let bar = output.spinner(&format!("making {}", candidate.name()));
        let row = candidate.row(&problem, &run, args).and_then(|mut row| {
            row.answer(question, problem.objective)?;
            Ok(row)
        });
        bar.finish_and_clear();
        match row {
            Ok(row) => rows.push(row),
            Err(error) => refused.push(candidate.refused(args, error)?),
        }
    }
    if rows.is_empty() {
        let (name, why) = refused.swap_remove(0);
        bail!("{name}: {why}");
    }
    let loss = |row: &Row| row.losses.get(problem.objective);
    rows.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    let comparison = Comparison {
        workload: args.workload.shown(),
        objective: problem.objective,
        delta: args.delta,
        rows,
        refused,
        run,
    };
    if let Some(file) = &args.svg {
        let svg = bars::draw(
            &comparison.title(question),
            &comparison.rows,
            comparison.objective,
        )?;
        write_atomic(file, svg.as_bytes()).context("--svg")?;
    }
    if let Some(file) = &args.csv {
        write_atomic(file, comparison.csv().as_bytes()).context("--csv")?;
    }
    output.show(&comparison, || comparison.text(question))
}

/// All kinds and files that are compared.
fn candidates(args: &CompareArgs) -> anyhow::Result<Vec<Candidate>> {
    let kinds = kinds(args);
    args.sizes.check_any(&kinds)?;
    let mut all: Vec<Candidate> = kinds.into_iter().map(Candidate::Kind).collect();
    for file in &args.files {
        let strategy = description::read(file)?.strategy().clone();
        all.push(Candidate::File(file.display().to_string(), Box::new(strategy)));
    }
    Ok(all)
}

impl Candidate {
    fn name(&self) -> String {
        match self {
            Self::Kind(kind) => kind.name().to_owned(),
            Self::File(file, _) => file.clone(),
        }
    }

    /// The matrix for a problem.
    fn strategy(&self, problem: &Problem, sizes: &SizeArgs) -> anyhow::Result<Strategy> {
        match self {
            Self::Kind(kind) => Ok(kind.make(problem, &sizes.of(*kind))?.strategy),
            Self::File(_, strategy) => Ok((**strategy).clone()),
        }
    }

    /// The name of the matrix in tables.
    fn shown(&self, strategy: &Strategy) -> String {
        match self {
            Self::Kind(_) => strategy.name(),
            Self::File(file, _) => format!("{file}: {}", strategy.name()),
        }
    }

    /// The reason why a mechanism does not suit the run. It is an error for one that was asked for by name.
    fn refused(&self, args: &CompareArgs, error: anyhow::Error) -> anyhow::Result<(String, String)> {
        match self {
            Self::Kind(kind) if !args.kinds.contains(kind) => Ok((self.name(), format!("{error:#}"))),
            _ => Err(error.context(self.name())),
        }
    }

    fn row(&self, problem: &Problem, run: &Run, args: &CompareArgs) -> anyhow::Result<Row> {
        let start = Instant::now();
        let strategy = self.strategy(problem, &args.sizes)?;
        let sensitivity = strategy.squared_sensitivity(run.rounds, &run.participation)?;
        let errors = strategy.errors(run.rounds, &problem.workload)?;
        let made_in_seconds = start.elapsed().as_secs_f64();
        let seconds_per_round = match args.measure_time {
            true => Some(timing::seconds_per_round(&strategy, run, args.dim)?),
            false => None,
        };
        let (kind, file) = match self {
            Self::Kind(kind) => (Some(*kind), None),
            Self::File(file, _) => (None, Some(file.clone())),
        };
        Ok(Row {
            kind,
            file,
            name: self.shown(&strategy),
            sensitivity,
            losses: errors.losses(sensitivity.squared),
            memory: Memory::new(&strategy, run, args.dim),
            made_in_seconds,
            noise_multiplier: None,
            iterate_noise: None,
            epsilon: None,
            seconds_per_round,
        })
    }
}

fn kinds(args: &CompareArgs) -> Vec<Kind> {
    let default = Kind::value_variants()
        .iter()
        .copied()
        .filter(|kind| ![Kind::BANDED, Kind::DENSE].contains(kind));
    let mut kinds: Vec<Kind> = if args.kinds.is_empty() {
        default.collect()
    } else {
        args.kinds.clone()
    };
    if args.with_bandmf && !kinds.contains(&Kind::BANDED) {
        kinds.push(Kind::BANDED);
    }
    kinds
}

fn question(args: &CompareArgs) -> anyhow::Result<Question> {
    let delta = args.delta.map(Delta::new).transpose().context("--delta")?;
    Ok(match (args.target_epsilon, args.iterate_noise, delta) {
        (Some(epsilon), _, Some(delta)) => {
            Question::Noise(Epsilon::new(epsilon).context("--target-epsilon")?, delta)
        }
        (_, Some(noise), Some(delta)) => {
            ensure!(
                noise > 0.0 && noise.is_finite(),
                "--iterate-noise: expected a finite number above 0, got {noise}"
            );
            Question::Epsilon(noise, delta)
        }
        (None, None, None) => Question::Losses,
        _ => bail!("--delta needs --target-epsilon or --iterate-noise"),
    })
}

impl Row {
    fn answer(&mut self, question: Question, objective: Objective) -> anyhow::Result<()> {
        let loss = self.losses.get(objective);
        match question {
            Question::Losses => {}
            Question::Noise(epsilon, delta) => {
                let noise = privacy::noise_multiplier(self.sensitivity, epsilon, delta)?;
                self.iterate_noise = Some(noise.get() / self.losses.sensitivity * loss);
                self.noise_multiplier = Some(noise);
            }
            Question::Epsilon(noise, delta) => {
                // A Gaussian of this noise multiplier, relative to its sensitivity, leaves that noise.
                let relative = NoiseMultiplier::new(noise / loss)?;
                self.noise_multiplier = Some(NoiseMultiplier::new(relative.get() * self.losses.sensitivity)?);
                self.epsilon = Some(gaussian::epsilon(relative, delta)?);
                self.iterate_noise = Some(noise);
            }
        }
        Ok(())
    }
}

impl Comparison {
    /// The title of the picture, with the question about privacy.
    fn title(&self, question: Question) -> String {
        let asked = match question {
            Question::Losses => String::new(),
            Question::Noise(epsilon, delta) => {
                format!(
                    "; epsilon {}, delta {}",
                    number(epsilon.get()),
                    number(delta.get())
                )
            }
            Question::Epsilon(noise, delta) => {
                format!(
                    "; noise {} clip norms, delta {}",
                    number(noise),
                    number(delta.get())
                )
            }
        };
        format!("{}: {}{asked}", self.objective, self.run.shown())
    }

    /// One line per mechanism.
    fn csv(&self) -> String {
        let header = "mechanism,max_loss,rms_loss,sensitivity,sensitivity_is_exact,noise_multiplier,iterate_noise,epsilon,vectors,bytes";
        let header = header.split(',').map(str::to_owned).collect();
        let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let rows = self.rows.iter().map(|row| {
            vec![
                row.name.clone(),
                row.losses.max_loss.to_string(),
                row.losses.rms_loss.to_string(),
                row.losses.sensitivity.to_string(),
                row.sensitivity.exact.to_string(),
                optional(row.noise_multiplier.map(NoiseMultiplier::get)),
                optional(row.iterate_noise),
                optional(row.epsilon.map(Epsilon::get)),
                row.memory.vectors.to_string(),
                row.memory.bytes.to_string(),
            ]
        });
        csv::lines([header].into_iter().chain(rows))
    }

    fn text(&self, question: Question) -> String {
        let best = self
            .rows
            .first()
            .map_or(1.0, |row| row.losses.get(self.objective));
        let mut header = vec!["mechanism".to_owned()];
        header.extend(["MaxLoss", "RmsLoss", "above best", "sensitivity"].map(str::to_owned));
        match question {
            Question::Losses => {}
            Question::Noise(..) => {
                header.extend(["noise multiplier", "noise in iterates"].map(str::to_owned));
            }
            Question::Epsilon(..) => header.extend(["noise multiplier", "epsilon"].map(str::to_owned)),
        }
        header.extend(["vectors", "memory", "computed in"].map(str::to_owned));
        let timed = self.rows.iter().any(|row| row.seconds_per_round.is_some());
        if timed {
            header.push("time per round".to_owned());
        }
        let rows = self.rows.iter().map(|row| {
            let loss = row.losses.get(self.objective);
            let mut cells = vec![
                row.name.clone(),
                format!("{:.4}", row.losses.max_loss),
                format!("{:.4}", row.losses.rms_loss),
                format!("+{:.1} %", (loss / best - 1.0) * 100.0),
                table::sensitivity(row.sensitivity),
            ];
            if let Some(noise) = row.noise_multiplier {
                cells.push(upper_bound(noise.get()));
                cells.push(match (row.epsilon, row.iterate_noise) {
                    (Some(epsilon), _) => upper_bound(epsilon.get()),
                    (None, noise) => noise.map(number).unwrap_or_default(),
                });
            }
            let remade = match row.memory.remade_rows {
                0 => String::new(),
                rows => format!(" (recomputes {rows})"),
            };
            cells.extend([
                format!("{}{remade}", row.memory.vectors),
                table::bytes(row.memory.bytes),
                format!("{:.3} s", row.made_in_seconds),
            ]);
            if timed {
                cells.push(
                    row.seconds_per_round
                        .map_or_else(String::new, |s| format!("{} s", number(s))),
                );
            }
            cells
        });
        let mut text = format!("{}; {}\n", self.run.shown(), self.workload);
        if let Some(lowered) = &self.run.lowered {
            text += &format!("note: {lowered}\n");
        }
        text += &format!("\n{}\n", grid(header, rows, 1));
        for (name, why) in &self.refused {
            text += &format!("\nnot possible for this run: {name}: {why}");
        }
        text += &match question {
            Question::Losses => {
                "\nLosses are noise in the iterates at equal privacy. Give --delta with --target-epsilon to compute the noise, \
                 or with --iterate-noise to compute epsilon."
                    .to_owned()
            }
            Question::Noise(epsilon, delta) => format!(
                "\nAll mechanisms meet epsilon {} at delta {} (zero-out, exact Gaussian, no sampling assumed). The noise in the \
                 iterates is in clip norms, {}.",
                number(epsilon.get()),
                upper_bound(delta.get()),
                spread(self.objective)
            ),
            Question::Epsilon(noise, delta) => format!(
                "\nAll mechanisms have noise of {} clip norms in the iterates ({}). Epsilon is at delta {} (zero-out, exact \
                 Gaussian, no sampling assumed).",
                number(noise),
                spread(self.objective),
                upper_bound(delta.get())
            ),
        };
        text += &format!(
            "\nMemory is that of releases with {} parameters of 8 bytes. A stream of f32 values needs half of it.",
            self.rows.first().map_or(0, |row| row.memory.dim)
        );
        if self.rows.iter().any(|row| row.memory.remade_rows > 0) {
            text += " Noise that is recomputed costs time instead of memory.";
        }
        if self.rows.iter().any(|row| !row.sensitivity.exact) {
            text += "\n~ marks a sensitivity that is a proved upper bound.";
        }
        text
    }
}

fn spread(objective: Objective) -> &'static str {
    match objective {
        Objective::MaxLoss => "in the worst iterate",
        Objective::RmsLoss => "root mean square",
    }
}
