//! Where noise comes from: secure uniform words, and Gaussian samples made of them.

pub(crate) mod gaussian;
pub(crate) mod uniform;
