use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::rdp::repeat_and_select::Repetitions;
use crate::{Adjacency, Delta, Epsilon, NoiseMultiplier, Rho, Sampling, SamplingProbability};

mod limits;
mod pair;
mod truncated;
mod validate;

pub(crate) use limits::{product_up, sum_up};
pub(crate) use pair::{binomial, pair, two_outcomes};

/// Logarithm of a tail mass that suffices to learn whether an event has a loss distribution at all.
pub(crate) const FIRST_LOOK: f64 = -40.0;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// One release about the users, with the sampling scheme and the relation it is stated for.
///
/// The scheme is part of the event so that a Poisson number can never be quoted for fixed-size cohorts. Noise
/// multipliers are relative to the **add-or-remove** sensitivity unless the event says otherwise;
/// [`Accountant::under`](crate::Accountant::under) another relation doubles the sensitivity where that relation
/// does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Event {
    /// Every user joins independently with `sampling_probability`; the sum of the joined users' bounded
    /// updates gets Gaussian noise. `sampling_probability = 1` is [`Event::Gaussian`].
    PoissonGaussian {
        /// Sampling probability `q`.
        sampling_probability: SamplingProbability,
        /// Noise standard deviation / add-or-remove sensitivity of the released quantity.
        noise_multiplier: NoiseMultiplier,
    },
    /// Every user takes part; Gaussian noise.
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
    /// Poisson sampling whose cohort is cut to a uniformly random `max_cohort_size` of its users where it is larger.
    TruncatedPoissonGaussian {
        /// Users in the population, the one that makes the difference included.
        population: u64,
        /// Sampling probability `q`.
        sampling_probability: SamplingProbability,
        /// Largest cohort, in `[1, population]`.
        max_cohort_size: u64,
        /// Noise standard deviation / largest norm of one user's update.
        noise_multiplier: NoiseMultiplier,
    },
    /// A Gaussian moved by a random amount: by `sensitivities[i]` with probability `probabilities[i]`.
    MixtureOfGaussians {
        /// Noise standard deviation in the unit of `sensitivities`.
        noise_multiplier: NoiseMultiplier,
        /// Distances `>= 0`.
        sensitivities: Vec<f64>,
        /// Their probabilities, adding up to 1.
        probabilities: Vec<f64>,
    },
    /// Example-level sampling (\[UserDP\] Algorithm 1): a user holds at most `group_size` examples, each joins
    /// independently with `sampling_probability`, each moves the sum by at most 1. The guarantee is for the
    /// user. `group_size = 1` is [`Event::PoissonGaussian`], and user-level sampling.
    ExampleLevelSampling {
        /// Examples kept of one user, `G` or `K`.
        group_size: u32,
        /// Probability with which each example joins.
        sampling_probability: SamplingProbability,
        /// Noise standard deviation / clip norm of one example.
        noise_multiplier: NoiseMultiplier,
    },
    /// Gaussian noise correlated over the rounds of a whole run (tree, banded, BLT, ...), as one release:
    /// `C X + Z` with one user moving `C X` by at most `sqrt(sensitivity_squared)`. Relation: zero out one user.
    /// [`sensitivity`](crate::sensitivity) computes the squared sensitivity.
    CorrelatedGaussian {
        /// Squared L2 sensitivity of the strategy matrix under the participation schema, per unit of clip norm.
        sensitivity_squared: f64,
        /// Noise standard deviation / clip norm.
        noise_multiplier: NoiseMultiplier,
    },
    /// Laplace noise on numbers.
    Laplace {
        /// Scale `b` of the noise divided by the L1 sensitivity.
        scale: f64,
    },
    /// Discrete Laplace noise on an integer, `P(x)` proportional to `e^{-parameter |x|}`.
    DiscreteLaplace {
        /// Decay per unit.
        parameter: f64,
        /// Distance by which one user moves the integer.
        sensitivity: u64,
    },
    /// Discrete Gaussian noise on an integer, `P(x)` proportional to `e^{-x^2 / (2 sigma^2)}`.
    DiscreteGaussian {
        /// Scale of the noise.
        sigma: f64,
        /// Distance by which one user moves the integer.
        sensitivity: u64,
    },
    /// A user's answer among `num_buckets`, replaced by a uniform one with probability `noise_parameter`.
    /// Relation: replace one user, or zero out one user (whose answer then is uniform).
    RandomizedResponse {
        /// Possible answers.
        num_buckets: u64,
        /// Probability of a uniform answer.
        noise_parameter: f64,
    },
    /// Binomial noise `Bin(trials, success_probability)` on an integer.
    Binomial {
        /// Number of trials `N`.
        trials: u64,
        /// Success probability `p`.
        success_probability: f64,
        /// Distance by which one user moves the integer.
        shift: u64,
    },
    /// An event over a Poisson sample of the users: `Laplace`, `DiscreteLaplace`, `DiscreteGaussian` or `Binomial`, under add-or-remove or
    /// zero-out. A sampled Gaussian is [`Event::PoissonGaussian`].
    PoissonSampled {
        /// Sampling probability `q`.
        sampling_probability: SamplingProbability,
        /// The event on the sampled users.
        event: Box<Event>,
    },
    /// Discrete Gaussian noise that each client adds before a secure sum.
    DistributedDiscreteGaussian {
        /// L2 norm of an update.
        clip_norm: f64,
        /// Grid step.
        granularity: f64,
        /// Coordinates of an update.
        dimension: u64,
        /// Constant of conditional rounding; 0 accepts every rounding.
        conditional_beta: f64,
        /// Standard deviation of one client's noise.
        local_stddev: f64,
        /// Minimum number of clients whose noise is in the sum.
        clients: u64,
    },
    /// Skellam noise that the clients add before a secure sum.
    Skellam {
        /// L2 norm of an update.
        clip_norm: f64,
        /// Grid step.
        granularity: f64,
        /// Coordinates of an update.
        dimension: u64,
        /// Constant of conditional rounding; 0 accepts every rounding.
        conditional_beta: f64,
        /// Standard deviation of the sum of the clients' noise.
        central_stddev: f64,
    },
    /// A release with a bound on concentrated differential privacy, under the relation of that bound.
    ZeroConcentrated {
        /// Renyi divergence of order `a` at most `xi + rho a`.
        rho: Rho,
        /// The part of the bound that no order changes, `>= 0`.
        #[serde(default, skip_serializing_if = "is_zero")]
        xi: f64,
    },
    /// A release whose privacy loss has a bounded range, under the relation of that bound: the exponential mechanism.
    ///
    /// For any two neighbours, the largest and the smallest privacy loss differ by at most `epsilon`. The exponential
    /// mechanism that is `epsilon`-differentially private, with probabilities proportional to
    /// `e^{epsilon score / (2 sensitivity)}`, is one. So is report-noisy-max with Gumbel noise.
    BoundedRange {
        /// Range of the privacy loss.
        epsilon: Epsilon,
    },
    /// A release with an (epsilon, delta) statement, under the relation of that statement.
    ApproximateDp {
        /// Epsilon of the statement.
        epsilon: Epsilon,
        /// Delta of the statement; `None` is pure differential privacy.
        delta: Option<Delta>,
    },
    /// A mechanism that runs a random number of times and publishes only its best output.
    RepeatAndSelect {
        /// One run.
        event: Box<Event>,
        /// The distribution of the number of runs.
        repetitions: Repetitions,
    },
    /// A release without noise. Nothing is guaranteed after it.
    NonPrivate,
}

