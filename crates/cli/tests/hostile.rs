//! Whole commands on run directories that somebody else has changed: they end with an error of at most three lines, without a panic,
//! without touching a file outside of the run, within bounded time and memory. `undertone-hostile commands` runs more of them.

use std::path::Path;

use undertone_hostile::{World, commands};

/// Commands; more where `UNDERTONE_COMMANDS` says so.
const COMMANDS: u64 = 120;

#[test]
#[ignore = "slow"]
fn commands_on_changed_run_directories_do_no_more_than_end_in_an_error() {
    let program = Path::new(env!("CARGO_BIN_EXE_undertone"));
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::make(folder.path()).expect("honest files");
    // Else every refusal below would say nothing.
    commands::honest(program, &world).expect("honest run directories are accepted");
    let count = std::env::var("UNDERTONE_COMMANDS")
        .ok()
        .and_then(|count| count.parse().ok());
    let tally = commands::hunt(program, &world, 18, 0..count.unwrap_or(COMMANDS)).expect("running commands");
    assert!(tally.failures.is_empty(), "{tally}");
    assert!(tally.refused > tally.commands / 5, "{tally}");
}
