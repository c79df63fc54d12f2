//! A server of Postgres for tests: started once per process from the programs of this machine, ended with the process.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that makes a missing server an error instead of a test that says it was left out.
const REQUIRE: &str = "UNDERTONE_REQUIRE_POSTGRES";

/// A server in a folder of its own, reached by a socket in that folder.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    child: Option<Child>,
    /// A shell that ends the server and removes the folder once this process has ended, in whatever way.
    _janitor: Child,
}

/// The folder of `initdb`, where the machine has one.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<PathBuf> = debian.flatten().map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&path));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// The server refuses to run as root, so root runs it as the user of Debian's package.
fn command(programs: &Path, name: &str) -> Command {
    let program = programs.join(name);
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"])
        .arg(program);
    command
}

fn succeed(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Server {
    /// Starts a server; `None` where the machine has none.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os(REQUIRE).is_none(),
                "{REQUIRE} is set, and there is no initdb on this machine"
            );
            eprintln!("left out: this machine has no server of Postgres");
            return None;
        };
        // A socket has a path of at most 107 bytes.
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        if command(&programs, "x").get_program() == "setpriv" {
            succeed(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = folder.path().join("data");
        succeed(
            command(&programs, "initdb")
                .args([
                    "--auth",
                    "trust",
                    "--username",
                    "postgres",
                    "--no-sync",
                    "--no-locale",
                    "--encoding",
                    "UTF8",
                ])
                .arg("--pgdata")
                .arg(&data),
        );
        let janitor =
            "cat >/dev/null; kill -QUIT $(head -n 1 \"$0/data/postmaster.pid\"); sleep 1; rm -rf \"$0\"";
        let janitor = Command::new("sh")
            .args(["-c", janitor])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self {
            folder,
            programs,
            child: None,
            _janitor: janitor,
        };
        server.up();
        Some(server)
    }

    /// Starts the process, and waits until it takes connections.
    fn up(&mut self) {
        let mut child = command(&self.programs, "postgres")
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-k")
            .arg(self.folder.path())
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "max_connections=300",
                "-c",
                "fsync=off",
            ])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("ready to accept connections"));
        assert!(ready, "the server ended before it took connections");
        // Its later lines must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        self.child = Some(child);
    }

    fn down(&mut self, mode: &str) {
        if let Some(mut child) = self.child.take() {
            let _ = command(&self.programs, "pg_ctl")
                .args(["stop", "--mode", mode, "--wait", "--pgdata"])
                .arg(self.folder.path().join("data"))
                .output();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends the server, and starts it again. The mode `immediate` is a loss of power, `fast` writes everything before.
    pub(crate) fn restart(&mut self, mode: &str) {
        self.down(mode);
        self.up();
    }

    /// Makes an empty database, and gives its connection string.
    pub(crate) fn database(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let url = |name: &str| {
            let folder = self.folder.path().display();
            format!("postgres://postgres@/{name}?host={folder}")
        };
        self.sql(&url("postgres"), &format!("CREATE DATABASE {name}"));
        url(&name)
    }

    /// Runs a statement in a database.
    pub(crate) fn sql(&self, url: &str, sql: &str) {
        succeed(Command::new(self.programs.join("psql")).args(["--command", sql, url]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down("immediate");
    }
}

/// The server that the tests of a process share. It ends after the process.
pub(crate) fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(Server::start).as_ref()
}
