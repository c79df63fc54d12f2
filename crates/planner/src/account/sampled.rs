//! `undertone account sampled`.

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

const POISSON: &str = "Poisson-sampled Gaussian rounds (DP-FedAvg, DP-FedSGD, DP-SGD)";
const EXAMPLE_LEVEL: &str = "Example-level sampling (ELS), guarantee for whole users";

/// Accounts for sampled users, or for sampled examples where a group size is given.
pub(super) fn run(args: &SampledArgs) -> anyhow::Result<Shown> {
    let group_size = args.group_size;
    ensure!(
        group_size.is_none() || !args.sampling.counts_users(),
        "--group-size and --population were both given: sampled examples need --sampling-probability"
    );
    let question = Question {
        title: match group_size {
            Some(_) => EXAMPLE_LEVEL,
            None => POISSON,
        },
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

fn state(group_size: Option<u32>, knobs: &Knobs) -> anyhow::Result<Stated> {
    let (sampling_probability, noise_multiplier, rounds) = (
        knobs.sampling_probability()?,
        knobs.noise_multiplier()?,
        knobs.rounds()?,
    );
    let event = match group_size {
        Some(group_size) => Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        },
        None => Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        },
    };
    let group_size = group_size.map(|size| Fact::count("group-size", size.into()));
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
