//! The run files below `examples`.

use std::path::Path;

use undertone_coordinator::task::Seeding;
use undertone_run::pretrain::PretrainFile;
use undertone_run::{RunError, RunFile};
use undertone_studies::simulate::SimulationFile;
use undertone_studies::sweep::Sweep;

#[test]
fn example_run_files_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
            .collect()
    };
    let mut count = 0;
    for path in files(&examples) {
        // Lists of words are no settings, and the floors of a device are read by the tests of its command.
        let name = path.to_string_lossy();
        if !name.ends_with(".toml") || name.ends_with("-floors.toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let read = if text.contains("\n[service]\n") {
            undertone_run_directory::task::read(&path, &[], Seeding::Refused)
                .map(drop)
                .map_err(RunError::from)
        } else if text.contains("\n[training]\n") {
            PretrainFile::read(&path, &[]).map(drop)
        } else if text.contains("\n[timers]\n") {
            SimulationFile::read(&path, &[]).map(drop)
        } else {
            RunFile::read(&path, &[]).map(drop)
        };
        read.unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    assert!(count > 10, "only {count} run files were found");
    for path in files(&examples.join("sweeps")) {
        Sweep::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
}
