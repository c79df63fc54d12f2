//! Boards and check-ins: many small requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rayon::prelude::*;
use serde_json::json;
use undertone_protocol::{Code, TokenKey};
use undertone_service::data_folder;
use undertone_service::identity::{Identity, Member};
use undertone_service::keys::Keys;
use undertone_service::room::Room;
use undertone_service::server::Service;
use zeroize::Zeroizing;

use super::Sizes;
use super::client::{Connection, get};
use super::host::Server;
use super::load::{Devices, NO_END, Session, Spread, spread};
use super::physical::{self, Database};
use super::table::{Figure, report, rounded};
use super::tasks::{Model, POPULATION, Task};

/// Parameters of the model where no item reads it.
const TINY: u64 = 2000;

/// Devices whose subjects have an open session.
const HELD: u64 = 200;

/// Reads of the board of a population with one task.
pub(super) fn board(sizes: &Sizes) -> anyhow::Result<()> {
    let folder = sizes.temporary()?;
    let task = Task::plain(Model::of(TINY)?, 100).create(folder.path())?;
    let server = Server::start(folder.path(), false)?;
    let devices = Devices::new(folder.path(), task)?;
    let request = get(&format!("/v1/p/{POPULATION}/board"));
    let reply = {
        let mut connection = Connection::open(&server.place)?;
        devices.first(&mut connection, 0, None)?;
        let reply = connection.exchange(&request, &[])?;
        reply.success()?;
        reply.bytes
    };
    let read = |connection: &mut Connection, _: usize| {
        let reply = connection.exchange(&request, &[])?;
        ensure!(reply.status == 200, "a board with status {}", reply.status);
        Ok(())
    };
    let until = Duration::from_secs_f64(sizes.seconds);
    let cpu = server.cpu_seconds();
    let boards = spread(&server.place, sizes.callers, usize::MAX, until, read)?;
    let cpu = difference(server.cpu_seconds(), cpu);
    let raw = physical::exchanges(sizes.callers, false, request.len(), reply, sizes.seconds)?;
    let figure = Figure {
        item: "board",
        unit: "boards/s",
        value: boards.rate(),
        limit: raw,
        limit_is: "requests and replies of the same sizes over raw TCP",
    };
    figure.print(&json!({
        "callers": sizes.callers, "request_bytes": request.len(), "reply_bytes": reply,
        "server_cpu_us": cpu.map(|cpu| rounded(1e6 * cpu / boards.calls as f64)),
    }));
    Ok(())
}

/// CPU seconds between two looks.
pub(super) fn difference(after: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}

/// Check-ins with a signature that are refused: for a subject with an open session, and for a clock that is behind.
pub(super) fn refusals(sizes: &Sizes) -> anyhow::Result<()> {
    let folder = sizes.temporary()?;
    let held = HELD.min(sizes.devices);
    let task = Task::plain(Model::of(TINY)?, held).create(folder.path())?;
    let server = Server::start(folder.path(), false)?;
    let devices = Devices::new(folder.path(), task)?;
    let mut connection = Connection::open(&server.place)?;
    for number in 0..held {
        devices.first(&mut connection, number, None)?;
    }
    for (reason, late, code) in [
        ("an open session", 0, Code::TooSoon),
        ("a clock ten minutes behind", 600_000, Code::BadSignature),
    ] {
        let requests: Vec<Vec<u8>> = (0..sizes.devices)
            .into_par_iter()
            .map(|number| {
                let salt = u128::from(number + 1) << 64;
                devices.check_in(&devices.device(number % held), salt, late)
            })
            .collect();
        let refused = |connection: &mut Connection, number: usize| {
            let problem = connection.exchange(&requests[number], &[])?.problem()?;
            ensure!(
                problem.code() == code,
                "expected {}, got {}: {}",
                code.as_str_name(),
                problem.code().as_str_name(),
                problem.message
            );
            Ok(())
        };
        let cpu = server.cpu_seconds();
        let done = spread(&server.place, sizes.callers, requests.len(), NO_END, refused)?;
        let cpu = difference(server.cpu_seconds(), cpu);
        check_in_figure("checkin", done)?.print(&json!({
            "refused_for": reason, "checkins": done.calls, "callers": sizes.callers,
            "server_cpu_us": cpu.map(|cpu| rounded(1e6 * cpu / done.calls as f64)),
        }));
    }
    Ok(())
}

