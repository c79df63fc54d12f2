//! `undertone serve --demo`: a service with 200 simulated devices on this machine, from the first invitation to the verified export.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::LedgerLine;
use undertone_coordinator::task::Seeding;
use undertone_data::{Corpus, CorpusSpec, EosTargets, NoProgress, Split};
use undertone_device::{Limits, Neighbours, PolicyFloors, Setup};
use undertone_fleet::{Enrolment, Fleet, FleetConfig, OverHttp};
use undertone_present::numbers::{epsilon_delta, grouped};
use undertone_protocol::{TaskState, TrustedKeys};
use undertone_run::config::EvaluationSplit;
use undertone_run::evaluate::EvaluationSet;
use undertone_run::verify::verify;
use undertone_service::capacity::Capacity;
use undertone_service::host::{Host, HostConfig};
use undertone_service::identity::{DAY, Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::task::{Task, create};
use undertone_service::{data_folder, tls};

use super::train::percent;
use crate::output::{Output, facts};
use crate::signals;

/// Number of simulated devices.
const DEVICES: usize = 200;

/// Rounds, unless the command names another number.
const ROUNDS: u64 = 20;

/// The population of the demonstration.
const POPULATION: &str = "demo";

/// The corpus: a documented process, whose best reachable accuracy is known.
const CORPUS: &str = "source = { kind = \"synthetic\", users = 240, words = 300 }\n";

/// The task. A subject takes part at most once in four rounds.
fn task_file(rounds: u64) -> String {
    format!(
        r#"name = "demo"
rounds = {rounds}
vocabulary = {{ kind = "file", path = "words.txt" }}
model = {{ family = "dplm", embed = 16, hidden = 32 }}
cohort = {{ sampling = "check_in", users_per_round = 30, population = 1000 }}
participation = {{ min_sep = 4, max_part = {max_part} }}
user_update = {{ algorithm = "fedavg", batch_size = 8, learning_rate = 1.0 }}
clip = {{ kind = "flat", norm = 1.0 }}
privacy = {{ noise_multiplier = 2.0, delta = 1e-5, mechanism = {{ kind = "blt", buffers = 3 }} }}
server = {{ optimizer = {{ kind = "sgd", momentum = 0.9 }} }}

[service]
over_selection = 1.3
group = {{ target = 30, least = 20 }}
deadlines = {{ select = "60s", report = "120s", attempt = "180s" }}
eligibility = {{ min_examples = 1, max_examples = 32, timer = "1s", fresh_install = "now" }}
identity = "certificate"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#,
        max_part = rounds.div_ceil(4).max(1)
    )
}

/// The document that `--json` prints at the end.
#[derive(Serialize)]
struct Shown {
    /// The exported directory, which `undertone verify` accepts.
    run: PathBuf,
    /// The data folder of the service.
    data: PathBuf,
    rounds: u64,
    devices: usize,
    /// Updates that are in a release, over all rounds.
    included: u64,
    epsilon: Option<f64>,
    delta: Option<f64>,
    accuracy: f64,
    unigram_accuracy: Option<f64>,
    best_accuracy: Option<f64>,
    verified: bool,
}

/// Plays the demonstration in a data folder.
pub(crate) fn run(folder: &Path, rounds: Option<u64>, threads: usize, output: &Output) -> anyhow::Result<()> {
    let rounds = rounds.unwrap_or(ROUNDS);
    let shared = data_folder::open(folder, None)?;
    let keys = Keys::open(folder)?;
    let spec: CorpusSpec = toml::from_str(CORPUS).context("the built-in corpus")?;
    let corpus = Corpus::open(&spec, folder, &folder.join("corpus"), &NoProgress)?;
    let words = folder.join("words.txt");
    undertone_run::files::write_atomic(&words, corpus.vocab().to_file_contents().as_bytes())?;
    let path = folder.join("demo.toml");
    let text = task_file(rounds);
    let file = undertone_run::task::parse(&text, &path, Seeding::Refused)?;
    undertone_run::files::write_atomic(&path, text.as_bytes())?;
    let id = create(
        &file,
        folder,
        POPULATION,
        &shared.keys,
        shared.store.as_ref(),
        shared.blobs.as_ref(),
    )?;
    shared
        .store
        .set_state(id, TaskState::Draft, TaskState::Active, "demo", "")?;
    let (certificate, pem) = tls::self_signed(&["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let config = HostConfig {
        listen: "127.0.0.1:0".to_owned(),
        tls: Some(certificate),
        identity: Identity::Certificate,
        threads,
        capacity: Capacity::default(),
    };
    let setup = Arc::new(Setup {
        population: POPULATION.to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        // The compiled floors ask for secure sums of thousands of people. These devices are simulated.
        floors: PolicyFloors {
            min_goal: 10,
            min_group: 10,
            min_noise_multiplier: 0.1,
            max_epsilon: 100.0,
            max_delta: 1e-4,
            require_secagg: false,
            population_rho: 100.0,
            neighbours: Neighbours::Certified,
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    });
    let host = Host::start(folder, shared, config)?;
    let address = format!("https://127.0.0.1:{}", host.address().port());
    output.note(&format!(
        "the service listens at {address}; {DEVICES} devices enrol"
    ));
    let users = corpus.partition(Split::Train);
    let until = host.service().shared().store.now() + DAY;
    let fleet = Fleet::new(
        FleetConfig {
            workers: threads.max(1),
            enrolment: Enrolment::Invitations(Arc::new(move |_, subject| {
                Invitation::new(*subject, until).text(&keys, POPULATION)
            })),
            // Seconds stand for the hours of a phone.
            max_pause_ms: 1000,
            start_spread_ms: 500,
            ..FleetConfig::new(setup, DEVICES.min(users.num_users()))
        },
        users,
        OverHttp::new(address).with_root(pem),
    )?;
    fleet.enrol()?;
    output.note("every device has its certificate; the first round opens");
    let store = host.service().shared().store.clone();
    let mut seen = 0;
    fleet.run_until(|| {
        let Ok(row) = store.task(id) else { return false };
        if row.head_round > seen {
            seen = row.head_round;
            output.note(&format!(
                "round {} of {} released",
                grouped(seen),
                grouped(rounds)
            ));
        }
        signals::asked_to_end() || !matches!(row.state, TaskState::Active)
    })?;
    let row = store.task(id)?;
    let mut included = 0;
    for line in store.ledger(id, 0)? {
        if let LedgerLine::Round(entry) = LedgerLine::read(&line)? {
            included += entry.cohort_size;
        }
    }
    if row.state != TaskState::Completed {
        host.stop();
        anyhow::bail!(
            "the demonstration ended after {} of {rounds} rounds; its data folder is {}",
            row.head_round,
            folder.display()
        );
    }
    let service = host.service().clone();
    let common = service.shared();
    let task = Task::load(&row, common.blobs.as_ref(), &common.keys)?;
    let run = folder.join("run");
    let report = task.export(common.store.as_ref(), common.blobs.as_ref(), &common.keys, &run)?;
    undertone_report::write(&run)?;
    let parameters = task.released(&row, common.blobs.as_ref())?;
    host.stop();
    let set = EvaluationSet::new(&corpus, EvaluationSplit::Test, None, &Randomness::seeded(0), 1)?;
    let metrics = set.evaluate(
        task.model.as_ref(),
        &parameters,
        EosTargets::Included,
        false,
        threads.max(1),
    )?;
    let shown = Shown {
        verified: verify(&run)?.holds(),
        data: folder.to_owned(),
        rounds: row.head_round,
        devices: DEVICES,
        included,
        epsilon: report.observed.as_ref().map(|record| record.epsilon),
        delta: report.observed.as_ref().map(|record| record.delta),
        accuracy: metrics.top1,
        unigram_accuracy: corpus.unigram_accuracy(Split::Test, EosTargets::Included),
        best_accuracy: corpus.best_accuracy().map(|best| best.with_eos),
        run,
    };
    output.show(&shown, || table(&shown))
}

fn table(shown: &Shown) -> String {
    let mut rows = vec![
        ("rounds", grouped(shown.rounds)),
        ("devices", grouped(shown.devices as u64)),
        ("updates in releases", grouped(shown.included)),
        ("accuracy", percent(shown.accuracy)),
    ];
    if let Some(unigram) = shown.unigram_accuracy {
        rows.push(("of the commonest word", percent(unigram)));
    }
    if let Some(best) = shown.best_accuracy {
        rows.push(("best possible", percent(best)));
    }
    if let (Some(epsilon), Some(delta)) = (shown.epsilon, shown.delta) {
        rows.push(("guarantee per person", epsilon_delta(epsilon, delta)));
    }
    rows.push(("verified", if shown.verified { "yes" } else { "NO" }.to_owned()));
    rows.push(("run", shown.run.display().to_string()));
    facts(rows)
}
