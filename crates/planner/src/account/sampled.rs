//! `undertone account sampled`.

use anyhow::ensure;
use undertone_accounting::{Adjacency, Event, NoiseMultiplier, Recipe, SamplingProbability};
use undertone_present::numbers::grouped;

use super::fact::Fact;
use super::options::{Knobs, Quantity, TargetArgs};
use super::question::{self, Question, Stated, WholeUser};
use super::sampling::SamplingArgs;
use super::statement::Wording;
use super::unit::Unit;
use super::words::{Words, exact};
use crate::NO_GROUP;
use crate::shown::Shown;

/// Arguments of `undertone account sampled`.
#[derive(Debug, clap::Args)]
pub(super) struct SampledArgs {
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
const ONE_EXAMPLE: &str = "Poisson-sampled Gaussian steps (DP-SGD), guarantee for one example";
const EXAMPLE_LEVEL: &str = "Example-level sampling (ELS), guarantee for whole users";

/// Accounts for sampled users or sampled examples, for the unit that the options name.
pub(super) fn run(args: &SampledArgs) -> anyhow::Result<Shown> {
    let unit = args.sampling.unit()?;
    let steps = args.sampling.steps()?;
    ensure!(
        steps.is_none() || !args.target.searches(Quantity::Rounds),
        "--epochs and --calibrate rounds were both given: leave out --epochs"
    );
    let draws_examples = args.sampling.draws_examples();
    let question = Question {
        title: match unit {
            Some(Unit::User) if draws_examples => EXAMPLE_LEVEL,
            Some(Unit::Example) => ONE_EXAMPLE,
            _ => POISSON,
        },
        unit,
        assumption: match unit {
            _ if draws_examples => {
                "Poisson: every example joins every step independently; not valid for shuffled or fixed-size batches, for which `account compose` has kinds"
            }
            None => {
                "Poisson: every record joins every round independently; not valid for shuffled or fixed-size batches, for which `account compose` has kinds"
            }
            Some(_) => {
                "Poisson: every user joins every round independently; not valid for shuffled or fixed-size cohorts, for which `account compose` has kinds"
            }
        },
        recipe: Recipe::Pld,
        adjacency: Some(Adjacency::AddOrRemoveOne),
        quantities: &[
            Quantity::NoiseMultiplier,
            Quantity::Rounds,
            Quantity::SamplingProbability,
        ],
        state: &|knobs| state(&args.sampling, unit, knobs),
    };
    let rounds = args.rounds.or(steps);
    let knobs = Knobs::new(args.noise_multiplier, rounds, args.sampling.probability()?)?;
    question::show(&question, &knobs, &args.target)
}

fn state(sampling: &SamplingArgs, unit: Option<Unit>, knobs: &Knobs) -> anyhow::Result<Stated> {
    let (sampling_probability, noise_multiplier, rounds) = (
        knobs.sampling_probability()?,
        knobs.noise_multiplier()?,
        knobs.rounds()?,
    );
    let one_record = Event::PoissonGaussian {
        sampling_probability,
        noise_multiplier,
    };
    let all_of_a_user = sampling.group_size().map(|group_size| {
        let event = Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        };
        (group_size, event)
    });
    let (event, whole_user) = match (unit, all_of_a_user) {
        (Some(Unit::Example), Some((max_examples, event))) => {
            let events = vec![(event, rounds)];
            (one_record, Some(WholeUser { max_examples, events }))
        }
        (_, Some((_, event))) => (event, None),
        (_, None) => (one_record, None),
    };
    let mut facts = sampling.facts();
    facts.extend([
        Fact::measure("sampling-probability", sampling_probability.get()),
        Fact::measure("noise-multiplier", noise_multiplier.get()),
        Fact::count("rounds", rounds),
    ]);
    let unknown = unit.is_none().then(|| {
        "the unit is unknown, since a bare --sampling-probability does not say what is sampled; give --unit user or --unit \
         example"
            .to_owned()
    });
    Ok(Stated {
        events: vec![(event, rounds)],
        facts,
        records: sampling.records(),
        whole_user,
        warnings: unknown.into_iter().collect(),
        notes: Vec::new(),
        wording: wording(sampling, unit, sampling_probability, noise_multiplier, rounds),
    })
}

fn wording(
    sampling: &SamplingArgs,
    unit: Option<Unit>,
    probability: SamplingProbability,
    noise: NoiseMultiplier,
    rounds: u64,
) -> Wording {
    let (record, step, sum) = match sampling.draws_examples() {
        true => ("example", "step", "gradients"),
        false => ("user", "round", "updates"),
    };
    let words = sampling
        .asked_again(Words::of("sampled"), probability)
        .option("noise-multiplier", Some(exact(noise.get())))
        .option("rounds", Some(rounds.to_string()));
    let limit = sampling.group_size().filter(|_| unit == Some(Unit::User));
    let limit = limit.map(|most| {
        format!(
            ". The training set has at most {} examples of a user",
            grouped(most.into())
        )
    });
    Wording {
        mechanism: format!(
            "a sum of clipped {sum} in each of {} {step}s, plus Gaussian noise with a standard deviation of {} times the clip norm of one \
             {record}{}",
            grouped(rounds),
            exact(noise.get()),
            limit.unwrap_or_default()
        ),
        sampling: format!(
            "Sampling is by Poisson coins: every {record} joins every {step} independently with probability {}{}. Shuffled or \
             fixed-size batches are not covered",
            exact(probability.get()),
            sampling.share().unwrap_or_default()
        ),
        command: words,
    }
}
