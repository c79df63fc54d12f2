//! Noise to which each client adds a part, so that only the (securely aggregated) sum carries all of it.
//!
//! [`rounding`] gives the sensitivities of a vector rounded to a grid; [`discrete_gaussian`] and [`skellam`]
//! the Renyi divergence of the noisy sum.
//!
//! Both are stated for clipped vectors of one user set to zero (zero-out; the user's part of the noise stays). Under
//! replace-one the clip norm counts twice. They hold against every observer of the sum, as long as the stated number of
//! parts was added: clients that drop out or collude must not be counted.
//!
//! Sampling earns no credit here. With a random number of participating clients the noise, too, is random,
//! and the amplification theorems for a fixed mechanism do not apply; so there is no sampling probability to
//! pass.

pub mod discrete_gaussian;
pub mod rounding;
pub mod skellam;

pub use discrete_gaussian::DistributedDiscreteGaussian;
pub use rounding::RoundedSensitivity;
pub use skellam::Skellam;
