//! What every question takes: the target, the recipe, the relation, and what to search for.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use undertone_accounting::{Adjacency, Delta, Epsilon, NoiseMultiplier, Recipe, SamplingProbability};

/// Options of every question.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct TargetArgs {
    /// Probability mass on which epsilon may be exceeded; far below one over the number of users.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) delta: Option<f64>,
    /// Target of --calibrate; with neither --calibrate nor --delta, the epsilon to state delta for.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) epsilon: Option<f64>,
    /// How to compute the bound; by default the tightest that is valid.
    #[arg(long, value_enum)]
    recipe: Option<RecipeName>,
    /// Which populations are compared; by default what the mechanism is usually stated for.
    #[arg(long, value_enum)]
    adjacency: Option<AdjacencyName>,
    /// Search for this value instead of taking it, so that the guarantee is (--epsilon, --delta).
    #[arg(long, value_enum, value_name = "QUANTITY")]
    calibrate: Option<Quantity>,
    /// Also show epsilon over rounds: `--table` for 1, 10, 100 and so on, `--table=50,200` for a list.
    #[arg(
        long,
        value_name = "ROUNDS,...",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true
    )]
    table: Option<Vec<u64>>,
}

/// What an answer is stated for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The smallest epsilon at this delta.
    AtDelta(Delta),
    /// The smallest delta at this epsilon.
    AtEpsilon(Epsilon),
    /// The value of a quantity that reaches the pair.
    Calibrate(Quantity, (Epsilon, Delta)),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RecipeName {
    /// Privacy loss distribution, the tightest for sampled and mixed events.
    Pld,
    /// Renyi divergences.
    Rdp,
    /// Zero-concentrated differential privacy, for Gaussians without sampling.
    Zcdp,
    /// The moments accountant of 2016, for comparison with printed tables.
    #[value(name = "moments-2016")]
    Moments2016,
    /// The exact trade-off of Gaussians without sampling.
    Gaussian,
}

impl From<RecipeName> for Recipe {
    fn from(name: RecipeName) -> Self {
        match name {
            RecipeName::Pld => Self::Pld,
            RecipeName::Rdp => Self::Rdp,
            RecipeName::Zcdp => Self::Zcdp,
            RecipeName::Moments2016 => Self::Moments2016,
            RecipeName::Gaussian => Self::ExactGaussian,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AdjacencyName {
    /// All data of one user is added or removed.
    AddOrRemove,
    /// All data of one user is replaced by another's.
    ReplaceOne,
    /// All data of one user is replaced by nothing, the rounds it went into staying as they were.
    ZeroOut,
}

impl From<AdjacencyName> for Adjacency {
    fn from(name: AdjacencyName) -> Self {
        match name {
            AdjacencyName::AddOrRemove => Self::AddOrRemoveOne,
            AdjacencyName::ReplaceOne => Self::ReplaceOne,
            AdjacencyName::ZeroOut => Self::ZeroOut,
        }
    }
}

/// A value that can be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Quantity {
    /// The smallest noise multiplier.
    NoiseMultiplier,
    /// The largest number of rounds.
    Rounds,
    /// The largest sampling probability.
    SamplingProbability,
}

impl Quantity {
    /// The name of its option, without dashes in front.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoiseMultiplier => "noise-multiplier",
            Self::Rounds => "rounds",
            Self::SamplingProbability => "sampling-probability",
        }
    }
}

impl TargetArgs {
    pub(super) fn recipe(&self) -> Option<Recipe> {
        self.recipe.map(Recipe::from)
    }

    pub(super) fn adjacency(&self) -> Option<Adjacency> {
        self.adjacency.map(Adjacency::from)
    }

    /// Whether this quantity is searched for.
    pub(super) fn searches(&self, quantity: Quantity) -> bool {
        self.calibrate == Some(quantity)
    }

