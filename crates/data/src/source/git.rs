//! The log of a git repository: author = user, message = text.
//!
//! SECURITY: the repository may come from a stranger, and its configuration names programs to run. Git is therefore only
//! asked for the log, and every setting through which that could start a program, fetch an object or read a file outside
//! the repository is overridden.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Place, Result, bad_value, empty, io};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{OnRows, Rows};
use undertone_settings::time::NO_TIME;

/// The log of a git repository, read with the `git` program. It can be imported, and is no source of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// A directory inside the repository.
    pub path: PathBuf,
    /// Commits reachable from here, such as `HEAD`.
    pub revision: String,
}

/// Settings that outrank those of the repository and of the user. Each names a program to run or a file to read, or changes the bytes of
/// messages.
const OVERRIDES: [&str; 12] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.gitProxy=",
    "diff.external=",
    "gpg.program=false",
    // Git writes messages in this encoding, else in the one of new commits.
    "i18n.logOutputEncoding=UTF-8",
    "i18n.commitEncoding=UTF-8",
    "log.showSignature=false",
    "mailmap.blob=",
    "mailmap.file=",
];

/// Maximum time that git may take to name a commit. A repository whose files are pipes would otherwise block it for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of an address or a time in a log.
const MAX_FIELD_BYTES: usize = 1 << 16;
/// Bytes of git's messages that are kept: the last line is shown.
const MAX_MESSAGE_BYTES: u64 = 1 << 16;
/// Maximum number of skipped commits that are named.
const MAX_NAMED: usize = 20;
/// Maximum size of a `.mailmap`.
const MAX_MAILMAP_BYTES: u64 = 16 << 20;

/// A git command that looks at `path` only, and starts no program, whatever the repository's configuration says.
fn git(path: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(path).stdin(Stdio::null());
    command.args(["--no-pager", "--no-optional-locks"]);
    for setting in OVERRIDES {
        command.args(["-c", setting]);
    }
    // SECURITY: variables such as GIT_CONFIG_COUNT, GIT_EXTERNAL_DIFF or GIT_DIR would be obeyed.
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(variable);
        }
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        // SECURITY: a missing object is not fetched, and no protocol could fetch it. Fetching runs `core.sshCommand`,
        // `remote.*.uploadpack` or a remote helper of the repository's choice. `protocol.allow` would not do: the
        // repository's `protocol.ssh.allow` outranks it.
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "");
    command
}

fn start_error(path: &Path) -> impl FnOnce(std::io::Error) -> DataError {
    let path = path.to_owned();
    move |source| match source.kind() {
        ErrorKind::NotFound => DataError::NoGitProgram { path, source },
        _ => DataError::Io {
            action: "start git for",
            path,
            source,
        },
    }
}

/// Output of a command that prints one line.
fn output(
    path: &Path,
    command: &'static str,
    arguments: &[&str],
    patience: Option<Duration>,
) -> Result<String> {
    if !path.is_dir() {
        let source = std::io::Error::new(ErrorKind::NotFound, "no such directory");
        return Err(DataError::Io {
            action: "read the repository",
            path: path.to_owned(),
            source,
        });
    }
    let mut child = git(path)
        .arg(command)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start_error(path))?;
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let status = wait(path, command, &mut child, patience)?;
    let text = |thread: Option<std::thread::JoinHandle<Vec<u8>>>| {
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    match status.success() {
        true => Ok(String::from_utf8_lossy(&stdout).trim().to_owned()),
        false => Err(failed(path, command, &stderr)),
    }
}

/// Reads a pipe to its end on its own thread and keeps the last bytes: a child that waits for room in one pipe never finishes
/// the other.
fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            let mut next = Vec::new();
            match pipe.by_ref().take(MAX_MESSAGE_BYTES).read_to_end(&mut next) {
                Ok(1..) => kept = next,
                // What cannot be read is missing from a message only.
                Ok(0) | Err(_) => return kept,
            }
        }
    })
}

