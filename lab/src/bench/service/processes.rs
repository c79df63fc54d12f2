//! One, two and three processes over one Postgres server on this machine: check-ins, assignments, uploads and releases.
//!
//! Load, processes and database share the cores of one machine, so more processes bring more speed only where a process alone does not
//! use all cores. The figures show what the hand-over between processes costs.

use std::time::Instant;

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use undertone_protocol::Code;
use undertone_service::data_folder;

use super::Sizes;
use super::client::{Connection, Place};
use super::host::Server;
use super::load::{Devices, NO_END, Session, Spread, Update, assign_all, report_all, spread_over};
use super::physical;
use super::table::{Figure, rounded};
use super::tasks::{Model, Task};

#[path = "../../../../crates/store/tests/common/postgres.rs"]
#[expect(clippy::unwrap_used, reason = "without its server the measurement ends")]
mod database;

/// Parameters of the model.
const PARAMETERS: u64 = 1_000_000;

/// Devices of `--devices` for each one that takes part here.
const DEVICES_PER_UPLOAD: u64 = 50;

/// The time after which all processes know each other.
const ACQUAINTED: std::time::Duration = std::time::Duration::from_millis(2500);

/// Measures one to three processes.
pub(super) fn run(sizes: &Sizes) -> anyhow::Result<()> {
    let Some(database) = database::Server::start() else {
        bail!("this machine has no server of Postgres; install Debian's package `postgresql`");
    };
    for processes in 1..=3 {
        measure(sizes, &database, processes)?;
    }
    Ok(())
}

/// The task with its processes and the sessions of its devices.
struct Round {
    places: Vec<Place>,
    devices: Devices,
    sessions: Vec<Session>,
    assigned: Spread,
    model: Model,
    folder: tempfile::TempDir,
    servers: Vec<Server>,
}

fn measure(sizes: &Sizes, database: &database::Server, processes: usize) -> anyhow::Result<()> {
    let round = begin(sizes, database, processes)?;
    let with = |more: Value| {
        let mut fields = json!({ "processes": processes, "devices": round.sessions.len() });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        fields
    };
    let signatures = physical::verifications()? * physical::cores() as f64 / 2.0;
    let check_in = |item: &'static str, done: Spread| Figure {
        item,
        unit: "check-ins/s",
        value: done.rate(),
        limit: signatures,
        limit_is: "two signatures verified per check-in, on all cores",
    };
    check_in("processes-assign", round.assigned).print(&with(json!({})));
    check_in("processes-checkin", refused(sizes, &round)?).print(&with(json!({})));
    uploads(sizes, &round, &with)?;
    for server in round.servers {
        server.stop()?;
    }
    Ok(())
}

/// Starts the processes, and assigns all devices of a round.
fn begin(sizes: &Sizes, database: &database::Server, processes: usize) -> anyhow::Result<Round> {
    let folder = sizes.temporary()?;
    let model = Model::of(sizes.parameters(PARAMETERS))?;
    let number = (sizes.devices / DEVICES_PER_UPLOAD).max(20);
    data_folder::keep_on_server(folder.path(), &database.database())?;
    let servers = (0..processes)
        .map(|process| Server::start_beside(folder.path(), &format!("process-{process}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(ACQUAINTED);
    let task = {
        let shared = data_folder::open_beside(folder.path(), None, "setup")?;
        Task::plain(model.clone(), number).create_in(&shared)?
    };
    let places: Vec<Place> = servers.iter().map(|server| server.place.clone()).collect();
    let devices = Devices::new(folder.path(), task)?;
    let (sessions, assigned) = assign_all(&places, &devices, number, sizes.callers)?;
    Ok(Round {
        sessions,
        places,
        devices,
        assigned,
        model,
        folder,
        servers,
    })
}

/// Check-ins of subjects that have an open session.
fn refused(sizes: &Sizes, round: &Round) -> anyhow::Result<Spread> {
    let held = round.sessions.len() as u64;
    let requests: Vec<Vec<u8>> = (0..sizes.devices.min(10 * held))
        .map(|number| {
            let salt = u128::from(number + 1) << 64;
            let device = round.devices.device(number % held);
            round.devices.check_in(&device, salt, 0)
        })
        .collect();
    let refused = |connection: &mut Connection, number: usize| {
        let problem = connection.exchange(&requests[number], &[])?.problem()?;
        ensure!(
            problem.code() == Code::TooSoon,
            "expected {}, got {}: {}",
            Code::TooSoon.as_str_name(),
            problem.code().as_str_name(),
            problem.message
        );
        Ok(())
    };
    spread_over(&round.places, sizes.callers, requests.len(), NO_END, refused)
}

/// The uploads of all devices, and the time from the last one to the next model.
fn uploads(sizes: &Sizes, round: &Round, with: &dyn Fn(Value) -> Value) -> anyhow::Result<()> {
    let update = Update::new(round.model.parameters);
    let bytes = round.model.bytes();
    let before = physical::uploads(sizes.connections, false, bytes, sizes.seconds / 2.0)?;
    let done = report_all(&round.places, &round.sessions, &update, sizes.connections)?;
    let started = Instant::now();
    let number = round.sessions.len() as u64;
    round
        .devices
        .first(&mut Connection::open(&round.places[0])?, number, Some(0))?;
    let released = started.elapsed().as_secs_f64();
    let after = physical::uploads(sizes.connections, false, bytes, sizes.seconds / 2.0)?;
    Figure {
        item: "processes-upload",
        unit: "GB/s",
        value: done.calls as f64 * bytes as f64 / done.seconds / 1e9,
        limit: (before + after) / 2.0 / 1e9,
        limit_is: "chunks and replies over raw TCP",
    }
    .print(&with(
        json!({ "parameters": round.model.parameters, "uploads_per_s": rounded(done.rate()) }),
    ));
    Figure {
        item: "processes-release",
        unit: "s",
        value: released,
        limit: 2.0 * physical::written(round.folder.path(), bytes)?,
        limit_is: "model and state written and synced, one after the other",
    }
    .print(&with(json!({ "parameters": round.model.parameters })));
    Ok(())
}