impl Event {
    /// The relation that the event is stated for by default; `None` for events that fit any relation.
    #[must_use]
    pub fn adjacency(&self) -> Option<Adjacency> {
        match self {
            Event::FixedSizeGaussian { .. } | Event::RandomizedResponse { .. } => Some(Adjacency::ReplaceOne),
            Event::CorrelatedGaussian { .. }
            | Event::DistributedDiscreteGaussian { .. }
            | Event::Skellam { .. } => Some(Adjacency::ZeroOut),
            Event::NonPrivate
            | Event::ZeroConcentrated { .. }
            | Event::BoundedRange { .. }
            | Event::ApproximateDp { .. } => None,
            Event::PoissonSampled { event, .. } | Event::RepeatAndSelect { event, .. } => event.adjacency(),
            Event::PoissonGaussian { .. }
            | Event::Gaussian { .. }
            | Event::TruncatedPoissonGaussian { .. }
            | Event::MixtureOfGaussians { .. }
            | Event::ExampleLevelSampling { .. }
            | Event::Laplace { .. }
            | Event::DiscreteLaplace { .. }
            | Event::DiscreteGaussian { .. }
            | Event::Binomial { .. } => Some(Adjacency::AddOrRemoveOne),
        }
    }

    /// Returns true if the event can be accounted for under `adjacency`.
    #[must_use]
    pub(crate) fn supports(&self, adjacency: Adjacency) -> bool {
        match self {
            Event::FixedSizeGaussian { .. } => adjacency == Adjacency::ReplaceOne,
            Event::CorrelatedGaussian { .. }
            | Event::RandomizedResponse { .. }
            | Event::DistributedDiscreteGaussian { .. }
            | Event::Skellam { .. } => adjacency != Adjacency::AddOrRemoveOne,
            Event::PoissonSampled { event, .. } => {
                adjacency != Adjacency::ReplaceOne && event.supports(adjacency)
            }
            Event::RepeatAndSelect { event, .. } => event.supports(adjacency),
            Event::PoissonGaussian { .. }
            | Event::Gaussian { .. }
            | Event::TruncatedPoissonGaussian { .. }
            | Event::MixtureOfGaussians { .. }
            | Event::ExampleLevelSampling { .. }
            | Event::Laplace { .. }
            | Event::DiscreteLaplace { .. }
            | Event::DiscreteGaussian { .. }
            | Event::Binomial { .. }
            | Event::ZeroConcentrated { .. }
            | Event::BoundedRange { .. }
            | Event::ApproximateDp { .. }
            | Event::NonPrivate => true,
        }
    }

