//! `undertone audit attack`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Serialize;
use undertone_audit::attack::{self, Attack, Membership};
use undertone_audit::exposure::Exposures;
use undertone_audit::record::of_exposure;
use undertone_present::numbers::{epsilon_delta, number};
use undertone_run::RunFile;
use undertone_run_directory::files::{write_json, write_secret_json};
use undertone_run_directory::plan_inputs::config_digest;
use undertone_run_directory::read;
use undertone_studies::audit::attack::{Control, membership};
use undertone_studies::audit::exposure::{self, Exposure};
use undertone_studies::audit::inference::{self, user_inference};

use super::judged;
use crate::commands::train::threads;
use crate::output::{Output, facts, value};

/// The kind of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Tell users of the training partition from held-out users, by the loss of their texts.
    Membership,
    /// Tell users of the training partition from held-out users, by the likelihood of their texts relative to a reference model.
    UserInference,
    /// Find secrets of invented users in a copy of the run.
    Exposure,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Membership => "membership",
            Self::UserInference => "user-inference",
            Self::Exposure => "exposure",
        }
    }
}

/// Arguments of `undertone audit attack`.
#[derive(Debug, clap::Args)]
pub(super) struct AttackArgs {
    /// Read the run from this directory.
    run: PathBuf,
    /// Set the kind of attack.
    #[arg(long, value_enum, default_value = "membership")]
    kind: Kind,
    /// Set the max number of users on each side (default: 1000).
    #[arg(long, value_name = "N")]
    users: Option<usize>,
    /// Score texts relative to this `model.safetensors` of the same model and words (default: the initial model of the run).
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// Hold this fraction of each user's texts back: train a copy of the run without them, and attack the copy with them.
    #[arg(long, value_name = "FRACTION")]
    holdback: Option<f64>,
    /// Set the number of secrets, each of an invented user (default: 12).
    #[arg(long, value_name = "N")]
    secrets: Option<std::num::NonZeroUsize>,
    /// Attack a positive control as well: the same run without clipping and noise, trained for this many rounds.
    #[arg(long, value_name = "ROUNDS")]
    control: Option<std::num::NonZeroU64>,
    /// Resolve relative paths of the run's data settings in this folder (default: `.`).
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    base: PathBuf,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Write the figures as JSON to this file. Figures about users can be read by the owner of the file alone.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Record exposures in `audit.json` of the run directory, and the figures of the other kinds in `audit-private.json`.
    #[arg(long)]
    record: bool,
}

impl AttackArgs {
    /// Refuses options of other kinds of attack, and returns the number of users on each side.
    fn check(&self) -> anyhow::Result<usize> {
        let given = [
            ("--users", self.users.is_some(), self.kind != Kind::Exposure),
            (
                "--reference",
                self.reference.is_some(),
                self.kind == Kind::UserInference,
            ),
            (
                "--holdback",
                self.holdback.is_some(),
                self.kind == Kind::UserInference,
            ),
            ("--secrets", self.secrets.is_some(), self.kind == Kind::Exposure),
        ];
        for (option, given, belongs) in given {
            if given && !belongs {
                bail!(
                    "{option}: expected another `--kind` with it, got {}",
                    self.kind.name()
                );
            }
        }
        match self.users.unwrap_or(1000) {
            users if users < 2 => bail!("--users: expected at least 2, got {users}"),
            users => Ok(users),
        }
    }
}

