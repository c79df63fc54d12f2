//! `undertone audit canaries` and `undertone audit noise`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use undertone_audit::lane::is_there;
use undertone_audit::noise::MAX_REHEARSED;
use undertone_mechanisms::{Mechanism, Strategy};
use undertone_run::RunFile;
use undertone_run_directory::config::{MAX_CANARIES, Override};
use undertone_run_directory::entropy::randomness;
use undertone_run_directory::files::read_json;
use undertone_run_directory::plan_inputs::{config_digest, named_strategy};
use undertone_run_directory::read;
use undertone_studies::audit::lane::{LaneInputs, Size};
use undertone_studies::audit::mechanism::MechanismAudit;
use undertone_studies::audit::record::{Audit, Control};
use undertone_studies::audit::text;
use undertone_verify::read_lane;

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
    /// Set the number of canaries, which are the population of a rehearsal (default: 1000).
    #[arg(long, value_name = "M")]
    canaries: Option<u64>,
    /// Set the number of coordinates of a rehearsal without contributions, whose noise is tested (default: 256).
    #[arg(long, value_name = "COLUMNS")]
    probes: Option<usize>,
    /// Give each canary of a rehearsal a random direction in so many coordinates (default: a coordinate of its own). All bounds are then from
    /// guesses.
    #[arg(long, value_name = "COORDINATES")]
    directions: Option<std::num::NonZeroU64>,
    /// Fix the coins and the noise of the audit, for study (default: the operating system's entropy). The audit names the seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Run a positive control: plant an error that the audit should report, by default half of the stated noise.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "half-noise", value_name = "ERROR")]
    control: Option<Planted>,
    #[command(flatten)]
    file: FileArgs,
}

impl RunArgs {
    /// The number of canaries, in its range.
    fn canaries(&self) -> anyhow::Result<u64> {
        let canaries = self.canaries.unwrap_or(1000);
        ensure!(
            (10..=MAX_CANARIES).contains(&canaries),
            "--canaries: expected a number in [10, {MAX_CANARIES}], got {canaries}"
        );
        Ok(canaries)
    }

    /// The number of probes, in its range.
    fn probes(&self) -> anyhow::Result<usize> {
        let probes = self.probes.unwrap_or(256);
        ensure!(probes >= 2, "--probes: expected at least 2, got {probes}");
        Ok(probes)
    }
}

/// Refuses the first of these options that is given, with what it goes with.
fn refuse(options: &[(&str, bool)], expected: &str) -> anyhow::Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => bail!("{option}: expected {expected}"),
        None => Ok(()),
    }
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
    #[arg(long, value_name = "FOLDER")]
    base: Option<PathBuf>,
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
    if args.level != Level::Text {
        let options = [
            ("--control-rounds", args.control_rounds.is_some()),
            ("--base", args.base.is_some()),
            ("--threads", args.threads.is_some()),
        ];
        refuse(&options, "--level text with it")?;
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
    ensure!(
        run.run.is_dir(),
        "--level text: expected the directory of a finished run, got {}",
        run.run.display()
    );
    let options = [
        ("--set", !run.set.is_empty()),
        ("--users", run.users.is_some()),
        ("--probes", run.probes.is_some()),
        ("--directions", run.directions.is_some()),
    ];
    refuse(&options, "a rehearsal with it; --level text trains a copy")?;
    let canaries = run.canaries()?;
    let control = match run.control {
        None if args.control_rounds.is_some() => {
            bail!("--control-rounds: expected `--control=without-privacy` with it")
        }
        None => None,
        Some(Planted::WithoutPrivacy) => Some(()),
        Some(_) => bail!("--control: expected `--control=without-privacy` with --level text"),
    };
    run.file.check(&run.run, control.is_some())?;
    let file = RunFile::read(&run.run.join("config.toml"), &[])?;
    let base = args.base.clone().unwrap_or_else(|| PathBuf::from("."));
    let file = RunFile::new(file.config, base);
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let rounds = args
        .control_rounds
        .map_or(file.config.task.rounds, std::num::NonZeroU64::get);
    let request = text::TextAuditRequest {
        canaries,
        control: control.map(|()| rounds),
        scratch: scratch.path(),
        threads: threads(args.threads),
    };
    let bar = output.spinner("training a copy");
    let mut pass = 0;
    let done = text::audit(&run.run, &file, &request, &mut || {
        pass += 1;
        Ok(randomness(run.seed.map(|seed| seed.wrapping_add(pass - 1)))?)
    });
    bar.finish_and_clear();
    run.file.finish(&run.run, seeded(done?, run.seed)?, output)
}

