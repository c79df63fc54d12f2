//! `undertone sweep SWEEP`.

mod pictures;
mod text;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use undertone_present::numbers::epsilon_delta;
use undertone_report::ReportError;
use undertone_run::RunOptions;
use undertone_run_directory::config::Override;
use undertone_run_directory::files::{write_atomic, write_json};
use undertone_studies::sweep::{Comparison, Sweep, TrialState};

use super::stopped::{self, Stopped};
use super::train::{Progress, start_threads, threads};
use crate::output::{Output, facts, value};
use crate::signals;

/// Arguments of `undertone sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// Read the sweep file (TOML) from this path. The folder `examples/sweeps/` holds sweep files.
    sweep: PathBuf,
    /// Change a key of every run, for example `--set rounds=50`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Write the folder of the sweep into this folder.
    #[arg(long, default_value = "runs", value_name = "FOLDER")]
    out: PathBuf,
    /// Set the number of threads (default: one per core). The result does not depend on it.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Compare the finished runs without training any.
    #[arg(long, conflicts_with = "private")]
    compare_only: bool,
    /// Train a secret number of candidates and keep only the best one, with one guarantee for all. The sweep file needs [private].
    #[arg(long)]
    private: bool,
}

/// Trains what is missing and shows the comparison.
pub(crate) fn run(args: &SweepArgs, output: &Output) -> anyhow::Result<()> {
    let sweep = Sweep::read(&args.sweep, &args.set)?;
    match (args.private, &sweep.config.private) {
        (true, _) => return select(&sweep, args, output),
        // PRIVACY: an ordinary sweep shows each run, and its statement would be none.
        (false, Some(_)) => bail!(
            "{}: the file has the table [private], so its candidates must not be shown: give --private, or remove the table",
            args.sweep.display()
        ),
        (false, None) => {}
    }
    let folder = sweep.folder(&args.out);
    if !args.compare_only {
        train(&sweep, args, output)?;
    }
    let comparison = sweep.compare(&args.out, threads(args.threads))?;
    write(&folder, &comparison)?;
    output.show(&comparison, || {
        format!(
            "{}\n\nThe files comparison.json and comparison.md and the pictures are in {}.",
            text::table(&comparison),
            value(&folder.display().to_string())
        )
    })
}

/// PRIVACY: nothing is shown of a candidate, not even that it began or ended, because their number is secret.
fn select(sweep: &Sweep, args: &SweepArgs, output: &Output) -> anyhow::Result<()> {
    let options = RunOptions {
        out: args.out.clone(),
        threads: start_threads(args.threads)?,
        resume: false,
    };
    let bar = output.spinner("training a secret number of candidates");
    let selected = sweep.select(&options);
    bar.finish_and_clear();
    let selected = selected?;
    output.show(&selected, || {
        let guarantee = match &selected.selected {
            Some(record) => format!(
                "{}, {}; {}",
                epsilon_delta(record.epsilon, record.delta),
                record.adjacency,
                record.recipe
            ),
            None => "none: the noise is too small for any guarantee to be stated".to_owned(),
        };
        facts([
            ("selected", selected.combination.clone()),
            ("guarantee of the sweep", guarantee),
            ("run", selected.run_dir.display().to_string()),
            (
                "not covered",
                "another sweep or run over the same people, and whatever metrics.jsonl of the run shows"
                    .to_owned(),
            ),
        ])
    })
}

fn train(sweep: &Sweep, args: &SweepArgs, output: &Output) -> anyhow::Result<()> {
    let folder = sweep.folder(&args.out);
    let options = RunOptions {
        out: args.out.clone(),
        threads: start_threads(args.threads)?,
        resume: false,
    };
    signals::end_in_order();
    // Before any training: no run may turn out to be another one hours later.
    let mut open = Vec::new();
    for trial in &sweep.trials {
        if trial.state(&folder)? != TrialState::Finished {
            open.push(trial);
        }
    }
    let finished = sweep.trials.len() - open.len();
    for (done, trial) in open.into_iter().enumerate() {
        let progress = Progress::new(output, "round");
        let name = &trial.file.config.task.name;
        let number = finished + done + 1;
        let all = sweep.trials.len();
        progress.say(&format!("run {number} of {all}: {name}"));
        let result = sweep.train(trial, &options, &progress);
        progress.clear();
        if let Err(ReportError::Run(error)) = &result
            && stopped::was_ended(error)
        {
            // A sweep goes on by itself where it was cut off.
            let (kept, line) = (progress.kept(), stopped::same_again(None));
            bail!(Stopped(format!(
                "run {number} of {all} ({name}): {kept}. Go on with: {line}"
            )));
        }
        result.with_context(|| format!("run {name}"))?;
    }
    // The comparison writes its files last, so it may end anywhere.
    signals::end_at_once();
    if signals::asked_to_end() {
        let line = stopped::same_again(None);
        bail!(Stopped(format!(
            "stopped after the last run; all runs are kept. Compare them with: {line}"
        )));
    }
    Ok(())
}

fn write(folder: &Path, comparison: &Comparison) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    write_json(&folder.join("comparison.json"), comparison)?;
    let mut page = text::markdown(comparison);
    for (name, svg) in pictures::curves(comparison)? {
        write_atomic(&folder.join(&name), svg.as_bytes())?;
        page += &format!("\n![Accuracy over rounds]({name})\n");
    }
    if let Some(svg) = pictures::losses(comparison)? {
        write_atomic(&folder.join("loss.svg"), svg.as_bytes())?;
        page += "\n![Loss at the end](loss.svg)\n";
    }
    Ok(write_atomic(&folder.join("comparison.md"), page.as_bytes())?)
}
