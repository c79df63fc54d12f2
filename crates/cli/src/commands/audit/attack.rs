//! `undertone audit attack`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use undertone_present::numbers::{epsilon_delta, number};
use undertone_run::config::RunFile;
use undertone_run::files::write_json;
use undertone_run::read;
use undertone_studies::audit::attack::{Attack, Control, Membership, membership};

use crate::commands::train::threads;
use crate::output::{Output, facts, value};

/// The kind of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Tell users who were trained on from held-out users.
    Membership,
}

/// Arguments of `undertone audit attack`.
#[derive(Debug, clap::Args)]
pub(super) struct AttackArgs {
    /// Read the run from this directory.
    run: PathBuf,
    /// Set the kind of attack.
    #[arg(long, value_enum, default_value = "membership")]
    kind: Kind,
    /// Set the max number of users on each side.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    users: usize,
    /// Attack a positive control as well: the same run without clipping and noise, trained for this many rounds.
    #[arg(long, value_name = "ROUNDS")]
    control: Option<std::num::NonZeroU64>,
    /// Resolve relative paths of the run's data settings in this folder (default: `.`).
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    base: PathBuf,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Write the figures as JSON to this file, for example `audit-private.json`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &AttackArgs, output: &Output) -> anyhow::Result<()> {
    let Kind::Membership = args.kind;
    if args.users < 2 {
        bail!("--users: expected at least 2, got {}", args.users);
    }
    let file = RunFile::read(&args.run.join("config.toml"), &[])
        .with_context(|| format!("{} is not a run directory", args.run.display()))?;
    let file = RunFile::new(file.config, args.base.clone());
    let claim = read::read(&args.run)?
        .privacy
        .and_then(|privacy| privacy.observed);
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let control = args.control.map(|rounds| Control {
        rounds: rounds.get(),
        scratch: scratch.path(),
        threads: threads(args.threads),
    });
    let bar = output.spinner("attacking");
    let attack = membership(&args.run, &file, claim, args.users, control);
    bar.finish_and_clear();
    let attack = attack?;
    if let Some(out) = &args.out {
        write_json(out, &attack)?;
    }
    output.show(&attack, || {
        let written = args.out.as_ref().map(|out| {
            let out = out.display().to_string();
            format!("\n\nThe figures are in {}.", value(&out))
        });
        text(&attack) + &written.unwrap_or_default()
    })?;
    Ok(())
}

fn text(attack: &Attack) -> String {
    let mut rows = vec![("run", attack.run.clone())];
    if let Some(claim) = &attack.claim {
        rows.push(("claim", epsilon_delta(claim.epsilon, claim.delta)));
    }
    rows.push(("attack", of(&attack.attack)));
    if let Some(limit) = &attack.limit {
        rows.push((
            "limit",
            format!(
                "any attack: area {}, found {}; with a Gaussian trade-off: {} and {}",
                number(limit.auc),
                number(limit.found),
                number(limit.auc_gaussian),
                number(limit.found_gaussian)
            ),
        ));
    }
    if let Some((rounds, control)) = &attack.control {
        rows.push((
            "control",
            format!("{rounds} rounds without clipping and noise: {}", of(control)),
        ));
    }
    facts(rows) + "\n\n" + &attack.statements.join("\n")
}

fn of(found: &Membership) -> String {
    format!(
        "area {} ({} to {}), found {} ({} to {}) at {} false alarms, 95 % intervals; {} members against {} others, median tokens {} and {}",
        number(found.auc),
        number(found.auc_interval.0),
        number(found.auc_interval.1),
        number(found.found),
        number(found.found_interval.0),
        number(found.found_interval.1),
        number(found.false_alarms),
        found.members,
        found.others,
        found.median_tokens.0,
        found.median_tokens.1,
    )
}
