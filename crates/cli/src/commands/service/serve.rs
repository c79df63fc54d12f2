//! `undertone serve`: a federated service on one machine.

mod admissions;
mod limits;
mod progress;
mod reload;
mod store_file;

use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Serialize;
use undertone_operate::admin::listener::TOKEN_FILE;
use undertone_operate::admin::{Figures, TaskSummary};
use undertone_operate::host::{Host, HostConfig};
use undertone_present::numbers::{epsilon_delta, grouped};
use undertone_protocol::TaskState;
use undertone_service::cluster::{ClusterConfig, Roles};
use undertone_service::data_folder;
use undertone_service::http::tls;
use undertone_service::identity::Identity;
use undertone_store::TaskRow;

use super::demo;
use crate::commands::train::start_threads;
use crate::output::{Output, facts};
use crate::signals;
use progress::Progress;

/// The time between two looks at the releases.
const LOOK: Duration = Duration::from_millis(100);

/// The time after the last release in which its devices learn their verdicts, where the server ends by itself.
const FAREWELL: Duration = Duration::from_secs(3);

/// Seconds of a round of the demonstration on a terminal, where a person watches.
const PACE: u64 = 2;

/// Arguments of `undertone serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Keep the service in this data folder. It is made where there is none. The demonstration makes `undertone-demo` where none
    /// is given, or a next number.
    #[arg(long, value_name = "DIR", required_unless_present = "demo")]
    data: Option<PathBuf>,
    /// Show the whole service: a small task, 200 simulated devices on this machine, and a verified export.
    ///
    /// On a terminal the dashboard stays after the last round, until Ctrl-C. Elsewhere, and with --exit, the demonstration ends by itself.
    #[arg(long, conflicts_with_all = ["store", "blobs", "listen", "admin", "migrate", "tls", "identity", "insecure", "witness", "spool_ram"])]
    pub(super) demo: bool,
    /// Let a round of the demonstration take about this many seconds [default: 2 on a terminal, else as few as possible].
    #[arg(long, value_name = "SECONDS", requires = "demo", value_parser = clap::value_parser!(u64).range(..=10))]
    pace: Option<u64>,
    /// Open the dashboard of the demonstration in a browser.
    #[arg(long, requires = "demo")]
    open: bool,
    /// Keep tasks, devices and ledgers on this Postgres server instead of in a file. The data folder remembers the server.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Read the address of the Postgres server from this file, which not everybody can read. It keeps a password out of the arguments.
    ///
    /// The file has one line, such as postgres://USER:PASSWORD@HOST/DATABASE. A new user or password in it replaces the remembered one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["store", "demo"])]
    store_file: Option<PathBuf>,
    /// Keep models and heads in this store of objects, for example s3://BUCKET/PREFIX?region=NAME. The data folder remembers it.
    ///
    /// Other providers than Amazon are named by `&endpoint=https://HOST`, and their own authority by `&ca=FILE`. Credentials come from
    /// the file `blobs.credentials` of the data folder, with mode 0600, or from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` in the
    /// environment. The program must be built with the feature `s3`.
    #[arg(long, value_name = "URL")]
    blobs: Option<String>,
    /// Listen to devices at this address. Port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8440")]
    listen: String,
    /// Listen to operators at this address of this machine. Port 0 takes any free one.
    ///
    /// A browser shows the dashboard there: the state of each task, live, and buttons to pause, resume and stop it.
    /// Prometheus reads `/metrics` there, with the bearer token in the file `admin.token` of the data folder. `/healthz` and `/readyz`
    /// need no token.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    admin: String,
    /// Answer `/healthz`, `/readyz` and `/metrics` at this address too, to everybody who reaches it. Port 0 takes any free one.
    ///
    /// It takes no token and no operation, so that the probes of a cluster and a scraper reach it from elsewhere. Open it to them alone.
    #[arg(long, value_name = "ADDR", conflicts_with = "demo")]
    probes: Option<String>,
    /// Let the running server of the data folder read its certificate again, and end. With --process, let that process alone do so.
    #[arg(long, requires = "data", conflicts_with_all = ["demo", "rounds", "exit", "migrate", "store", "store_file"])]
    reload: bool,
    /// Serve HTTPS with this certificate chain and this key, both in PEM.
    #[arg(long, value_name = "CERT,KEY", value_parser = certificate_and_key)]
    tls: Option<CertificateAndKey>,
    /// Choose who says which person a device belongs to.
    #[arg(long, value_enum, default_value_t = IdentityName::Certificate)]
    identity: IdentityName,
    #[command(flatten)]
    admissions: admissions::AdmissionsArgs,
    /// Allow plain HTTP with certificates, and `--identity dev` beyond this machine. For tests in closed networks.
    #[arg(long)]
    insecure: bool,
    /// Remember the newest head of each task in this folder too. Keep it out of the backups of the data folder.
    #[arg(long, value_name = "DIR")]
    witness: Option<PathBuf>,
    /// Run beside other processes over one Postgres server, and listen to them at this address. Port 0 takes any free one.
    ///
    /// All processes open one data folder, or folders with the same `service.key` and the same blobs. They know each other by certificates
    /// that follow from that key.
    #[arg(long, value_name = "ADDR", requires = "process", conflicts_with_all = ["demo", "reload"])]
    peers: Option<String>,
    /// Name this process, where several run. Each has a name of its own, which it keeps over restarts.
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Let the other processes reach this one at another address than that of --peers, such as https://node-1.internal:8450.
    #[arg(long, value_name = "URL", requires = "peers")]
    peers_url: Option<String>,
    /// Choose the roles of this process: front (devices reach it), aggregator (it holds parts of sums) and leader (it leads tasks).
    #[arg(long, value_name = "ROLES", requires = "peers", default_value = "front,aggregator,leader", value_parser = roles)]
    roles: Roles,
    /// Wait this many seconds at a stop for the open attempts of this process; other processes take new work meanwhile.
    #[arg(long, value_name = "SECONDS", requires = "peers", default_value_t = 600)]
    drain: u64,
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    otlp: OtlpArgs,
    /// Bring the database of an older version of this program to this one before. Keep a copy of the data folder.
    #[arg(long)]
    migrate: bool,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    limits: limits::LimitsArgs,
    /// End after this number of released rounds; needs --exit.
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// End by itself: after the rounds of --rounds, or when all tasks that were started have ended.
    #[arg(long)]
    exit: bool,
}

