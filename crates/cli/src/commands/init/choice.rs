//! The choice of rounds and cohort, by the plan that training itself makes.

use std::path::Path;
use undertone_run_directory::config::RunConfig;

use anyhow::Context;
use serde::Serialize;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_present::numbers::{grouped, number};

use super::{Facts, MAX_EPSILON, text};

/// Max number of sentences that a user trains on per round. Most people write few.
pub(super) const MAX_EXAMPLES: u64 = 16;

/// Fraction of the users that the default split trains on.
const TRAINING: f64 = 0.8;

/// Numbers of rounds that are compared.
const ROUNDS: [u64; 4] = [25, 50, 100, 200];

/// The parts of the users per round that are compared where a run starts from random parameters. Such a run needs all its rounds: with half
/// of the users in 100 rounds it learnt less than with a twentieth of them in 200 (lab/notebooks/init.md).
const PARTS_FROM_SCRATCH: [f64; 3] = [0.1, 0.25, MAX_PART];

/// The reach from which on such a run gains nothing by more users per round.
const AMPLE_FROM_SCRATCH: f64 = 15.0;

/// Max part of the users that takes part in a round.
const MAX_PART: f64 = 0.5;

/// Parameters times tokens that one core trains on per second, with a reserve of about a half.
const WORK_PER_SECOND: f64 = 1.5e10;

/// Tokens of a sentence, end included, on average.
const SENTENCE_TOKENS: f64 = 11.0;

/// The reach below which settings are refused. At this reach, a run still adds to its start (lab/notebooks/init.md).
const HOPELESS: f64 = 2.0;

/// The reach below which a run from random parameters is refused: all of the model has to stand above the noise, as the warning of
/// `undertone train` counts it.
const HOPELESS_FROM_SCRATCH: f64 = 5.0;

/// The reach from which on the larger of the [`CLIP_NORMS`] is the better one.
const AMPLE: f64 = 4.0;

/// The clip norms of a run with a public start, below the reach [`AMPLE`] and from it on. Of five norms from 0.02 to 1.0, they were the
/// best (lab/notebooks/init.md).
const CLIP_NORMS: (f64, f64) = (0.02, 0.05);

/// The clip norm and the learning rate of users in a run from random parameters (lab/notebooks/init.md).
const FROM_SCRATCH: (f64, f64) = (1.0, 1.0);

/// The learning rate of users in a run with a public start.
const LEARNING_RATE: f64 = 0.5;

/// Factors that are tried for a remedy.
const MAX_TRIES: i32 = 8;

/// The settings that were chosen, and what the plan says of them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Choice {
    /// Users to train on: the others are held out.
    pub(super) training_users: u64,
    pub(super) rounds: u64,
    pub(super) sampling_probability: f64,
    pub(super) users_per_round: f64,
    pub(super) noise_multiplier: f64,
    pub(super) parameters: u64,
    /// The distance that training can move the parameters, over the norm of the noise in them.
    pub(super) reach: f64,
    pub(super) clip_norm: f64,
    /// The learning rate of the users' local training.
    pub(super) learning_rate: f64,
    /// Max time of the training on this machine.
    pub(super) seconds: f64,
    /// The accuracy to expect.
    pub(super) expected: Expected,
}

/// The settings of the largest reach that the time at hand allows.
pub(super) fn choose(facts: &Facts) -> anyhow::Result<Choice> {
    let from_scratch = facts.start.folder.is_none();
    let candidates: Vec<(u64, f64)> = match from_scratch {
        true => PARTS_FROM_SCRATCH.map(|part| (ROUNDS[3], part)).to_vec(),
        false => ROUNDS.map(|rounds| (rounds, MAX_PART)).to_vec(),
    };
    let planned = candidates
        .into_iter()
        .map(|(rounds, part)| planned(facts, rounds, part));
    let all: Vec<Choice> = planned.collect::<anyhow::Result<_>>()?;
    // More users than these cost time, and a run from random parameters gains nothing by them.
    let ample = all
        .iter()
        .find(|choice| from_scratch && choice.reach >= AMPLE_FROM_SCRATCH);
    let best = all.iter().max_by(|one, other| one.reach.total_cmp(&other.reach));
    let choice = ample.or(best).context("no number of rounds to choose from")?;
    Ok(choice.clone())
}

