//! `undertone plan`: for a population by options, or for a run file.

mod file;

use std::cell::RefCell;
use std::path::PathBuf;

use indicatif::ProgressBar;
use undertone_planner::population::PlanArgs;
use undertone_run_directory::config::Override;

use crate::output::Output;

/// Options of a question that a run file answers itself.
const OF_A_QUESTION: [&str; 12] = [
    "rounds",
    "report_goal",
    "delta",
    "epsilon",
    "rho",
    "max_participation",
    "separation_share",
    "noise_scale",
    "mechanisms",
    "kinds",
    "svg",
    "over",
];

/// Arguments of `undertone plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanCommand {
    /// Plan the run of this run file (TOML), with --population users to train on. Its text is not opened.
    #[arg(value_name = "RUN", conflicts_with_all = OF_A_QUESTION)]
    file: Option<PathBuf>,
    /// Change a key of the run file, for example `--set rounds=400`.
    #[arg(
        long = "set",
        value_name = "KEY=VALUE",
        requires = "file",
        help_heading = "Run file"
    )]
    set: Vec<Override>,
    /// Set the number of examples that all users keep together, for a run file with example-level sampling.
    #[arg(long, value_name = "N", requires = "file", help_heading = "Run file")]
    examples: Option<u64>,
    #[command(flatten)]
    question: PlanArgs,
}

/// Answers the question, with a spinner for each matrix that is made.
pub(crate) fn run(args: &PlanCommand, output: &Output) -> anyhow::Result<()> {
    if let Some(path) = &args.file {
        let facts = file::Declared {
            users: args.question.population,
            examples: args.examples,
        };
        return file::run(path, &args.set, facts, output);
    }
    let spinner: RefCell<Option<ProgressBar>> = RefCell::new(None);
    let shown = args.question.answer(&|made| {
        if let Some(done) = spinner.replace(made.map(|made| output.spinner(made))) {
            done.finish_and_clear();
        }
    })?;
    output.print_shown(&shown)
}
