//! The run files of the notebook `audits.md`.

use std::path::Path;
use undertone_run_directory::config::RunConfig;

#[test]
fn the_run_files_of_the_notebook_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("audits");
    let notebook = include_str!("../../notebooks/audits.md");
    let mut read = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of the run files") {
        let path = entry.expect("a run file").path();
        let text = std::fs::read_to_string(&path).expect("a run file");
        let config = RunConfig::parse(&text, &path, &[]).expect("a run file that is read");
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        assert_eq!(stem, Some(config.task.name.as_str()));
        // A file that no command of the notebook uses is one too many.
        assert!(
            notebook.contains(&format!("{}.toml", config.task.name)),
            "{}",
            path.display()
        );
        read += 1;
    }
    assert!(read > 0, "{} is empty", folder.display());
}