pub(super) fn noise(args: &NoiseArgs, output: &Output) -> anyhow::Result<()> {
    if args.run.control == Some(Planted::PoissonCoins) {
        bail!("--control=poisson-coins: expected `undertone audit canaries` with it, as noise has no coins");
    }
    match is_there(&args.run.run) && !args.rehearse {
        true => of_run(&args.run, false, output),
        false => audit(&args.run, false, output),
    }
}

/// Reads the lane of a finished run, or of a published copy of one.
fn of_run(args: &RunArgs, canaries: bool, output: &Output) -> anyhow::Result<()> {
    let options = [
        ("--control", args.control.is_some()),
        ("--seed", args.seed.is_some()),
        ("--directions", args.directions.is_some()),
        ("--set", !args.set.is_empty()),
        ("--users", args.users.is_some()),
        ("--canaries", args.canaries.is_some()),
        ("--probes", args.probes.is_some()),
    ];
    refuse(&options, "a rehearsal with it; the lane of a run is as it is")?;
    if !args.run.is_dir() {
        bail!(
            "{}: expected the directory of a run that was made with [audit]",
            args.run.display()
        );
    }
    args.file.check(&args.run, false)?;
    let done = read_lane(&args.run)?.audit(canaries)?;
    args.file.finish(&args.run, done, output)
}

fn audit(args: &RunArgs, canaries: bool, output: &Output) -> anyhow::Result<()> {
    args.file.check(&args.run, args.control.is_some())?;
    let (number, probes) = (args.canaries()?, args.probes()?);
    let (file, strategy, users) = settings(args)?;
    let task = &file.config.task;
    // With directions, a value of each canary and round is kept beside those of the coordinates.
    let directions = args.directions.map(std::num::NonZeroU64::get);
    let kinds = [("--canaries", Some(number)), ("--directions", directions)];
    for (option, columns) in kinds
        .into_iter()
        .filter_map(|(option, columns)| Some((option, columns?)))
    {
        let values = columns.saturating_add(probes as u64).saturating_mul(task.rounds);
        ensure!(
            values <= MAX_REHEARSED,
            "{option} and --probes: expected at most {MAX_REHEARSED} values over all rounds, got {columns} + {probes} columns in {} rounds",
            task.rounds
        );
    }
    if args.control == Some(Planted::WithoutPrivacy) {
        bail!("--control=without-privacy: expected --level text, as a rehearsal trains no model");
    }
    let config_sha256 = config_digest(&file.config)?;
    let audit = MechanismAudit {
        inputs: LaneInputs {
            task,
            strategy: strategy.as_ref(),
            users,
        },
        size: Size {
            canaries: number,
            probes,
            directions,
            control: args.control.map(Planted::control),
        },
        config_sha256: &config_sha256,
        canaries,
    };
    let bar = output.spinner("rehearsing");
    let mut pass = 0;
    let done = audit.run(&mut || {
        pass += 1;
        Ok(randomness(args.seed.map(|seed| seed.wrapping_add(pass - 1)))?)
    });
    bar.finish_and_clear();
    args.file.finish(&args.run, seeded(done?, args.seed)?, output)
}

/// The audit with the seed that the auditor chose, where there is one.
fn seeded(audit: Audit, seed: Option<u64>) -> anyhow::Result<Audit> {
    Ok(match seed {
        Some(seed) => audit.seeded(seed)?,
        None => audit,
    })
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
