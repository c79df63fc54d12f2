//! The log of a git repository as a table: what it holds, and what a hostile repository may not do.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[allow(dead_code)] // the other tests use all of it
#[path = "corpora/support.rs"]
mod support;
#[allow(dead_code)]
#[path = "../src/testing.rs"]
mod testing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use undertone_data::{
    DataError, GitSource, ImportOptions, ImportSummary, NoProgress, Split, SplitSpec, TimePoint, import_git,
};

use support::{Folder, texts};

/// A repository in a folder of its own.
struct Repository {
    folder: Folder,
}

impl Repository {
    fn new() -> Repository {
        let repository = Repository {
            folder: Folder::new(),
        };
        fs::create_dir(repository.path()).unwrap();
        repository.git(&["init", "-q"], "", "@0 +0000");
        repository
    }

    fn path(&self) -> PathBuf {
        self.folder.path("repository")
    }

    fn git(&self, arguments: &[&str], author: &str, time: &str) {
        let status = Command::new("git")
            .current_dir(self.path())
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "someone")
            .env("GIT_AUTHOR_EMAIL", author)
            .env("GIT_AUTHOR_DATE", time)
            .env("GIT_COMMITTER_NAME", "someone")
            .env("GIT_COMMITTER_EMAIL", author)
            .env("GIT_COMMITTER_DATE", time)
            .status();
        assert!(status.unwrap().success(), "git {arguments:?}");
    }

    fn commit(&self, message: &str, author: &str, time: &str) {
        self.git(&["commit", "-q", "--allow-empty", "-m", message], author, time);
    }

    fn import(&self, split: Option<SplitSpec>) -> Result<ImportSummary, DataError> {
        let log = GitSource {
            path: self.path(),
            revision: "HEAD".to_owned(),
        };
        let options = ImportOptions {
            salt: b"salt",
            keep_user_ids: true,
            split,
            public: false,
            overwrite: true,
        };
        import_git(&log, &self.folder.path("log.parquet"), &options, &NoProgress)
    }

    fn train(&self) -> Vec<Vec<String>> {
        let text = "source = { kind = \"parquet\", path = \"log.parquet\", time = \"timestamp\", split = \"split\" }\n\
                    vocabulary = { kind = \"training_data\", size = 9 }";
        texts(&self.folder.open(text), Split::Train)
    }
}

#[test]
fn a_log_becomes_users_with_hashed_authors() {
    let repository = Repository::new();
    repository.commit(
        "First words here\n\nSigned-off-by: A Person <a@example.org>",
        "a@example.org",
        "@1000 +0000",
    );
    repository.commit("Other words", "b@example.org", "@2000 +0000");
    repository.commit("More words. Again words", "A@Example.org", "@3000 +0000");
    let by_time = SplitSpec::Time {
        test_after: TimePoint::Seconds(5000),
        validation_users: 0.0,
        seed: 0,
    };
    // Asked to keep users, an import still hashes authors.
    let summary = repository.import(Some(by_time)).unwrap();
    assert_eq!((summary.rows, summary.users), (3, 2));
    assert!(summary.users_hashed && summary.has_time);
    let bytes = fs::read(repository.folder.path("log.parquet")).unwrap();
    assert!(
        !String::from_utf8_lossy(&bytes).contains("xample"),
        "an address was stored"
    );
    let mut users = repository.train();
    users.sort_unstable();
    let expected = [
        vec!["first words here <eos>", "more words <eos>", "again words <eos>"],
        vec!["other words <eos>"],
    ];
    assert_eq!(users, expected);
    // A mailmap unites the addresses of one person.
    fs::write(
        repository.path().join(".mailmap"),
        "A <a@example.org> <b@example.org>\n",
    )
    .unwrap();
    assert_eq!(repository.import(None).unwrap().users, 1);
}

