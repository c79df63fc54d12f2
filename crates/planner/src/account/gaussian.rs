//! `undertone account gaussian`.

use undertone_accounting::{Adjacency, Event, Recipe};
use undertone_present::numbers::grouped;

use super::fact::Fact;
use super::options::{Knobs, Quantity, TargetArgs};
use super::question::{self, Question, Stated};
use super::statement::Wording;
use super::unit::Unit;
use super::words::{Words, exact};
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
        unit: Some(Unit::User),
        assumption: "Nobody is sampled: every user takes part in every release",
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
        wording: Wording {
            mechanism: format!(
                "{} Gaussian releases, each with a standard deviation of {} times its L2 sensitivity",
                grouped(rounds),
                exact(noise_multiplier.get())
            ),
            sampling: "Nobody is sampled: every user takes part in every release".to_owned(),
            command: Words::of("gaussian")
                .option("noise-multiplier", Some(exact(noise_multiplier.get())))
                .option("rounds", Some(rounds.to_string())),
        },
        ..Stated::default()
    })
}
