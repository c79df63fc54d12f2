//! Clipping, weighting and summing of user updates over a flat parameter vector.

mod error;
mod layout;

pub use error::{AggregationError, Result};
pub use layout::{Block, ClipGroup, ParamLayout, TensorSpec};
