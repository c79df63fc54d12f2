//! Sources of noise: secure uniform words, and the samples made of them.

mod bernoulli;
pub(crate) mod binomial;
pub(crate) mod chacha20;
pub(crate) mod discrete_gaussian;
pub(crate) mod distance;
pub(crate) mod fresh;
pub(crate) mod gaussian32;
mod inversion;
pub(crate) mod laplace;
pub(crate) mod median;
pub(crate) mod poisson;
pub(crate) mod snapped;
mod source;
#[cfg(test)]
mod statistics;
pub(crate) mod uniform;
pub(crate) mod words;
