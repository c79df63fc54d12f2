//! Completions and manual pages.

use std::process::Command;

use crate::support::Folder;

#[test]
fn every_shell_has_completions_that_name_every_command() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.succeed(format!("completions {shell}"));
        for command in ["train", "publish", "--min-sep"] {
            let word = command.trim_start_matches('-');
            assert!(script.contains(word), "{shell}: no {command}");
        }
        // A terminal would obey these, so they would have been escaped, and the script would not run.
        assert!(!script.contains("\\u{"), "{shell}");
    }
    folder.refuse(
        "completions tcl",
        "[possible values: bash, elvish, fish, powershell, zsh]",
    );
    let script = folder.json("completions bash")["script"]
        .as_str()
        .expect("a script")
        .to_owned();
    folder.write("undertone.bash", script);
    let test = "source ./undertone.bash && COMP_WORDS=(undertone tr) COMP_CWORD=1 && \
                _undertone undertone tr undertone && printf '%s\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", test])
        .current_dir(folder.path(""))
        .output();
    // A machine without bash has nothing to complete.
    if let Ok(output) = output {
        let replies = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            replies.trim(),
            "train",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn manual_pages_cover_every_command_and_replace_nothing_unasked() {
    let folder = Folder::new();
    let written = folder.json("manual man");
    let pages = written["pages"].as_array().expect("pages");
    for name in ["undertone.1", "undertone-train.1", "undertone-audit-replay.1"] {
        assert!(pages.iter().any(|page| page == name), "{name} of {pages:?}");
    }
    let page = folder.text("man/undertone-train.1");
    assert!(
        page.contains(".TH undertone-train 1") && page.contains("\\-\\-resume"),
        "{page}"
    );
    folder.refuse(
        "manual man",
        "man/undertone.1 already exists; give --force to replace it",
    );
    folder.succeed("manual man --force");
}