/// The collector of figures and traces.
#[cfg(feature = "otlp")]
#[derive(Debug, clap::Args)]
struct OtlpArgs {
    /// Send the figures of `/metrics`, and a trace of each attempt, to this collector by OTLP over HTTP, for example
    /// http://127.0.0.1:4318.
    #[arg(long = "otlp", id = "otlp", value_name = "URL", conflicts_with = "demo")]
    url: Option<String>,
    /// Send the figures every this many seconds.
    #[arg(long = "otlp-seconds", value_name = "SECONDS", requires = "otlp", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IdentityName {
    /// Let each device name its person itself. For development on one machine.
    Dev,
    /// Ask for a certificate of the built-in issuer, which a device gets for an invitation.
    Certificate,
    /// Ask for a certificate, and for evidence of the platform in tasks with `identity = "attested"`; needs --attest-url.
    Attested,
}

impl From<IdentityName> for Identity {
    fn from(name: IdentityName) -> Self {
        match name {
            IdentityName::Dev => Self::Dev,
            IdentityName::Certificate => Self::Certificate,
            IdentityName::Attested => Self::Attested,
        }
    }
}

#[derive(Debug, Clone)]
struct CertificateAndKey {
    certificate: PathBuf,
    key: PathBuf,
}

fn certificate_and_key(text: &str) -> Result<CertificateAndKey, String> {
    match text.split_once(',') {
        Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => Ok(CertificateAndKey {
            certificate: certificate.into(),
            key: key.into(),
        }),
        _ => Err("expected two files with a comma in between: CERT,KEY".to_owned()),
    }
}

