//! `undertone serve --demo`: a service with 200 simulated devices on this machine, from the first invitation to the verified export.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use undertone_coordinator::record::LedgerLine;
use undertone_coordinator::task::Seeding;
use undertone_data::{Corpus, EosTargets, NoProgress, Split};
use undertone_device::{Limits, Neighbours, PolicyFloors, Setup};
use undertone_fleet::{Enrolment, Fleet, FleetConfig, OverHttp};
use undertone_operate::host::{Host, HostConfig};
use undertone_present::numbers::grouped;
use undertone_protocol::{TaskState, TrustedKeys};
use undertone_report::story::{Figures, Measured, Setting, Start, Story};
use undertone_run::evaluate::EvaluationSet;
use undertone_run::{Observer, Silent, Summary};
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::error::DirectoryError;
use undertone_run_directory::files::{write_atomic, write_secret_with};
use undertone_run_directory::metrics::{EvaluationRecord, Metrics};
use undertone_service::data_folder;
use undertone_service::http::tls;
use undertone_service::identity::{DAY, Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::metrics::Curve;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_settings::CorpusSpec;
use undertone_store::{TaskId, TaskRow};
use undertone_verify::verify;

use crate::browser;
use crate::commands::stopped::Stopped;
use crate::commands::train;
use crate::output::{Output, facts};
use crate::signals;

/// The time between two looks at a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Number of simulated devices.
const DEVICES: usize = 200;

/// Rounds, unless the command names another number.
const ROUNDS: u64 = 40;

/// The number of evaluations on the way.
const EVALUATIONS: u64 = 8;

/// Devices in a round, which takes part in one of `SEPARATION` rounds.
const GOAL: u64 = 50;

/// Rounds from one participation of a device to the next.
const SEPARATION: u64 = 3;

/// The population of the demonstration.
const POPULATION: &str = "demo";

/// The corpus: a documented process, whose best reachable accuracy is known. Two hundred people at this noise teach a small model of a
/// few words, and no large one.
const CORPUS: &str = "source = { kind = \"synthetic\", users = 240, words = 50 }\n";

/// The task.
fn task_file(rounds: u64, pace: u64) -> String {
    // Devices do not come in turn, so some take part more often than the mean.
    let mean = (rounds * GOAL).div_ceil(DEVICES as u64);
    let max_part = (mean + 2).min(rounds.div_ceil(SEPARATION)).max(1);
    // A round takes 60 devices, each of which waits this long before it takes part again.
    let timer = (pace * DEVICES as u64).div_ceil(60).max(1);
    format!(
        r#"name = "demo"
rounds = {rounds}
vocabulary = {{ kind = "file", path = "words.txt" }}
text = {{ words = "unicode" }}
model = {{ family = "dplm", embed = 8, hidden = 8 }}
cohort = {{ sampling = "check_in", users_per_round = {GOAL}, population = 1000 }}
participation = {{ min_sep = {SEPARATION}, max_part = {max_part} }}
user_update = {{ algorithm = "fedavg", batch_size = 4, learning_rate = 1.0 }}
clip = {{ kind = "flat", norm = 1.5 }}
privacy = {{ noise_multiplier = 3.0, delta = 1e-5, mechanism = {{ kind = "blt", buffers = 3 }} }}
server = {{ optimizer = {{ kind = "sgd", momentum = 0.9 }}, decay = {{ last_fraction = 0.5, final_factor = 0.05 }} }}

[service]
over_selection = 1.2
group = {{ target = 50, min = 20 }}
deadlines = {{ select = "60s", report = "120s", attempt = "180s" }}
eligibility = {{ min_examples = 1, max_examples = 256, timer = "{timer}s" }}
identity = "certificate"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#
    )
}

/// The document that `--json` prints at the end.
#[derive(Serialize)]
struct Shown {
    /// The document of `undertone train`. Its directory is the exported task, which `undertone verify` accepts.
    #[serde(flatten)]
    summary: Summary,
    /// The exported run directory.
    run: PathBuf,
    /// The data folder of the service.
    data: PathBuf,
    devices: usize,
    /// Updates that are in a release, over all rounds.
    included: u64,
    /// The measures of the first model and of the released ones.
    curve: Vec<EvaluationRecord>,
    verified: bool,
}

/// The settings of a demonstration.
pub(crate) struct Terms {
    pub(crate) rounds: Option<u64>,
    /// Seconds of a round; 0 for as few as possible.
    pub(crate) pace: u64,
    /// `true` to keep the dashboard until Ctrl-C.
    pub(crate) stays: bool,
    /// `true` to open the dashboard in a browser.
    pub(crate) opens: bool,
}

/// The demonstration while it runs.
struct Demo<'d> {
    folder: &'d Path,
    rounds: u64,
    pace: u64,
    threads: usize,
    corpus: Corpus,
    output: &'d Output,
    started: Instant,
}

