//! `undertone device`: this machine as a device of a population.

mod doctor;
mod over;
mod settings;
mod show;
mod state;

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use undertone_device::{
    AlwaysMet, Clock, DeviceSettings, Ended, Example, Method, Outcome, Request, Stop, SystemClock, Transport,
    Wiped,
};
use undertone_protocol::{Digest32, digest_of};

use crate::output::{Output, facts};
use crate::signals;

use settings::Settings;
pub(super) use undertone_device::key;

/// The time between two looks at the signals.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two looks at the service, while a device waits that ends with it.
const LOOK_AT_SERVICE: Duration = Duration::from_secs(5);

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3_600_000;

/// Arguments of `undertone device`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeviceArgs {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeviceCommand {
    /// Make a device in a folder, and get its certificate from the service. Run it again to renew the certificate.
    Enrol(Box<EnrolArgs>),
    /// Give texts to the device. They are sealed in its folder and never leave the machine.
    Add {
        #[command(flatten)]
        folder: FolderArgs,
        /// Read these files: each line is one text. `-` reads standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Delete the texts after this number of days.
        #[arg(long, default_value_t = 60)]
        days: u32,
    },
    /// Run one session: look at the board, train, and send the update of this device.
    ///
    /// The session ends without an update if no task wants this device now. Ctrl-C or SIGTERM ends it at the next step.
    Run {
        #[command(flatten)]
        folder: FolderArgs,
        /// Reach the service at this address instead of that of the enrolment.
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// Run one session after another, each at the time that the service asks for, until a signal.
        #[arg(long)]
        keep_running: bool,
        /// End by itself, with --keep-running, once no task can want this device any more, or the service was not reached three times in
        /// a row.
        #[arg(long, requires = "keep_running")]
        exit: bool,
    },
    /// Show the device: its key, its texts, and every round that it took part in. It works beside a device that runs.
    Status {
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Predict the next words after a text, with the released model that the device holds.
    Predict {
        #[command(flatten)]
        folder: FolderArgs,
        /// Continue this text. Its last word counts as complete.
        #[arg(value_name = "TEXT")]
        text: String,
        /// Show this number of words.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
        /// Use the model of this task, in 64 hexadecimal digits. Without it, use the newest model.
        #[arg(long, value_name = "DIGITS")]
        task: Option<String>,
    },
    /// Measure the released model that the device holds, on texts that it withholds from training. Nothing is sent.
    Evaluate {
        #[command(flatten)]
        folder: FolderArgs,
        /// Use the model of this task, in 64 hexadecimal digits. Without it, use the newest model.
        #[arg(long, value_name = "DIGITS")]
        task: Option<String>,
    },
    /// Find out why this device takes part or not, and what to do: clock, certificate, memory, pace, service and tasks.
    ///
    /// Nothing is trained, sent or counted. The command fails if something must be done.
    Doctor {
        #[command(flatten)]
        folder: FolderArgs,
        /// Reach the service at this address instead of that of the enrolment.
        #[arg(long, value_name = "URL")]
        server: Option<String>,
    },
    /// Delete the texts, the memory and the keys of the device.
    ///
    /// Released models stay as they are. The guarantee of their ledgers covers what this device gave.
    Forget {
        #[command(flatten)]
        folder: FolderArgs,
        /// Confirm the deletion.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
struct FolderArgs {
    /// Use the device in this folder. Keep it out of all backups.
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Debug, clap::Args)]
struct EnrolArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Reach the service at this address, such as https://fl.example.org.
    #[arg(long, value_name = "URL", required_unless_present = "again")]
    server: Option<String>,
    /// Name the population.
    #[arg(long, value_name = "NAME", required_unless_present = "again")]
    population: Option<String>,
    /// Trust the keys in this file, which `undertone identity keys --out` wrote. Get it by a way that you trust.
    #[arg(long, value_name = "FILE", required_unless_present = "again")]
    keys: Option<PathBuf>,
    /// Show this invitation to the service.
    #[arg(long, value_name = "TEXT", conflicts_with = "subject")]
    invitation: Option<String>,
    /// Say which person the device belongs to. It counts with `serve --identity dev` alone.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Read the minimum requirements of the device from this file (TOML). The compiled ones suit a large population.
    #[arg(long, value_name = "FILE")]
    floors: Option<PathBuf>,
    /// Trust the certificate of the service if it comes from this root, in PEM.
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Show the evidence of the platform in this file at each check-in, for tasks that need it.
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Allow plain HTTP to another machine. For tests in closed networks.
    #[arg(long)]
    insecure: bool,
    /// Set the version of the app, which tasks can ask for.
    #[arg(long, default_value_t = 1)]
    client_version: u32,
    /// Renew the certificate of a device that was enrolled before, with its settings.
    ///
    /// The device's key signs the request, so it needs no invitation while the certificate is valid. `undertone device run` renews by
    /// itself in the last ten days.
    #[arg(long, conflicts_with_all = ["server", "population", "keys", "floors", "root", "evidence", "insecure"])]
    again: bool,
}