    /// The way in which the users of the event are chosen.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        let unless_all = |sampling: Sampling, all: bool| match all {
            true => Sampling::FullParticipation,
            false => sampling,
        };
        match self {
            Event::PoissonGaussian {
                sampling_probability, ..
            }
            | Event::ExampleLevelSampling {
                sampling_probability, ..
            }
            | Event::PoissonSampled {
                sampling_probability, ..
            } => unless_all(Sampling::Poisson, sampling_probability.get() >= 1.0),
            Event::TruncatedPoissonGaussian { .. } => Sampling::TruncatedPoisson,
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                ..
            } => unless_all(Sampling::FixedSize, cohort_size >= population),
            Event::RepeatAndSelect { event, .. } => event.sampling(),
            Event::Gaussian { .. }
            | Event::MixtureOfGaussians { .. }
            | Event::CorrelatedGaussian { .. }
            | Event::Laplace { .. }
            | Event::DiscreteLaplace { .. }
            | Event::DiscreteGaussian { .. }
            | Event::RandomizedResponse { .. }
            | Event::Binomial { .. }
            | Event::DistributedDiscreteGaussian { .. }
            | Event::Skellam { .. }
            | Event::ZeroConcentrated { .. }
            | Event::BoundedRange { .. }
            | Event::ApproximateDp { .. }
            | Event::NonPrivate => Sampling::FullParticipation,
        }
    }

    /// `rho` of an event that is a Gaussian everyone takes part in, under a relation it supports.
    pub(crate) fn gaussian_rho(&self, adjacency: Adjacency) -> Option<f64> {
        let factor = adjacency.sensitivity_factor();
        match self {
            Event::Gaussian { noise_multiplier } => {
                Some(0.5 * factor * factor / noise_multiplier.get() / noise_multiplier.get())
            }
            Event::PoissonGaussian {
                noise_multiplier,
                sampling_probability,
            }
            | Event::ExampleLevelSampling {
                group_size: 1,
                sampling_probability,
                noise_multiplier,
            } if sampling_probability.get() == 1.0 => {
                Some(0.5 * factor * factor / noise_multiplier.get() / noise_multiplier.get())
            }
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                noise_multiplier,
            } if population == cohort_size => Some(0.5 / noise_multiplier.get() / noise_multiplier.get()),
            Event::CorrelatedGaussian {
                sensitivity_squared,
                noise_multiplier,
            } => {
                let z = noise_multiplier.get();
                Some(0.5 * factor * factor * sensitivity_squared / z / z)
            }
            _ => None,
        }
    }

    /// `(rho, xi)` of zero-concentrated differential privacy, where the event has them.
    pub(crate) fn concentrated(&self, adjacency: Adjacency) -> Option<(f64, f64)> {
        match self {
            Event::ZeroConcentrated { rho, xi } => Some((rho.get(), *xi)),
            // Canonne, Kamath, Steinke (2020), Theorem 4: as the continuous one.
            Event::DiscreteGaussian { sigma, sensitivity } => {
                let moved = adjacency.sensitivity_factor() * *sensitivity as f64 / sigma;
                Some((0.5 * moved * moved, 0.0))
            }
            _ => Some((self.gaussian_rho(adjacency)?, 0.0)),
        }
    }

    /// An (epsilon, delta) event as if its delta were zero; `None` for other events, and where it is zero.
    pub(crate) fn without_delta(&self) -> Option<Event> {
        match *self {
            Event::ApproximateDp {
                epsilon,
                delta: Some(_),
            } => Some(Event::ApproximateDp { epsilon, delta: None }),
            _ => None,
        }
    }

    /// Returns true if events of this kind have a loss distribution, also where the fields of this one are outside their range.
    pub(crate) fn has_loss_distribution(&self) -> bool {
        let adjacency = self.adjacency().unwrap_or(Adjacency::AddOrRemoveOne);
        !matches!(pair(self, adjacency, FIRST_LOOK), Ok(None))
    }

    /// Noise in shares with twice the clip norm under replace-one; other events and relations as they are.
    pub(crate) fn doubled_if_replaced(&self, adjacency: Adjacency) -> Event {
        let mut event = self.clone();
        if let Event::DistributedDiscreteGaussian { clip_norm, .. } | Event::Skellam { clip_norm, .. } =
            &mut event
        {
            *clip_norm *= adjacency.sensitivity_factor();
        }
        event
    }

    /// Kind of event in words, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Event::PoissonGaussian { .. } => "Poisson-sampled Gaussian",
            Event::Gaussian { .. } => "Gaussian",
            Event::FixedSizeGaussian { .. } => "fixed-size-cohort Gaussian",
            Event::TruncatedPoissonGaussian { .. } => "truncated-Poisson Gaussian",
            Event::MixtureOfGaussians { .. } => "mixture-of-Gaussians",
            Event::ExampleLevelSampling { .. } => "example-level-sampling",
            Event::CorrelatedGaussian { .. } => "correlated Gaussian",
            Event::Laplace { .. } => "Laplace",
            Event::DiscreteLaplace { .. } => "discrete Laplace",
            Event::DiscreteGaussian { .. } => "discrete Gaussian",
            Event::RandomizedResponse { .. } => "randomized-response",
            Event::Binomial { .. } => "binomial",
            Event::PoissonSampled { .. } => "Poisson-sampled",
            Event::DistributedDiscreteGaussian { .. } => "distributed discrete Gaussian",
            Event::Skellam { .. } => "Skellam",
            Event::ZeroConcentrated { .. } => "zero-concentrated",
            Event::BoundedRange { .. } => "bounded-range",
            Event::ApproximateDp { .. } => "approximate-DP",
            Event::RepeatAndSelect { .. } => "repeat-and-select",
            Event::NonPrivate => "non-private",
        }
    }

    /// A total order of events, so that composing in any order of rounds gives the same bits.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        self.key(&mut left);
        other.key(&mut right);
        left.cmp(&right)
    }

    /// Every field as a number of the same order for equal events, after the kind.
    fn key(&self, key: &mut Vec<u64>) {
        let (q, z) = (
            |q: &SamplingProbability| q.get().to_bits(),
            |z: &NoiseMultiplier| z.get().to_bits(),
        );
        match self {
            Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            } => key.extend([0, q(sampling_probability), z(noise_multiplier)]),
            Event::Gaussian { noise_multiplier } => key.extend([1, z(noise_multiplier)]),
            Event::FixedSizeGaussian {
                population,
                cohort_size,
                noise_multiplier,
            } => key.extend([2, *population, *cohort_size, z(noise_multiplier)]),
            Event::NonPrivate => key.push(3),
            Event::TruncatedPoissonGaussian {
                population,
                sampling_probability,
                max_cohort_size,
                noise_multiplier,
            } => key.extend([
                4,
                *population,
                q(sampling_probability),
                *max_cohort_size,
                z(noise_multiplier),
            ]),
            Event::MixtureOfGaussians {
                noise_multiplier,
                sensitivities,
                probabilities,
            } => {
                key.extend([5, z(noise_multiplier), sensitivities.len() as u64]);
                key.extend(
                    sensitivities
                        .iter()
                        .chain(probabilities)
                        .map(|number| number.to_bits()),
                );
            }
            Event::ExampleLevelSampling {
                group_size,
                sampling_probability,
                noise_multiplier,
            } => key.extend([
                6,
                u64::from(*group_size),
                q(sampling_probability),
                z(noise_multiplier),
            ]),
            Event::CorrelatedGaussian {
                sensitivity_squared,
                noise_multiplier,
            } => key.extend([7, sensitivity_squared.to_bits(), z(noise_multiplier)]),
            Event::Laplace { scale } => key.extend([8, scale.to_bits()]),
            Event::DiscreteLaplace {
                parameter,
                sensitivity,
            } => key.extend([9, parameter.to_bits(), *sensitivity]),
            Event::DiscreteGaussian { sigma, sensitivity } => key.extend([10, sigma.to_bits(), *sensitivity]),
            Event::RandomizedResponse {
                num_buckets,
                noise_parameter,
            } => key.extend([11, *num_buckets, noise_parameter.to_bits()]),
            Event::Binomial {
                trials,
                success_probability,
                shift,
            } => key.extend([12, *trials, success_probability.to_bits(), *shift]),
            Event::PoissonSampled {
                sampling_probability,
                event,
            } => {
                key.extend([13, q(sampling_probability)]);
                event.key(key);
            }
            Event::DistributedDiscreteGaussian {
                clip_norm,
                granularity,
                dimension,
                conditional_beta,
                local_stddev,
                clients,
            } => key.extend([
                14,
                clip_norm.to_bits(),
                granularity.to_bits(),
                *dimension,
                conditional_beta.to_bits(),
                local_stddev.to_bits(),
                *clients,
            ]),
            Event::Skellam {
                clip_norm,
                granularity,
                dimension,
                conditional_beta,
                central_stddev,
            } => key.extend([
                15,
                clip_norm.to_bits(),
                granularity.to_bits(),
                *dimension,
                conditional_beta.to_bits(),
                central_stddev.to_bits(),
            ]),
            Event::ZeroConcentrated { rho, xi } => key.extend([16, rho.get().to_bits(), xi.to_bits()]),
            Event::BoundedRange { epsilon } => key.extend([19, epsilon.get().to_bits()]),
            Event::ApproximateDp { epsilon, delta } => {
                key.extend([
                    17,
                    epsilon.get().to_bits(),
                    delta.map_or(0, |delta| delta.get().to_bits()),
                ]);
            }
            Event::RepeatAndSelect { event, repetitions } => {
                let (kind, shape, mean) = match *repetitions {
                    Repetitions::Poisson { mean } => (0, 0.0, mean),
                    Repetitions::TruncatedNegativeBinomial { shape, mean } => (1, shape, mean),
                };
                key.extend([18, kind, f64::to_bits(shape), mean.to_bits()]);
                event.key(key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
