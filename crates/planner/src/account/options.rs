//! Options of every question: the target, the recipe, the relation, and the quantity to search for.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use undertone_accounting::{
    Accountant, AccountingError, Adjacency, Delta, Epsilon, Guarantee, NoiseMultiplier, Recipe,
    SamplingProbability,
};

use super::words::{Words, exact};

/// Options of every question.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Guarantee")]
pub(super) struct TargetArgs {
    /// Set the delta of the guarantee (for example 1e-6). It should be far below 1 / users.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) delta: Option<f64>,
    /// Set the target epsilon of --calibrate. Without --calibrate and --delta, compute delta at this epsilon.
    #[arg(long, allow_negative_numbers = true)]
    pub(super) epsilon: Option<f64>,
    /// Choose the method of accounting (default: the tightest that is valid).
    #[arg(long, value_enum)]
    recipe: Option<RecipeName>,
    /// Choose the relation between neighbouring populations (default: the usual one of the mechanism).
    #[arg(long, value_enum)]
    adjacency: Option<AdjacencyName>,
    /// Find the value of this quantity that meets --epsilon at --delta.
    #[arg(long, value_enum, value_name = "QUANTITY")]
    calibrate: Option<Quantity>,
    /// Show epsilon after several numbers of rounds: `--table` for powers of ten, `--table=50,200` for a list.
    #[arg(
        long,
        value_name = "ROUNDS,...",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true
    )]
    table: Option<Vec<u64>>,
    /// Leave out the lower bound on epsilon, which takes longer than the upper one.
    #[arg(long)]
    no_lower_bound: bool,
    /// Print one paragraph for a report, with everything that a reader of the figures needs.
    #[arg(long, conflicts_with = "table")]
    statement: bool,
}

/// The target that an answer is stated for.
#[derive(Debug, Clone, Copy)]
pub(super) enum StatedFor {
    /// The smallest epsilon at this delta.
    AtDelta(Delta),
    /// The smallest delta at this epsilon.
    AtEpsilon(Epsilon),
    /// The value of a quantity that reaches the pair.
    Calibrate(Quantity, (Epsilon, Delta)),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RecipeName {
    /// Use privacy loss distributions, the tightest for sampled and mixed events.
    Pld,
    /// Use Renyi differential privacy.
    Rdp,
    /// Use zero-concentrated differential privacy, for Gaussians without sampling.
    Zcdp,
    /// Use the moments accountant of 2016, for comparison with published tables.
    #[value(name = "moments-2016")]
    Moments2016,
    /// Use the exact epsilon of Gaussians without sampling.
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
    /// Compare populations in which all data of one user is added or removed.
    AddOrRemove,
    /// Compare populations in which all data of one user is replaced by that of another user.
    ReplaceOne,
    /// Compare populations in which all data of one user is zeroed, and the rounds are kept.
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
    /// Find the smallest noise multiplier.
    NoiseMultiplier,
    /// Find the largest number of rounds.
    Rounds,
    /// Find the largest sampling probability.
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

    /// `true` if a paragraph for a report is asked for.
    pub(super) fn statement(&self) -> bool {
        self.statement
    }

    /// A command line with the recipe and the relation that were named, and with the target of an answer.
    pub(super) fn asked_again(&self, words: Words) -> Words {
        let recipe = self.recipe.and_then(|name| name.to_possible_value());
        let adjacency = self.adjacency.and_then(|name| name.to_possible_value());
        // A value that was found stands among the words already.
        let delta = self.delta.map(exact);
        let epsilon = if delta.is_some() {
            None
        } else {
            self.epsilon.map(exact)
        };
        words
            .option("delta", delta)
            .option("epsilon", epsilon)
            .option("recipe", recipe.map(|value| value.get_name().to_owned()))
            .option("adjacency", adjacency.map(|value| value.get_name().to_owned()))
    }

    pub(super) fn adjacency(&self) -> Option<Adjacency> {
        self.adjacency.map(Adjacency::from)
    }

    /// The lower bound on epsilon beside a guarantee, where the recipe has one and it was not left out.
    pub(super) fn lower_bound(
        &self,
        accountant: &Accountant,
        guarantee: &Guarantee,
    ) -> anyhow::Result<Option<f64>> {
        if self.no_lower_bound {
            return Ok(None);
        }
        match accountant.lower_bound_of(guarantee) {
            Ok(lower) => Ok(Some(lower.get())),
            // PRIVACY: one of two bounds that contradict each other is wrong, so the other is not shown either.
            Err(error @ AccountingError::BoundsDisagree { .. }) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// `true` if this quantity is searched for.
    pub(super) fn searches(&self, quantity: Quantity) -> bool {
        self.calibrate == Some(quantity)
    }

    /// The target that the answer is to be stated for.
    pub(super) fn target(&self) -> anyhow::Result<StatedFor> {
        let epsilon = self.epsilon.map(Epsilon::new).transpose()?;
        let delta = self.delta.map(Delta::new).transpose()?;
        match (self.calibrate, epsilon, delta) {
            (Some(quantity), Some(epsilon), Some(delta)) => {
                Ok(StatedFor::Calibrate(quantity, (epsilon, delta)))
            }
            (Some(_), ..) => bail!("--calibrate needs the target guarantee: --epsilon and --delta"),
            (None, None, Some(delta)) => Ok(StatedFor::AtDelta(delta)),
            (None, Some(epsilon), None) => Ok(StatedFor::AtEpsilon(epsilon)),
            (None, Some(_), Some(_)) => bail!(
                "--epsilon and --delta were both given: give only --delta to compute epsilon, only --epsilon to compute \
                 delta, or --calibrate QUANTITY to find what meets both"
            ),
            (None, None, None) => {
                bail!("expected --delta (to compute epsilon) or --epsilon (to compute delta)")
            }
        }
    }

    /// Rounds of the table: the list, or powers of ten up to `rounds` and `rounds` itself; `None` without --table.
    pub(super) fn table(&self, rounds: u64) -> anyhow::Result<Option<Vec<u64>>> {
        let Some(list) = &self.table else {
            return Ok(None);
        };
        ensure!(
            !list.contains(&0),
            "--table: expected numbers of rounds of at least 1, got 0"
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

/// The values of a question that may be given or searched for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Knobs {
    pub(super) noise_multiplier: Option<NoiseMultiplier>,
    pub(super) rounds: Option<u64>,
    pub(super) sampling_probability: Option<SamplingProbability>,
}

impl Knobs {
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

    /// `true` if a quantity was given, so that there is nothing to search for.
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
    format!("expected --{name} with a value, or --calibrate {name} with the target --epsilon and --delta")
}
