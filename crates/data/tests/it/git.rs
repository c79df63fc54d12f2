//! The log of a git repository as a table: what it holds, and what a hostile repository may not do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use undertone_data::{DataError, GitSource, ImportOptions, ImportSummary, NoProgress, Split, import_git};
use undertone_settings::{SplitSpec, TimePoint};

use crate::support::{Folder, texts};

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
            join_users: false,
            drop_users: &[],
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

impl Repository {
    /// Commits a message of these bytes, which the repository's settings take for text of their encoding.
    fn commit_bytes(&self, message: &[u8], settings: &[&str], time: &str) {
        let file = self.folder.path("message");
        fs::write(&file, message).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let commit = ["commit", "-q", "--allow-empty", "--cleanup=verbatim", "-F", &file];
        self.git(&[settings, &commit].concat(), "a@example.org", time);
    }

    fn words(&self) -> Vec<String> {
        self.import(None).unwrap();
        let text = "source = { kind = \"parquet\", path = \"log.parquet\", time = \"timestamp\" }\n\
                    split = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }\n\
                    vocabulary = { kind = \"training_data\", size = 99 }";
        texts(&self.folder.open(text), Split::Train).concat()
    }
}

#[test]
fn no_setting_of_git_changes_the_letters_of_a_message() {
    // In GBK and in ISO 8859-1.
    let chinese = b"\xd0\xde\xb8\xb4 the login page";
    let latin = b"the caf\xe9 menu";
    let expected = [
        "修复 and the café menu <eos>",
        "修复 the login page <eos>",
        "the café menu <eos>",
    ];
    for (key, value) in [
        ("core.bare", "false"),
        ("i18n.logOutputEncoding", "GBK"),
        ("i18n.logOutputEncoding", "ISO-8859-1"),
        ("i18n.commitEncoding", "GBK"),
        ("i18n.commitEncoding", "windows-1252"),
        ("i18n.logOutputEncoding", "no such encoding"),
        ("include.path", "../settings"),
        ("color.ui", "always"),
        ("notes.displayRef", "refs/notes/*"),
    ] {
        let repository = Repository::new();
        repository.commit("修复 and the café menu", "a@example.org", "@1000 +0000");
        repository.git(
            &["notes", "add", "-m", "a noted word"],
            "a@example.org",
            "@1000 +0000",
        );
        repository.commit_bytes(chinese, &["-c", "i18n.commitEncoding=GBK"], "@2000 +0000");
        repository.commit_bytes(latin, &["-c", "i18n.commitEncoding=ISO-8859-1"], "@3000 +0000");
        fs::write(
            repository.path().join("settings"),
            "[i18n]\nlogOutputEncoding = windows-1252\n",
        )
        .unwrap();
        repository.git(&["config", key, value], "", "@0 +0000");
        assert_eq!(repository.words(), expected, "{key} = {value}");
        assert!(repository.import(None).unwrap().noted.is_empty());
    }
}

#[test]
fn messages_that_are_not_utf8_and_commits_without_a_date_are_counted_and_named() {
    let repository = Repository::new();
    repository.commit("First words here", "a@example.org", "@1000 +0000");
    // Git itself takes bytes that are not UTF-8 for ISO 8859-1, unless an encoding is named, though it be none.
    repository.commit_bytes(b"the caf\xe9 menu", &[], "@2000 +0000");
    repository.commit_bytes(
        b"one caf\xe9 more",
        &["-c", "i18n.commitEncoding=nowhere"],
        "@3000 +0000",
    );
    let output = |arguments: &[&str], input: &str| {
        let mut child = Command::new("git")
            .arg("-C")
            .arg(repository.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let tree = output(&["rev-parse", "HEAD^{tree}"], "");
    let mut lost = Vec::new();
    for author in [
        "Someone <a@example.org> yesterday",
        "Someone <a@example.org>",
        "Someone <a@example.org> 99999999999999999999999 +0000",
        "Someone",
    ] {
        let parent = output(&["rev-parse", "HEAD"], "");
        let commit = format!(
            "tree {tree}\nparent {parent}\nauthor {author}\ncommitter Someone <a@example.org> 4000 +0000\n\nLost words here\n"
        );
        let id = output(
            &["hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
            &commit,
        );
        repository.git(&["update-ref", "HEAD", &id], "", "@0 +0000");
        lost.push(id);
    }
    repository.commit("Last words here", "a@example.org", "@5000 +0000");
    let summary = repository.import(None).unwrap();
    assert_eq!((summary.rows, summary.users), (4, 1));
    assert_eq!(summary.skipped, lost);
    let noted: Vec<_> = summary.noted.iter().collect();
    let expected = [
        ("commits without a readable date skipped", 4),
        ("messages that are not valid UTF-8, with replaced letters", 1),
    ];
    assert_eq!(noted, expected);
}
