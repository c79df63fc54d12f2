//! Which noise goes into which round: one file a strategy.

pub(crate) mod independent;
