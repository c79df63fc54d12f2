//! The release of a round: from the last report to the next model, and the transaction by itself.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::json;
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::digest_of;
use undertone_service::data_folder::{self, BLOBS};
use undertone_store::{
    Admission, Admitted, NewAttempt, Release, SessionId, SessionLimits, SessionState, Store, TaskId,
};

use super::Sizes;
use super::client::{Connection, get};
use super::host::Server;
use super::load::{Devices, Session, Update, hex, now_ms};
use super::needs::Needs;
use super::physical::{self, Database};
use super::table::{Figure, rounded};
use super::tasks::{Model, Task};
use crate::bench::usage::median;

/// Parameters of the next-word LSTM of the StackOverflow experiments.
const PARAMETERS: u64 = 4_050_000;

/// Number of reports that end a round.
const GOAL: u64 = 8;

/// Number of rounds that are measured.
const ROUNDS: usize = 5;

/// Measures the time from the answer to the last commit until a device has the next model.
pub(super) fn next_model(sizes: &Sizes) -> anyhow::Result<()> {
    let model = Model::of(sizes.parameters(PARAMETERS))?;
    let vector = 8 * model.parameters;
    Needs {
        memory: (400 << 20) + 40 * vector,
        disk: (64 << 20) + 12 * vector * ROUNDS as u64,
    }
    .check(&sizes.folder)?;
    let folder = sizes.temporary()?;
    let task = Task::plain(model.clone(), GOAL).create(folder.path())?;
    let devices = Devices::new(folder.path(), task)?;
    let server = Server::start(folder.path(), false)?;
    let mut connection = Connection::open(&server.place)?;
    let update = Update::new(model.parameters);
    let mut number = 0..;
    let mut next = || -> anyhow::Result<u64> { number.next().context("numbers of devices") };
    let mut session = devices.first(&mut connection, next()?, None)?;
    let (mut whole, mut assigned, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let mut sessions = vec![session];
        for _ in 1..GOAL {
            sessions.push(devices.first(&mut connection, next()?, None)?);
        }
        for session in &sessions {
            session.report(&mut connection, &update)?;
        }
        let started = Instant::now();
        session = devices.first(&mut connection, next()?, Some(round))?;
        assigned.push(started.elapsed().as_secs_f64());
        read.push(load_model(&mut connection, &session)?);
        whole.push(started.elapsed().as_secs_f64());
    }
    let (model_bytes, state_bytes) = released(folder.path())?;
    let mut disk = Vec::new();
    for _ in 0..ROUNDS {
        disk.push(
            physical::written(folder.path(), model_bytes)? + physical::written(folder.path(), state_bytes)?,
        );
    }
    let figure = Figure {
        item: "release",
        unit: "s",
        value: median(&mut whole),
        limit: median(&mut disk),
        limit_is: "model and sealed noise written and synced",
    };
    figure.print(&json!({
        "parameters": model.parameters, "buffers": 4, "devices": GOAL, "rounds": ROUNDS,
        "until_assigned_s": rounded(median(&mut assigned)), "model_read_s": rounded(median(&mut read)),
        "model_mb": rounded(model_bytes as f64 / 1e6), "state_mb": rounded(state_bytes as f64 / 1e6),
        "server_peak_mb": server.memory().map(|memory| rounded(memory.peak)),
    }));
    server.stop()
}

/// Reads the model of an assignment, and returns the seconds.
fn load_model(connection: &mut Connection, session: &Session) -> anyhow::Result<f64> {
    let started = Instant::now();
    let blob = session
        .assignment
        .model
        .as_ref()
        .context("an assignment without a model")?;
    let request = get(&format!("/v1/blobs/{}", hex(&blob.sha256)));
    let reply = connection.exchange(&request, &[])?;
    let got = reply.success()?.len() as u64;
    ensure!(
        got == blob.length,
        "a model of {} bytes was expected, got {got}",
        blob.length
    );
    Ok(started.elapsed().as_secs_f64())
}

/// Bytes of the model and of the sealed state that a release writes: the two largest sizes among the blobs.
fn released(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let mut lengths = Vec::new();
    for entry in std::fs::read_dir(folder.join(BLOBS).join("blobs"))? {
        lengths.push(entry?.metadata()?.len());
    }
    lengths.sort_unstable_by(|one, two| two.cmp(one));
    lengths.dedup();
    match lengths[..] {
        [state, model, ..] => Ok((model, state)),
        _ => anyhow::bail!("a model and a sealed state were expected among the blobs, got {lengths:?}"),
    }
}

