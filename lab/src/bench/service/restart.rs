//! The start of a server that was killed, over a database with many users and rounds.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use serde_json::json;
use undertone_aggregation::BoundedSum;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{Next, RunHead};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::LedgerMode;
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};
use undertone_protocol::{Board, Head, Label, Signed, digest_of, limits, read, write};
use undertone_service::data_folder::{self, DATABASE};
use undertone_service::keys::random;
use undertone_service::room::Shared;
use undertone_service::storage::head_state::{self, Place};
use undertone_service::task::Task as Loaded;
use undertone_store::{Lease, NewAttempt, Release, TaskId};

use super::Sizes;
use super::client::{Connection, get};
use super::host::Server;
use super::load::{Devices, now_ms};
use super::needs::Needs;
use super::table::{Figure, rounded};
use super::tasks::{Model, POPULATION, Task};

/// Users of the database per device.
const USERS_PER_DEVICE: u64 = 100;

/// Devices per round.
const DEVICES_PER_ROUND: u64 = 5;

/// Parameters of the model: no part of a restart depends on it but the reading of one file.
const PARAMETERS: u64 = 20_000;

/// The longest start.
const PATIENCE: Duration = Duration::from_secs(600);

/// The round that the board shows for its first task; `None` where it shows none.
pub(super) fn board_round(connection: &mut Connection) -> anyhow::Result<Option<u64>> {
    let request = get(&format!("/v1/p/{POPULATION}/board"));
    let reply = connection.exchange(&request, &[])?;
    let signed: Signed = read("the signed board", reply.success()?, limits::MAX_MESSAGE)?;
    let board: Board = read("the board", &signed.body, limits::MAX_MESSAGE)?;
    Ok(board.tasks.first().map(|card| card.round))
}

