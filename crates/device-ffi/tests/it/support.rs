//! Programs that the tests run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `true` if a program answers.
pub fn found(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The standard output of a program that must succeed.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {text}\n{errors}", output.status);
    text
}

/// The folder in which the build has put the library: that of the test.
pub fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().expect("a folder").to_owned();
    assert!(
        folder.join("libundertone_device_ffi.so").exists(),
        "{}",
        folder.display()
    );
    folder
}

/// Generates the bindings of the library that this test is built with.
pub fn generate(language: &str, folder: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone-bindgen"))
        .args(["generate", "--no-format", "--language", language, "--out-dir"])
        .arg(folder)
        .arg(libraries().join("libundertone_device_ffi.so"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    succeeded(&output.expect("running the generator"));
}
