//! Updates of many megabytes: their speed beside raw connections, whole rounds, and the memory of the server.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use serde_json::json;
use undertone_aggregation::{Bound, BoundedSum, Clipping, NonFinite, ParamLayout};

use super::Sizes;
use super::client::Connection;
use super::host::Server;
use super::load::{Devices, Session, Spread, Update, assign_all, report_all};
use super::needs::Needs;
use super::physical;
use super::requests::difference;
use super::table::{Figure, report, rounded};
use super::tasks::{CLIP_NORM, Model, Task};

/// Parameters of the model of the first published next-word models.
const PARAMETERS: u64 = 1_350_000;

/// Devices per upload that is measured by itself.
const DEVICES_PER_UPLOAD: u64 = 25;

/// Values that the server keeps per parameter beside the sum: model, moments and buffers of the noise.
const KEPT: u64 = 4 + 4;

/// Memory of a server beside its vectors, in bytes.
const FIXED: u64 = 300 << 20;

/// Memory of a server: 8 bytes for each vector of the model's length.
fn server_memory(model: &Model) -> u64 {
    FIXED + 8 * model.parameters * KEPT
}

fn needs(sizes: &Sizes, model: &Model, devices: u64) -> Needs {
    let uploads = 2 * sizes.connections as u64 * model.bytes();
    Needs {
        memory: server_memory(model) + uploads + (64 << 20),
        // A release stages the model and the state of the noise, and publishes both.
        disk: 2 * 8 * model.parameters * KEPT + 4000 * devices + (64 << 20),
    }
}

/// An attempt whose devices are assigned, ready to upload.
struct Assigned {
    server: Server,
    sessions: Vec<Session>,
    update: Update,
    devices: Devices,
    /// Check-ins per second.
    rate: f64,
    _folder: tempfile::TempDir,
}

impl Assigned {
    /// Uploads the updates of all devices.
    fn report_all(&self, sizes: &Sizes) -> anyhow::Result<Spread> {
        let place = from_ref(&self.server.place);
        report_all(place, &self.sessions, &self.update, sizes.connections)
    }
}

fn assigned(sizes: &Sizes, model: &Model, number: u64, tls: bool) -> anyhow::Result<Assigned> {
    needs(sizes, model, number).check(&sizes.folder)?;
    let folder = sizes.temporary()?;
    let task = Task::plain(model.clone(), number).create(folder.path())?;
    let devices = Devices::new(folder.path(), task)?;
    let server = Server::start(folder.path(), tls)?;
    let (sessions, done) = assign_all(from_ref(&server.place), &devices, number, sizes.callers)?;
    Ok(Assigned {
        sessions,
        server,
        update: Update::new(model.parameters),
        devices,
        rate: done.rate(),
        _folder: folder,
    })
}

/// Updates over plain HTTP.
pub(super) fn plain(sizes: &Sizes) -> anyhow::Result<()> {
    alone(sizes, false)
}

/// Updates over TLS.
pub(super) fn tls(sizes: &Sizes) -> anyhow::Result<()> {
    alone(sizes, true)
}

