//! `undertone account poisson` and `uls`.

use undertone_accounting::{Adjacency, Event, Recipe};

use super::options::{Knobs, Quantity, SamplingArgs, TargetArgs};
use super::question::{self, Fact, Question, Stated};
use crate::commands::NO_GROUP;
use crate::output::Output;

/// Arguments of `undertone account poisson` and of `undertone account uls`.
#[derive(Debug, clap::Args)]
pub(super) struct PoissonArgs {
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Set the noise multiplier: the noise standard deviation divided by the clip norm of a user.
    #[arg(long, allow_negative_numbers = true, help_heading = NO_GROUP)]
    noise_multiplier: Option<f64>,
    /// Set the number of rounds (steps).
    #[arg(long, help_heading = NO_GROUP)]
    rounds: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
}

/// Rounds that every user joins by chance.
pub(super) fn run(args: &PoissonArgs, output: &Output) -> anyhow::Result<()> {
    ask(
        args,
        "Poisson-sampled Gaussian rounds (DP-FedAvg, DP-FedSGD, DP-SGD)",
        output,
    )
}

/// User-level sampling: the mechanism and its guarantee are those of [`run`], whatever number of examples a user draws.
pub(super) fn run_user_level(args: &PoissonArgs, output: &Output) -> anyhow::Result<()> {
    ask(args, "User-level sampling (ULS)", output)
}

fn ask(args: &PoissonArgs, title: &'static str, output: &Output) -> anyhow::Result<()> {
    let knobs = Knobs::new(args.noise_multiplier, args.rounds, args.sampling.probability()?)?;
    question::show(&Poisson { title }, &knobs, &args.target, output)
}

struct Poisson {
    title: &'static str,
}

impl Question for Poisson {
    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn assumption(&self) -> String {
        "Poisson: every user joins every round independently; not valid for shuffled or fixed-size cohorts"
            .to_owned()
    }

    fn recipe(&self) -> Recipe {
        Recipe::Pld
    }

    fn adjacency(&self) -> Option<Adjacency> {
        Some(Adjacency::AddOrRemoveOne)
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            Quantity::NoiseMultiplier,
            Quantity::Rounds,
            Quantity::SamplingProbability,
        ]
    }

    fn state(&self, knobs: &Knobs) -> anyhow::Result<Stated> {
        let (sampling_probability, noise_multiplier, rounds) = (
            knobs.sampling_probability()?,
            knobs.noise_multiplier()?,
            knobs.rounds()?,
        );
        let event = Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        };
        Ok(Stated {
            events: vec![(event, rounds)],
            facts: vec![
                Fact::measure("sampling-probability", sampling_probability.get()),
                Fact::measure("noise-multiplier", noise_multiplier.get()),
                Fact::count("rounds", rounds),
            ],
            warnings: Vec::new(),
        })
    }
}