/// Runs the command.
pub(crate) fn run(args: DeviceArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        DeviceCommand::Enrol(args) => enrol(*args, output),
        DeviceCommand::Add { folder, files, days } => add(&folder.folder, &files, days, output),
        DeviceCommand::Run {
            folder,
            server,
            keep_running,
            exit,
        } => take_part(&folder.folder, server.as_deref(), keep_running, exit, output),
        DeviceCommand::Status { folder } => {
            let view = state::read(&folder.folder)?;
            output.show(&view, || view.text())
        }
        DeviceCommand::Predict {
            folder,
            text,
            count,
            task,
        } => {
            let device = Settings::read(&folder.folder)?.open(&folder.folder)?;
            let predictor = device.predictor(task_key(task.as_deref())?.as_ref())?;
            let words = predictor.predict(&text, count.into())?;
            let view = show::PredictionView::new(predictor.model(), &words);
            output.show(&view, || view.text())
        }
        DeviceCommand::Evaluate { folder, task } => {
            let device = Settings::read(&folder.folder)?.open(&folder.folder)?;
            let measured = device.evaluate(task_key(task.as_deref())?.as_ref())?;
            let view = show::EvaluationView::new(&measured);
            output.show(&view, || view.text())
        }
        DeviceCommand::Doctor { folder, server } => doctor::run(&folder.folder, server.as_deref(), output),
        DeviceCommand::Forget { folder, yes } => forget(&folder.folder, yes, output),
    }
}

fn task_key(digits: Option<&str>) -> anyhow::Result<Option<Digest32>> {
    Ok(digits.map(|digits| key("--task", digits)).transpose()?)
}

fn enrol(args: EnrolArgs, output: &Output) -> anyhow::Result<()> {
    let folder = args.folder.folder;
    let settings = match (args.again, args.server, args.population, args.keys) {
        (false, Some(server), Some(population), Some(keys)) => {
            let floors = args.floors.as_deref();
            let floors = floors
                .map(|file| {
                    crate::commands::parsed_file(file, "expected the minimum requirements of a device")
                })
                .transpose()?;
            Settings(DeviceSettings {
                server,
                population,
                keys: undertone_run_directory::files::read_json(&keys)?,
                floors,
                root: args.root.as_deref().map(crate::commands::text).transpose()?,
                insecure: args.insecure,
                evidence: args.evidence.as_deref().map(evidence).transpose()?,
                client_version: args.client_version,
            })
        }
        _ => Settings::read(&folder)?,
    };
    let mut transport = settings.transport(None)?;
    // Where the service refuses, the folder keeps the keys of the device, and the next call uses them.
    let mut device = settings.open(&folder)?;
    let subject = args.subject.map(|name| digest_of(name.as_bytes()));
    match (args.again, &args.invitation, subject) {
        (true, None, None) => device.renew(&mut transport)?,
        (_, invitation, subject) => {
            device.enrol(&mut transport, invitation.as_deref().unwrap_or_default(), subject)?;
        }
    }
    settings.write(&folder)?;
    let key = undertone_present::numbers::hex(&device.public_key());
    let document =
        serde_json::json!({ "population": settings.population, "server": settings.server, "device": key });
    output.show(&document, || {
        facts([
            ("population", settings.population.clone()),
            ("server", settings.server.clone()),
            ("device", key.clone()),
        ])
    })
}

/// The content of a file of evidence, in hexadecimal digits.
fn evidence(path: &std::path::Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(undertone_present::numbers::hex(&bytes))
}

