use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::{AccountingError, Adjacency, NoiseMultiplier, Sampling, SamplingProbability};

/// One release about the users, with the sampling scheme and the relation it is stated for.
///
/// The scheme is part of the event so that a Poisson number can never be quoted for fixed-size cohorts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Event {
    /// Every user joins independently with `sampling_probability`; the sum of the joined users' bounded
    /// updates gets Gaussian noise. Relation: add or remove one user. `sampling_probability = 1` is
    /// [`Event::Gaussian`].
    PoissonGaussian {
        /// `q`.
        sampling_probability: SamplingProbability,
        /// Noise standard deviation / add-or-remove sensitivity of the released quantity.
        noise_multiplier: NoiseMultiplier,
    },
    /// Every user takes part; Gaussian noise. Relation: add or remove one user.
    Gaussian {
        /// Noise standard deviation / add-or-remove sensitivity of the released quantity.
        noise_multiplier: NoiseMultiplier,
    },
    /// A uniformly random cohort of exactly `cohort_size` out of `population` users, fresh each round,
    /// without replacement; Gaussian noise. Relation: replace one user (the population size is public).
    FixedSizeGaussian {
        /// Users in the population.
        population: u64,
        /// Users in the cohort, in `[1, population]`.
        cohort_size: u64,
        /// Noise standard deviation / **replace-one** sensitivity. Replacing a user moves a sum of updates of
        /// norm at most `S` by up to `2 S`, so noise of standard deviation `z S` has noise multiplier `z / 2`
        /// here.
        noise_multiplier: NoiseMultiplier,
    },
    /// A release without noise. Nothing is guaranteed after it.
    NonPrivate,
}

impl Event {
    /// The relation the event is stated for; `None` for [`Event::NonPrivate`], which fits any.
    #[must_use]
    pub fn adjacency(&self) -> Option<Adjacency> {
        match self {
            Event::PoissonGaussian { .. } | Event::Gaussian { .. } => Some(Adjacency::AddOrRemoveOne),
            Event::FixedSizeGaussian { .. } => Some(Adjacency::ReplaceOne),
            Event::NonPrivate => None,
        }
    }

    /// How the users of the event are chosen.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        match self {
            Event::PoissonGaussian {
                sampling_probability, ..
            } if sampling_probability.get() < 1.0 => Sampling::Poisson,
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                ..
            } if cohort_size < population => Sampling::FixedSize,
            _ => Sampling::FullParticipation,
        }
    }

    /// Kind of event in words, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Event::PoissonGaussian { .. } => "Poisson-sampled Gaussian",
            Event::Gaussian { .. } => "Gaussian",
            Event::FixedSizeGaussian { .. } => "fixed-size-cohort Gaussian",
            Event::NonPrivate => "non-private",
        }
    }

    pub(crate) fn validate(&self) -> Result<(), AccountingError> {
        match *self {
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                ..
            } if cohort_size == 0 || cohort_size > population => Err(AccountingError::CohortSize {
                population,
                cohort_size,
            }),
            _ => Ok(()),
        }
    }

    /// A total order, so that composing in any order of rounds gives the same bits.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }

    fn key(&self) -> (u8, u64, u64, u64) {
        match *self {
            Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            } => (
                0,
                sampling_probability.get().to_bits(),
                noise_multiplier.get().to_bits(),
                0,
            ),
            Event::Gaussian { noise_multiplier } => (1, noise_multiplier.get().to_bits(), 0, 0),
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                noise_multiplier,
            } => (2, population, cohort_size, noise_multiplier.get().to_bits()),
            Event::NonPrivate => (3, 0, 0, 0),
        }
    }
}