/// A repository that was made to run commands by every setting that names one. Each command leaves `marker`.
fn hostile(marker: &Path) -> Repository {
    let repository = Repository::new();
    let script = repository.path().join(".git/run");
    fs::write(
        &script,
        format!("#!/bin/sh\ntouch '{}'\nexit 1\n", marker.display()),
    )
    .unwrap();
    let script = script.to_str().unwrap();
    fs::write(
        repository.path().join(".mailmap"),
        "A <a@example.org> <b@example.org>\n",
    )
    .unwrap();
    fs::write(
        repository.path().join(".gitattributes"),
        "* diff=run filter=run\n",
    )
    .unwrap();
    for command in [vec!["add", "."], vec!["update-index", "--chmod=+x", ".mailmap"]] {
        repository.git(&command, "a@example.org", "@1000 +0000");
    }
    repository.commit("First words here", "a@example.org", "@1000 +0000");
    repository.commit("Other words", "b@example.org", "@2000 +0000");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let hooks = repository.path().join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
        "pre-auto-gc",
    ] {
        fs::copy(script, hooks.join(hook)).unwrap();
    }
    // The blob that `mailmap.blob` names is not there, and a promised object is fetched by a command.
    let output = Command::new("git")
        .current_dir(repository.path())
        .args(["rev-parse", "HEAD:.mailmap"])
        .output()
        .unwrap();
    let blob = String::from_utf8(output.stdout).unwrap();
    let (folder, file) = blob.trim().split_at(2);
    fs::remove_file(repository.path().join(".git/objects").join(folder).join(file)).unwrap();
    let ssh = format!("'{script}' ssh");
    for (key, value) in [
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ssh://nowhere.invalid/x"),
        ("remote.origin.uploadpack", script),
        ("protocol.allow", "always"),
        ("protocol.ssh.allow", "always"),
        ("protocol.ext.allow", "always"),
        ("mailmap.blob", "HEAD:.mailmap"),
        ("core.sshCommand", &ssh),
        ("core.fsmonitor", script),
        ("core.pager", script),
        ("pager.log", script),
        ("core.editor", script),
        ("core.askPass", script),
        ("core.alternateRefsCommand", script),
        ("credential.helper", script),
        ("log.showSignature", "true"),
        ("gpg.program", script),
        ("gpg.ssh.program", script),
        ("diff.external", script),
        ("diff.run.textconv", script),
        ("diff.run.command", script),
        ("filter.run.clean", script),
        ("filter.run.smudge", script),
        ("alias.log", &format!("!{script}")),
        ("alias.rev-list", &format!("!{script}")),
        ("log.diffMerges", "on"),
        ("format.pretty", "%GG"),
    ] {
        repository.git(&["config", key, value], "", "@0 +0000");
    }
    repository.git(&["config", "core.repositoryFormatVersion", "1"], "", "@0 +0000");
    repository
}

#[test]
fn a_hostile_repository_runs_no_command() {
    let folder = Folder::new();
    let marker = folder.path("marker");
    let repository = hostile(&marker);
    let summary = repository.import(None).unwrap();
    assert_eq!(
        (summary.rows, summary.users),
        (2, 1),
        "the mailmap of the work tree counts"
    );
    assert!(!marker.exists(), "a command of the repository ran");

    // The trap works: an ordinary log, as it was read before, runs the command.
    let status = Command::new("git")
        .arg("-C")
        .arg(repository.path())
        .args(["log", "-z", "--no-show-signature", "--format=%aE"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap();
    assert!(
        marker.exists(),
        "the hostile repository is harmless, so this test shows nothing"
    );
}

#[test]
fn signatures_fsmonitor_and_textconv_run_no_command_in_a_bare_or_full_repository() {
    let folder = Folder::new();
    let marker = folder.path("marker");
    let repository = hostile(&marker);
    // Without the promise, so that git gets as far as it can.
    repository.git(&["config", "--unset", "extensions.partialClone"], "", "@0 +0000");
    repository.import(None).unwrap();
    repository.git(&["config", "core.bare", "true"], "", "@0 +0000");
    repository.import(None).unwrap();
    assert!(!marker.exists(), "a command of the repository ran");
}

#[test]
#[ignore = "slow"]
fn pipes_in_place_of_files_do_not_block_an_import() {
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let fails = |repository: &Repository, part: &str| {
        let start = Instant::now();
        let message = repository.import(None).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    };
    let repository = Repository::new();
    repository.commit("First words here", "a@example.org", "@1000 +0000");
    pipe(&repository.path().join(".mailmap"));
    fails(&repository, ".mailmap: git log failed: expected a regular file");
    fs::remove_file(repository.path().join(".mailmap")).unwrap();
    pipe(&repository.path().join(".git/HEAD"));
    fails(&repository, "git rev-parse failed");
}