    /// What the answer is to be stated for.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let epsilon = self.epsilon.map(Epsilon::new).transpose()?;
        let delta = self.delta.map(Delta::new).transpose()?;
        match (self.calibrate, epsilon, delta) {
            (Some(quantity), Some(epsilon), Some(delta)) => Ok(Target::Calibrate(quantity, (epsilon, delta))),
            (Some(_), ..) => bail!("--calibrate: expected a target, --epsilon and --delta"),
            (None, None, Some(delta)) => Ok(Target::AtDelta(delta)),
            (None, Some(epsilon), None) => Ok(Target::AtEpsilon(epsilon)),
            (None, Some(_), Some(_)) => bail!(
                "--epsilon with --delta: expected one of them (to compute the other), or --calibrate QUANTITY for what \
                 reaches both"
            ),
            (None, None, None) => bail!("--delta: expected the delta to state epsilon for"),
        }
    }

    /// Rounds of the table: the list, or powers of ten up to `rounds` and `rounds` itself; `None` without --table.
    pub(super) fn table(&self, rounds: u64) -> anyhow::Result<Option<Vec<u64>>> {
        let Some(list) = &self.table else {
            return Ok(None);
        };
        ensure!(
            !list.contains(&0),
            "--table: expected rounds of at least 1, got 0"
        );
        if !list.is_empty() {
            return Ok(Some(list.clone()));
        }
        let powers = std::iter::successors(Some(1u64), |power| power.checked_mul(10));
        let mut table: Vec<u64> = powers.take_while(|power| *power < rounds).collect();
        table.push(rounds);
        Ok(Some(table))
    }
}

/// How many users join a round.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SamplingArgs {
    /// Probability with which every user joins a round, independently.
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["population", "cohort"])]
    sampling_probability: Option<f64>,
    /// Users in the population; with --cohort instead of --sampling-probability.
    #[arg(long, requires = "cohort")]
    population: Option<u64>,
    /// Users of a round on average.
    #[arg(long, requires = "population", allow_negative_numbers = true)]
    cohort: Option<f64>,
}

impl SamplingArgs {
    pub(super) fn probability(&self) -> anyhow::Result<Option<SamplingProbability>> {
        let probability = match (self.sampling_probability, self.population, self.cohort) {
            (Some(probability), ..) => probability,
            (None, Some(population), Some(cohort)) => {
                ensure!(
                    cohort > 0.0 && cohort <= population as f64,
                    "--cohort: expected a number of users in (0, {population}], got {cohort}"
                );
                cohort / population as f64
            }
            _ => return Ok(None),
        };
        Ok(Some(SamplingProbability::new(probability)?))
    }
}

/// The values of a question that may be given or searched for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Setting {
    pub(super) noise_multiplier: Option<NoiseMultiplier>,
    pub(super) rounds: Option<u64>,
    pub(super) sampling_probability: Option<SamplingProbability>,
}

impl Setting {
    pub(super) fn new(
        noise_multiplier: Option<f64>,
        rounds: Option<u64>,
        sampling_probability: Option<SamplingProbability>,
    ) -> anyhow::Result<Self> {
        ensure!(rounds != Some(0), "--rounds: expected at least 1, got 0");
        Ok(Self {
            noise_multiplier: noise_multiplier.map(NoiseMultiplier::new).transpose()?,
            rounds,
            sampling_probability,
        })
    }

    pub(super) fn noise_multiplier(&self) -> anyhow::Result<NoiseMultiplier> {
        self.noise_multiplier
            .with_context(|| needed(Quantity::NoiseMultiplier))
    }

    pub(super) fn rounds(&self) -> anyhow::Result<u64> {
        self.rounds.with_context(|| needed(Quantity::Rounds))
    }

    pub(super) fn sampling_probability(&self) -> anyhow::Result<SamplingProbability> {
        self.sampling_probability
            .with_context(|| needed(Quantity::SamplingProbability))
    }

    /// Whether a quantity was given: then there is nothing to search for.
    pub(super) fn has(&self, quantity: Quantity) -> bool {
        match quantity {
            Quantity::NoiseMultiplier => self.noise_multiplier.is_some(),
            Quantity::Rounds => self.rounds.is_some(),
            Quantity::SamplingProbability => self.sampling_probability.is_some(),
        }
    }
}

fn needed(quantity: Quantity) -> String {
    let name = quantity.name();
    format!("--{name}: expected a value, or --calibrate {name} with a target --epsilon and --delta")
}