/// A release that only the store sees.
struct Filled<'s> {
    store: &'s dyn Store,
    task: TaskId,
    lease: undertone_store::Lease,
    /// The digest of the last line.
    chain: String,
    line: Vec<u8>,
}

impl Filled<'_> {
    /// Opens an attempt, admits these users, and commits their release. Returns the seconds of the commit.
    fn round(&mut self, round: u64, users: &[u64]) -> anyhow::Result<f64> {
        let now = now_ms();
        let attempt = self.store.open_attempt(
            &self.lease,
            &NewAttempt {
                round,
                target: u32::try_from(users.len())?,
                select_until: now + 3_600_000,
                report_until: now + 3_600_000,
            },
        )?;
        self.admit(attempt, users)?;
        self.store.reserve(&self.lease, attempt, users.len() as u64)?;
        let digest = hex(&digest_of(&self.line));
        let release = Release {
            attempt,
            round,
            included: users.iter().copied().map(ParticipantId::new).collect(),
            lost: Vec::new(),
            line: self.line.clone(),
            digest: digest.clone(),
            previous: std::mem::replace(&mut self.chain, digest),
            model: digest_of(&round.to_le_bytes()),
            state: None,
            noise_key: Some("0".repeat(64)),
            metrics: b"{}".to_vec(),
        };
        let started = Instant::now();
        self.store.commit_release(&self.lease, &release)?;
        let seconds = started.elapsed().as_secs_f64();
        self.store.published(self.task, round + 1)?;
        Ok(seconds)
    }

    fn admit(&self, attempt: undertone_store::AttemptId, users: &[u64]) -> anyhow::Result<()> {
        use rayon::prelude::*;
        users.par_iter().try_for_each(|user| {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&user.to_le_bytes());
            let session = SessionId(u128::from(*user).to_le_bytes());
            let admitted = self.store.admit(&Admission {
                attempt,
                session,
                user: ParticipantId::new(*user),
                person: name,
                key: name,
                device: name,
                checkin: session.0,
                hold_until: now_ms() + 3_600_000,
                limits: SessionLimits {
                    sessions: 4,
                    interval: 1000,
                },
            })?;
            ensure!(admitted == Admitted::Yes, "user {user}: {admitted:?}");
            self.store
                .note_sessions(&[(session, SessionState::Ready), (session, SessionState::Reported)])?;
            Ok(())
        })
    }
}

/// The transaction of a release with all devices.
pub(super) fn commit(sizes: &Sizes) -> anyhow::Result<()> {
    let folder = sizes.temporary()?;
    let shared = data_folder::open(folder.path(), None)?;
    let task = Task::plain(Model::of(2000)?, sizes.devices).create_in(&shared)?;
    let store = shared.store.as_ref();
    let lease = store
        .lease(task, "bench", 3_600_000)?
        .context("nobody else leads the task")?;
    let users = |round: u64| -> Vec<u64> {
        // Spread over all numbers, as pseudonyms are.
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..sizes.devices)
            .map(|number| spread(1 + round * sizes.devices + number))
            .collect()
    };
    let line = format!("{:?}", users(0)).into_bytes();
    let mut filled = Filled {
        chain: store.task(task)?.chain,
        store,
        task,
        lease,
        line: line.clone(),
    };
    let rounds = 3;
    let mut raw = Database::new(folder.path(), "raw.sqlite", true)?;
    let (mut own, mut limit) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let users = users(round);
        // A line names its round, so that no two lines are equal.
        filled.line = [&round.to_le_bytes()[..], &line].concat();
        own.push(filled.round(round, &users)?);
        limit.push(raw.release(&users, &line)?);
    }
    let figure = Figure {
        item: "commit",
        unit: "s",
        value: median(&mut own),
        limit: median(&mut limit),
        limit_is: "two rows per participant and the line in one synced transaction of SQLite",
    };
    figure.print(&json!({
        "participants": sizes.devices, "line_kb": rounded(line.len() as f64 / 1e3), "rounds": rounds,
    }));
    Ok(())
}
