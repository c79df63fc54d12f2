//! The scripts that write corpora of PyPI, with wheels that are not theirs.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a script on a file in place of its wheel, and returns its status and what it says.
fn run(script: &str, wheel: &Path, output: &Path) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(script);
    let done = Command::new("python3")
        .args([script.as_path(), output, Path::new("--wheel"), wheel])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("python3");
    (
        done.status.success(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

#[test]
fn a_wheel_of_another_digest_is_refused_with_both_digests_and_no_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let (wheel, output) = (folder.path().join("a.whl"), folder.path().join("corpora"));
    // SHA-256 of "abc", FIPS 180-4 example.
    let got = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    std::fs::write(&wheel, "abc").expect("a file");
    for (script, expected) in [
        (
            "chitchat.py",
            "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e",
        ),
        (
            "words.py",
            "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473",
        ),
    ] {
        let (succeeded, message) = run(script, &wheel, &output);
        assert!(!succeeded, "{script}");
        assert!(message.contains(expected) && message.contains(got), "{message}");
        assert!(
            message.starts_with(script),
            "one line, and no traceback: {message}"
        );
        assert!(!output.exists(), "{script} has written something");
    }
    let (succeeded, message) = run("chitchat.py", &folder.path().join("absent.whl"), &output);
    assert!(!succeeded && message.contains("absent.whl"), "{message}");
}
