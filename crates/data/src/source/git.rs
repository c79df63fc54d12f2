//! The log of a git repository: author = user, message = text.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{DataError, Place, Result, io};
use crate::rows::Rows;
use crate::source::OnRows;

/// A git command that looks at `path` only: no repository, pager, prompt or language from the environment.
fn git(path: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(path).stdin(Stdio::null());
    for variable in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_NAMESPACE",
    ] {
        command.env_remove(variable);
    }
    command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
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

fn output(path: &Path, command: &'static str, arguments: &[&str]) -> Result<String> {
    if !path.is_dir() {
        let source = std::io::Error::new(ErrorKind::NotFound, "no such directory");
        return Err(DataError::Io {
            action: "read the repository",
            path: path.to_owned(),
            source,
        });
    }
    let output = git(path)
        .arg(command)
        .args(arguments)
        .output()
        .map_err(start_error(path))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(failed(path, command, &output.stderr))
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

/// The full id of the commit that `revision` names.
pub(crate) fn resolve(path: &Path, revision: &str) -> Result<String> {
    let commit = format!("{revision}^{{commit}}");
    output(path, "rev-parse", &["--verify", "--end-of-options", &commit])
}

/// The mailmap that decides which addresses are one person; empty without one (or without a work tree).
pub(crate) fn mailmap(path: &Path) -> Vec<u8> {
    output(path, "rev-parse", &["--show-toplevel"])
        .ok()
        .and_then(|top| std::fs::read(Path::new(&top).join(".mailmap")).ok())
        .unwrap_or_default()
}

/// Reads messages from the oldest commit reachable to `commit`. Merges are left out: their messages are mostly generated.
pub(crate) fn read(
    path: &Path,
    commit: &str,
    user: &dyn Fn(&str) -> String,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    let total = output(path, "rev-list", &["--no-merges", "--count", commit])?
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
            "--format=%aE%x00%at%x00%B",
            commit,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start_error(path))?;
    // Drained beside the log: a child that waits for room in one pipe never finishes the other.
    let warnings = child.stderr.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.read_to_end(&mut text).map(|_| text)
        })
    });
    let result = read_log(path, &mut child, total, user, on_rows);
    if result.is_err() {
        // The child may still be writing to a pipe nobody reads; ending it is all that is left to do.
        let _ = child.kill();
    }
    let stderr = match warnings.map(std::thread::JoinHandle::join) {
        Some(Ok(text)) => text.map_err(io("read the log of", path))?,
        Some(Err(_)) | None => Vec::new(),
    };
    let status = child.wait().map_err(io("read the log of", path))?;
    let commits = result?;
    if !status.success() {
        return Err(failed(path, "log", &stderr));
    }
    if commits == 0 {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "commits",
        });
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
    let mut rows = Rows::default();
    let mut commits = 0_u64;
    let (mut address, mut time, mut message) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut field = |buffer: &mut Vec<u8>| {
            buffer.clear();
            let read = reader
                .read_until(0, buffer)
                .map_err(io("read the log of", path))?;
            if buffer.last() == Some(&0) {
                buffer.pop();
            }
            Ok::<bool, DataError>(read > 0)
        };
        if !field(&mut address)? {
            break;
        }
        field(&mut time)?;
        field(&mut message)?;
        commits += 1;
        let time = String::from_utf8_lossy(&time);
        let seconds = time.trim().parse().map_err(|_| DataError::BadValue {
            file: path.to_owned(),
            place: Place::Row(commits),
            what: "author time".to_owned(),
            expected: "unix seconds".to_owned(),
            got: format!("\"{}\"", time.trim()),
        })?;
        // PRIVACY: the address leaves this function as a salted hash only.
        rows.users
            .push(&user(&String::from_utf8_lossy(&address).trim().to_lowercase()));
        rows.texts
            .push(&without_trailers(&String::from_utf8_lossy(&message)));
        rows.times.push(seconds);
        rows.places.push(commits);
        if rows.is_full() {
            on_rows(&rows, total)?;
            rows.clear();
        }
    }
    on_rows(&rows, total)?;
    Ok(commits)
}

/// Drops lines that name people or machines: `Signed-off-by:` and its kind, `Change-Id:`, and any line with an address.
fn without_trailers(message: &str) -> String {
    // PRIVACY: best effort. Names inside sentences stay; docs/DATA.md says so.
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
    fn trailers() {
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
