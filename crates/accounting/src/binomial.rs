//! The binomial mechanism of \[cpSGD\]: noise `(Bin(N, p) - N p) s` on a quantised vector.
//!
//! [`theorem`] is the paper's bound for any dimension, with its condition enforced; [`exact`] is the exact
//! divergence in one dimension.

pub mod exact;
mod probability;
mod tail;
pub mod theorem;

pub(crate) use probability::Binomial;
pub(crate) use tail::upper_tail;

use crate::AccountingError;
use crate::error::ensure;

/// A success probability: strictly between 0 and 1.
pub(crate) fn success_probability(value: f64) -> Result<f64, AccountingError> {
    let holds = value > 0.0 && value < 1.0;
    ensure(holds, "success_probability", "a number in (0, 1)", value)
}
