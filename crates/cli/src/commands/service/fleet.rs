//! `undertone fleet`: simulated devices against a service.

mod show;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use undertone_coordinator::task::{IdentityLevel, Seeding, TaskFile, TaskVocabulary};
use undertone_data::{Corpus, NoProgress, SpecialIds, Split, read_words};
use undertone_device::{Limits, Method, Neighbours, PolicyFloors, Request, Setup, Transport};
use undertone_fleet::{
    Always, Availability, Enrolment, Faults, Fleet, FleetConfig, Malicious, OverHttp, RunEnd, Trace,
    Transports, Updates,
};
use undertone_operate::admin::{Answer, Operation, PublicKeys};
use undertone_protocol::{
    Board, Label, PROTOCOL_HEADER, Signed, TaskState, TrustedKeys, limits, read as read_message,
};
use undertone_settings::CorpusSpec;

use super::operator::{Missing, perform, unexpected};
use crate::commands::train::start_threads;
use crate::output::Output;
use crate::signals;

/// The time after the end of the tasks in which devices learn what became of their updates.
const FAREWELL: Duration = Duration::from_secs(2);

/// The time between two looks at the board.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `undertone fleet`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example, beside `undertone serve --data service --listen 127.0.0.1:8440 --insecure`:\n  \
    undertone fleet examples/federated.toml --data service --population demo --devices 40 \\\n    \
    --server http://127.0.0.1:8440 --max-pause 1 --malicious 0.05:over-norm"
)]
pub(crate) struct FleetArgs {
    /// Read the task file (TOML) that the service runs: its words, and the evidence that it asks for.
    task: PathBuf,
    /// Simulate this number of devices, each of a person of its own.
    #[arg(long, value_name = "N")]
    devices: NonZeroUsize,
    /// Reach the service at this address, such as http://127.0.0.1:8440.
    #[arg(long, value_name = "URL")]
    server: String,
    /// Name the population.
    #[arg(long, value_name = "NAME")]
    population: String,
    /// Get keys and invitations from the service in this data folder.
    #[arg(long, value_name = "DIR", required_unless_present = "keys")]
    data: Option<PathBuf>,
    /// Trust the keys in this file, which `undertone identity keys --out` wrote, in place of --data.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    keys: Option<PathBuf>,
    /// Show the invitations in this file, one per line and person, as `undertone identity issue` prints them.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    invitations: Option<PathBuf>,
    /// Draw the texts of the people from this corpus: a file (TOML) like the table `[data]` of a run file.
    ///
    /// By default they are drawn from the documented process of `kind = "synthetic"`.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Choose the updates: `train` trains, `synthetic` is a vector at the clip norm, `one-hot` marks one coordinate per person.
    #[arg(long, value_name = "KIND", default_value = "train", value_parser = kind_of_updates)]
    updates: Updates,
    /// Lose, repeat and delay messages, and let devices vanish, with the probabilities in this file (TOML).
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Let a fraction of the devices break the protocol, such as 0.05:over-norm. The option can be given several times.
    #[arg(long, value_name = "FRACTION:KIND")]
    malicious: Vec<Malicious>,
    /// Let devices work in the windows of this file (TOML) alone: `period_seconds`, and `windows` with pairs of seconds for each device.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Wait at most this number of seconds between two sessions of a device, whatever time the service names.
    #[arg(long, value_name = "SECONDS")]
    max_pause: Option<u64>,
    /// End after this number of seconds. The fleet ends by itself when the tasks of the population have ended.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Draw keys, faults and synthetic updates from this seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Trust the certificate of the service if it comes from this root, in PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Allow plain HTTP to another machine. For tests in closed networks.
    #[arg(long, conflicts_with = "root")]
    insecure: bool,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

fn kind_of_updates(text: &str) -> Result<Updates, String> {
    text.parse()
        .map_err(|error: undertone_fleet::FleetError| error.to_string())
}

/// A file of times at which devices may work.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    period_seconds: u64,
    windows: Vec<Vec<(u64, u64)>>,
}

/// The keys of the service, and the evidence of the people.
struct Access {
    keys: PublicKeys,
    enrolment: Enrolment,
}