/// Waits for the end of `child`, and ends it where it takes longer than `patience`.
fn wait(
    path: &Path,
    command: &'static str,
    child: &mut Child,
    patience: Option<Duration>,
) -> Result<ExitStatus> {
    let Some(patience) = patience else {
        return child.wait().map_err(io("read the log of", path));
    };
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(io("read the log of", path))? {
            return Ok(status);
        }
        if start.elapsed() > patience {
            // It may have ended meanwhile; either way it is waited for, so that no process is left behind.
            let _ = child.kill();
            let _ = child.wait();
            return Err(DataError::GitFailed {
                path: path.to_owned(),
                command,
                detail: format!("no answer within {} seconds", patience.as_secs()),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn failed(path: &Path, command: &'static str, stderr: &[u8]) -> DataError {
    let stderr = String::from_utf8_lossy(stderr);
    let detail = stderr
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("no message")
        .to_owned();
    DataError::GitFailed {
        path: path.to_owned(),
        command,
        detail,
    }
}

/// The full id of the commit that the source's revision names.
pub(crate) fn resolve(source: &GitSource) -> Result<String> {
    let commit = format!("{}^{{commit}}", source.revision);
    let arguments = ["--verify", "--end-of-options", &commit];
    output(&source.path, "rev-parse", &arguments, Some(PATIENCE))
}

/// Refuses a `.mailmap` that git could not read to its end: it decides which addresses are one person.
fn check_mailmap(path: &Path) -> Result<()> {
    let Ok(top) = output(path, "rev-parse", &["--show-toplevel"], Some(PATIENCE)) else {
        return Ok(()); // A bare repository has no work tree.
    };
    let file = Path::new(&top).join(".mailmap");
    let expected = match file.symlink_metadata() {
        Ok(entry) if !entry.is_file() => "a regular file".to_owned(),
        Ok(entry) if entry.len() > MAX_MAILMAP_BYTES => format!("at most {MAX_MAILMAP_BYTES} bytes"),
        _ => return Ok(()),
    };
    Err(DataError::GitFailed {
        path: file,
        command: "log",
        detail: format!("expected {expected}"),
    })
}

/// Reads messages from the oldest commit reachable to `commit`. Merges are left out: their messages are mostly generated. Commits without
/// a readable date are left out, and the first ones are named.
pub(crate) fn read(
    path: &Path,
    commit: &str,
    user: &dyn Fn(&str) -> String,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    check_mailmap(path)?;
    let total = output(path, "rev-list", &["--no-merges", "--count", commit], None)?
        .parse::<u64>()
        .ok();
    // %aE respects .mailmap, so that one person's addresses count as one user.
    let mut child = git(path)
        .args([
            "log",
            "-z",
            "--reverse",
            "--no-merges",
            "--no-show-signature",
            "--no-decorate",
            "--no-patch",
            "--no-notes",
            "--no-color",
            "--encoding=UTF-8",
            "--no-ext-diff",
            "--no-textconv",
            "--format=%H%x00%aE%x00%at%x00%B",
            commit,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start_error(path))?;
    let warnings = child.stderr.take().map(drain);
    let result = read_log(path, &mut child, total, user, on_rows);
    if result.is_err() {
        // The child may still be writing to a pipe nobody reads; ending it is all that is left to do.
        let _ = child.kill();
    }
    let stderr = warnings.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let status = child.wait().map_err(io("read the log of", path))?;
    let commits = result?;
    if !status.success() {
        return Err(failed(path, "log", &stderr));
    }
    if commits == 0 {
        return Err(empty(path, "commits"));
    }
    Ok(())
}

fn read_log(
    path: &Path,
    child: &mut Child,
    total: Option<u64>,
    user: &dyn Fn(&str) -> String,
    on_rows: &mut OnRows<'_>,
) -> Result<u64> {
    let Some(stdout) = child.stdout.take() else {
        return Ok(0);
    };
    let mut reader = BufReader::with_capacity(1 << 18, stdout);
    let columns = Columns {
        user: Some("author"),
        text: "message",
        time: Some("author time"),
        split: None,
        time_unit: None,
        keys: Keys::SOURCE,
    };
    let mut rows = Rows::of_table(path, columns);
    let (mut commits, mut named) = (0_u64, 0);
    let (mut id, mut address, mut time, mut message) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let number = commits + 1;
        let bad = |what: &str, expected: String, got: String| {
            bad_value(path, Place::Row(number), what, expected, got)
        };
        let mut field = |buffer: &mut Vec<u8>, what: &str, max: usize| {
            buffer.clear();
            let mut bounded = reader.by_ref().take(max as u64 + 1);
            let read = bounded
                .read_until(0, buffer)
                .map_err(io("read the log of", path))?;
            if buffer.last() == Some(&0) {
                buffer.pop();
            } else if buffer.len() > max {
                return Err(bad(
                    what,
                    format!("at most {max} bytes"),
                    "a longer one".to_owned(),
                ));
            }
            Ok::<bool, DataError>(read > 0)
        };
        if !field(&mut id, "commit", MAX_FIELD_BYTES)? {
            break;
        }
        field(&mut address, "author", MAX_FIELD_BYTES)?;
        field(&mut time, "author time", MAX_FIELD_BYTES)?;
        field(&mut message, "message", MAX_TEXT_BYTES)?;
        commits += 1;
        let time = String::from_utf8_lossy(&time);
        let Some(seconds) = time.trim().parse().ok().filter(|&time| time != NO_TIME) else {
            rows.noted.add("commits without a readable date skipped", 1);
            if named < MAX_NAMED {
                named += 1;
                rows.skipped.push(String::from_utf8_lossy(&id).into_owned());
            }
            continue;
        };
        let text = String::from_utf8_lossy(&message);
        let replaced = matches!(text, Cow::Owned(_));
        rows.noted.add(
            "messages that are not valid UTF-8, with replaced letters",
            u64::from(replaced),
        );
        // PRIVACY: the address leaves this function as a salted hash only.
        rows.users
            .push(&user(&String::from_utf8_lossy(&address).trim().to_lowercase()));
        rows.texts.push(&without_trailers(&text));
        rows.times.push(seconds);
        rows.places.push(commits);
        rows.hand_over(on_rows, total)?;
    }
    on_rows(&rows, total)?;
    Ok(commits)
}

/// Drops lines that name people or machines: `Signed-off-by:` and its kind, `Change-Id:`, and any line with an address.
fn without_trailers(message: &str) -> String {
    // PRIVACY: best effort. Names inside sentences stay; docs/guide/data-tools.md says so.
    let mut kept = String::with_capacity(message.len());
    for line in message.lines().filter(|line| !is_trailer(line)) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

fn is_trailer(line: &str) -> bool {
    let has_address = line.split_whitespace().any(|word| {
        word.split_once('@')
            .is_some_and(|(name, host)| !name.trim_matches(['<', '(']).is_empty() && host.contains('.'))
    });
    let key = line
        .split_once(':')
        .map(|(key, _)| key.trim().to_ascii_lowercase());
    has_address
        || key.is_some_and(|key| key.ends_with("-by") || matches!(&*key, "cc" | "change-id" | "git-svn-id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_told_from_sentences() {
        fn check(line: &str, expected: bool) {
            assert_eq!(is_trailer(line), expected, "{line}");
        }
        check("Signed-off-by: A Person <a@example.org>", true);
        check("Reviewed-by: someone", true);
        check("Cc: stable", true);
        check("see a@example.org for more", true);
        check("fix: handle the @ sign", false);
        check("use foo@bar as a reference", false);
        check("A plain sentence.", false);
        assert_eq!(without_trailers("Fix it.\n\nCc: x\nDone\n"), "Fix it.\n\nDone\n");
    }
}
