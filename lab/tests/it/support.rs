//! A folder of its own for every test, and the program run in it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).expect("writing a test file");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("reading {name}: {error}"))
    }

    /// `true` if it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let mut entries = std::fs::read_dir(self.0.path()).expect("the folder of a test");
        entries.next().is_none()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone-lab"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command.output().expect("running undertone-lab")
    }

    /// Runs, expects success, returns standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "undertone-lab {arguments:?} failed: {stderr}"
        );
        String::from_utf8(output.stdout).expect("UTF-8 output")
    }

    /// Runs, expects failure without a panic, returns standard error.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "undertone-lab {arguments:?} succeeded");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }
}