/// Runs the fleet, and shows what became of its sessions.
pub(crate) fn run(args: &FleetArgs, output: &Output) -> anyhow::Result<()> {
    let (file, base) = undertone_run_directory::task::read(&args.task, &[], Seeding::Refused)?;
    let threads = start_threads(args.threads)?;
    let access = access(args, &file)?;
    let faults = match &args.faults {
        None => Faults::default(),
        Some(path) => crate::commands::parsed_file(path, "expected the probabilities of faults")?,
    };
    let folder = tempfile::tempdir().context("cannot make a folder for the texts of the devices")?;
    let corpus = corpus(args, &file, &base, folder.path())?;
    let users = corpus.partition(Split::Train);
    let config = FleetConfig {
        // Some wait for the service while others train.
        workers: threads.saturating_mul(2),
        trainings: threads,
        seed: args.seed,
        updates: args.updates,
        enrolment: access.enrolment,
        faults,
        malicious: args.malicious.clone(),
        availability: availability(args.trace.as_deref())?,
        max_pause_ms: args
            .max_pause
            .map_or(u64::MAX, |seconds| seconds.saturating_mul(1000)),
        start_spread_ms: args.max_pause.map_or(5000, |seconds| seconds.saturating_mul(500)),
        ..FleetConfig::new(setup(args, &file, &access.keys)?, args.devices.get())
    };
    let mut way = OverHttp::new(args.server.as_str());
    if args.insecure {
        way = way.insecure();
    }
    if let Some(root) = &args.root {
        way = way.with_root(crate::commands::text(root)?);
    }
    let mut watch = Watch {
        transport: way.open(0)?,
        target: format!("/v1/p/{}/board", args.population),
        keys: TrustedKeys::new([super::device::key("board", &access.keys.board)?]),
        began: false,
        looked: None,
    };
    let fleet = Fleet::new(config, users, way)?;
    signals::end_in_order();
    output.note(&format!("{} devices enrol at {}", args.devices, args.server));
    fleet.enrol()?;
    let bar = output.bar(file.task.rounds, "round {pos} of {len} {wide_bar} {elapsed}");
    let started = Instant::now();
    let mut over: Option<Instant> = None;
    let end = fleet.run_until(|| {
        let seen = watch.look();
        bar.set_position(seen.round);
        if seen.over {
            over.get_or_insert_with(Instant::now);
        }
        let learned = over.is_some_and(|since| since.elapsed() >= FAREWELL);
        let late = args
            .seconds
            .is_some_and(|seconds| started.elapsed().as_secs() >= seconds);
        learned || late || signals::asked_to_end()
    })?;
    bar.finish_and_clear();
    let view = show::FleetView {
        devices: args.devices.get(),
        seconds: started.elapsed().as_secs_f64(),
        ended: match (end, over.is_some()) {
            (RunEnd::NobodyLeft, _) => "no device ever works again",
            (RunEnd::Done, true) => "the tasks of the population have ended",
            (RunEnd::Done, false) => "the time is over",
        },
        statistics: fleet.statistics(),
    };
    output.show(&view, || view.text())
}

/// The keys and the evidence, from the data folder or from files.
fn access(args: &FleetArgs, file: &TaskFile) -> anyhow::Result<Access> {
    let dev = file.service.identity == IdentityLevel::Dev;
    let (keys, invitations) = match (&args.data, &args.keys) {
        (Some(data), _) => {
            let Answer::Keys(keys) = perform(data, Missing::Refuse, &Operation::Keys)? else {
                return Err(unexpected());
            };
            let invite = Operation::Invite {
                population: args.population.clone(),
                count: u32::try_from(args.devices.get()).context("--devices is too large")?,
                days: 1,
            };
            let invitations = match dev {
                true => Vec::new(),
                false => match perform(data, Missing::Refuse, &invite)? {
                    Answer::Invitations(invitations) => invitations,
                    _ => return Err(unexpected()),
                },
            };
            (keys, invitations)
        }
        (None, Some(path)) => {
            let keys = undertone_run_directory::files::read_json(path)?;
            let text = args
                .invitations
                .as_deref()
                .map(crate::commands::text)
                .transpose()?;
            let lines = text.iter().flat_map(|text| text.lines());
            (
                keys,
                lines.map(str::to_owned).filter(|line| !line.is_empty()).collect(),
            )
        }
        (None, None) => bail!("the keys of the service are needed: give --data DIR, or --keys FILE"),
    };
    if !dev && invitations.len() < args.devices.get() {
        bail!(
            "--invitations: expected one per device, {} of them, got {}; `undertone identity issue` prints them",
            args.devices,
            invitations.len()
        );
    }
    let enrolment = match dev {
        true => Enrolment::SelfAsserted,
        false => Enrolment::Invitations(Arc::new(move |number, _| {
            invitations.get(number).cloned().unwrap_or_default()
        })),
    };
    Ok(Access { keys, enrolment })
}