fn roles(text: &str) -> Result<Roles, String> {
    text.parse()
        .map_err(|error: undertone_service::ServiceError| error.to_string())
}

impl ServeArgs {
    /// The place among other processes.
    fn cluster(&self) -> Option<ClusterConfig> {
        Some(ClusterConfig {
            url: self.peers_url.clone(),
            roles: self.roles,
            drain: Duration::from_secs(self.drain),
            ..ClusterConfig::new(self.peers.clone()?)
        })
    }

    /// The exporters, where there is a collector.
    #[cfg(feature = "otlp")]
    fn telemetry(&self, host: &Host) -> anyhow::Result<Option<super::otlp::Telemetry>> {
        let every = Duration::from_secs(self.otlp.seconds);
        let start = |url: &String| super::otlp::Telemetry::start(url, every, self.process.as_deref(), host);
        self.otlp.url.as_ref().map(start).transpose()
    }

    /// `true` for one of several processes that no device reaches.
    fn is_no_front(&self) -> bool {
        self.peers.is_some() && !self.roles.front
    }

    /// The data folder.
    fn folder(&self) -> &Path {
        // The parser asks for a folder everywhere but for the demonstration.
        self.data.as_deref().unwrap_or(Path::new(DEMO))
    }
}

/// The folder of a demonstration that names none. An earlier demonstration keeps its own.
const DEMO: &str = "undertone-demo";

/// The first name of a demonstration's folder that is free.
fn free_folder() -> PathBuf {
    let numbered = (2..).map(|number| PathBuf::from(format!("{DEMO}-{number}")));
    std::iter::once(PathBuf::from(DEMO))
        .chain(numbered)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| PathBuf::from(DEMO))
}

/// Serves until a signal, or until the rounds that were asked for are released.
pub(crate) fn run(args: &ServeArgs, output: &Output) -> anyhow::Result<()> {
    if args.demo {
        let threads = start_threads(args.threads)?;
        let folder = args.data.clone().unwrap_or_else(free_folder);
        let stays = output.shows_progress() && !args.exit;
        let terms = demo::Terms {
            rounds: args.rounds,
            pace: args.pace.unwrap_or(if stays { PACE } else { 0 }),
            stays,
            opens: args.open,
        };
        return demo::run(&folder, &terms, threads, output);
    }
    if args.reload {
        return reload::run(args.folder(), args.process.as_deref(), output);
    }
    if args.process.is_some() && args.peers.is_none() {
        bail!("--process names one of several processes, which listen to each other, so it needs --peers");
    }
    if args.rounds.is_some() && !args.exit {
        bail!("--rounds ends the service after that number of rounds, so it needs --exit");
    }
    check_exposure(args)?;
    let certificate = match &args.tls {
        None => None,
        Some(files) => Some(tls::ServerCertificate::open(&files.certificate, &files.key)?),
    };
    let tls = certificate
        .as_ref()
        .map(tls::ServerCertificate::config)
        .transpose()?;
    let admissions = args.admissions.rules(args.identity == IdentityName::Attested)?;
    let threads = start_threads(args.threads)?;
    let from_file = args.store_file.as_deref().map(store_file::address).transpose()?;
    match (&args.store, &from_file) {
        (Some(url), _) => data_folder::keep_on_server(args.folder(), url)?,
        (None, Some(url)) => data_folder::go_on_with_server(args.folder(), url)?,
        (None, None) => {}
    }
    if let Some(address) = &args.blobs {
        data_folder::keep_blobs_in(args.folder(), address)?;
    }
    if args.migrate {
        data_folder::migrate(args.folder())?;
    }
    let shared = match &args.process {
        None => data_folder::open(args.folder(), args.witness.as_deref())?,
        Some(name) => data_folder::open_beside(args.folder(), args.witness.as_deref(), name)?,
    };
    signals::end_in_order();
    signals::reload_on_hangup();
    let secure = tls.is_some();
    let config = HostConfig {
        listen: args.listen.clone(),
        tls,
        identity: args.identity.into(),
        threads,
    };
    let capacity = args.limits.capacity();
    let mut host = match args.cluster() {
        None => Host::start_with(args.folder(), shared, config, &args.admin, capacity)?,
        Some(cluster) => Host::start_beside(args.folder(), shared, config, &args.admin, capacity, &cluster)?,
    };
    let service = host.service().clone();
    service.admit_by(admissions);
    if let Some(certificate) = &certificate {
        service.shows(certificate.clone());
    }
    if let Some(address) = &args.probes {
        let address = host.answer_probes(address)?;
        output.note(&format!("answering probes at http://{address}"));
    }
    #[cfg(feature = "otlp")]
    let _telemetry = args.telemetry(&host)?;
    let mut progress = Progress::new(&service, args.folder(), output);
    greet(args, &host, secure, output)?;
    let mut stopped = false;
    while !progress.is_over(args.exit, args.rounds) {
        if signals::asked_to_end() {
            output.note("ending: no device is assigned any more; a release that has begun is finished");
            stopped = true;
            break;
        }
        if signals::asked_to_reload() {
            reload(certificate.as_deref(), output);
        }
        std::thread::sleep(LOOK);
        progress.look();
    }
    let asked = std::time::Instant::now();
    while !stopped && asked.elapsed() < FAREWELL && !signals::asked_to_end() {
        std::thread::sleep(LOOK);
        progress.look();
    }
    let address = host.address();
    host.stop();
    // The end may have released a round whose sum was ready.
    progress.look();
    let served = Served {
        address: url(address, secure),
        released: progress.released(),
        stopped_by_signal: stopped,
        tasks: progress.tasks(),
    };
    output.show(&served, || text(&served))
}

