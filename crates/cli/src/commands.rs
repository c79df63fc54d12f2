//! One module a command.

pub(crate) mod eval;
pub(crate) mod reproduce;
pub(crate) mod train;
