//! `undertone train CONFIG`, and what `undertone pretrain CONFIG` shares with it.

mod progress;
#[cfg(feature = "mpi")]
mod ranks;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::{epsilon_delta, share};
use undertone_present::table::grid;
use undertone_report::story::Story;
use undertone_run::{Observer, RunFile, RunOptions, Summary, checkpoint};
use undertone_run_directory::config::Override;
use undertone_run_directory::metrics::Metrics;

use super::stopped::{self, Stopped};
use crate::asked;
use crate::output::{Output, facts, value};
use crate::signals;
pub(super) use progress::Progress;

/// Arguments of `undertone train` and `undertone pretrain`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrainArgs {
    /// Read the run file (TOML) from this path. The folder `examples/` holds run files.
    pub(super) config: PathBuf,
    /// Change a key of the run file, for example `--set rounds=50 --set clip.norm=0.5`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) set: Vec<Override>,
    /// Continue the run from its last checkpoint.
    #[arg(long)]
    resume: bool,
    /// Write the run directory into this folder.
    #[arg(long, default_value = "runs", value_name = "FOLDER")]
    out: PathBuf,
    /// Set the number of threads (default: one per core). The result does not depend on it.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

/// Arguments of `undertone train`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    common: TrainArgs,
    /// Train the same run without privacy, as NAME-without-privacy. Its model is a ceiling to compare with, and never a release.
    #[arg(long)]
    without_privacy: bool,
    /// Share the work with the other processes that `mpirun` started. The result equals that of a single process.
    ///
    /// `--threads` sets the number of threads of each process.
    #[cfg(feature = "mpi")]
    #[arg(long)]
    mpi: bool,
}

/// Trains and shows how it went.
pub(crate) fn run(args: RunArgs, output: &Output) -> anyhow::Result<()> {
    #[cfg(feature = "mpi")]
    if args.mpi {
        return ranks::run(args, output);
    }
    let file = read(&args, output)?;
    let args = args.common;
    signals::end_in_order();
    let name = file.config.task.name.clone();
    show(args, (&name, "round"), output, |options, observer| {
        undertone_run::train(&file, options, observer)
    })
}

/// A run with its rows, as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    story: Option<&'a Story>,
}

/// Said of each run without privacy that is made to compare with.
const CEILING: &str = "no guarantee: a ceiling to compare with, never a release";

/// Reads the run file, and shows the settings that it leaves to their defaults.
fn read(args: &RunArgs, output: &Output) -> anyhow::Result<RunFile> {
    let mut file = RunFile::read(&args.common.config, &args.common.set)?;
    for line in &file.taken {
        output.note(&format!("default: {line}"));
    }
    if args.without_privacy {
        file.config = file.config.without_privacy();
        output.note(CEILING);
    }
    Ok(file)
}

