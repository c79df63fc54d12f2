//! `undertone account gaussian`.

use undertone_accounting::{Adjacency, Event, Recipe};

use super::options::{Knobs, Quantity, TargetArgs};
use super::question::{self, Fact, Question, Stated};
use crate::shown::Shown;

/// Arguments of `undertone account gaussian`.
#[derive(Debug, clap::Args)]
pub(super) struct GaussianArgs {
    /// Set the noise multiplier: the noise standard deviation divided by the L2 sensitivity of a release.
    #[arg(long, allow_negative_numbers = true)]
    noise_multiplier: Option<f64>,
    /// Set the number of releases (default: 1).
    #[arg(long)]
    rounds: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn run(args: &GaussianArgs) -> anyhow::Result<Shown> {
    // One release is the plain question; a search for rounds must start without them.
    let searched = args.target.searches(Quantity::Rounds);
    let rounds = args.rounds.or((!searched).then_some(1));
    let knobs = Knobs::new(args.noise_multiplier, rounds, None)?;
    let question = Question {
        title: "Gaussian releases about every user",
        assumption: "none: every user takes part in every release",
        recipe: Recipe::ExactGaussian,
        adjacency: Some(Adjacency::AddOrRemoveOne),
        quantities: &[Quantity::NoiseMultiplier, Quantity::Rounds],
        state: &state,
    };
    question::show(&question, &knobs, &args.target)
}

fn state(knobs: &Knobs) -> anyhow::Result<Stated> {
    let (noise_multiplier, rounds) = (knobs.noise_multiplier()?, knobs.rounds()?);
    Ok(Stated {
        events: vec![(Event::Gaussian { noise_multiplier }, rounds)],
        facts: vec![
            Fact::measure("noise-multiplier", noise_multiplier.get()),
            Fact::count("rounds", rounds),
        ],
        warnings: Vec::new(),
    })
}
