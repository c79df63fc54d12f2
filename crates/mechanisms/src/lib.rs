#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`RawSum`], [`RawAverage`], [`NoisedAverage`] | the states of a release: only a mechanism makes the third one |
//! | [`IndependentGaussian`] | fresh noise in every round |
//! | [`Mechanism`], [`CorrelatedGaussian`] | a matrix with its sensitivity and event, and releases with its noise |
//! | [`Strategy`] and its variants, [`Recurrence`] | noise matrices: [`Tree`], [`Blt`], [`Banded`], [`BandedToeplitz`], [`Dense`] and others |
//! | [`Described`] | a matrix from a file: JSON, text or numpy |
//! | [`Workload`], [`Losses`], [`Errors`] | the sums that a run releases, and the noise in them |
//! | [`optimize`] | the matrix of a kind with the smallest loss |
//! | [`population_plan`] | from the size of a population to feasible report goals |
//! | [`ClientNoise`] | sums to which each client adds a part of the noise |
//! | [`RawResidues`], [`NoisedResidues`] | sums modulo `M`, before and after the noise |
//! | [`NoiseKey`], [`SnappedGaussian`], [`DiscreteGaussian`], [`DiscreteLaplace`], [`Skellam`], [`Binomial`], [`Poisson`] | keys and samplers |
//! | [`SamplerDistance`] | the distance of samples from ideal ones, as a delta |
//! | [`PrivateMedian`] | the private median of whole numbers |
//! | [`draws`] | cohorts and shuffles without bias |
//! | [`NoiseStream`] | correlated noise in `f32`, for simulations |
//! | [`toeplitz`] | Toeplitz matrices as power series |
//! | [`audit`] | checks of a run against its neighbour, on sums that stay unreadable |
//!
//! # Notes
//!
//! The types [`RawSum`], [`RawAverage`] and [`NoisedAverage`] are the states of a release. Noise is addressed by key, round and coordinate,
//! so the bytes of a release depend on nothing else.
//!
//! A [`Mechanism`] is one value for correlated noise, its sensitivity and its event. [`CorrelatedGaussian`] adds its noise to averages in
//! integers. [`NoiseStream`] makes the noise in `f32` for simulations. The state of both can be saved, and only the same mechanism
//! continues it.
//!
//! The crate does no I/O, reads no clock and owns no entropy: the caller brings the [`NoiseKey`]. It does not account: sensitivities come
//! from `undertone-aggregation` and guarantees from `undertone-accounting`.
//!
//! Paper: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018 (\[DPLM\]), sections 2.2
//! and 2.3.

#![forbid(unsafe_code)]

pub mod audit;
mod blt;
mod client_noise;
pub mod draws;
mod error;
mod iterates;
mod loss;
mod mechanism;
mod moments;
pub mod optimize;
pub mod population_plan;
mod recurrence;
mod release;
mod residues;
mod sampler;
mod state;
mod strategy;
mod stream;
#[cfg(test)]
mod testing;
pub mod toeplitz;
mod triangular;
mod workload;

pub use blt::pair::output_scales;
pub use client_noise::{ClientNoise, ClientNoisedSum};
pub use error::{MechanismError, Result};
pub use loss::{CertifiedSensitivity, Errors, Losses, Objective};
pub use mechanism::Mechanism;
pub use mechanism::correlated::{CorrelatedGaussian, ReleaseShape};
pub use mechanism::independent::IndependentGaussian;
pub use recurrence::Recurrence;
pub use release::{Denominator, FRACTION_BITS, NoisedAverage, NonPrivate, RawAverage, RawSum, ReleaseDigest};
pub use residues::{MAX_MODULUS, NoisedResidues, RawResidues};
pub use sampler::binomial::Binomial;
pub use sampler::discrete_gaussian::DiscreteGaussian;
pub use sampler::distance::SamplerDistance;
pub use sampler::laplace::DiscreteLaplace;
pub use sampler::median::PrivateMedian;
pub use sampler::poisson::{Poisson, Skellam};
pub use sampler::snapped::SnappedGaussian;
pub use sampler::uniform::{KeyOrigin, NoiseKey};
pub use sampler::words::UniformWords;
pub use strategy::Strategy;
pub use strategy::banded::Banded;
pub use strategy::banded_toeplitz::BandedToeplitz;
pub use strategy::blt::{Blt, BltInverse};
pub use strategy::dense::Dense;
pub use strategy::described::{Described, Undescribed};
pub use strategy::identity::IdentityMatrix;
pub use strategy::inverse_toeplitz::InverseToeplitz;
pub use strategy::normalised_blt::NormalisedBlt;
pub use strategy::normalised_inverse_toeplitz::NormalisedInverseToeplitz;
pub use strategy::normalised_toeplitz::NormalisedToeplitz;
pub use strategy::tree::Tree;
pub use strategy::tree_full::{TreeFull, TreeLayout};
pub use stream::engine::{History, StreamOptions};
pub use stream::{NoiseStream, StreamShape};
pub use workload::Workload;
