//! The kinds of events.

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use undertone_accounting::rdp::repeat_and_select::Repetitions;
use undertone_accounting::{Delta, Epsilon, Event, NoiseMultiplier, Rho, SamplingProbability};

use super::PyEvent;
use crate::error::{Answer, UndertoneError};
use crate::field::Field;

events! {
    /// Every user joins with `sampling_probability`, independently; the sum of the bounded updates gets Gaussian noise.
    ///
    /// `noise_multiplier` is the noise's standard deviation divided by the add-or-remove sensitivity.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    /// Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
    PoissonGaussian (*, sampling_probability, noise_multiplier) { sampling_probability: SamplingProbability, noise_multiplier: NoiseMultiplier }
    /// Every user takes part; Gaussian noise.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Gaussian(noise_multiplier=2.0)
    /// Event.Gaussian(noise_multiplier=2.0)
    Gaussian (*, noise_multiplier) { noise_multiplier: NoiseMultiplier }
    /// A uniformly random cohort of `cohort_size` users, fresh each round; Gaussian noise. Relation: replace one user.
    ///
    /// `noise_multiplier` is the noise's standard deviation divided by the replace-one sensitivity.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.FixedSizeGaussian(population=1000, cohort_size=10, noise_multiplier=1.0)
    /// Event.FixedSizeGaussian(population=1000, cohort_size=10, noise_multiplier=1.0)
    FixedSizeGaussian (*, population, cohort_size, noise_multiplier) { population: u64, cohort_size: u64, noise_multiplier: NoiseMultiplier }
    /// Poisson sampling whose cohort is cut to a uniformly random `max_cohort_size` of its users.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.TruncatedPoissonGaussian(population=10000, sampling_probability=0.01, max_cohort_size=120, noise_multiplier=1.0)
    /// Event.TruncatedPoissonGaussian(population=10000, sampling_probability=0.01, max_cohort_size=120, noise_multiplier=1.0)
    TruncatedPoissonGaussian (*, population, sampling_probability, max_cohort_size, noise_multiplier) { population: u64, sampling_probability: SamplingProbability, max_cohort_size: u64, noise_multiplier: NoiseMultiplier }
    /// A Gaussian moved by `sensitivities[i]` with probability `probabilities[i]`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.MixtureOfGaussians(noise_multiplier=1.0, sensitivities=(0.0, 1.0), probabilities=(0.5, 0.5))
    /// Event.MixtureOfGaussians(noise_multiplier=1.0, sensitivities=(0.0, 1.0), probabilities=(0.5, 0.5))
    MixtureOfGaussians (*, noise_multiplier, sensitivities, probabilities) { noise_multiplier: NoiseMultiplier, sensitivities: Vec<f64>, probabilities: Vec<f64> }
    /// A user holds at most `group_size` examples, and each joins with `sampling_probability`. The guarantee is for the user.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.ExampleLevelSampling(group_size=4, sampling_probability=0.01, noise_multiplier=1.0)
    /// Event.ExampleLevelSampling(group_size=4, sampling_probability=0.01, noise_multiplier=1.0)
    ExampleLevelSampling (*, group_size, sampling_probability, noise_multiplier) { group_size: u32, sampling_probability: SamplingProbability, noise_multiplier: NoiseMultiplier }
    /// Gaussian noise correlated over the rounds of a whole run, as one release. Relation: zero out one user.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.CorrelatedGaussian(sensitivity_squared=4.0, noise_multiplier=7.0)
    /// Event.CorrelatedGaussian(sensitivity_squared=4.0, noise_multiplier=7.0)
    CorrelatedGaussian (*, sensitivity_squared, noise_multiplier) { sensitivity_squared: f64, noise_multiplier: NoiseMultiplier }
    /// Laplace noise on a number; `scale` is divided by the sensitivity.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Laplace(scale=2.0)
    /// Event.Laplace(scale=2.0)
    Laplace (*, scale) { scale: f64 }
    /// Discrete Laplace noise on an integer, with probabilities proportional to `exp(-parameter |x|)`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.DiscreteLaplace(parameter=0.5, sensitivity=1)
    /// Event.DiscreteLaplace(parameter=0.5, sensitivity=1)
    DiscreteLaplace (*, parameter, sensitivity) { parameter: f64, sensitivity: u64 }
    /// Discrete Gaussian noise on an integer, with probabilities proportional to `exp(-x^2 / (2 sigma^2))`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.DiscreteGaussian(sigma=2.0, sensitivity=1)
    /// Event.DiscreteGaussian(sigma=2.0, sensitivity=1)
    DiscreteGaussian (*, sigma, sensitivity) { sigma: f64, sensitivity: u64 }
    /// A user's answer among `num_buckets`, replaced by a uniform one with probability `noise_parameter`.
    ///
    /// Relation: replace one user, or zero out one user.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.RandomizedResponse(num_buckets=4, noise_parameter=0.25)
    /// Event.RandomizedResponse(num_buckets=4, noise_parameter=0.25)
    RandomizedResponse (*, num_buckets, noise_parameter) { num_buckets: u64, noise_parameter: f64 }
    /// Binomial noise on an integer that one user moves by at most `shift`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Binomial(trials=1000, success_probability=0.5, shift=1)
    /// Event.Binomial(trials=1000, success_probability=0.5, shift=1)
    Binomial (*, trials, success_probability, shift) { trials: u64, success_probability: f64, shift: u64 }
    /// One of the discrete or Laplace events over a Poisson sample of the users.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.PoissonSampled(sampling_probability=0.1, event=udp.Event.Laplace(scale=2.0))
    /// Event.PoissonSampled(sampling_probability=0.1, event=Event.Laplace(scale=2.0))
    PoissonSampled (*, sampling_probability, event) { sampling_probability: SamplingProbability, event: Box<Event> }
    /// Discrete Gaussian noise that each client adds before a secure sum. Relation: zero out one user.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.DistributedDiscreteGaussian(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, local_stddev=0.1, clients=100)
    /// Event.DistributedDiscreteGaussian(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, local_stddev=0.1, clients=100)
    DistributedDiscreteGaussian (*, clip_norm, granularity, dimension, conditional_beta, local_stddev, clients) { clip_norm: f64, granularity: f64, dimension: u64, conditional_beta: f64, local_stddev: f64, clients: u64 }
    /// Skellam noise that the clients add before a secure sum. Relation: zero out one user.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.Skellam(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, central_stddev=1.0)
    /// Event.Skellam(clip_norm=1.0, granularity=0.001, dimension=100, conditional_beta=0.0, central_stddev=1.0)
    Skellam (*, clip_norm, granularity, dimension, conditional_beta, central_stddev) { clip_norm: f64, granularity: f64, dimension: u64, conditional_beta: f64, central_stddev: f64 }
    /// A release whose Renyi divergence of order `a` is at most `xi + rho a`.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.ZeroConcentrated(rho=0.5, xi=0.0)
    /// Event.ZeroConcentrated(rho=0.5, xi=0.0)
    ZeroConcentrated (*, rho, xi = None) { rho: Rho, xi: f64 = 0.0 }
    /// A release whose largest and smallest privacy loss differ by at most `epsilon`: the exponential mechanism.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.BoundedRange(epsilon=0.5)
    /// Event.BoundedRange(epsilon=0.5)
    BoundedRange (*, epsilon) { epsilon: Epsilon }
    /// A release with an (epsilon, delta) statement; delta `None` is pure differential privacy.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.ApproximateDp(epsilon=0.5, delta=1e-06)
    /// Event.ApproximateDp(epsilon=0.5, delta=1e-06)
    ApproximateDp (*, epsilon, delta = None) { epsilon: Epsilon, delta: Option<Delta> = None }
    /// A mechanism that runs a random number of times and publishes only its best output.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.RepeatAndSelect(event=udp.Event.Gaussian(noise_multiplier=5.0), repetitions=udp.Repetitions.poisson(mean=3.0))
    /// Event.RepeatAndSelect(event=Event.Gaussian(noise_multiplier=5.0), repetitions=Repetitions.poisson(mean=3.0))
    RepeatAndSelect (*, event, repetitions) { event: Box<Event>, repetitions: Repetitions }
    /// A release without noise. Nothing is guaranteed after it.
    ///
    /// >>> import undertone_dp as udp
    /// >>> udp.Event.NonPrivate()
    /// Event.NonPrivate()
    NonPrivate () { }
}