/// Reads the certificate of TLS again. Where that fails, the one before stays in use.
fn reload(certificate: Option<&tls::ServerCertificate>, output: &Output) {
    match certificate.map(tls::ServerCertificate::reload) {
        None => output.note("there is no certificate to read again"),
        Some(Ok(())) => output.note("the certificate of TLS was read again; new connections get it"),
        Some(Err(error)) => output.warn(&format!(
            "the certificate of TLS was not read again, and the one before stays in use: {error}"
        )),
    }
}

/// Refuses a listener that would let others on the network read updates, or invent people.
fn check_exposure(args: &ServeArgs) -> anyhow::Result<()> {
    let resolved = args.listen.to_socket_addrs();
    let mut addresses = resolved.with_context(|| {
        format!(
            "--listen: expected an address with a port, such as 127.0.0.1:8440, got {:?}",
            args.listen
        )
    })?;
    let mut operators = args.admin.to_socket_addrs().with_context(|| {
        format!(
            "--admin: expected an address with a port, such as 127.0.0.1:8441, got {:?}",
            args.admin
        )
    })?;
    // PRIVACY: the token of operators travels in plain HTTP.
    if !operators.all(|address| address.ip().is_loopback()) {
        bail!(
            "--admin: expected an address of this machine, such as 127.0.0.1:8441, since its token travels without TLS, got {:?}; \
             reach it from elsewhere through a tunnel, such as ssh -L 8441:127.0.0.1:8441 HOST",
            args.admin
        );
    }
    if args.insecure || args.is_no_front() {
        return Ok(());
    }
    match args.identity {
        // PRIVACY: anyone who reaches the listener could be any number of people.
        IdentityName::Dev if !addresses.all(|address| address.ip().is_loopback()) => bail!(
            "--identity dev lets each device say which person it is, so it listens on this machine alone; \
             use --listen 127.0.0.1:8440, or give --insecure in a closed network"
        ),
        // PRIVACY: without TLS everybody on the way reads updates and session tokens.
        IdentityName::Certificate | IdentityName::Attested if args.tls.is_none() => bail!(
            "--identity certificate and attested need TLS; give --tls CERT,KEY, or --insecure behind a proxy that ends TLS or in a test"
        ),
        _ => Ok(()),
    }
}

