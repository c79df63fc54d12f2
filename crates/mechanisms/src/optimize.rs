//! Optimisers: the matrix of a kind with the smallest loss for a run.

mod banded;
pub mod blt;
mod dense;
mod descent;
mod inverse_toeplitz;
mod kind;
mod problem;
mod quasi_newton;
mod toeplitz;
mod toeplitz_loss;
mod triangular_loss;

pub use banded::banded;
pub(crate) use banded::banded_watched;
pub use dense::dense;
pub use descent::Progress;
pub use inverse_toeplitz::inverse_toeplitz;
pub(crate) use inverse_toeplitz::{lambda, normalised_lambda};
pub use kind::{BltDiagnostics, Kind, OptimizedStrategy, Sizes};
pub use problem::Problem;
pub use toeplitz::banded_toeplitz;
