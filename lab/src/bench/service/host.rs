//! The server under test: this program again, as a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use undertone_operate::host::{Host, HostConfig};
use undertone_service::capacity::Capacity;
use undertone_service::cluster::ClusterConfig;
use undertone_service::data_folder;
use undertone_service::http::tls;
use undertone_service::identity::Identity;

use super::client::{Place, tls_config};

/// The environment variable that tells the processes of items that their servers wipe no memory.
pub(super) const NO_WIPING: &str = "UNDERTONE_BENCH_SERVICE_NO_WIPING";

/// Ticks per second of the CPU times in `/proc`, on every Linux of today.
const TICKS: f64 = 100.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The data folder
    #[arg(long)]
    folder: PathBuf,
    /// Speak TLS, by a certificate that signs itself
    #[arg(long)]
    tls: bool,
    /// Wipe no memory when it is freed
    #[arg(long)]
    no_wiping: bool,
    /// Run beside other processes under this name
    #[arg(long)]
    process: Option<String>,
}

/// The first line of the server on its standard output.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    address: SocketAddr,
    /// The certificate, in PEM.
    root: Option<String>,
}

/// Serves until standard input ends.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // As `undertone serve` does.
    if !arguments.no_wiping {
        crate::wiping::start();
    }
    crate::wiping::return_free_memory();
    // Warnings explain a benchmark that fails.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let (tls, root) = match arguments.tls {
        true => {
            let (config, root) = tls::self_signed(&["localhost".to_owned()])?;
            (Some(config), Some(root))
        }
        false => (None, None),
    };
    let shared = match &arguments.process {
        None => data_folder::open(&arguments.folder, None)?,
        Some(name) => data_folder::open_beside(&arguments.folder, None, name)?,
    };
    let config = HostConfig {
        listen: "127.0.0.1:0".to_owned(),
        tls,
        identity: Identity::Dev,
        threads: 0,
    };
    let host = match arguments.process {
        None => Host::start(&arguments.folder, shared, config)?,
        Some(_) => {
            let cluster = ClusterConfig {
                // An open attempt of a measurement is not waited for.
                drain: std::time::Duration::ZERO,
                ..ClusterConfig::new("127.0.0.1:0")
            };
            let capacity = Capacity::default();
            Host::start_beside(
                &arguments.folder,
                shared,
                config,
                "127.0.0.1:0",
                capacity,
                &cluster,
            )?
        }
    };
    let greeting = Greeting {
        address: host.address(),
        root,
    };
    println!("{}", serde_json::to_string(&greeting)?);
    std::io::stdout().flush()?;
    // The other process ends by closing the pipe, whatever way it ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    host.stop();
    Ok(())
}

/// A server in another process. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    pub(super) place: Place,
    /// The certificate of its TLS, in PEM.
    pub(super) root: Option<String>,
}

/// The resident memory of a process, in MB of 2^20 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) peak: f64,
    pub(super) now: f64,
}

impl Server {
    /// Starts a server over a data folder and waits until it listens.
    pub(super) fn start(folder: &Path, tls: bool) -> anyhow::Result<Self> {
        Self::launch(folder, tls, None)
    }

    /// Starts one of several processes over a data folder, and waits until it listens.
    pub(super) fn start_beside(folder: &Path, name: &str) -> anyhow::Result<Self> {
        Self::launch(folder, false, Some(name))
    }

    fn launch(folder: &Path, tls: bool, process: Option<&str>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .args(["bench", "service-host", "--folder"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if tls {
            command.arg("--tls");
        }
        if std::env::var_os(NO_WIPING).is_some() {
            command.arg("--no-wiping");
        }
        if let Some(name) = process {
            command.arg("--process").arg(name);
        }
        let mut child = command.spawn().context("starting the server")?;
        let input = child.stdin.take();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let greeting: Result<Greeting, _> = serde_json::from_str(&line);
        let Ok(greeting) = greeting else {
            let _ = child.kill();
            let status = child.wait()?;
            anyhow::bail!("the server did not start: {status}");
        };
        let tls = greeting.root.as_deref().map(tls_config).transpose()?;
        Ok(Self {
            child,
            input,
            place: Place {
                address: greeting.address,
                tls,
            },
            root: greeting.root,
        })
    }

    /// The address for a client that takes one.
    pub(super) fn url(&self) -> String {
        match &self.root {
            Some(_) => format!("https://localhost:{}", self.place.address.port()),
            None => format!("http://{}", self.place.address),
        }
    }

    /// CPU seconds of all threads of the server so far, where the system tells it (Linux).
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name of the program stands in parentheses and may hold anything.
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(11);
        let user: f64 = fields.next()?.parse().ok()?;
        let system: f64 = fields.next()?.parse().ok()?;
        Some((user + system) / TICKS)
    }

    /// Memory of the server, where the system tells it (Linux).
    pub(super) fn memory(&self) -> Option<Memory> {
        memory_of(&self.child.id().to_string())
    }

    /// Kills it at once, as a loss of the machine would.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail where the process was waited for, which is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory of a process, by its number or `self`.
pub(super) fn memory_of(process: &str) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes / 1024.0)
    };
    Some(Memory {
        peak: field("VmHWM:")?,
        now: field("VmRSS:")?,
    })
}
