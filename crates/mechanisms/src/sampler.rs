//! Where noise comes from: secure uniform words, and Gaussian samples made of them.

pub(crate) mod chacha20;
pub(crate) mod gaussian;
pub(crate) mod gaussian32;
pub(crate) mod normal;
pub(crate) mod snapped;
#[cfg(test)]
mod statistics;
pub(crate) mod uniform;
