//! `undertone account ftrl`.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;
use undertone_accounting::participation::{Gap, Participation, RoundsBetween};
use undertone_accounting::sensitivity::toeplitz::Toeplitz;
use undertone_accounting::sensitivity::{SquaredSensitivity, production, restart};
use undertone_accounting::{AccountingError, Adjacency, Event, NoiseMultiplier, Recipe};
use undertone_mechanisms::{Described, Strategy as Matrix};
use undertone_present::numbers::{grouped, upper_bound};

use super::fact::Fact;
use super::options::{Knobs, Quantity, TargetArgs};
use super::question::{self, Question, Stated};
use super::statement::Wording;
use super::unit::Unit;
use super::words::{Words, exact};
use crate::files::{parsed, text};
use crate::shown::Shown;

/// Maximum number of rounds with one coefficient per round.
const MAX_COEFFICIENTS: u64 = 1 << 24;

/// Arguments of `undertone account ftrl`.
#[derive(Debug, clap::Args)]
pub(super) struct FtrlArgs {
    /// Choose how the noise of different rounds is correlated.
    #[arg(long, value_enum)]
    mechanism: MechanismName,
    /// Read the numbers of `blt`, `toeplitz` or `matrix` from this file, or name a production set such as blt-400.
    ///
    /// For `toeplitz` the file holds a list of numbers, the diagonal's first, and for `matrix` the rows up to the diagonal, as JSON, text
    /// or an array of numpy (.npy). For `blt` it is TOML with the lists `theta` and `omega`. The production sets of `blt` are
    /// blt-100, blt-400 and blt-1000.
    #[arg(long, value_name = "FILE")]
    coefficients: Option<PathBuf>,
    /// Set the noise multiplier: the noise standard deviation divided by the clip norm.
    #[arg(long, allow_negative_numbers = true)]
    noise_multiplier: Option<f64>,
    /// Set the number of rounds of the run.
    #[arg(long)]
    rounds: Option<u64>,
    /// Set the min number of rounds strictly between two participations of a user (MinS in production tables).
    #[arg(long, value_name = "ROUNDS", conflicts_with = "gap")]
    rounds_between: Option<u64>,
    /// Set the min distance of two participations of a user in rounds: the rounds between them plus 1.
    #[arg(long, value_name = "ROUNDS")]
    gap: Option<u64>,
    /// Set the max number of participations per user (default: as many as fit into the rounds).
    #[arg(long, value_name = "TIMES")]
    max_participation: Option<u64>,
    /// Restart the tree after this many rounds for the first time (default: the value of --restart-every).
    #[arg(long, value_name = "ROUNDS", help_heading = "Trees with restarts")]
    first_restart: Option<u64>,
    /// Restart the tree after this many rounds every further time (default: the value of --first-restart).
    #[arg(long, value_name = "ROUNDS", help_heading = "Trees with restarts")]
    restart_every: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MechanismName {
    /// Use a binary tree, optionally with restarts.
    Tree,
    /// Use a buffered linear Toeplitz matrix (BLT), given by theta and omega.
    Blt,
    /// Use any Toeplitz coefficients. Missing coefficients are zero (a banded matrix).
    Toeplitz,
    /// Use any matrix: a file of `undertone mechanism optimize --out`, or the rows of your own lower-triangular matrix.
    Matrix,
}

impl MechanismName {
    fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Blt => "blt",
            Self::Toeplitz => "toeplitz",
            Self::Matrix => "matrix",
        }
    }
}

pub(super) fn run(args: &FtrlArgs) -> anyhow::Result<Shown> {
    let correlated = Correlated {
        args,
        strategy: Strategy::new(args)?,
        participation: participation(args)?,
    };
    let question = Question {
        title: correlated.strategy.title(),
        unit: Some(Unit::User),
        assumption: "none: any users in any order, as long as every user keeps to the participation limits",
        recipe: Recipe::ExactGaussian,
        adjacency: Some(Adjacency::ZeroOut),
        quantities: &[Quantity::NoiseMultiplier, Quantity::Rounds],
        state: &|knobs| correlated.state(knobs),
    };
    let knobs = Knobs::new(args.noise_multiplier, args.rounds, None)?;
    question::show(&question, &knobs, &args.target)
}

/// The error for a mechanism without its coefficients.
fn lacking(mechanism: MechanismName) -> String {
    let other = match mechanism {
        MechanismName::Blt => {
            " with the lists theta and omega, which `undertone mechanism optimize blt` finds, or a production set: blt-100, blt-400 or \
             blt-1000"
        }
        MechanismName::Matrix => {
            " of `undertone mechanism optimize --out`, or with the rows of a lower-triangular matrix"
        }
        _ => " of numbers, the diagonal's first",
    };
    format!(
        "--mechanism {} needs --coefficients: a file{other}",
        mechanism.name()
    )
}