/// Runs a training on the cores asked for, with its progress and then its summary on the terminal. The run has a name, and a word
/// for its rounds.
pub(super) fn show(
    args: TrainArgs,
    (name, unit): (&str, &'static str),
    output: &Output,
    train: impl FnOnce(&RunOptions, &dyn Observer) -> undertone_run::Result<Summary>,
) -> anyhow::Result<()> {
    let options = RunOptions {
        out: args.out,
        threads: start_threads(args.threads)?,
        resume: args.resume,
    };
    let progress = Progress::new(output, unit);
    let result = train(&options, &progress);
    progress.clear();
    let summary = result.map_err(|error| match stopped::was_ended(&error) {
        true => {
            let goes_on = checkpoint::path(&options.out.join(name)).exists();
            let (how, flag) = match goes_on {
                true => ("Go on", Some("--resume")),
                false => ("Start again", None),
            };
            let (kept, line) = (progress.kept(), stopped::same_again(flag));
            Stopped(format!("{kept}. {how} with: {line}")).into()
        }
        false => anyhow::Error::from(error),
    })?;
    undertone_report::write(&summary.run_dir).with_context(|| {
        let run_dir = summary.run_dir.display();
        format!("the run is finished, but its report could not be drawn; draw it again with `undertone report {run_dir}`")
    })?;
    let run = undertone_report::read(&summary.run_dir)?;
    let story = Story::of(&run).map(|story| story.by(stopped::without_privacy()));
    let shown = Shown {
        summary: &summary,
        story: story.as_ref(),
    };
    output.show(&shown, || {
        let story = story.as_ref().map(in_rows).unwrap_or_default();
        format!("{}\n\n{story}", table(&summary))
    })
}

/// The rows of a run, and the sentences below them.
pub(super) fn in_rows(story: &Story) -> String {
    let rows = story.rows().into_iter().map(|row| row.to_vec());
    let sentences = story.sentences().into_iter().map(value);
    let sentences: String = sentences.map(|sentence| format!("\n{sentence}")).collect();
    format!("{}{sentences}", grid(Story::COLUMNS, rows, Story::COLUMNS.len()))
}

/// The number of threads: those asked for, or as many as there are cores.
pub(super) fn threads(asked: Option<NonZeroUsize>) -> usize {
    let threads = asked.or(std::thread::available_parallelism().ok());
    threads.map_or(1, NonZeroUsize::get)
}

/// Starts the threads of this process and returns their number: those asked for, or as many as there are cores.
pub(super) fn start_threads(number: Option<NonZeroUsize>) -> anyhow::Result<usize> {
    let threads = threads(number);
    if asked::is_on() {
        // Those of the caller are there.
        return Ok(rayon::current_num_threads());
    }
    // Sums and noise run on the same cores as the users do.
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .context("cannot start the threads")?;
    Ok(threads)
}

/// A fraction in per cent.
pub(super) fn percent(value: f64) -> String {
    format!("{:.2} %", 100.0 * value)
}

/// A guarantee in one line.
pub(super) fn guarantee(record: &GuaranteeRecord) -> String {
    format!(
        "{}, {}",
        epsilon_delta(record.epsilon, record.delta),
        record.adjacency
    )
}

/// The conditions of a guarantee, in one line.
pub(super) fn assumptions(record: &GuaranteeRecord) -> String {
    if let Some(schema) = &record.schema {
        return format!(
            "{}: {}; rho {:.4}; {} rounds, {} users, {:.1} per round, noise multiplier {:.4}",
            schema.mechanism,
            schema.participation(),
            schema.rho,
            record.rounds,
            record.population,
            record.users_per_round,
            record.noise_multiplier,
        );
    }
    let cohort = match record.group_size {
        Some(group_size) => format!("at most {group_size} examples per user"),
        None => format!("{:.1} per round", record.users_per_round),
    };
    format!(
        "{}, {}; {} rounds, {} users, {cohort}, noise multiplier {:.4}",
        record.sampling, record.recipe, record.rounds, record.population, record.noise_multiplier,
    )
}

/// The measures of an evaluation behind the accuracies of words.
pub(super) fn measures(metrics: &Metrics) -> Vec<(&'static str, String)> {
    let (targets, unknown) = (metrics.targets, metrics.out_of_vocabulary);
    let accuracies = metrics.other_accuracies().into_iter();
    let mut rows: Vec<_> = accuracies
        .map(|(name, value, error)| (name, share(value, error)))
        .collect();
    rows.push(("targets", format!("{targets} ({unknown} out of vocabulary)")));
    rows.extend(metrics.users.map(|users| {
        let several = metrics.top1_standard_error.is_some();
        let meaning = if several {
            "; ± is one standard error over them"
        } else {
            ""
        };
        ("users", format!("{users}{meaning}"))
    }));
    rows
}

/// The results of a run, beside its rows.
pub(super) fn table(summary: &Summary) -> String {
    let metrics = &summary.metrics;
    let mut rows = vec![
        ("rounds", summary.rounds.to_string()),
        ("training time", format!("{:.1} s", summary.train_seconds)),
        (
            "top-3, top-5",
            format!(
                "{}, {}",
                share(metrics.top3, metrics.top3_standard_error),
                share(metrics.top5, metrics.top5_standard_error)
            ),
        ),
    ];
    rows.extend(measures(metrics));
    if let Some(value) = summary.best_accuracy {
        rows.push(("best reachable top-1", percent(value)));
    }
    let privacy = &summary.privacy;
    for (name, record) in [
        ("guarantee (planned)", privacy.planned.as_ref()),
        ("guarantee (worst case)", privacy.worst_case.as_ref()),
        (
            "guarantee (claimed)",
            (privacy.stopped.as_ref()).and_then(|stopped| stopped.claimed.as_ref()),
        ),
        ("guarantee (observed)", privacy.observed.as_ref()),
        ("guarantee with the vocabulary", privacy.with_vocabulary.as_ref()),
        (
            "guarantee with the initial model",
            privacy.with_initial_model.as_ref(),
        ),
        ("estimate, not a guarantee", privacy.estimate.as_ref()),
    ] {
        if let Some(record) = record {
            rows.push((name, guarantee(record)));
            rows.push(("", assumptions(record)));
        }
    }
    rows.extend(
        summary
            .warning
            .iter()
            .chain(&summary.privacy.warnings)
            .map(|warning| ("warning", warning.clone())),
    );
    rows.extend(
        summary
            .stopped_early
            .iter()
            .map(|reason| ("stopped early", reason.clone())),
    );
    rows.push((
        "report",
        summary.run_dir.join("report.html").display().to_string(),
    ));
    facts(rows)
}
