//! The first steps of a person: an example without text of their own, the planner, and pages that open in a browser.

use crate::support::{Folder, contains, json};

#[test]
fn an_example_is_written_trained_and_verified_from_an_empty_folder() {
    let folder = Folder::new();
    let shown = folder.succeed("init --example");
    for command in [
        "undertone train quickstart.toml",
        "undertone verify runs/quickstart",
        "undertone predict runs/quickstart",
    ] {
        assert!(shown.contains(command), "{shown}");
    }
    let text = folder.text("quickstart.toml");
    assert!(
        text.contains("#     undertone train quickstart.toml\n") && !text.contains("cargo"),
        "{text}"
    );
    folder.succeed(
        "train quickstart.toml --set rounds=2 --set data.source.users=300 --set cohort.users_per_round=20",
    );
    folder.show(
        "verify runs/quickstart",
        "ledger ... holds: 2 rounds ... model ... holds",
    );
    folder.refuse("init --example", "quickstart.toml already exists; give --force");
    folder.succeed("init --example quickstart-uls own.toml");
    assert!(folder.text("own.toml").contains("name = \"quickstart-uls\""));
    folder.refuse(
        "init --example quick",
        "expected one of ... quickstart, ... got quick",
    );
    folder.refuse("init --example --users 100", "cannot be used with");
}

#[test]
fn a_key_of_a_run_file_is_explained_and_a_misspelt_one_leads_to_it() {
    let folder = Folder::new();
    folder.show(
        "explain user_update.unroll",
        "user_update.unroll: a whole number, by default 10 ... tokens that a stream advances",
    );
    folder.show(
        "explain clip",
        "clip.kind: a choice ... Where clip.kind = \"adaptive\"",
    );
    folder.show("explain", "rounds: a whole number, required ... privacy: a table");
    folder.show(
        "explain --file task service.pace.min_interval",
        "by default \"15m\"",
    );
    folder.refuse(
        "explain privacy.epsilon",
        "did you mean `privacy.target_epsilon`?",
    );
    folder.refuse("explain zzzz", "`undertone explain` lists the keys");
    folder.refuse("explain --file sweep", "invalid value");
    let entries = json(&folder.succeed("explain user_update.algorithm --json"));
    assert_eq!(entries[0]["choices"][3][0], "els");
    for kind in ["run", "task"] {
        let schema = json(&folder.succeed(format!("explain --schema --file {kind}")));
        assert!(schema["properties"]["rounds"].is_object(), "{kind}");
    }
}

/// A build for tests has no planner, since no test waits for its compiler.
#[test]
fn a_build_without_the_planner_says_where_it_is() {
    let folder = Folder::new();
    folder.refuse(
        "planner",
        "this build leaves out the planner ... `.ci/planner` makes target/planner/planner.html",
    );
    assert!(!folder.path("undertone-planner.html").exists());
}

/// The desktop's own program for pages is a script here, which notes what it is given.
#[cfg(target_os = "linux")]
#[test]
fn a_report_opens_in_the_browser_by_its_whole_path_and_without_one_it_is_named() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::trained(crate::support::TINY);
    std::fs::create_dir(folder.path("bin")).expect("a folder");
    folder.write("bin/xdg-open", "#!/bin/sh\nprintf '%s' \"$1\" >\"$NOTED\"\n");
    let script = folder.path("bin/xdg-open");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let (noted, page) = (folder.path("noted"), folder.path("runs/tiny/report.html"));
    let opened = folder
        .command("report runs/tiny --open")
        .env("PATH", folder.path("bin"))
        .env("NOTED", &noted)
        .output()
        .expect("a report");
    assert!(opened.status.success(), "{opened:?}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !noted.exists() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let given = std::path::PathBuf::from(folder.text("noted"));
    assert_eq!(given.canonicalize().ok(), page.canonicalize().ok(), "{given:?}");
    assert!(given.is_absolute());

    let alone = folder.command("report runs/tiny --open").env("PATH", "").output();
    let alone = alone.expect("a report");
    assert!(alone.status.success(), "{alone:?}");
    let warning = String::from_utf8_lossy(&alone.stderr).into_owned();
    contains(&warning, "no browser could be started ... report.html in one");
}