/// The speed of uploads, from the first join to the last answer to a commit.
fn alone(sizes: &Sizes, tls: bool) -> anyhow::Result<()> {
    let model = Model::of(sizes.parameters(PARAMETERS))?;
    let number = (sizes.devices / DEVICES_PER_UPLOAD).max(2);
    let of = assigned(sizes, &model, number, tls)?;
    let raw_before = physical::uploads(sizes.connections, tls, model.bytes(), sizes.seconds / 2.0)?;
    let (own, cpu) = (crate::bench::usage::cpu_time(), of.server.cpu_seconds());
    let done = of.report_all(sizes)?;
    let cpu = difference(of.server.cpu_seconds(), cpu);
    let own = difference(seconds(crate::bench::usage::cpu_time()), seconds(own));
    let raw_after = physical::uploads(sizes.connections, tls, model.bytes(), sizes.seconds / 2.0)?;
    let bytes = done.calls as f64 * model.bytes() as f64;
    let (item, limit_is) = match tls {
        false => ("upload", "chunks and replies over raw TCP"),
        true => ("upload-tls", "chunks and replies over raw TLS"),
    };
    let figure = Figure {
        item,
        unit: "GB/s",
        value: bytes / done.seconds / 1e9,
        limit: (raw_before + raw_after) / 2.0 / 1e9,
        limit_is,
    };
    figure.print(&json!({
        "parameters": model.parameters, "uploads": done.calls, "connections": sizes.connections,
        "server_cpu_ns_per_byte": cpu.map(|cpu| rounded(1e9 * cpu / bytes)),
        "load_cpu_ns_per_byte": own.map(|cpu| rounded(1e9 * cpu / bytes)),
    }));
    Ok(())
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

/// Rounds of three sizes over TLS, each with a server of its own: the time of the largest, and the memory of all.
pub(super) fn cohorts(sizes: &Sizes) -> anyhow::Result<()> {
    let model = Model::of(sizes.parameters(PARAMETERS))?;
    needs(sizes, &model, sizes.devices).check(&sizes.folder)?;
    let raw = physical::uploads(sizes.connections, true, model.bytes(), sizes.seconds)?;
    let adding = adding(&model)?;
    let mut peaks = Vec::new();
    for devices in [sizes.devices / 100, sizes.devices / 10, sizes.devices] {
        let of = assigned(sizes, &model, devices.max(2), true)?;
        let before = of.server.memory();
        let cpu = of.server.cpu_seconds();
        let started = Instant::now();
        let done = of.report_all(sizes)?;
        // The next round takes a device once this one is committed.
        let mut connection = Connection::open(&of.server.place)?;
        of.devices.first(&mut connection, devices + 1, Some(0))?;
        let seconds = started.elapsed().as_secs_f64();
        let cpu = difference(of.server.cpu_seconds(), cpu);
        let memory = of.server.memory();
        let peak = memory.map(|memory| memory.peak);
        let bytes = (devices * model.bytes()) as f64;
        let added = devices as f64 * model.parameters as f64 / adding / physical::cores() as f64;
        let figure = Figure {
            item: "cohort",
            unit: "s",
            value: seconds,
            limit: bytes / raw + added,
            limit_is: "the same bytes over raw TLS, and the additions on all cores",
        };
        figure.print(&json!({
            "devices": devices, "parameters": model.parameters, "connections": sizes.connections, "gb": rounded(bytes / 1e9),
            "upload_seconds": rounded(done.seconds), "release_seconds": rounded(seconds - done.seconds),
            "assignments_per_s": rounded(of.rate), "raw_tls_gb_s": rounded(raw / 1e9),
            "server_cpu_s": cpu.map(rounded),
        }));
        let limit = (FIXED + 8 * model.parameters * KEPT) as f64 / f64::from(1 << 20);
        if let (Some(before), Some(peak)) = (before, peak) {
            let figure = Figure {
                item: "memory",
                unit: "MB",
                value: peak,
                limit,
                limit_is: "300 MB and 8 bytes per parameter for each of 8 vectors",
            };
            figure.print(&json!({ "devices": devices, "parameters": model.parameters, "before_mb": rounded(before.now) }));
            peaks.push(peak);
        }
        of.server.stop()?;
    }
    let (Some(least), Some(most)) = (
        peaks.iter().copied().reduce(f64::min),
        peaks.iter().copied().reduce(f64::max),
    ) else {
        return Ok(());
    };
    report(
        "memory-spread",
        &json!({ "unit": "max over min, less 1", "figure": rounded(most / least - 1.0) }),
    );
    Ok(())
}

/// Coordinates that one core adds to a sum per second.
fn adding(model: &Model) -> anyhow::Result<f64> {
    let length = usize::try_from(model.parameters)?;
    let layout = ParamLayout::with_tensor_groups(vec![("all".to_owned(), vec![length])])?;
    let clipping = Clipping::Flat { clip_norm: CLIP_NORM };
    let sum = BoundedSum::new(Bound::new(layout.into(), clipping, NonFinite::Refuse));
    let update = vec![(0.5 * CLIP_NORM / (length as f64).sqrt()) as f32; length];
    sum.add(&update, 1.0)?;
    let (started, mut added) = (Instant::now(), 0.0);
    while started.elapsed().as_secs_f64() < 0.5 {
        sum.add(&update, 1.0)?;
        added += length as f64;
    }
    Ok(added / started.elapsed().as_secs_f64())
}
