//! Gaussian release of sums of user updates.

mod error;

pub use error::{MechanismError, Result};
