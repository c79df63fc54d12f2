//! `undertone audit canaries` and `undertone audit noise`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use undertone_mechanisms::{Mechanism, Strategy};
use undertone_run::audit::lane::is_there;
use undertone_run::config::{Override, RunFile};
use undertone_run::files::read_json;
use undertone_run::verify::read_lane;
use undertone_run::{config_digest, named_strategy, randomness, read};
use undertone_studies::audit::lane::{Setting, Size};
use undertone_studies::audit::mechanism::MechanismAudit;
use undertone_studies::audit::record::Control;
use undertone_studies::audit::text;

use super::FileArgs;
use crate::commands::train::threads;
use crate::output::Output;

/// Options of both audits of the mechanism.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Read the settings from this run directory or run file.
    run: PathBuf,
    /// Change a key of a run file, for example `--set privacy.noise_multiplier=1.5`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Set the number of users of a run file; a run directory states its own.
    #[arg(long, value_name = "N")]
    users: Option<u64>,
    /// Set the number of canaries, which are the population of the rehearsal.
    #[arg(long, value_name = "M", default_value_t = 1000)]
    canaries: u64,
    /// Set the number of coordinates without contributions, whose noise is tested.
    #[arg(long, value_name = "COLUMNS", default_value_t = 256)]
    probes: usize,
    /// Give each canary of a rehearsal a random direction in so many coordinates (default: a coordinate of its own).
    #[arg(long, value_name = "COORDINATES")]
    directions: Option<std::num::NonZeroU64>,
    /// Fix the coins and the noise of the rehearsal, for study (default: the operating system's entropy).
    #[arg(long)]
    seed: Option<u64>,
    /// Run a positive control: plant an error that the audit should report, by default half of the stated noise.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "half-noise", value_name = "ERROR")]
    control: Option<Planted>,
    #[command(flatten)]
    file: FileArgs,
}

/// The error of a positive control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Planted {
    /// Add half of the stated noise.
    HalfNoise,
    /// Tell the attacker the coins of Poisson cohorts, which the claim takes to be secret.
    PoissonCoins,
    /// Train the copy without clipping and noise, at the level of texts.
    WithoutPrivacy,
}

impl Planted {
    fn control(self) -> Control {
        match self {
            Self::HalfNoise => Control::Noise(0.5),
            Self::PoissonCoins => Control::PoissonCoins,
            Self::WithoutPrivacy => Control::WithoutPrivacy,
        }
    }
}

/// The level of an audit with canaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Rehearse the mechanism without users and model.
    Mechanism,
    /// Read the canaries of the run itself, which a run file with `[audit] lane` has.
    Lane,
    /// Train a copy of a finished run with invented users, and attack its final model.
    Text,
}

/// Arguments of `undertone audit canaries`.
#[derive(Debug, clap::Args)]
pub(super) struct CanariesArgs {
    /// Set the level of the canaries.
    #[arg(long, value_enum, default_value = "mechanism")]
    level: Level,
    /// Resolve relative paths of the run's data settings in this folder, at the level of texts (default: `.`).
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    base: PathBuf,
    /// Set the number of threads, at the level of texts (default: one per core).
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Set the number of rounds of `--control=without-privacy` (default: those of the run).
    #[arg(long, value_name = "ROUNDS")]
    control_rounds: Option<std::num::NonZeroU64>,
    #[command(flatten)]
    run: RunArgs,
}