fn url(address: SocketAddr, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Names the dashboard. Only a person at a terminal gets a link that opens it: what is written elsewhere may be kept.
pub(super) fn show_dashboard(host: &Host, output: &Output) -> anyhow::Result<()> {
    // PRIVACY: the code of a link is the right of an operator until it is used.
    output.note(&match output.shows_progress() {
        true => {
            output.note("open the dashboard within ten minutes, by this link, which works once:");
            host.dashboard_link()?
        }
        false => format!(
            "the dashboard is at {}; it opens with the token in {TOKEN_FILE} of the data folder",
            host.dashboard()
        ),
    });
    Ok(())
}

fn greet(args: &ServeArgs, host: &Host, secure: bool, output: &Output) -> anyhow::Result<()> {
    if args.is_no_front() {
        // It listens to the other processes alone, with certificates of the key file.
        output.note(&format!(
            "listening to other processes at {}",
            url(host.address(), true)
        ));
        return show_dashboard(host, output);
    }
    let (url, data) = (url(host.address(), secure), args.folder().display());
    output.note(&format!("listening to devices at {url}"));
    show_dashboard(host, output)?;
    output.note(&match args.identity {
        IdentityName::Certificate | IdentityName::Attested => format!(
            "invite people with `undertone identity issue --data {data} --population NAME`, and write the keys that devices trust with \
             `undertone identity keys --data {data} --out keys.json`"
        ),
        IdentityName::Dev => format!(
            "write the keys that devices trust with `undertone identity keys --data {data} --out keys.json`; \
             devices name their people themselves, with --subject"
        ),
    });
    output.note(&format!(
        "enrol a device with `undertone device enrol --folder FOLDER --server {url} --population NAME --keys keys.json {}`",
        match args.identity {
            IdentityName::Certificate | IdentityName::Attested => "--invitation TEXT",
            IdentityName::Dev => "--subject NAME",
        }
    ));
    // A store that does not answer is a trouble, which the service logs.
    let Ok(rows) = host.service().shared().store.tasks() else {
        return Ok(());
    };
    let active: Vec<&TaskRow> = rows.iter().filter(|row| row.state == TaskState::Active).collect();
    if active.is_empty() {
        output.note(&format!(
            "no task is active; start one with `undertone task activate TASK --data {data}`"
        ));
    }
    for row in active {
        output.note(&format!(
            "task {} of population {}: {} of {} rounds released",
            row.task.name,
            row.task.population,
            grouped(row.head_round),
            grouped(row.task.rounds)
        ));
    }
    Ok(())
}

/// The document that `--json` prints at the end.
#[derive(Serialize)]
struct Served {
    address: String,
    /// Rounds that this process released.
    released: u64,
    stopped_by_signal: bool,
    tasks: Vec<ServedTask>,
}

#[derive(Serialize)]
struct ServedTask {
    #[serde(flatten)]
    task: TaskSummary,
    /// The guarantee of the released rounds, recomputed from the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<Figures>,
}

fn text(served: &Served) -> String {
    let mut rows = vec![("released", format!("{} rounds", grouped(served.released)))];
    for ServedTask { task, observed } in &served.tasks {
        let guarantee = stated(observed.as_ref());
        rows.push((
            "task",
            format!(
                "{}: {}, {} of {} rounds{guarantee}",
                task.name,
                task.state,
                grouped(task.released),
                grouped(task.rounds)
            ),
        ));
    }
    facts(rows)
}

/// The guarantee as the end of a sentence.
fn stated(figures: Option<&Figures>) -> String {
    figures.map_or_else(String::new, |figures| {
        format!(", {} so far", epsilon_delta(figures.epsilon, figures.delta))
    })
}
