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
    /// The port on which it speaks TLS, where it does.
    port: Option<u16>,
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

/// A shell that ends the server of a folder once this process has ended, and removes the folder.
fn janitor(folder: &Path) -> Child {
    let janitor =
        "cat >/dev/null; kill -QUIT $(head -n 1 \"$0/data/postmaster.pid\"); sleep 1; rm -rf \"$0\"";
    Command::new("sh")
        .args(["-c", janitor])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Server {
    /// Starts a server; `None` where the machine has none.
    pub(crate) fn start() -> Option<Self> {
        let mut server = Self::made()?;
        server.up();
        Some(server)
    }

    /// Starts a server that listens on a port of this machine too, and lets nobody in there without TLS. It shows this certificate
    /// and key, both in PEM.
    pub(crate) fn start_with_tls(certificate: &str, key: &str) -> Option<Self> {
        let mut server = Self::made()?;
        let data = server.folder.path().join("data");
        for (name, text) in [
            ("server.crt", certificate),
            ("server.key", key),
            (
                "pg_hba.conf",
                "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
            ),
        ] {
            std::fs::write(data.join(name), text).unwrap();
            succeed(Command::new("chmod").arg("600").arg(data.join(name)));
            if command(&server.programs, "x").get_program() == "setpriv" {
                succeed(Command::new("chown").arg("postgres").arg(data.join(name)));
            }
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.port = Some(free.local_addr().unwrap().port());
        drop(free);
        server.up();
        Some(server)
    }

    /// The port on which it speaks TLS.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap()
    }

    fn made() -> Option<Self> {
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
        Some(Self {
            _janitor: janitor(folder.path()),
            folder,
            programs,
            child: None,
            port: None,
        })
    }

    /// Starts the process, and waits until it takes connections.
    fn up(&mut self) {
        let mut child = command(&self.programs, "postgres")
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-k")
            .arg(self.folder.path())
            .args(self.listening())
            .args(["-c", "max_connections=300", "-c", "fsync=off"])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("ready to accept"));
        assert!(ready, "the server ended before it took connections");
        // Its later lines must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        self.child = Some(child);
    }

    /// The options of the places where it listens, beside its socket.
    fn listening(&self) -> Vec<String> {
        match self.port {
            None => vec!["-c".to_owned(), "listen_addresses=".to_owned()],
            Some(port) => ["listen_addresses=127.0.0.1", &format!("port={port}"), "ssl=on"]
                .into_iter()
                .flat_map(|option| ["-c".to_owned(), option.to_owned()])
                .collect(),
        }
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
            let port = self.port.map_or_else(String::new, |port| format!("&port={port}"));
            format!("postgres://postgres@/{name}?host={folder}{port}")
        };
        self.sql(&url("postgres"), &format!("CREATE DATABASE {name}"));
        url(&name)
    }

    /// Starts a server again that was stopped.
    pub(crate) fn again(&mut self) {
        self.up();
    }

    /// Ends the server for good.
    pub(crate) fn stop(&mut self, mode: &str) {
        self.down(mode);
    }

    /// A server that follows this one by streaming replication, and can take its place.
    pub(crate) fn standby(&self) -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        if command(&self.programs, "x").get_program() == "setpriv" {
            succeed(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        succeed(
            command(&self.programs, "pg_basebackup")
                .args([
                    "--username",
                    "postgres",
                    "--checkpoint",
                    "fast",
                    "--wal-method",
                    "stream",
                ])
                .args(["--write-recovery-conf", "--no-sync", "--host"])
                .arg(self.folder.path())
                .arg("--pgdata")
                .arg(folder.path().join("data")),
        );
        let mut standby = Self {
            _janitor: janitor(folder.path()),
            folder,
            programs: self.programs.clone(),
            child: None,
            port: None,
        };
        standby.up();
        standby
    }

    /// Waits until a standby has everything that this server has written.
    pub(crate) fn wait_for_standby(&self) {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
        for _ in 0..600 {
            if self.answer(sql) == "1" {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!(
            "the standby does not follow: {}",
            self.answer("SELECT * FROM pg_stat_replication")
        );
    }

    /// Cuts the replication, as a partition of the network does.
    pub(crate) fn cut_off_standbys(&self) {
        let data = self.folder.path().join("data");
        // The first rule that fits counts.
        let rules = std::fs::read_to_string(data.join("pg_hba.conf")).unwrap();
        std::fs::write(
            data.join("pg_hba.conf"),
            format!("local replication all reject\n{rules}"),
        )
        .unwrap();
        self.answer("SELECT pg_reload_conf()");
        for _ in 0..600 {
            self.answer("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
            std::thread::sleep(std::time::Duration::from_millis(100));
            if self.answer("SELECT count(*) FROM pg_stat_replication") == "0" {
                return;
            }
        }
        panic!("the replication goes on");
    }

    /// Makes a standby the server that takes writes.
    pub(crate) fn promote(&mut self) {
        succeed(
            command(&self.programs, "pg_ctl")
                .args(["promote", "--wait", "--pgdata"])
                .arg(self.folder.path().join("data")),
        );
    }

    /// The connection string at this server for a database of another one.
    pub(crate) fn url_of(&self, url: &str) -> String {
        let (database, _) = url.split_once("?host=").unwrap();
        format!("{database}?host={}", self.folder.path().display())
    }

    /// The first value of a query.
    fn answer(&self, sql: &str) -> String {
        let url = format!(
            "postgres://postgres@/postgres?host={}",
            self.folder.path().display()
        );
        let output = Command::new(self.programs.join("psql"))
            .args(["--no-align", "--tuples-only", "--command", sql, &url])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
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