/// Arguments of `undertone audit noise`.
#[derive(Debug, clap::Args)]
pub(super) struct NoiseArgs {
    /// Test a rehearsal, although the run has probes of its own.
    #[arg(long)]
    rehearse: bool,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn canaries(args: &CanariesArgs, output: &Output) -> anyhow::Result<()> {
    if args.control_rounds.is_some() && args.level != Level::Text {
        bail!("--control-rounds: expected --level text with it");
    }
    match args.level {
        Level::Mechanism => audit(&args.run, true, output),
        Level::Lane => of_run(&args.run, true, output),
        Level::Text => of_texts(args, output),
    }
}

/// Attacks the final model of a copy of a finished run, which is trained with invented users.
fn of_texts(args: &CanariesArgs, output: &Output) -> anyhow::Result<()> {
    let run = &args.run;
    if !run.run.is_dir() || !run.set.is_empty() || run.users.is_some() || run.directions.is_some() {
        bail!(
            "--level text: expected the directory of a finished run, without --set, --users and --directions"
        );
    }
    if run.canaries < 10 {
        bail!("--canaries: expected at least 10, got {}", run.canaries);
    }
    let control = match run.control {
        None if args.control_rounds.is_some() => {
            bail!("--control-rounds: expected `--control=without-privacy` with it")
        }
        None => None,
        Some(Planted::WithoutPrivacy) => Some(()),
        Some(_) => bail!("--control: expected `--control=without-privacy` with --level text"),
    };
    let file = RunFile::read(&run.run.join("config.toml"), &[])?;
    let file = RunFile::new(file.config, args.base.clone());
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let rounds = args
        .control_rounds
        .map_or(file.config.task.rounds, std::num::NonZeroU64::get);
    let question = text::Question {
        canaries: run.canaries,
        control: control.map(|()| rounds),
        scratch: scratch.path(),
        threads: threads(args.threads),
    };
    let bar = output.spinner("training a copy");
    let mut pass = 0;
    let done = text::audit(&run.run, &file, &question, &mut || {
        pass += 1;
        randomness(run.seed.map(|seed| seed.wrapping_add(pass - 1)))
    });
    bar.finish_and_clear();
    run.file.finish(&run.run, done?, output)
}

pub(super) fn noise(args: &NoiseArgs, output: &Output) -> anyhow::Result<()> {
    match is_there(&args.run.run) && !args.rehearse {
        true => of_run(&args.run, false, output),
        false => audit(&args.run, false, output),
    }
}

/// Reads the lane of a finished run, or of a published copy of one.
fn of_run(args: &RunArgs, canaries: bool, output: &Output) -> anyhow::Result<()> {
    let given = args.control.is_some() || args.seed.is_some() || args.directions.is_some();
    if given || !args.set.is_empty() || args.users.is_some() {
        bail!(
            "--control, --seed, --directions, --set and --users: expected a rehearsal; the lane of a run is as it is"
        );
    }
    if !args.run.is_dir() {
        bail!(
            "{}: expected the directory of a run that was made with [audit]",
            args.run.display()
        );
    }
    let done = read_lane(&args.run)?.audit(canaries)?;
    args.file.finish(&args.run, done, output)
}

/// Most values that a rehearsal keeps in memory: 4 GiB of them.
const MOST_VALUES: u64 = 1 << 29;

fn audit(args: &RunArgs, canaries: bool, output: &Output) -> anyhow::Result<()> {
    let (file, strategy, users) = settings(args)?;
    let task = &file.config.task;
    if args.canaries < 10 || args.probes < 2 {
        bail!(
            "--canaries and --probes: expected at least 10 and at least 2, got {} and {}",
            args.canaries,
            args.probes
        );
    }
    let columns = args.directions.map_or(args.canaries, std::num::NonZeroU64::get);
    let values = (columns.saturating_add(args.probes as u64)).saturating_mul(task.rounds);
    if values > MOST_VALUES {
        bail!(
            "{}: expected at most {MOST_VALUES} values over all rounds, got {} + {} columns in {} rounds",
            args.directions.map_or("--canaries", |_| "--directions"),
            columns,
            args.probes,
            task.rounds
        );
    }
    if args.control == Some(Planted::WithoutPrivacy) {
        bail!("--control=without-privacy: expected --level text, as a rehearsal trains no model");
    }
    let config_sha256 = config_digest(&file.config)?;
    let audit = MechanismAudit {
        setting: Setting {
            task,
            strategy: strategy.as_ref(),
            users,
        },
        size: Size {
            canaries: args.canaries,
            probes: args.probes,
            directions: args.directions.map(std::num::NonZeroU64::get),
            control: args.control.map(Planted::control),
        },
        config_sha256: &config_sha256,
        canaries,
    };
    let bar = output.spinner("rehearsing");
    let mut pass = 0;
    let done = audit.run(&mut || {
        pass += 1;
        randomness(args.seed.map(|seed| seed.wrapping_add(pass - 1)))
    });
    bar.finish_and_clear();
    args.file.finish(&args.run, done?, output)
}

/// The settings of a run file or run directory, with its strategy and its number of users.
fn settings(args: &RunArgs) -> anyhow::Result<(RunFile, Option<Strategy>, u64)> {
    if !args.run.is_dir() {
        let file = RunFile::read(&args.run, &args.set)?;
        let users = args.users.context(
            "--users: expected the number of users of the run, because a run file does not state it",
        )?;
        if users == 0 {
            bail!("--users: expected at least 1, got 0");
        }
        let strategy = named_strategy(&file.config.task, &file.base)?;
        return Ok((file, strategy, users));
    }
    if !args.set.is_empty() || args.users.is_some() {
        bail!("--set and --users: expected a run file; a run directory states its own settings and users");
    }
    let config = args.run.join("config.toml");
    let file = RunFile::read(&config, &[])?;
    let privacy = read::read(&args.run)?.privacy;
    let users = privacy
        .and_then(|privacy| Some(privacy.planned?.population))
        .with_context(|| {
            format!(
                "{}: expected a planned guarantee of a private run",
                args.run.display()
            )
        })?;
    Ok((file, made_with(&args.run)?, users))
}

/// The strategy that a run was made with.
fn made_with(run: &Path) -> anyhow::Result<Option<Strategy>> {
    let path = run.join("mechanism.json");
    if !path.exists() {
        return Ok(None);
    }
    let mechanism: Mechanism = read_json(&path)?;
    Ok(Some(mechanism.strategy().clone()))
}
