//! `undertone mechanism optimize`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;
use undertone_mechanisms::optimize::BltDiagnostics;
use undertone_mechanisms::{CertifiedSensitivity, Errors, Losses, Objective, Strategy};

use super::description;
use super::head::Head;
use super::kind::Kind;
use super::privacy::Stated;
use super::run::Run;
use super::setting::SettingArgs;
use super::table::{self, Memory};
use crate::commands::NO_GROUP;
use crate::output::{Output, facts};

/// Parts of the progress bar.
const BAR: u64 = 1000;

/// Coefficients that are shown.
const SHOWN: usize = 8;

/// Arguments of `undertone mechanism optimize`.
#[derive(Debug, clap::Args)]
pub(super) struct OptimizeArgs {
    /// Optimise a matrix of this kind.
    #[arg(value_enum)]
    kind: Kind,
    #[command(flatten)]
    setting: SettingArgs,
    /// Write the mechanism to this JSON file, or only the matrix if no noise is given.
    #[arg(long, value_name = "FILE", help_heading = NO_GROUP)]
    out: Option<PathBuf>,
}

/// The found strategy.
#[derive(Debug, Serialize)]
struct Found {
    kind: Kind,
    name: String,
    run: Run,
    workload: String,
    objective: Objective,
    sensitivity: CertifiedSensitivity,
    losses: Losses,
    errors: Errors,
    memory: Memory,
    search: Option<BltDiagnostics>,
    seconds: f64,
    privacy: Option<Stated>,
    #[serde(skip)]
    parameters: Vec<(String, String)>,
    /// Unless it is in a file.
    strategy: Option<Strategy>,
}

pub(super) fn run(args: &OptimizeArgs, output: &Output) -> anyhow::Result<()> {
    let kind = args.kind;
    if !kind.is_optimised() {
        let known: Vec<&str> = Kind::value_variants()
            .iter()
            .filter(|kind| kind.is_optimised())
            .map(|kind| kind.name())
            .collect();
        bail!(
            "{}: this kind has nothing to optimise; expected one of {} (`undertone mechanism show {0}` shows this kind)",
            kind.name(),
            known.join(", ")
        );
    }
    args.setting.check_dim()?;
    args.setting.sizes.check(kind)?;
    args.setting.privacy.check(None)?;
    let run = args.setting.run.run(None)?;
    let problem = args.setting.workload.problem(&run)?;
    let bar = search_bar(kind, output);
    let start = Instant::now();
    let made = kind.make_watched(&problem, &args.setting.sizes, &mut |progress| {
        bar.set_position((progress.fraction * BAR as f64) as u64);
        bar.set_message(format!("step {}", progress.steps));
    });
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let made = made?;
    let strategy = made.strategy;
    let sensitivity = strategy.squared_sensitivity(run.rounds, &run.participation)?;
    let errors = strategy.errors(run.rounds, &problem.workload)?;
    let privacy = args.setting.privacy.state(&strategy, &run, None)?;
    if let Some(file) = &args.out {
        description::write(file, &strategy, privacy.as_ref().map(|stated| &stated.mechanism))?;
    }
    let found = Found {
        kind,
        name: strategy.name(),
        workload: args.setting.workload.shown(),
        objective: problem.objective,
        sensitivity,
        losses: errors.losses(sensitivity.squared),
        errors,
        memory: Memory::new(&strategy, &run, args.setting.dim),
        search: made.search,
        seconds,
        privacy,
        parameters: parameters(&strategy, run.rounds)?,
        run,
        strategy: args.out.is_none().then_some(strategy),
    };
    output.show(&found, || found.text(args))
}

/// A bar where the search reports its progress, otherwise the current work and its time.
fn search_bar(kind: Kind, output: &Output) -> ProgressBar {
    let name = kind.name();
    match kind {
        Kind::BANDED => output.bar(
            BAR,
            &format!("optimising {name} {{bar:40}} {{percent}} % {{msg}} {{elapsed}}"),
        ),
        _ => output.spinner(&format!("optimising {name}")),
    }
}

impl Found {
    fn text(&self, args: &OptimizeArgs) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("run", self.run.shown());
        row("workload", format!("{}, for {}", self.workload, self.objective));
        row("MaxLoss", format!("{:.6}", self.losses.max_loss));
        row("RmsLoss", format!("{:.6}", self.losses.rms_loss));
        row("MaxError", format!("{:.6}", self.errors.max_error));
        row("RmsError", format!("{:.6}", self.errors.rms_error));
        row("sensitivity", table::certified(self.sensitivity));
        row("memory", self.memory.shown());
        for (name, value) in &self.parameters {
            row(name, value.clone());
        }
        if let Some(search) = &self.search {
            row("loss by buffers", table::list(&search.loss_by_buffers, false));
            if let (Some(interior), Some(edge)) = (search.interior_loss, search.edge_loss) {
                row(
                    "two local minima",
                    format!("{interior:.6} with a first decay below 1, {edge:.6} with a first decay of 1"),
                );
            }
        }
        row("found in", format!("{:.3} s", self.seconds));
        if let Some(stated) = &self.privacy {
            rows.extend(stated.rows());
        }
        let mut text = format!("{}\n\n{}", self.name, facts(rows));
        if let Some(lowered) = &self.run.lowered {
            text += &format!("\n\nnote: {lowered}");
        }
        if let Some(file) = &args.out {
            let what = if self.privacy.is_some() {
                "mechanism"
            } else {
                "strategy"
            };
            text += &format!("\n\nThe {what} was written to {}.", file.display());
        }
        text
    }
}

/// The parameters that determine a strategy, or the first of them.
pub(super) fn parameters(strategy: &Strategy, rounds: usize) -> anyhow::Result<Vec<(String, String)>> {
    let buffers = |blt: &undertone_mechanisms::Blt| {
        let wide = |values: &[f64]| {
            let shown: Vec<String> = values.iter().map(|value| format!("{value:.10e}")).collect();
            shown.join(" ")
        };
        vec![
            ("1 - theta".to_owned(), wide(blt.decay_complements())),
            ("omega".to_owned(), wide(blt.output_scales())),
        ]
    };
    Ok(match strategy {
        Strategy::Blt(blt) => buffers(blt),
        Strategy::NormalisedBlt(normalised) => buffers(normalised.blt()),
        _ => Head::of(strategy, rounds, SHOWN)?.rows(),
    })
}
