//! Turns secret sums of user updates into noised releases: type states, counter-based ChaCha20 noise, strategies of
//! correlated noise, integer addition.
//!
//! A [`RawSum`] can only become a [`RawAverage`] and then, through a mechanism, a [`NoisedAverage`]; the compiler holds
//! that line. Noise is addressed by key, round and coordinate, so the bytes of a release depend on nothing else.
//!
//! ```
//! use undertone_mechanisms::{Denominator, FRACTION_BITS, IndependentGaussian, NoiseKey, RawSum};
//!
//! // In a run the key comes from the operating system's entropy.
//! let mechanism = IndependentGaussian::new(0.02, NoiseKey::from_bytes([7; 32]))?;
//! let one = 1i64 << FRACTION_BITS;
//! let sum = RawSum::new(vec![5 * one, -one], 10 * one);
//! let release = mechanism.privatize(0, sum.average(Denominator::Fixed(10.0))?)?;
//! assert_eq!(release.values().len(), 2);
//! assert_eq!(release.noise_std(), 0.02);
//! # Ok::<(), undertone_mechanisms::MechanismError>(())
//! ```
//!
//! It does no I/O, reads no clock and owns no entropy: the caller brings the [`NoiseKey`]. It does not clip, and it
//! does not account: sensitivities come from `undertone-aggregation`, guarantees from `undertone-accounting`.
//!
//! Noise that is correlated over the rounds (trees, BLT, banded and other matrices) comes from a [`Mechanism`]: one value
//! for the noise, its sensitivity and its event. [`CorrelatedGaussian`] adds it to averages in integers, [`NoiseStream`]
//! makes it in `f32` for simulations; the state of both can be saved and is continued by nothing else.
//!
//! Paper: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018
//! (\[DPLM\]), sections 2.2 and 2.3.

#![forbid(unsafe_code)]

mod blt;
mod client_noise;
mod error;
mod iterates;
mod loss;
mod mechanism;
mod moments;
pub mod optimize;
pub mod plan;
mod recurrence;
mod release;
mod sampler;
mod state;
mod strategy;
mod stream;
pub mod toeplitz;
mod triangular;
mod workload;

pub use blt::pair::output_scales;
pub use client_noise::{ClientNoise, ClientNoisedSum};
pub use error::{MechanismError, Result};
pub use loss::{Certified, Errors, Losses, Objective};
pub use mechanism::Mechanism;
pub use mechanism::correlated::{CorrelatedGaussian, Target};
pub use recurrence::Recurrence;
pub use release::{Denominator, FRACTION_BITS, NoisedAverage, NonPrivate, RawAverage, RawSum};
pub use sampler::binomial::Binomial;
pub use sampler::discrete_gaussian::DiscreteGaussian;
pub use sampler::distance::SamplerDistance;
pub use sampler::laplace::DiscreteLaplace;
pub use sampler::median::PrivateMedian;
pub use sampler::normal::StandardNormal;
pub use sampler::poisson::{Poisson, Skellam};
pub use sampler::snapped::SnappedGaussian;
pub use sampler::uniform::{KeyOrigin, NoiseKey};
pub use sampler::words::UniformWords;
pub use strategy::Strategy;
pub use strategy::banded::Banded;
pub use strategy::banded_toeplitz::BandedToeplitz;
pub use strategy::blt::{Blt, BltInverse};
pub use strategy::dense::Dense;
pub use strategy::identity::Identity;
pub use strategy::independent::IndependentGaussian;
pub use strategy::inverse_toeplitz::InverseToeplitz;
pub use strategy::normalised_blt::NormalisedBlt;
pub use strategy::normalised_inverse_toeplitz::NormalisedInverseToeplitz;
pub use strategy::normalised_toeplitz::NormalisedToeplitz;
pub use strategy::tree::Tree;
pub use strategy::tree_full::{TreeFull, TreeLayout};
pub use stream::engine::{History, StreamOptions};
pub use stream::{NoiseStream, Shape};
pub use workload::Workload;