fn setup(args: &FleetArgs, file: &TaskFile, keys: &PublicKeys) -> anyhow::Result<Arc<Setup>> {
    let trusted = |name: &'static str, digits: &[String]| -> anyhow::Result<TrustedKeys> {
        let mut keys = Vec::with_capacity(digits.len());
        for one in digits {
            keys.push(super::device::key(name, one)?);
        }
        Ok(TrustedKeys::new(keys))
    };
    let secagg = PolicyFloors::COMPILED.secagg.with_clients(2, 2)?;
    Ok(Arc::new(Setup {
        population: args.population.clone(),
        board_keys: trusted("board", std::slice::from_ref(&keys.board))?,
        task_keys: trusted("plans", keys.plans.digits())?,
        issuers: trusted("issuer", keys.issuer.digits())?,
        // Simulated people have nothing to lose: their devices take part in any task.
        floors: PolicyFloors {
            min_goal: 1,
            min_group: 1,
            min_noise_multiplier: 0.0,
            max_epsilon: f64::MAX,
            max_delta: 1.0,
            require_secagg: false,
            population_rho: f64::MAX,
            secagg,
            neighbours: match file.service.identity {
                IdentityLevel::Dev => Neighbours::Anyone,
                _ => Neighbours::Certified,
            },
        },
        limits: Limits::default(),
        client_version: file.service.eligibility.min_client_version.max(1),
        evidence: Vec::new(),
    }))
}

/// The texts of the people, with the words of the task.
fn corpus(args: &FleetArgs, file: &TaskFile, base: &Path, cache: &Path) -> anyhow::Result<Corpus> {
    let (text, folder) = match &args.corpus {
        Some(path) => (
            crate::commands::text(path)?,
            path.parent().unwrap_or_else(|| Path::new(".")),
        ),
        None => {
            let TaskVocabulary::File { path } = &file.vocabulary;
            let words = read_words(&base.join(path))?.len();
            // A tenth of the users goes to each of the two other partitions, and the process needs some words.
            let users = args.devices.get().saturating_mul(5).div_ceil(4) + 20;
            let words = words.saturating_sub(SpecialIds::NAMES.len()).max(1);
            (
                format!("source = {{ kind = \"synthetic\", users = {users}, words = {words} }}"),
                Path::new("."),
            )
        }
    };
    let named = args.corpus.as_deref().unwrap_or(&args.task);
    let mut spec: CorpusSpec =
        crate::commands::parsed(named, &text, "expected a table like `[data]` of a run file")?;
    // Devices cut their text by the plan.
    spec.words = file.text.words;
    let corpus = Corpus::open(&spec, folder, cache, &NoProgress)?;
    let have = corpus.partition(Split::Train).num_users();
    if have < args.devices.get() {
        bail!(
            "--devices: expected at most {have}, the number of people in the corpus, got {}",
            args.devices
        );
    }
    Ok(corpus)
}

fn availability(trace: Option<&Path>) -> anyhow::Result<Arc<dyn Availability>> {
    let Some(path) = trace else {
        return Ok(Arc::new(Always));
    };
    let file: TraceFile = crate::commands::parsed_file(path, "expected windows of time")?;
    let ms = |seconds: u64| seconds.saturating_mul(1000);
    let rows = file.windows.into_iter();
    let windows = rows.map(|row| row.into_iter().map(|(from, to)| (ms(from), ms(to))).collect());
    Ok(Arc::new(Trace::new(ms(file.period_seconds), windows.collect())?))
}

/// A look at the board of the service.
struct Watch {
    transport: Box<dyn Transport>,
    target: String,
    keys: TrustedKeys,
    began: bool,
    looked: Option<(Instant, Seen)>,
}

/// The state of the population's tasks.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The open round of the task that is furthest.
    round: u64,
    /// `true` once a task was active and none is any more.
    over: bool,
}

impl Watch {
    fn look(&mut self) -> Seen {
        if let Some((at, seen)) = self.looked
            && at.elapsed() < LOOK
        {
            return seen;
        }
        let before = self.looked.map(|(_, seen)| seen).unwrap_or_default();
        // A service that is starting again, or has ended, is no end of its tasks.
        let seen = self.board().map_or(before, |board| {
            let live = |state| matches!(state, TaskState::Active | TaskState::Paused);
            let any = board.tasks.iter().any(|task| live(task.state()));
            self.began |= any;
            Seen {
                round: board
                    .tasks
                    .iter()
                    .map(|task| task.round)
                    .max()
                    .unwrap_or(before.round),
                over: self.began && !any,
            }
        });
        self.looked = Some((Instant::now(), seen));
        seen
    }

    fn board(&mut self) -> Option<Board> {
        let reply = self.transport.send(&Request {
            method: Method::Get,
            target: self.target.clone(),
            headers: vec![(PROTOCOL_HEADER.0, PROTOCOL_HEADER.1.to_owned())],
            body: Vec::new().into(),
            max_reply: limits::MAX_MESSAGE,
            timeout_ms: 5000,
            blob: None,
        });
        let reply = reply.ok().filter(undertone_device::Reply::is_success)?;
        let signed: Signed = read_message("the board", &reply.body, limits::MAX_MESSAGE).ok()?;
        let (body, _) = self.keys.open(Label::Board, &signed).ok()?;
        read_message("the board", body, limits::MAX_MESSAGE).ok()
    }
}
