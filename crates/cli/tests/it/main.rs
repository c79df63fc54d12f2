//! The command line as a user meets it: what it prints, what it leaves behind, and what it says of bad input.

mod account;
mod advise;
mod aggregation;
mod audit;
mod bad_input;
#[cfg(target_os = "linux")]
mod canaries;
mod crash;
#[cfg(unix)]
mod ctrl_c;
mod data;
#[cfg(all(target_os = "linux", feature = "postgres"))]
mod deploy;
mod determinism;
#[cfg(target_os = "linux")]
mod embed;
mod eval;
mod examples;
mod export;
mod federated;
mod first_steps;
mod ftrl;
mod init;
mod initial_model;
mod language;
mod llama;
mod lora;
mod mechanism;
mod operations;
#[cfg(all(feature = "otlp", target_os = "linux"))]
mod otlp;
mod plan;
#[cfg(all(target_os = "linux", feature = "postgres"))]
#[path = "../../../store/tests/common/postgres.rs"]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod postgres;
mod pretrain;
mod private_sweep;
mod publish;
mod registry;
mod run_directory;
mod session;
mod shell;
mod simulate;
#[cfg(target_os = "linux")]
mod soak;
mod special_tokens;
mod support;
mod sweep;
mod terminal;
mod train;
#[cfg(all(target_os = "linux", feature = "postgres"))]
mod troubles;
mod userdp;
mod verify;
