//! The federated service over sockets, each figure beside its physical limit: `undertone-lab bench service`.
//!
//! Every item runs in a process of its own, and its server in another one, so the memory and the CPU time of an item are its own.
//! An item measures its limit itself, with the same sizes: a raw connection, a write with `fsync`, signatures, a simulated round.
//! The number of devices scales all sizes; 10,000 devices give those of the table in `lab/notebooks/benchmarks.md`.

mod client;
mod host;
mod load;
mod machine;
mod needs;
mod physical;
mod processes;
mod release;
mod requests;
mod restart;
mod secagg;
mod table;
mod tasks;
mod training;
mod uploads;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde_json::json;

pub(crate) use host::{Arguments as HostArguments, run as run_host};

/// The environment variable that tells a process that it is to measure one item, since another one has printed the conditions.
const BEGUN: &str = "UNDERTONE_BENCH_SERVICE";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// One item only
    #[arg(long, value_enum)]
    only: Option<Item>,
    /// Number of devices; all sizes follow from it
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(200..=100_000))]
    devices: u64,
    /// Parameters of the model; without it each item has a model of its own
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    parameters: Option<u64>,
    /// Connections that upload at one time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Connections that check in, or read boards, at one time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: u32,
    /// Seconds of a measurement that has no end of its own
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Let the servers wipe no memory when they free it, unlike `undertone serve`
    #[arg(long)]
    no_wiping: bool,
    /// Folder for the data of the servers; the temporary one of the system without it
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Item {
    /// Boards that are read over connections that stay open
    Board,
    /// Check-ins that are refused, with their signatures
    Checkin,
    /// Check-ins that are assigned, over HTTP and without it
    Assign,
    /// Updates over plain HTTP, beside raw TCP
    Upload,
    /// Updates over TLS, beside raw TLS
    UploadTls,
    /// One round of all devices, from the first upload to the commit, with the memory of the server at three sizes
    Cohort,
    /// A secure sum of 100 clients, 10 of them lost
    Secagg,
    /// The way from the last report to the next model
    Release,
    /// The transaction of a release
    Commit,
    /// Real training through the service, beside a simulated round of the same users
    Training,
    /// The start of a server that was killed
    Restart,
    /// Check-ins, assignments, uploads and releases with one, two and three processes over Postgres
    Processes,
}

impl Item {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The sizes of all items.
#[derive(Debug, Clone)]
struct Sizes {
    /// Number of check-ins, of participants of a commit, and of devices of the largest cohort.
    devices: u64,
    parameters: Option<u64>,
    connections: usize,
    callers: usize,
    seconds: f64,
    /// The folder for temporary folders.
    folder: PathBuf,
}

impl Sizes {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let seconds = arguments.seconds;
        ensure!(
            seconds > 0.0 && seconds <= 600.0,
            "--seconds must be above 0 and at most 600, got {seconds}"
        );
        Ok(Self {
            devices: arguments.devices,
            parameters: arguments.parameters,
            connections: arguments.connections as usize,
            callers: arguments.callers as usize,
            seconds,
            folder: arguments.folder.clone().unwrap_or_else(std::env::temp_dir),
        })
    }

    /// Number of parameters, `usual` where the caller named none.
    fn parameters(&self, usual: u64) -> u64 {
        self.parameters.unwrap_or(usual)
    }

    /// A folder that is deleted in the end.
    fn temporary(&self) -> anyhow::Result<tempfile::TempDir> {
        let made = tempfile::Builder::new()
            .prefix("undertone-bench-")
            .tempdir_in(&self.folder);
        made.with_context(|| format!("making a folder in {}", self.folder.display()))
    }
}

/// Prints the conditions and runs one item or all of them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let sizes = Sizes::new(arguments)?;
    match (arguments.only, std::env::var_os(BEGUN)) {
        (Some(item), Some(_)) => run_item(item, &sizes),
        (only, _) => {
            machine::report_conditions(&sizes.folder)?;
            match only {
                Some(item) => run_items(&[item], arguments),
                None => run_items(Item::value_variants(), arguments),
            }
        }
    }
}

fn run_item(item: Item, sizes: &Sizes) -> anyhow::Result<()> {
    let started = Instant::now();
    match item {
        Item::Board => requests::board(sizes),
        Item::Checkin => requests::refusals(sizes),
        Item::Assign => requests::assignments(sizes),
        Item::Upload => uploads::plain(sizes),
        Item::UploadTls => uploads::tls(sizes),
        Item::Cohort => uploads::cohorts(sizes),
        Item::Secagg => secagg::run(sizes),
        Item::Release => release::next_model(sizes),
        Item::Commit => release::commit(sizes),
        Item::Training => training::run(sizes),
        Item::Restart => restart::run(sizes),
        Item::Processes => processes::run(sizes),
    }
    .with_context(|| format!("measuring {}", item.name()))?;
    table::report(
        "item",
        &json!({ "of": item.name(), "seconds": table::rounded(started.elapsed().as_secs_f64()) }),
    );
    Ok(())
}

/// Runs items, each in a process of its own. One that fails does not keep the others from being measured.
fn run_items(items: &[Item], arguments: &Arguments) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut failed = Vec::new();
    for item in items {
        let mut command = Command::new(&program);
        command.args(["bench", "service", "--only", &item.name()]);
        let mut option = |name: &str, value: String| {
            command.arg(name).arg(value);
        };
        option("--devices", arguments.devices.to_string());
        option("--connections", arguments.connections.to_string());
        option("--callers", arguments.callers.to_string());
        option("--seconds", arguments.seconds.to_string());
        if let Some(parameters) = arguments.parameters {
            option("--parameters", parameters.to_string());
        }
        if let Some(folder) = &arguments.folder {
            command.arg("--folder").arg(folder);
        }
        if arguments.no_wiping {
            command.arg("--no-wiping").env(host::NO_WIPING, "1");
        }
        let status = command
            .env(BEGUN, "1")
            .status()
            .with_context(|| format!("starting {}", program.display()))?;
        if !status.success() {
            failed.push(item.name());
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("not measured: {}", failed.join(", ")),
    }
}

#[cfg(test)]
mod tests;