pub(super) fn run(args: &AttackArgs, output: &Output) -> anyhow::Result<()> {
    let users = args.check()?;
    let file = RunFile::read(&args.run.join("config.toml"), &[])
        .with_context(|| format!("{} is not a run directory", args.run.display()))?;
    let file = RunFile::new(file.config, args.base.clone());
    let claim = read::read(&args.run)?
        .privacy
        .and_then(|privacy| privacy.claimed().cloned());
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let (scratch, threads) = (scratch.path(), threads(args.threads));
    let rounds = args.control.map(std::num::NonZeroU64::get);
    let bar = output.spinner("attacking");
    let found = match args.kind {
        Kind::Membership => {
            let control = rounds.map(|rounds| Control {
                rounds,
                scratch,
                threads,
            });
            membership(&args.run, &file, claim, users, control).map(Found::Users)
        }
        Kind::UserInference => {
            let request = inference::InferenceRequest {
                most: users,
                reference: args.reference.as_deref(),
                holdback: args.holdback,
                scratch,
                threads,
                control: rounds,
            };
            user_inference(&args.run, &file, claim, &request).map(Found::Users)
        }
        Kind::Exposure => {
            let request = exposure::ExposureRequest {
                secrets: args.secrets.map_or(12, std::num::NonZeroUsize::get),
                scratch,
                threads,
                control: rounds,
            };
            exposure::attack(&args.run, &file, &request).map(Found::Secrets)
        }
    };
    bar.finish_and_clear();
    match found? {
        Found::Users(attack) => {
            if args.record {
                attack::record(&args.run, &config_digest(&file.config)?, &attack)?;
            }
            if let Some(out) = &args.out {
                // PRIVACY: exact statistics of users, which only the owner of the file reads.
                write_secret_json(out, &attack)?;
            }
            show(args, &attack, &text(&attack), output)
        }
        Found::Secrets(attack) => {
            let digest = config_digest(&file.config)?;
            let mut audit = of_exposure(&attack.run, &digest, attack.found.clone());
            if args.record {
                audit = undertone_audit::record(&args.run, audit)?;
            }
            if let Some(out) = &args.out {
                write_json(out, &attack)?;
            }
            show(args, &attack, &text_of_secrets(&attack), output)?;
            judged(&audit)
        }
    }
}

/// The outcome of an attack.
enum Found {
    Users(Attack),
    Secrets(Exposure),
}

fn show(args: &AttackArgs, attack: &impl Serialize, text: &str, output: &Output) -> anyhow::Result<()> {
    output.show(attack, || {
        let written = args.out.as_ref().map(|out| {
            let out = out.display().to_string();
            format!("\n\nThe figures are in {}.", value(&out))
        });
        text.to_owned() + &written.unwrap_or_default()
    })
}

fn text_of_secrets(attack: &Exposure) -> String {
    let mut rows = vec![("run", attack.run.clone())];
    if let Some(claim) = &attack.found.claim {
        rows.push(("claim", epsilon_delta(claim.epsilon, claim.delta)));
    }
    let found = &attack.found;
    rows.push((
        "secrets",
        format!("{}, each one of {} candidates", found.secrets, found.candidates),
    ));
    rows.push(("attack", of_secrets(&found.attack)));
    if let Some(limit) = found.limit_95 {
        let above = found.attack.above_limit.unwrap_or(0);
        rows.push((
            "limit",
            format!(
                "{} bits with 95 % probability per secret; {above} of {} are above",
                number(limit),
                found.secrets
            ),
        ));
    }
    if let Some((rounds, control)) = &found.control {
        rows.push((
            "control",
            format!(
                "{rounds} rounds without clipping and noise: {}",
                of_secrets(control)
            ),
        ));
    }
    facts(rows) + "\n\n" + &attack.statements.join("\n")
}

fn of_secrets(found: &Exposures) -> String {
    let by_texts: Vec<String> = found
        .median_by_texts
        .iter()
        .map(|(texts, median)| format!("{} in {texts}", number(*median)))
        .collect();
    format!(
        "exposure {} bits (median), {} at most; medians by number of texts: {}",
        number(found.median),
        number(found.highest),
        by_texts.join(", ")
    )
}

fn text(attack: &Attack) -> String {
    let mut rows = vec![("run", attack.run.clone())];
    if let Some(claim) = &attack.claim {
        rows.push(("claim", epsilon_delta(claim.epsilon, claim.delta)));
    }
    rows.push(("attack", of(&attack.attack)));
    if let Some(whole) = &attack.whole_texts {
        rows.push(("whole texts", of(whole)));
    }
    if let Some(limit) = &attack.limit {
        rows.push((
            "limit",
            format!(
                "any attack: area {}, found {}; with a Gaussian trade-off: {} and {}; found at a rate of {} false alarms, which this threshold has \
                 in the mean",
                number(limit.auc),
                number(limit.found),
                number(limit.auc_gaussian),
                number(limit.found_gaussian),
                number(limit.false_alarms)
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