/// The schema; without --max-participation as many as fit.
fn participation(args: &FtrlArgs) -> anyhow::Result<Schema> {
    let gap = match (args.rounds_between, args.gap) {
        (Some(rounds), _) => Some(RoundsBetween::new(rounds).gap()),
        (None, Some(rounds)) => Some(Gap::new(rounds)?),
        (None, None) => None,
    };
    let participation = match (gap, args.max_participation) {
        (None, Some(1)) => Participation::single(),
        (None, _) => bail!(
            "expected --rounds-between or --gap (how far apart a user's participations are), or --max-participation 1"
        ),
        (Some(gap), Some(max)) => Participation::at_least(gap, max)?,
        (Some(gap), None) => Participation::at_least(gap, u64::MAX)?,
    };
    Ok(Schema {
        participation,
        limited: args.max_participation.is_some(),
    })
}

struct Schema {
    participation: Participation,
    /// A maximum was asked for, so that lowering it is news.
    limited: bool,
}

enum Strategy {
    Tree { first: u64, period: u64 },
    Blt { theta: Vec<f64>, omega: Vec<f64> },
    Toeplitz { coefficients: Vec<f64> },
    Matrix(Box<Matrix>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BltFile {
    theta: Vec<f64>,
    omega: Vec<f64>,
}

impl Strategy {
    fn new(args: &FtrlArgs) -> anyhow::Result<Self> {
        let restarts = args.first_restart.is_some() || args.restart_every.is_some();
        if args.mechanism == MechanismName::Tree {
            ensure!(
                args.coefficients.is_none(),
                "--coefficients: a tree has no coefficients; expected --mechanism blt or --mechanism toeplitz"
            );
            let period = args.restart_every.or(args.first_restart).unwrap_or(u64::MAX);
            return Ok(Self::Tree {
                first: args.first_restart.unwrap_or(period),
                period: if restarts { period } else { u64::MAX },
            });
        }
        ensure!(
            !restarts,
            "--first-restart and --restart-every need --mechanism tree, found --mechanism {}",
            args.mechanism.name()
        );
        let path = args
            .coefficients
            .as_ref()
            .with_context(|| lacking(args.mechanism))?;
        let known = production::all()
            .into_iter()
            .find(|blt| path.as_os_str() == blt.name);
        if let (MechanismName::Blt, Some(blt)) = (args.mechanism, known) {
            return Ok(Self::Blt {
                theta: blt.theta.to_vec(),
                omega: blt.omega.to_vec(),
            });
        }
        if args.mechanism == MechanismName::Blt {
            let expected = "expected two lists, theta = [...] and omega = [...]";
            let BltFile { theta, omega } = parsed(path, &text(path)?, expected)?;
            return Ok(Self::Blt { theta, omega });
        }
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let read = Described::read(&bytes).with_context(|| path.display().to_string())?;
        match (args.mechanism, read.strategy()) {
            (MechanismName::Toeplitz, Matrix::BandedToeplitz(toeplitz)) => Ok(Self::Toeplitz {
                coefficients: toeplitz.coefficients().to_vec(),
            }),
            (MechanismName::Toeplitz, other) => bail!(
                "{}: --mechanism toeplitz expects a list of coefficients, got {}; give --mechanism matrix for it",
                path.display(),
                other.name()
            ),
            (_, matrix) => Ok(Self::Matrix(Box::new(matrix.clone()))),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Tree { period: u64::MAX, .. } => "DP-FTRL, one binary tree",
            Self::Tree { .. } => "DP-FTRL, binary trees with restarts",
            Self::Blt { .. } => "DP-FTRL, buffered linear Toeplitz (BLT)",
            Self::Toeplitz { .. } => "DP-FTRL, Toeplitz coefficients",
            Self::Matrix(_) => "DP-FTRL, a matrix from a file",
        }
    }

    /// Squared sensitivity and, where it is known, the number of participations that reaches it.
    fn sensitivity(
        &self,
        rounds: u64,
        schema: &Participation,
        facts: &mut Vec<Fact>,
    ) -> anyhow::Result<SquaredSensitivity> {
        // Trees are counted by blocks; coefficients are one number per round.
        let in_memory = || -> anyhow::Result<usize> {
            ensure!(
                rounds <= MAX_COEFFICIENTS,
                "--rounds: expected at most {MAX_COEFFICIENTS} with coefficients, got {rounds}"
            );
            Ok(usize::try_from(rounds)?)
        };
        let toeplitz = match self {
            Self::Tree { first, period } => {
                let trees = restart::tree_rounds(rounds, *first, *period)?;
                let found = restart::squared_sensitivity(&trees, schema)?;
                facts.push(Fact::count("trees", trees.len() as u64));
                facts.push(Fact::count("worst-participation", found.best_participation));
                return Ok(found.squared_sensitivity);
            }
            Self::Matrix(matrix) => {
                let certified = matrix.squared_sensitivity(in_memory()?, schema)?;
                facts.push(Fact::new("matrix", matrix.name(), matrix.name()));
                if !certified.exact {
                    facts.push(Fact::new(
                        "exact-sensitivity",
                        "no, a proved upper bound".to_owned(),
                        false,
                    ));
                }
                return Ok(certified.squared);
            }
            Self::Blt { theta, omega } => Toeplitz::buffered(theta, omega, in_memory()?)?,
            Self::Toeplitz { coefficients } => {
                let rounds = in_memory()?;
                facts.push(Fact::count("bands", coefficients.len().min(rounds) as u64));
                Toeplitz::banded(coefficients.clone(), rounds)?
            }
        };
        toeplitz.squared_sensitivity(schema).map_err(|error| match error {
            AccountingError::NoExactSensitivity {
                expected,
                position,
                found,
            } => anyhow::anyhow!(
                "--coefficients: expected {expected}, got {found} at position {position} (counted from 0); without that no exact \
                 sensitivity is known for more than one participation, so change the coefficients or give --max-participation 1"
            ),
            AccountingError::SensitivityTooLarge { max_participation } => anyhow::anyhow!(
                "--max-participation: the exact sensitivity for {max_participation} participations would take too long to compute; \
                 give a smaller number, or a larger --gap"
            ),
            error => error.into(),
        })
    }
}

struct Correlated<'a> {
    args: &'a FtrlArgs,
    strategy: Strategy,
    participation: Schema,
}

impl Correlated<'_> {
    fn mechanism(
        &self,
        schema: &Participation,
        noise: NoiseMultiplier,
        rounds: u64,
        squared: SquaredSensitivity,
    ) -> String {
        let (most, gap) = (schema.max_participation(), schema.gap().get());
        let limits = match most {
            1 => "at most 1 participation per user".to_owned(),
            _ => format!(
                "at most {} participations per user, at least {} rounds apart",
                grouped(most),
                grouped(gap)
            ),
        };
        format!(
            "{} over {} rounds, with Gaussian noise whose standard deviation is {} times the clip norm of one user. The squared sensitivity \
             is {}, for {limits}",
            self.strategy.title(),
            grouped(rounds),
            exact(noise.get()),
            upper_bound(squared.get()),
        )
    }

