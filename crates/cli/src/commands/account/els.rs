//! `undertone account els`.

use undertone_accounting::{Adjacency, Event, Recipe, SamplingProbability};

use super::options::{Knobs, Quantity, TargetArgs};
use super::question::{self, Fact, Question, Stated};
use crate::output::Output;

/// Arguments of `undertone account els`.
#[derive(Debug, clap::Args)]
pub(super) struct ElsArgs {
    /// Set the max number of examples per user in the training set (the group size).
    #[arg(long)]
    examples_per_user: u32,
    /// Set the probability, in (0, 1], with which each example joins a step independently.
    #[arg(long, allow_negative_numbers = true)]
    sampling_probability: Option<f64>,
    /// Set the noise multiplier: the noise standard deviation divided by the clip norm of an example.
    #[arg(long, allow_negative_numbers = true)]
    noise_multiplier: Option<f64>,
    /// Set the number of steps.
    #[arg(long)]
    rounds: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn run(args: &ElsArgs, output: &Output) -> anyhow::Result<()> {
    let probability = args
        .sampling_probability
        .map(SamplingProbability::new)
        .transpose()?;
    let knobs = Knobs::new(args.noise_multiplier, args.rounds, probability)?;
    let question = ExampleLevel {
        group_size: args.examples_per_user,
    };
    question::show(&question, &knobs, &args.target, output)
}

struct ExampleLevel {
    group_size: u32,
}

impl Question for ExampleLevel {
    fn title(&self) -> String {
        "Example-level sampling (ELS), guarantee for whole users".to_owned()
    }

    fn assumption(&self) -> String {
        "Poisson: every example joins every step independently; not valid for shuffled or fixed-size batches"
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
        let event = Event::ExampleLevelSampling {
            group_size: self.group_size,
            sampling_probability,
            noise_multiplier,
        };
        Ok(Stated {
            events: vec![(event, rounds)],
            facts: vec![
                Fact::count("examples-per-user", self.group_size.into()),
                Fact::measure("sampling-probability", sampling_probability.get()),
                Fact::measure("noise-multiplier", noise_multiplier.get()),
                Fact::count("rounds", rounds),
            ],
            warnings: Vec::new(),
        })
    }
}
