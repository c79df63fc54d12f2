//! The commands, one per module.

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