    fn asked_again(&self, noise: NoiseMultiplier, rounds: u64) -> Words {
        let (args, count) = (self.args, |value: u64| value.to_string());
        let path = args.coefficients.as_ref().map(|path| path.display().to_string());
        Words::of("ftrl")
            .option("mechanism", Some(args.mechanism.name().to_owned()))
            .option("coefficients", path)
            .option("noise-multiplier", Some(exact(noise.get())))
            .option("rounds", Some(count(rounds)))
            .option("rounds-between", args.rounds_between.map(count))
            .option("gap", args.gap.map(count))
            .option("max-participation", args.max_participation.map(count))
            .option("first-restart", args.first_restart.map(count))
            .option("restart-every", args.restart_every.map(count))
    }

    fn state(&self, knobs: &Knobs) -> anyhow::Result<Stated> {
        let (noise_multiplier, rounds) = (knobs.noise_multiplier()?, knobs.rounds()?);
        let effective = self.participation.participation.effective(rounds)?;
        let schema = effective.participation;
        let mut warnings = Vec::new();
        if self.participation.limited && effective.is_lowered() {
            warnings.push(effective.to_string());
        }
        let mut facts = vec![
            Fact::measure("noise-multiplier", noise_multiplier.get()),
            Fact::count("rounds", rounds),
            Fact::count("max-participation", schema.max_participation()),
        ];
        if schema.max_participation() > 1 {
            let gap = schema.gap();
            let shown = format!("{} rounds ({})", gap.get(), gap.rounds_between());
            facts.push(Fact::new("gap", shown, gap.get()));
        }
        let squared = self.strategy.sensitivity(rounds, &schema, &mut facts)?;
        facts.push(Fact::measure("squared-sensitivity", squared.get()));
        facts.push(Fact::measure("rho", squared.rho(noise_multiplier)?.get()));
        Ok(Stated {
            events: vec![(
                Event::CorrelatedGaussian {
                    sensitivity_squared: squared.get(),
                    noise_multiplier,
                },
                1,
            )],
            facts,
            warnings,
            wording: Wording {
                mechanism: self.mechanism(&schema, noise_multiplier, rounds, squared),
                sampling:
                    "Nobody is sampled: any users take part in any order, if each keeps to these limits"
                        .to_owned(),
                command: self.asked_again(noise_multiplier, rounds),
            },
            ..Stated::default()
        })
    }
}