/// A run of this many rounds, with at most this part of the users, and no more than the time allows.
fn planned(facts: &Facts, rounds: u64, max_part: f64) -> anyhow::Result<Choice> {
    let training_users = (TRAINING * facts.users as f64) as u64;
    let mut choice = Choice {
        training_users,
        rounds,
        sampling_probability: max_part,
        users_per_round: 0.0,
        noise_multiplier: 0.0,
        parameters: 0,
        reach: 0.0,
        clip_norm: CLIP_NORMS.0,
        learning_rate: LEARNING_RATE,
        seconds: 0.0,
        expected: Expected::at(0.0),
    };
    if facts.start.folder.is_none() {
        (choice.clip_norm, choice.learning_rate) = FROM_SCRATCH;
    }
    let of = |choice: &Choice| -> anyhow::Result<_> {
        let text = text::run_file(facts, choice);
        let task = RunConfig::parse(&text, Path::new("run.toml"), &[])?.task;
        let model = task.model.build(facts.start.ids)?;
        Ok((task, model))
    };
    let (_, model) = of(&choice)?;
    choice.parameters = model.layout().len() as u64;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get) as f64;
    let per_user =
        MAX_EXAMPLES as f64 * SENTENCE_TOKENS * choice.parameters as f64 / (WORK_PER_SECOND * cores);
    let affordable = 60.0 * facts.minutes / (per_user * rounds as f64 * training_users as f64);
    // Three digits: the number is read by people.
    let part = affordable.min(max_part);
    let unit = 10_f64.powf(part.log10().floor() - 2.0);
    choice.sampling_probability = ((part / unit).floor() * unit * 1e12).round() / 1e12;
    choice.users_per_round = choice.sampling_probability * training_users as f64;
    choice.seconds = per_user * rounds as f64 * choice.users_per_round;
    let (task, model) = of(&choice)?;
    let population = Population {
        users: training_users,
        total_weight: training_users as f64,
    };
    let plan = PrivacyPlan::new(&task, None, model.layout(), population)?;
    plan.check_budget()?;
    choice.noise_multiplier = plan
        .round(0)
        .noise_multiplier
        .context("the plan states no noise")?;
    choice.reach = plan.reach()?.context("the plan states no noise")?;
    if choice.reach >= AMPLE && facts.start.folder.is_some() {
        // The noise is in proportion, so the reach stays as it is.
        choice.clip_norm = CLIP_NORMS.1;
    }
    choice.expected = match facts.start.folder {
        Some(_) => Expected::at(choice.reach),
        None => FROM_SCRATCH_ACCURACY,
    };
    Ok(choice)
}

/// The reach below which settings are refused.
fn enough(facts: &Facts) -> f64 {
    match facts.start.folder {
        Some(_) => HOPELESS,
        None => HOPELESS_FROM_SCRATCH,
    }
}

/// The sentence that refuses settings under which a run adds nothing to its start; `None` for others.
pub(super) fn hopeless(facts: &Facts, choice: &Choice) -> Option<String> {
    let enough = enough(facts);
    if choice.reach >= enough {
        return None;
    }
    let factor = enough / choice.reach;
    let mut remedies = Vec::new();
    let users = |factor: f64| Facts {
        users: (factor * facts.users as f64).ceil() as u64,
        ..facts.clone()
    };
    let enough = smallest(factor, &users).map(|enough| round_up(enough.users));
    remedies.extend(enough.map(|users| format!("about {} users", grouped(users))));
    let epsilon = |factor: f64| Facts {
        epsilon: (10.0 * factor * facts.epsilon).ceil() / 10.0,
        ..facts.clone()
    };
    let enough = smallest(factor, &epsilon).filter(|enough| enough.epsilon <= MAX_EPSILON);
    remedies.extend(enough.map(|enough| format!("epsilon {}", enough.epsilon)));
    if choice.sampling_probability < MAX_PART {
        let minutes = |factor: f64| Facts {
            minutes: (factor * facts.minutes).ceil(),
            ..facts.clone()
        };
        let enough = smallest(factor, &minutes);
        remedies.extend(enough.map(|enough| format!("{} minutes", enough.minutes)));
    }
    let remedy = match remedies.is_empty() {
        true => String::new(),
        false => format!(" Enough would be {}.", remedies.join(", or ")),
    };
    let (users, reach) = (grouped(facts.users), number(choice.reach));
    let (no_better, other) = match &facts.start.folder {
        Some(folder) => (
            "its public start",
            format!("The public start itself costs no privacy: `undertone predict {folder}`."),
        ),
        None => (
            "the commonest word",
            "A public text in the language of the users (--public) needs less, and so does a shorter list of words.".to_owned(),
        ),
    };
    Some(format!(
        "{users} users, epsilon {} and {} minutes are too little: updates that all pointed one way could move the parameters only {reach} \
         times as far as the noise does, so the model would be no better than {no_better}.{remedy} {other}",
        facts.epsilon, facts.minutes
    ))
}

