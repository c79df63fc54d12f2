//! The commands, one per module.

/// The heading of options that belong to no group, which clap calls "Options". An option behind flattened ones needs it: without
/// a heading of its own it would get theirs.
pub(crate) const NO_GROUP: Option<&str> = None;

pub(crate) mod account;
pub(crate) mod advise;
pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod mechanism;
pub(crate) mod personalize;
pub(crate) mod plan;
pub(crate) mod pretrain;
pub(crate) mod report;
pub(crate) mod simulate;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod verify;
