//! The command line as a user meets it: what it prints, what it leaves behind, and what it says of bad input.

mod account;
mod advise;
mod aggregation;
mod bad_input;
#[cfg(target_os = "linux")]
mod canaries;
mod crash;
mod data;
mod determinism;
mod export;
mod federated;
mod ftrl;
mod initial_model;
mod lora;
mod mechanism;
mod plan;
mod pretrain;
mod run_directory;
mod simulate;
mod support;
mod sweep;
mod terminal;
mod train;
mod userdp;
mod verify;