/// The first facts, of those for growing factors, that are not hopeless. Facts that no plan can meet are no remedy.
fn smallest(first: f64, facts: &dyn Fn(f64) -> Facts) -> Option<Facts> {
    let factors = (0..MAX_TRIES).map(|step| first * 1.25_f64.powi(step));
    let mut all = factors.map(facts);
    all.find(|facts| choose(facts).is_ok_and(|choice| choice.reach >= enough(facts)))
}

/// Two significant digits, rounded up.
fn round_up(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number.div_ceil(unit) * unit
}

/// The range of a top-1 accuracy on held-out users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Expected {
    pub(super) from: f64,
    pub(super) to: f64,
    /// `true` for a run with a public start that resembles the text of the users.
    pub(super) public_start: bool,
}

/// The accuracies of naive runs from random parameters on three corpora of English text (lab/notebooks/init.md). Runs of these settings were
/// measured on the built-in population alone, where they are better than a naive run.
const FROM_SCRATCH_ACCURACY: Expected = Expected {
    from: 0.05,
    to: 0.11,
    public_start: false,
};

/// Accuracies by reach: ranges around the measured ones of three corpora (lab/notebooks/init.md).
const MEASURED: [(f64, f64, f64); 3] = [(2.0, 0.115, 0.15), (6.5, 0.12, 0.155), (10.0, 0.12, 0.16)];

impl Expected {
    /// The range at a reach, between the measured ones.
    fn at(reach: f64) -> Self {
        let [first, .., last] = MEASURED;
        let reach = reach.clamp(first.0, last.0);
        let pairs = MEASURED.iter().zip(&MEASURED[1..]);
        let between = pairs.into_iter().find(|(_, above)| reach <= above.0);
        let (from, to) = between.map_or((last.1, last.2), |(below, above)| {
            let part = (reach / below.0).ln() / (above.0 / below.0).ln();
            let mix = |one: f64, other: f64| one + part * (other - one);
            (mix(below.1, above.1), mix(below.2, above.2))
        });
        Self {
            from,
            to,
            public_start: true,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let alike = if self.public_start {
            " that resembles the public text"
        } else {
            ""
        };
        write!(
            f,
            "top-1 of {:.0} to {:.0} % on English text{alike}; always the commonest word gets about 6 %",
            100.0 * self.from,
            100.0 * self.to
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_reach_is_never_expected_to_be_worse() {
        let all: Vec<Expected> = (1..400)
            .map(|tenth| Expected::at(f64::from(tenth) / 10.0))
            .collect();
        assert!(all.is_sorted_by(|one, other| one.from <= other.from && one.to <= other.to));
        assert!(all.iter().all(|expected| expected.from < expected.to));
        for (reach, from, to) in MEASURED {
            let expected = Expected::at(reach);
            assert!((expected.from - from).abs() < 1e-12 && (expected.to - to).abs() < 1e-12);
        }
    }

    #[test]
    fn numbers_are_rounded_up_to_two_digits() {
        for (number, rounded) in [(7, 7), (99, 99), (101, 110), (1234, 1300), (1300, 1300)] {
            assert_eq!(round_up(number), rounded);
        }
    }
}
