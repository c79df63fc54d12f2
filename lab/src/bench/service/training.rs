//! Real training through the service, beside a simulated round of the same users.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use undertone_run_directory::config::RunConfig;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use undertone_data::{Corpus, NoProgress, Partition, Split};
use undertone_fleet::{Fleet, FleetConfig, OverHttp, RunEnd, Updates};
use undertone_run::{Observer, RunFile, RunOptions};
use undertone_run_directory::metrics::RoundRecord;
use undertone_service::keys::Keys;
use undertone_settings::{CorpusSpec, SourceSpec, SyntheticSource};

use super::Sizes;
use super::client::Connection;
use super::host::{Memory, Server, memory_of};
use super::load::Devices;
use super::needs::Needs;
use super::physical;
use super::requests::difference;
use super::restart::board_round;
use super::secagg::setup;
use super::table::{Figure, rounded};
use super::tasks::{Model, Task};
use crate::bench::usage::cpu_time;

/// Devices per user that trains.
const DEVICES_PER_USER: u64 = 10;

/// Sentences of a user.
const SENTENCES: u64 = 64;

/// The longest time of a round.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Memory of server and fleet together that the design allows, in MB.
const MEMORY: f64 = 0.6 * 1000.0;

/// The time of one round through the service.
struct Served {
    seconds: f64,
    server_cpu: Option<f64>,
    fleet_cpu: Option<f64>,
    server: Option<Memory>,
    fleet: Option<Memory>,
}

pub(super) fn run(sizes: &Sizes) -> anyhow::Result<()> {
    let model = match sizes.parameters {
        Some(parameters) => Model::of(parameters)?,
        None => Model::stackoverflow()?,
    };
    Needs {
        memory: (600 << 20) + 60 * model.bytes(),
        disk: (200 << 20) + 40 * model.bytes(),
    }
    .check(&sizes.folder)?;
    let folder = sizes.temporary()?;
    let source = SyntheticSource {
        users: (sizes.devices / DEVICES_PER_USER).max(20),
        words: model.words,
        median_sentences: SENTENCES as f64,
        sentence_spread: 0.0,
        max_sentences: SENTENCES,
        ..SyntheticSource::default()
    };
    let spec = CorpusSpec::new(SourceSpec::Synthetic(source.clone()), None);
    let corpus = Corpus::open(&spec, folder.path(), &folder.path().join("corpus"), &NoProgress)?;
    let partition = corpus.partition(Split::Train);
    let users = partition.num_users() as u64;
    let task = Task {
        words: Some(corpus.vocab().to_file_contents()),
        rounds: 2,
        min_sep: 1,
        max_part: 1,
        ..Task::plain(model.clone(), users)
    };
    let served = served(sizes, &task, partition)?;
    // The simulation comes last, so that its memory is not counted.
    let simulated = simulated(sizes, &task, &source, users)?;
    let figure = Figure {
        item: "training",
        unit: "s",
        value: served.seconds,
        limit: simulated,
        limit_is: "a simulated round of the same users",
    };
    figure.print(&json!({
        "users": users, "sentences_per_user": SENTENCES, "parameters": model.parameters,
        "users_per_s": rounded(users as f64 / served.seconds),
        "server_cpu_s": served.server_cpu.map(rounded), "fleet_cpu_s": served.fleet_cpu.map(rounded),
    }));
    if let (Some(server), Some(fleet)) = (served.server, served.fleet) {
        let figure = Figure {
            item: "training-memory",
            unit: "MB",
            value: server.peak + fleet.peak,
            limit: MEMORY,
            limit_is: "the memory of server and fleet that the design allows",
        };
        figure.print(&json!({ "server_mb": rounded(server.peak), "fleet_mb": rounded(fleet.peak) }));
    }
    Ok(())
}

/// One round of a fleet whose devices are all users of the corpus.
fn served(sizes: &Sizes, task: &Task, users: Partition<'_>) -> anyhow::Result<Served> {
    let folder = sizes.temporary()?;
    let id = task.create(folder.path())?;
    let server = Server::start(folder.path(), true)?;
    Devices::new(folder.path(), id)?.until_open(&server.place)?;
    let mut connection = Connection::open(&server.place)?;
    let keys = Keys::open(folder.path())?;
    let config = FleetConfig {
        // Some wait for the server while as many as there are cores train.
        workers: 2 * physical::cores(),
        trainings: physical::cores(),
        updates: Updates::Train,
        max_pause_ms: 20_000,
        ..FleetConfig::new(Arc::new(setup(&keys)?), users.num_users())
    };
    let root = server.root.clone().context("a server with TLS")?;
    let fleet = Fleet::new(config, users, OverHttp::new(server.url()).with_root(root))?;
    fleet.enrol()?;
    let own = || cpu_time().map(|time| time.as_secs_f64());
    let (started, before, own_before) = (Instant::now(), server.cpu_seconds(), own());
    let mut failure = None;
    let mut looked = Instant::now();
    let end = fleet.run_until(|| {
        // A board is made four times per second.
        if looked.elapsed() < Duration::from_millis(50) {
            return false;
        }
        looked = Instant::now();
        match board_round(&mut connection) {
            Ok(round) => round.is_some_and(|round| round > 0) || started.elapsed() > PATIENCE,
            Err(error) => {
                failure = Some(error);
                true
            }
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    if let Some(error) = failure {
        return Err(error);
    }
    ensure!(end == RunEnd::Done, "all devices of the fleet have ended");
    ensure!(
        started.elapsed() < PATIENCE,
        "the round did not end: {:?}",
        fleet.statistics().total
    );
    let served = Served {
        seconds,
        server_cpu: difference(server.cpu_seconds(), before),
        fleet_cpu: difference(own(), own_before),
        server: server.memory(),
        fleet: memory_of("self"),
    };
    server.stop()?;
    Ok(served)
}

/// Takes the seconds of the first round.
#[derive(Default)]
struct First(Mutex<Option<f64>>);

impl Observer for First {
    fn on_round(&self, round: &RoundRecord) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(round.seconds);
    }
}

/// The seconds of a simulated round over all users.
fn simulated(sizes: &Sizes, task: &Task, source: &SyntheticSource, users: u64) -> anyhow::Result<f64> {
    let folder = sizes.temporary()?;
    let one = Task {
        rounds: 1,
        ..task.clone()
    };
    let SyntheticSource {
        users: all,
        words,
        max_sentences,
        ..
    } = source;
    let text = format!(
        "{}data = {{ source = {{ kind = \"synthetic\", users = {all}, words = {words}, median_sentences = {SENTENCES}.0, \
         sentence_spread = 0.0, max_sentences = {max_sentences} }} }}\n\
         cohort = {{ sampling = \"fixed_size\", users_per_round = {users} }}\nevaluation = {{ every = 0 }}\n\
         checkpoint = {{ every = 100 }}\n",
        one.tables()
    );
    let config = RunConfig::parse(&text, Path::new("bench.toml"), &[])?;
    let options = RunOptions {
        out: folder.path().to_owned(),
        threads: physical::cores(),
        resume: false,
    };
    let first = First::default();
    undertone_run::train(&RunFile::new(config, "."), &options, &first)?;
    match first.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(seconds) => Ok(seconds),
        None => bail!("the simulation made no round"),
    }
}