/// Plays the demonstration in a data folder.
pub(crate) fn run(folder: &Path, terms: &Terms, threads: usize, output: &Output) -> anyhow::Result<()> {
    signals::end_in_order();
    let rounds = terms.rounds.unwrap_or(ROUNDS);
    let shared = data_folder::open(folder, None)?;
    let keys = Keys::open(folder)?;
    let spec: CorpusSpec = toml::from_str(CORPUS).context("the built-in corpus")?;
    let demo = Demo {
        folder,
        rounds,
        pace: terms.pace,
        threads,
        corpus: Corpus::open(&spec, folder, &folder.join("corpus"), &NoProgress)?,
        output,
        started: Instant::now(),
    };
    let id = demo.create(&shared)?;
    let (certificate, pem) = tls::self_signed(&["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let config = HostConfig {
        listen: "127.0.0.1:0".to_owned(),
        tls: Some(certificate),
        identity: Identity::Certificate,
        threads,
    };
    let setup = setup(&keys);
    let host = Host::start(folder, shared, config)?;
    let address = format!("https://127.0.0.1:{}", host.address().port());
    output.note(&format!(
        "the service listens at {address}; {DEVICES} devices enrol"
    ));
    match terms.opens {
        true => open_dashboard(&host, folder, output)?,
        false => super::serve::show_dashboard(&host, output)?,
    }
    let users = demo.corpus.partition(Split::Train);
    let until = host.service().shared().store.now() + DAY;
    let fleet = Fleet::new(
        FleetConfig {
            workers: threads.max(1),
            enrolment: Enrolment::Invitations(Arc::new(move |_, subject| {
                Invitation::new(*subject, until).text(&keys, POPULATION)
            })),
            // Seconds stand for the hours of a phone.
            max_pause_ms: 500,
            start_spread_ms: 500,
            ..FleetConfig::new(setup, DEVICES.min(users.num_users()))
        },
        users,
        OverHttp::new(address).with_root(pem),
    )?;
    fleet.enrol()?;
    output.note("every device has its certificate; the first round opens");
    let service = host.service().clone();
    let (row, curve) = demo.play(&service, id, &fleet)?;
    if row.state != TaskState::Completed {
        host.stop();
        let sentence = format!(
            "the demonstration ended after {} of {rounds} rounds; its data folder is {}",
            row.head_round,
            folder.display()
        );
        return Err(match signals::asked_to_end() {
            true => Stopped(sentence).into(),
            false => anyhow::anyhow!(sentence),
        });
    }
    let shown = demo.end(service.shared(), &row, curve)?;
    let setting = Setting::open(&shown.run)?;
    output.show(&shown, || table(&shown, &setting))?;
    if terms.stays {
        stay(&host, &shown.run, output)?;
    }
    host.stop();
    Ok(())
}

/// Opens the dashboard in the browser.
fn open_dashboard(host: &Host, folder: &Path, output: &Output) -> anyhow::Result<()> {
    // PRIVACY: each user of the machine sees the arguments of a browser, so they name a file that only this user can read. The file has the
    // link, which works once.
    let page = folder.join("open.html");
    let link = host.dashboard_link()?;
    write_secret_with(&page, |file| {
        write!(
            file,
            "<!doctype html><meta http-equiv=refresh content=\"0; url={link}\">"
        )
        .map_err(|source| DirectoryError::io("write", &page, source))
    })?;
    output.note("the dashboard opens in the browser, which does not know the certificate of the demonstration: let it go on");
    browser::open(&page, output);
    Ok(())
}

/// Keeps the dashboard until a signal, and names what to do next.
fn stay(host: &Host, run: &Path, output: &Output) -> anyhow::Result<()> {
    output.note("the dashboard stays until Ctrl-C");
    super::serve::show_dashboard(host, output)?;
    output.note("try the model, and look at its report, with:");
    output.note(&format!("  undertone predict {}", run.display()));
    output.note(&format!("  undertone report {}", run.display()));
    while !signals::asked_to_end() {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The settings of all devices.
fn setup(keys: &Keys) -> Arc<Setup> {
    Arc::new(Setup {
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
    })
}

impl Demo<'_> {
    /// Creates the task and activates it.
    fn create(&self, shared: &Shared) -> anyhow::Result<TaskId> {
        let words = self.folder.join("words.txt");
        let contents = self.corpus.vocab().to_file_contents();
        write_atomic(&words, contents.as_bytes())?;
        let path = self.folder.join("demo.toml");
        let text = task_file(self.rounds, self.pace);
        let file = undertone_run_directory::task::parse(&text, &path, Seeding::Refused)?;
        write_atomic(&path, text.as_bytes())?;
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let id = create(&file, self.folder, POPULATION, &shared.keys, store, blobs)?;
        store.set_state(id, TaskState::Draft, TaskState::Active, "demo", "")?;
        Ok(id)
    }

    /// Runs the devices to the end of the task. Its model is measured on the way.
    fn play(
        &self,
        service: &Service,
        id: TaskId,
        fleet: &Fleet<'_>,
    ) -> anyhow::Result<(TaskRow, Vec<EvaluationRecord>)> {
        let shared = service.shared();
        let store = &shared.store;
        let task = Task::load(&store.task(id)?, shared.blobs.as_ref(), &shared.keys)?;
        let progress = train::Progress::new(self.output, "round");
        let every = self.rounds.div_ceil(EVALUATIONS);
        let (mut seen, mut failed) = (0, None);
        let mut shown = self.first_curve();
        let initial = self.measure(shared, &task, &store.task(id)?)?;
        shown.points.push((0, initial.metrics.top1));
        service.metrics().show_curve(id, shown.clone());
        let mut curve = vec![initial];
        progress.on_corpus("rounds", 0, Some(self.rounds));
        fleet.run_until(|| {
            let Ok(row) = store.task(id) else { return false };
            // A release is committed a moment before its model can be read.
            let published = store.unpublished(id).is_ok_and(|waiting| waiting.is_empty());
            if row.head_round > seen && published {
                let due = row.head_round / every > seen / every;
                seen = row.head_round;
                progress.on_corpus("rounds", seen, Some(self.rounds));
                match self.measure(shared, &task, &row) {
                    Ok(record) => {
                        shown.points.push((record.round, record.metrics.top1));
                        service.metrics().show_curve(id, shown.clone());
                        if due {
                            progress.on_evaluation(&record);
                        }
                        curve.push(record);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            let over = matches!(row.state, TaskState::Completed | TaskState::Halted);
            failed.is_some() || signals::asked_to_end() || over
        })?;
        progress.clear();
        match failed {
            Some(error) => Err(error),
            None => Ok((store.task(id)?, curve)),
        }
    }

    /// Measures the released model on people who are in no round. These people are simulated: a service of real ones has no text to
    /// measure on, so its exports hold no such figure.
    fn measure(&self, shared: &Shared, task: &Task, row: &TaskRow) -> anyhow::Result<EvaluationRecord> {
        Ok(EvaluationRecord {
            round: row.head_round,
            split: EvaluationSplit::Validation.name().to_owned(),
            train_seconds: self.started.elapsed().as_secs_f64(),
            metrics: self.metrics(shared, task, row, EvaluationSplit::Validation)?,
        })
    }

    /// The learning curve of the dashboard before its first point.
    fn first_curve(&self) -> Curve {
        let eos = EosTargets::Excluded;
        let best = self.corpus.best_accuracy().map(|best| best.without_eos);
        let common = self.corpus.unigram_accuracy(Split::Validation, eos);
        let levels = [("best reachable", best), ("most frequent word", common)];
        let known = levels
            .into_iter()
            .filter_map(|(name, level)| Some((name.to_owned(), level?)));
        Curve {
            about: "Top-1 accuracy of each released model on simulated people who are in no round. A service of real people measures \
                    with private evaluation tasks instead."
                .to_owned(),
            points: Vec::new(),
            levels: known.collect(),
        }
    }

    fn metrics(
        &self,
        shared: &Shared,
        task: &Task,
        row: &TaskRow,
        split: EvaluationSplit,
    ) -> anyhow::Result<Metrics> {
        let parameters = task.released(row, shared.blobs.as_ref())?;
        let set = EvaluationSet::new(&self.corpus, split, None)?;
        let threads = self.threads.max(1);
        Ok(set.evaluate(
            task.model.as_ref(),
            &parameters,
            EosTargets::Excluded,
            false,
            threads,
            &Silent,
        )?)
    }

    /// Exports and verifies the task, and measures its model.
    fn end(&self, shared: &Shared, row: &TaskRow, curve: Vec<EvaluationRecord>) -> anyhow::Result<Shown> {
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let mut included = 0;
        for line in store.ledger(row.task.id, 0)? {
            if let LedgerLine::Round(entry) = LedgerLine::read(&line)? {
                included += entry.cohort_size;
            }
        }
        let task = Task::load(row, blobs, &shared.keys)?;
        let run = self.folder.join("run");
        let privacy = task.export(store, blobs, &shared.keys, &run, &curve)?;
        undertone_report::write(&run)?;
        let eos = EosTargets::Excluded;
        Ok(Shown {
            run: run.clone(),
            verified: verify(&run)?.holds(),
            data: self.folder.to_owned(),
            devices: DEVICES,
            included,
            curve,
            summary: Summary {
                rounds: row.head_round,
                stopped_early: None,
                train_seconds: self.started.elapsed().as_secs_f64(),
                tokens: 0,
                initial: None,
                metrics: self.metrics(shared, &task, row, EvaluationSplit::Test)?,
                unigram_accuracy: self.corpus.unigram_accuracy(Split::Test, eos),
                best_accuracy: self.corpus.best_accuracy().map(|best| best.without_eos),
                warning: None,
                privacy,
                run_dir: run,
            },
        })
    }
}

/// The table of a run, and below it what only a service has.
fn table(shown: &Shown, setting: &Setting) -> String {
    let summary = &shown.summary;
    let story = Story::measured(
        setting,
        &Measured {
            partition: EvaluationSplit::Test.name(),
            commonest_word: (summary.unigram_accuracy).map(|top1| Figures::of_one_word(top1, None)),
            start: Some(Start::Random),
            metrics: &summary.metrics,
            without_privacy: None,
        },
    );
    let service = facts([
        ("devices", grouped(shown.devices as u64)),
        ("updates in releases", grouped(shown.included)),
        ("verified", if shown.verified { "yes" } else { "NO" }.to_owned()),
        ("run", shown.summary.run_dir.display().to_string()),
    ]);
    let (table, rows) = (train::table(summary), train::in_rows(&story));
    format!("{table}\n\n{service}\n\n{rows}")
}
