//! Checks of a run against its neighbour, on sums that stay unreadable.
//!
//! A replay makes the sum of a round twice, with and without one user, and asks questions about the difference. The answers are yes or
//! no: the difference itself is as secret as the sums. [`Definition`] holds a strategy matrix by its definition, which the recurrence of
//! the noise is checked against.

mod definition;
mod difference;

pub use definition::Definition;
pub use difference::Difference;