/// Check-ins beside the two signatures that each of them has: that of its certificate and its own.
fn check_in_figure(item: &'static str, done: Spread) -> anyhow::Result<Figure> {
    Ok(Figure {
        item,
        unit: "check-ins/s",
        value: done.rate(),
        limit: physical::verifications()? * physical::cores() as f64 / 2.0,
        limit_is: "two signatures verified per check-in, on all cores",
    })
}

/// Check-ins that get an assignment, over HTTP and by calls of the room.
pub(super) fn assignments(sizes: &Sizes) -> anyhow::Result<()> {
    let folder = sizes.temporary()?;
    // The attempt stays open, since one place stays free.
    let task = Task::plain(Model::of(TINY)?, sizes.devices + 1).create(folder.path())?;
    let devices = Devices::new(folder.path(), task)?;
    let server = Server::start(folder.path(), false)?;
    devices.first(&mut Connection::open(&server.place)?, sizes.devices, None)?;
    let requests = devices.check_ins(0..sizes.devices, 1, 0);
    let cpu = server.cpu_seconds();
    let assigned = |connection: &mut Connection, number: usize| {
        Session::read(connection.exchange(&requests[number], &[])?.success()?).map(drop)
    };
    let done = spread(&server.place, sizes.callers, requests.len(), NO_END, assigned)?;
    let cpu = difference(server.cpu_seconds(), cpu);
    check_in_figure("assign", done)?.print(&json!({
        "assignments": done.calls, "callers": sizes.callers,
        "server_cpu_us": cpu.map(|cpu| rounded(1e6 * cpu / done.calls as f64)),
    }));
    server.stop()?;
    admissions(sizes)
}

/// Admissions without HTTP and without signatures, by several threads.
fn admissions(sizes: &Sizes) -> anyhow::Result<()> {
    let folder = sizes.temporary()?;
    let task = Task::plain(Model::of(TINY)?, sizes.devices + 1);
    let id = task.create(folder.path())?;
    let issuer = Keys::open(folder.path())?.issuer().public();
    let service = Service::new(data_folder::open(folder.path(), None)?, Identity::Dev)?;
    // The first one takes the task, and the second one opens an attempt.
    service.tick()?;
    service.tick()?;
    let room = service.room(id).context("the service leads its task")?;
    let token = TokenKey::new(&Zeroizing::new([4; 32]));
    let seconds = admit_all(&room, &token, issuer, sizes)?;
    let mut raw = Database::new(folder.path(), "raw.sqlite", false)?;
    let figure = Figure {
        item: "assign-room",
        unit: "admissions/s",
        value: sizes.devices as f64 / seconds,
        limit: raw.commits(sizes.seconds.min(1.0))?,
        limit_is: "transactions of one row per second in SQLite, one after another, not synced",
    };
    figure.print(&json!({ "admissions": sizes.devices, "threads": sizes.callers }));
    let full = Database::new(folder.path(), "full.sqlite", true)?.commits(sizes.seconds.min(1.0))?;
    report(
        "assign-room",
        &json!({ "limit_is": "transactions per second in SQLite, each synced", "limit": rounded(full) }),
    );
    service.close();
    Ok(())
}

/// Admits all devices on all callers, and returns the seconds.
fn admit_all(room: &Arc<Room>, token: &TokenKey, issuer: [u8; 32], sizes: &Sizes) -> anyhow::Result<f64> {
    let callers = sizes.callers as u64;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                scope.spawn(move || -> anyhow::Result<()> {
                    for number in (caller..sizes.devices).step_by(sizes.callers) {
                        let mut name = [0; 32];
                        name[..8].copy_from_slice(&number.to_le_bytes());
                        let member = Member {
                            subject: name,
                            device: name,
                            issuer,
                        };
                        let checkin = u128::from(number).to_le_bytes();
                        room.admit(&member, checkin, token)
                            .map_err(|problem| anyhow!("device {number}: {}", problem.message))?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    Ok(started.elapsed().as_secs_f64())
}
