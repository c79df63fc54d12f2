//! `undertone simulate CONFIG`.

mod pictures;
mod sweep;
mod text;

use std::path::{Path, PathBuf};

use anyhow::Context;
use undertone_run_directory::config::Override;
use undertone_run_directory::files::{write_atomic, write_json};
use undertone_studies::simulate::{self, Simulation, SimulationFile};

use crate::output::{Output, value};
use sweep::Sweep;

/// Arguments of `undertone simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Read the simulation file (TOML) from this path, for example `examples/timers.toml`.
    config: PathBuf,
    /// Change a key of the file, for example `--set population=50000 --set timers.timer_hours=72`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Write ledger.jsonl, summary.json and rounds.svg into this folder. A sweep writes summary.json and sweep.svg.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Simulate once per value of a key, for example `timer_hours=24,48,72`.
    ///
    /// A key without a dot belongs to the table `timers`, except for `population`, `rounds` and `seed`.
    #[arg(long, value_name = "KEY=VALUE,...")]
    sweep: Option<Sweep>,
}

/// Simulates and shows the result.
pub(crate) fn run(args: &SimulateArgs, output: &Output) -> anyhow::Result<()> {
    let file = SimulationFile::read(&args.config, &args.set)?;
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    if let Some(sweep) = &args.sweep {
        return sweep.run(args, output);
    }
    let ledger = args.out.as_deref().map(|folder| folder.join("ledger.jsonl"));
    let simulation = simulated(&file, ledger.as_deref(), "", output)?;
    if let Some(folder) = &args.out {
        let svg = pictures::rounds(&simulation)?;
        write_atomic(&folder.join("rounds.svg"), svg.as_bytes())?;
        write_json(&folder.join("summary.json"), &simulation)?;
    }
    if output.json {
        return output.print_json(&simulation);
    }
    let mut shown = text::of(&simulation);
    if let Some(folder) = &args.out {
        shown += &format!(
            "\n\nThe files ledger.jsonl, summary.json and rounds.svg are in {}.",
            value(&folder.display().to_string())
        );
    }
    output.print(&shown)
}

/// One simulation under a bar of its rounds.
fn simulated(
    file: &SimulationFile,
    ledger: Option<&Path>,
    what: &str,
    output: &Output,
) -> anyhow::Result<Simulation> {
    let template = "rounds {bar:40} {pos}/{len}  {elapsed} elapsed, {eta} left  {msg}";
    let bar = output.bar(file.config.rounds, template);
    let result = simulate::run(&file.config, &file.base, ledger, &mut |round| {
        bar.inc(1);
        // As often as a bar is drawn is often enough.
        if round.round % 16 == 0 {
            bar.set_message(format!("day {:.1}  {what}", round.ended as f64 / 86_400.0));
        }
    });
    bar.finish_and_clear();
    Ok(result?)
}