/// Waits until the board shows a task, and returns the seconds since `started`.
fn until_led(connection: &mut Connection, started: Instant) -> anyhow::Result<f64> {
    while board_round(connection)?.is_none() {
        ensure!(
            started.elapsed() < PATIENCE,
            "the server does not lead its task after {} s",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(started.elapsed().as_secs_f64())
}

pub(super) fn run(sizes: &Sizes) -> anyhow::Result<()> {
    let (users, rounds) = (
        USERS_PER_DEVICE * sizes.devices,
        sizes.devices / DEVICES_PER_ROUND,
    );
    Needs {
        memory: (300 << 20) + 200 * users,
        disk: (100 << 20) + 300 * users + 20_000 * rounds,
    }
    .check(&sizes.folder)?;
    let folder = sizes.temporary()?;
    let begun = Instant::now();
    let task = fill(sizes, folder.path(), users, rounds)?;
    let filling = begun.elapsed().as_secs_f64();
    let devices = Devices::new(folder.path(), task)?;
    let server = Server::start(folder.path(), false)?;
    let mut connection = Connection::open(&server.place)?;
    // An attempt with a device is open when the server dies.
    devices.first(&mut connection, u64::MAX / 2, None)?;
    server.kill()?;
    let started = Instant::now();
    let server = Server::start(folder.path(), false)?;
    let listens = started.elapsed().as_secs_f64();
    let mut connection = Connection::open(&server.place)?;
    let led = until_led(&mut connection, started)?;
    let session = devices.first(&mut connection, u64::MAX / 2 + 1, None)?;
    let ready = started.elapsed().as_secs_f64();
    ensure!(
        session.assignment.round == rounds,
        "an assignment to round {rounds} was expected, got {}",
        session.assignment.round
    );
    let memory = server.memory();
    server.stop()?;
    let (limit, bytes) = ledger_read(folder.path())?;
    let figure = Figure {
        item: "restart",
        unit: "s",
        value: ready,
        limit,
        limit_is: "all lines of the ledger read from SQLite",
    };
    figure.print(&json!({
        "users": users, "rounds": rounds, "listens_s": rounded(listens), "led_s": rounded(led),
        "ledger_mb": rounded(bytes as f64 / 1e6), "filled_in_s": rounded(filling),
        "database_mb": rounded(std::fs::metadata(folder.path().join(DATABASE))?.len() as f64 / 1e6),
        "server_peak_mb": memory.map(|memory| rounded(memory.peak)),
    }));
    Ok(())
}

/// Seconds to read the ledger from the database, and its bytes.
fn ledger_read(folder: &Path) -> anyhow::Result<(f64, usize)> {
    let started = Instant::now();
    let conn = rusqlite::Connection::open(folder.join(DATABASE))?;
    let mut lines = conn.prepare("SELECT line FROM ledger ORDER BY seq")?;
    let mut bytes = 0;
    for line in lines.query_map([], |row| row.get::<_, Vec<u8>>(0))? {
        bytes += std::hint::black_box(line?).len();
    }
    Ok((started.elapsed().as_secs_f64(), bytes))
}

/// A store that is filled round by round, by the head of its task and without devices.
struct Filling<'s> {
    shared: &'s Shared,
    task: TaskId,
    lease: Lease,
    per_round: u64,
}

/// Makes the rounds of a task. The database is filled where writes are fast, and then copied.
fn fill(sizes: &Sizes, folder: &Path, users: u64, rounds: u64) -> anyhow::Result<TaskId> {
    let memory = Path::new("/dev/shm");
    let place = match memory.is_dir() {
        true => memory,
        false => &sizes.folder,
    };
    let temporary = tempfile::Builder::new()
        .prefix("undertone-bench-")
        .tempdir_in(place)?;
    let task = {
        let shared = data_folder::open(temporary.path(), None)?;
        let per_round = users / rounds;
        let task = Task {
            rounds: rounds + 10,
            goal: per_round,
            min_sep: rounds + 10,
            ..Task::plain(Model::of(PARAMETERS)?, per_round)
        }
        .create_in(&shared)?;
        let lease = shared.store.lease(task, "bench", 3_600_000)?;
        let filling = Filling {
            task,
            lease: lease.context("nobody else leads the task")?,
            per_round,
            shared: &shared,
        };
        filling.rounds(rounds)?;
        shared.store.hand_back(filling.lease)?;
        task
    };
    copy(temporary.path(), folder)?;
    Ok(task)
}

/// Copies a folder with its folders. Files keep their modes.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

impl Filling<'_> {
    fn rounds(&self, rounds: u64) -> anyhow::Result<()> {
        let Shared {
            store, blobs, keys, ..
        } = self.shared;
        let row = store.task(self.task)?;
        let loaded = Loaded::load(&row, blobs.as_ref(), keys)?;
        let mut model = Vec::new();
        blobs.get(&row.head_model, 0)?.bytes.read_to_end(&mut model)?;
        let mut head = RunHead::new(
            &loaded.file.task,
            loaded.privacy.clone(),
            Some(loaded.trained(&model)?),
            &loaded.genesis,
            &RoundEntropy::fresh(random()?),
        )?;
        for round in 0..rounds {
            let next = self.closed(head, round)?;
            self.committed(&next, round, round + 1 == rounds)?;
            head = next.head;
        }
        Ok(())
    }

    fn users(&self, round: u64) -> Vec<ParticipantId> {
        let first = round * self.per_round;
        // Spread over all numbers, as pseudonyms are.
        let spread = |number: u64| ParticipantId::new((1 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (first..first + self.per_round).map(spread).collect()
    }

    /// A round whose updates are all zero.
    fn closed(&self, head: RunHead, round: u64) -> anyhow::Result<Next> {
        let opened = head.open(None)?;
        let sum = BoundedSum::new(opened.bound().clone());
        let zeros = vec![0.0; opened.bound().layout().len()];
        sum.add(&zeros, 1.0)?;
        let gathered = Gathered {
            sum: RoundSum::Users { sum, bits: None },
            who: Participants {
                names: self.users(round),
                mode: Some(LedgerMode::Service),
                ..Participants::default()
            },
            lane: None,
            diagnostics: Diagnostics::default(),
        };
        let closed = head.close(opened, gathered, &RoundEntropy::fresh(random()?), &mut |_| ());
        closed.map_err(|error| anyhow!(error.why()))
    }

    fn committed(&self, next: &Next, round: u64, last: bool) -> anyhow::Result<()> {
        let Shared {
            store, blobs, keys, ..
        } = self.shared;
        let until = now_ms() + 3_600_000;
        let attempt = store.open_attempt(
            &self.lease,
            &NewAttempt {
                round,
                target: u32::try_from(self.per_round)?,
                select_until: until,
                report_until: until,
            },
        )?;
        store.reserve(&self.lease, attempt, self.per_round)?;
        let model = head_state::model(&next.head)?;
        let mut state = None;
        if last {
            let place = Place {
                task: self.task,
                round: next.head.round(),
                attempt: attempt.0,
            };
            let mut sealed = Vec::new();
            head_state::save(&next.head, keys, place, &mut sealed)?;
            state = Some(blobs.put(&mut sealed.as_slice())?.digest);
            blobs.put(&mut model.as_slice())?;
        }
        store.commit_release(
            &self.lease,
            &Release {
                attempt,
                round,
                included: self.users(round),
                lost: Vec::new(),
                line: next.line.clone(),
                digest: next.head.chain().head().to_owned(),
                previous: next.entry.previous_sha256.clone(),
                model: digest_of(&model),
                state,
                noise_key: next.entry.noise_key.clone(),
                metrics: b"{}".to_vec(),
            },
        )?;
        // As the service signs it: a head with other bytes would halt the task.
        let chain = next.head.chain().head();
        let chain: Vec<u8> = (0..chain.len() / 2)
            .map(|place| u8::from_str_radix(&chain[2 * place..2 * place + 2], 16))
            .collect::<Result<_, _>>()?;
        let head = Head {
            task: self.task.0.to_vec(),
            round: round + 1,
            attempt: 0,
            model_sha256: digest_of(&model).to_vec(),
            state_sha256: state.map(|digest| digest.to_vec()).unwrap_or_default(),
            chain,
        };
        let signed = keys.head(self.task).sign(Label::Head, write(&head));
        blobs.create_head(self.task, round + 1, &write(&signed))?;
        store.published(self.task, round + 1)?;
        Ok(())
    }
}
