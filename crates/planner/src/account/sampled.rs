//! `undertone account sampled`, and its older names `poisson`, `uls` and `els`.

use anyhow::ensure;
use undertone_accounting::{Adjacency, Event, Recipe};

use super::options::{Knobs, Quantity, SamplingArgs, TargetArgs};
use super::question::{self, Fact, Question, Stated};
use crate::NO_GROUP;
use crate::shown::Shown;

/// Arguments of `undertone account sampled`.
#[derive(Debug, clap::Args)]
pub(super) struct SampledArgs {
    /// Sample examples instead of users, with at most this many per user in the training set.
    #[arg(long)]
    group_size: Option<u32>,
    #[command(flatten)]
    rounds: RoundsArgs,
}

/// Arguments of `undertone account els`.
#[derive(Debug, clap::Args)]
pub(super) struct ElsArgs {
    /// Set the max number of examples per user in the training set (the group size).
    #[arg(long)]
    examples_per_user: u32,
    #[command(flatten)]
    rounds: RoundsArgs,
}

/// The rounds of a question about sampling.
#[derive(Debug, clap::Args)]
pub(super) struct RoundsArgs {
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Set the noise multiplier: the noise standard deviation divided by the clip norm of a user or an example.
    #[arg(long, allow_negative_numbers = true, help_heading = NO_GROUP)]
    noise_multiplier: Option<f64>,
    /// Set the number of rounds (steps).
    #[arg(long, help_heading = NO_GROUP)]
    rounds: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) const POISSON: &str = "Poisson-sampled Gaussian rounds (DP-FedAvg, DP-FedSGD, DP-SGD)";
/// The mechanism and its guarantee are those of [`POISSON`], for any number of examples per user.
pub(super) const USER_LEVEL: &str = "User-level sampling (ULS)";
const EXAMPLE_LEVEL: &str = "Example-level sampling (ELS), guarantee for whole users";

/// Accounts for sampled users, or for sampled examples where a group size is given.
pub(super) fn run(args: &SampledArgs) -> anyhow::Result<Shown> {
    match args.group_size {
        Some(group_size) => of_examples(group_size, "group-size", &args.rounds),
        None => of_users(POISSON, &args.rounds),
    }
}

pub(super) fn run_els(args: &ElsArgs) -> anyhow::Result<Shown> {
    of_examples(args.examples_per_user, "examples-per-user", &args.rounds)
}

fn of_examples(group_size: u32, name: &'static str, args: &RoundsArgs) -> anyhow::Result<Shown> {
    ensure!(
        !args.sampling.counts_users(),
        "--{name} and --population were both given: sampled examples need --sampling-probability"
    );
    ask(EXAMPLE_LEVEL, Some((name, group_size)), args)
}

pub(super) fn of_users(title: &'static str, args: &RoundsArgs) -> anyhow::Result<Shown> {
    ask(title, None, args)
}

/// Asks about sampled examples where the option of a group size has a name and a value, else about sampled users.
fn ask(
    title: &'static str,
    group_size: Option<(&'static str, u32)>,
    args: &RoundsArgs,
) -> anyhow::Result<Shown> {
    let question = Question {
        title,
        assumption: match group_size {
            Some(_) => {
                "Poisson: every example joins every step independently; not valid for shuffled or fixed-size batches"
            }
            None => {
                "Poisson: every user joins every round independently; not valid for shuffled or fixed-size cohorts"
            }
        },
        recipe: Recipe::Pld,
        adjacency: Some(Adjacency::AddOrRemoveOne),
        quantities: &[
            Quantity::NoiseMultiplier,
            Quantity::Rounds,
            Quantity::SamplingProbability,
        ],
        state: &|knobs| state(group_size, knobs),
    };
    let knobs = Knobs::new(args.noise_multiplier, args.rounds, args.sampling.probability()?)?;
    question::show(&question, &knobs, &args.target)
}

fn state(group_size: Option<(&'static str, u32)>, knobs: &Knobs) -> anyhow::Result<Stated> {
    let (sampling_probability, noise_multiplier, rounds) = (
        knobs.sampling_probability()?,
        knobs.noise_multiplier()?,
        knobs.rounds()?,
    );
    let event = match group_size {
        Some((_, group_size)) => Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        },
        None => Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        },
    };
    let group_size = group_size.map(|(name, size)| Fact::count(name, size.into()));
    let rest = [
        Fact::measure("sampling-probability", sampling_probability.get()),
        Fact::measure("noise-multiplier", noise_multiplier.get()),
        Fact::count("rounds", rounds),
    ];
    Ok(Stated {
        events: vec![(event, rounds)],
        facts: group_size.into_iter().chain(rest).collect(),
        warnings: Vec::new(),
    })
}