fn add(folder: &std::path::Path, files: &[PathBuf], days: u32, output: &Output) -> anyhow::Result<()> {
    let device = Settings::read(folder)?.open(folder)?;
    let now = SystemClock.now_ms();
    let mut texts = 0_u64;
    for file in files {
        let text = match file.as_os_str() == "-" {
            true => {
                let mut text = String::new();
                let mut input = std::io::stdin().lock();
                input
                    .read_to_string(&mut text)
                    .context("cannot read standard input")?;
                text
            }
            false => crate::commands::text(file)?,
        };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            device
                .examples()
                .add(Example {
                    text: line,
                    collected_ms: now,
                    expires_ms: now.saturating_add(u64::from(days) * DAY_MS),
                })
                .with_context(|| file.display().to_string())?;
            texts += 1;
        }
    }
    let status = device.status()?;
    let document = serde_json::json!({
        "added": texts,
        "training_examples": status.training_examples,
        "withheld_examples": status.withheld_examples,
    });
    output.show(&document, || {
        facts([
            ("texts added", texts),
            ("examples for training", status.training_examples),
            ("examples withheld for evaluation", status.withheld_examples),
        ])
    })
}

fn take_part(
    folder: &std::path::Path,
    server: Option<&str>,
    keep_running: bool,
    exit: bool,
    output: &Output,
) -> anyhow::Result<()> {
    let settings = Settings::read(folder)?;
    let mut transport = settings.transport(server)?;
    let mut device = settings.open(folder)?;
    signals::end_in_order();
    let stop = Stop::default();
    let watch = stop.clone();
    std::thread::spawn(move || {
        while !signals::asked_to_end() {
            std::thread::sleep(LOOK);
        }
        watch.request();
    });
    let mut sessions = Vec::new();
    let mut tasks = over::Tasks::new(!device.memory()?.heads.is_empty());
    loop {
        state::write(folder, &device)?;
        let outcome = device.run(&mut transport, &AlwaysMet, &stop)?;
        state::write(folder, &device)?;
        let view = show::OutcomeView::new(&outcome);
        if !keep_running {
            return output.show(&view, || view.text());
        }
        output.note(&view.line());
        let over = matches!(outcome.ended, Ended::NotEnrolled) || (tasks.are_over(&outcome.ended) && exit);
        sessions.push(view);
        let gone = || exit && tasks.are_over_without(service_answers(&mut transport));
        if over || wait(&outcome, &stop, gone) {
            return output.show(&sessions, || {
                facts([
                    ("sessions", sessions.len() as u64),
                    ("updates sent", reported(&sessions)),
                ])
            });
        }
    }
}

fn reported(sessions: &[show::OutcomeView]) -> u64 {
    sessions.iter().filter(|session| session.is_reported()).count() as u64
}

/// `true` if the service answers at all.
fn service_answers(transport: &mut impl Transport) -> bool {
    let request = Request {
        method: Method::Get,
        target: "/healthz".to_owned(),
        headers: Vec::new(),
        body: Wiped::default(),
        max_reply: 4096,
        timeout_ms: 10_000,
        blob: None,
    };
    transport.send(&request).is_ok()
}

/// Waits for the time of the next session; `true` if a signal came first, or the service has gone. A clock that is set back meanwhile
/// does not lengthen the wait.
fn wait(outcome: &Outcome, stop: &Stop, mut gone: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    let mut looked = begun;
    let wait = Duration::from_millis(outcome.wake_ms.saturating_sub(SystemClock.now_ms()));
    while SystemClock.now_ms() < outcome.wake_ms && begun.elapsed() < wait {
        if stop.is_requested() {
            return true;
        }
        if looked.elapsed() >= LOOK_AT_SERVICE {
            if gone() {
                return true;
            }
            looked = Instant::now();
        }
        std::thread::sleep(LOOK);
    }
    stop.is_requested()
}

fn forget(folder: &std::path::Path, yes: bool, output: &Output) -> anyhow::Result<()> {
    let settings = Settings::read(folder)?;
    if !yes {
        bail!(
            "this deletes the texts, the memory and the keys of the device in {} for good; give --yes to do so",
            folder.display()
        );
    }
    settings.open(folder)?.forget()?;
    Settings::delete(folder)?;
    let document = serde_json::json!({ "forgotten": folder });
    output.show(&document, || facts([("forgotten", folder.display().to_string())]))
}
