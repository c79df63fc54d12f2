//! Options about the sampling of a round: how many records there are, how many of them it draws, and whose they are.

use anyhow::{bail, ensure};
use undertone_accounting::SamplingProbability;
use undertone_present::numbers::grouped;

use super::fact::Fact;
use super::question::Records;
use super::unit::Unit;
use super::words::{Words, exact};

/// The sampling of users or examples per round.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(super) struct SamplingArgs {
    /// Set the probability, in (0, 1], with which each record joins a round independently. --unit says what a record is.
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["population", "cohort", "examples", "batch", "epochs"])]
    sampling_probability: Option<f64>,
    /// Set the number of users in the population. With --cohort, it replaces --sampling-probability.
    #[arg(long, requires = "cohort", conflicts_with_all = ["examples", "batch"])]
    population: Option<u64>,
    /// Set the mean number of users per round.
    #[arg(long, requires = "population", allow_negative_numbers = true)]
    cohort: Option<f64>,
    /// Set the number of training examples. With --batch, it replaces --sampling-probability, and the unit is one example.
    #[arg(long, requires = "batch")]
    examples: Option<u64>,
    /// Set the mean number of examples per step.
    #[arg(long, requires = "examples", allow_negative_numbers = true)]
    batch: Option<f64>,
    /// Set the number of passes over the examples. It replaces --rounds: a pass has EXAMPLES / BATCH steps.
    #[arg(
        long,
        requires = "examples",
        conflicts_with = "rounds",
        allow_negative_numbers = true
    )]
    epochs: Option<f64>,
    /// Set the max number of examples per user in the training set, where examples are sampled.
    ///
    /// With --examples or --unit example, the answer has a second epsilon, for whole users. Otherwise the answer itself is for
    /// whole users.
    #[arg(long, value_name = "EXAMPLES", visible_alias = "max-examples-per-user")]
    group_size: Option<u32>,
    /// Name the unit of the guarantee (default: users of a population or with --group-size, examples with --examples).
    #[arg(long, value_enum)]
    unit: Option<Unit>,
}

impl SamplingArgs {
    /// The unit of the guarantee; `None` if the options do not say it.
    pub(super) fn unit(&self) -> anyhow::Result<Option<Unit>> {
        if self.population.is_some() {
            ensure!(
                self.group_size.is_none(),
                "--group-size and --population were both given: sampled examples need --examples and --batch, or \
                 --sampling-probability"
            );
            ensure!(
                self.unit != Some(Unit::Example),
                "--unit: expected user beside --population, which counts users, got example; sampled examples need --examples \
                 and --batch"
            );
            return Ok(Some(Unit::User));
        }
        if self.examples.is_some() {
            ensure!(
                self.unit != Some(Unit::User) || self.group_size.is_some(),
                "--unit user: expected --max-examples-per-user beside --examples, got none; give it, or leave out --unit"
            );
            return Ok(self.unit.or(Some(Unit::Example)));
        }
        Ok(self.unit.or(self.group_size.map(|_| Unit::User)))
    }

    /// `true` if a round draws examples.
    pub(super) fn draws_examples(&self) -> bool {
        self.examples.is_some() || self.group_size.is_some() || self.unit == Some(Unit::Example)
    }

    /// The share of the records that a round draws, where both numbers are known.
    pub(super) fn share(&self) -> Option<String> {
        let cohort = self.cohort.zip(self.population);
        let (drawn, all) = cohort.or(self.batch.zip(self.examples))?;
        Some(format!(", {} of {} on average", exact(drawn), grouped(all)))
    }

    /// Examples of a user in the training set, at most.
    pub(super) fn group_size(&self) -> Option<u32> {
        self.group_size
    }

    pub(super) fn probability(&self) -> anyhow::Result<Option<SamplingProbability>> {
        let share = |option: &str, unit: &str, drawn: f64, of: u64| {
            ensure!(
                drawn > 0.0 && drawn <= of as f64,
                "--{option}: expected a number of {unit} in (0, {of}], got {drawn}"
            );
            Ok(drawn / of as f64)
        };
        let probability = match (self.population, self.cohort, self.examples, self.batch) {
            (Some(population), Some(cohort), ..) => share("cohort", "users", cohort, population)?,
            (.., Some(examples), Some(batch)) => share("batch", "examples", batch, examples)?,
            _ => match self.sampling_probability {
                Some(probability) => probability,
                None => return Ok(None),
            },
        };
        Ok(Some(SamplingProbability::new(probability)?))
    }

    /// The steps of the epochs, rounded up; `None` without epochs.
    pub(super) fn steps(&self) -> anyhow::Result<Option<u64>> {
        let (Some(epochs), Some(examples), Some(batch)) = (self.epochs, self.examples, self.batch) else {
            return Ok(None);
        };
        let steps = (epochs * examples as f64 / batch).ceil();
        if !(epochs > 0.0 && epochs.is_finite()) {
            bail!("--epochs: expected a finite number above 0, got {epochs}");
        }
        // The range of the batch is an error of its own.
        Ok((steps >= 1.0).then_some(steps as u64))
    }

    /// Adds the options that describe the sampling, with the probability that was found where none of them does.
    pub(super) fn asked_again(&self, words: Words, probability: SamplingProbability) -> Words {
        let known = self.population.is_some() || self.examples.is_some();
        let probability = (!known).then(|| exact(probability.get()));
        // A group size alone names the unit.
        let unit = self.unit.map(|unit| unit.name().to_owned());
        words
            .option("population", self.population.map(|users| users.to_string()))
            .option("cohort", self.cohort.map(exact))
            .option("examples", self.examples.map(|examples| examples.to_string()))
            .option("batch", self.batch.map(exact))
            .option("sampling-probability", probability)
            .option("group-size", self.group_size.map(|size| size.to_string()))
            .option("unit", unit)
    }

    /// The records that a delta has to be compared with.
    pub(super) fn records(&self) -> Option<Records> {
        let users = self.population.map(|number| Records {
            unit: Unit::User,
            number,
        });
        users.or(self.examples.map(|number| Records {
            unit: Unit::Example,
            number,
        }))
    }

    /// The numbers that were given.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let counts = [
            self.population.map(|users| Fact::count("population", users)),
            self.cohort.map(|users| Fact::measure("cohort", users)),
            self.examples.map(|examples| Fact::count("examples", examples)),
            self.batch.map(|examples| Fact::measure("batch", examples)),
            self.epochs.map(|epochs| Fact::measure("epochs", epochs)),
            self.group_size.map(|size| Fact::count("group-size", size.into())),
        ];
        counts.into_iter().flatten().collect()
    }
}
