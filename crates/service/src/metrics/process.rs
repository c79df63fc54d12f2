//! The figures of the process itself and of its machine.
//!
//! PRIVACY: connections and downloads belong to devices, so their numbers move in steps of ten, and bytes of bodies in steps of ten of
//! the largest bodies.

use std::path::Path;

use undertone_protocol::{TaskState, limits};
use undertone_store::{Millis, TaskRow};

use super::text::{FigureKind, Sample, ShownFigure};
use super::{STEP, in_steps};
use crate::trouble::Troubles;

/// The bytes in steps of which bodies are shown.
const BODIES: u64 = STEP * limits::MAX_CHUNK as u64;

/// The numbers of a process at one moment.
#[derive(Debug, Default, Clone)]
pub struct ProcessFigures {
    /// Number of open connections of devices.
    pub connections: u64,
    /// Number of open downloads.
    pub downloads: u64,
    /// Bytes of bodies that are being received.
    pub bodies: u64,
    /// The last second at which the certificate of TLS holds, since 1970.
    pub certificate: Option<Millis>,
    /// Resident memory in bytes.
    pub memory: Option<u64>,
    /// Bytes that are free on the disk of the data folder.
    pub disk: Option<u64>,
}

/// The figures of a process.
pub fn process(of: &ProcessFigures, troubles: &Troubles) -> Vec<ShownFigure> {
    let gauge = |name, help, samples| ShownFigure {
        name,
        kind: FigureKind::Gauge,
        help,
        samples,
    };
    let one = |value: Option<f64>| -> Vec<Sample> {
        value.into_iter().map(|value| sample(Vec::new(), value)).collect()
    };
    let kinds = troubles.counts();
    let troubles = kinds.iter().map(|(kind, count)| {
        let labels = vec![("state", kind.name().to_owned())];
        sample(labels, *count as f64)
    });
    let devices = |number: u64| in_steps(number).unwrap_or(0) as f64;
    let download = crate::capacity::DOWNLOAD_MEMORY as f64;
    let in_flight = [
        ("bodies", (of.bodies / BODIES * BODIES) as f64),
        ("downloads", devices(of.downloads) * download),
    ];
    vec![
        gauge(
            "undertone_trouble",
            "1 while the process is in this trouble; for tasks the number of those that cannot go on.",
            troubles.collect(),
        ),
        gauge(
            "undertone_connections",
            "Open connections of devices, rounded down to a multiple of ten.",
            one(Some(devices(of.connections))),
        ),
        gauge(
            "undertone_downloads",
            "Open downloads, rounded down to a multiple of ten.",
            one(Some(devices(of.downloads))),
        ),
        gauge(
            "undertone_in_flight_bytes",
            "Memory of bodies that are being received, rounded down to ten of the largest, and at most of downloads.",
            in_flight
                .into_iter()
                .map(|(kind, bytes)| sample(vec![("kind", kind.to_owned())], bytes))
                .collect(),
        ),
        gauge(
            "undertone_certificate_expires_seconds",
            "Time at which the certificate of TLS ends, in seconds since 1970.",
            one(of.certificate.map(|at| (at / 1000) as f64)),
        ),
        gauge(
            "undertone_memory_bytes",
            "Resident memory of the process.",
            one(of.memory.map(|bytes| bytes as f64)),
        ),
        gauge(
            "undertone_disk_free_bytes",
            "Bytes that are free on the disk of the data folder.",
            one(of.disk.map(|bytes| bytes as f64)),
        ),
    ]
}

/// The states of tasks.
#[must_use]
pub fn task_states(rows: &[TaskRow]) -> ShownFigure {
    const STATES: [(TaskState, &str); 5] = [
        (TaskState::Draft, "draft"),
        (TaskState::Active, "active"),
        (TaskState::Paused, "paused"),
        (TaskState::Completed, "completed"),
        (TaskState::Halted, "halted"),
    ];
    let mut samples = Vec::new();
    for row in rows {
        for (state, name) in STATES {
            let labels = vec![
                ("population", row.task.population.clone()),
                ("task", row.task.name.clone()),
                ("state", name.to_owned()),
            ];
            samples.push(sample(labels, f64::from(u8::from(row.state == state))));
        }
    }
    ShownFigure {
        name: "undertone_task_state",
        kind: FigureKind::Gauge,
        help: "1 for the state that a task is in, and 0 for the others.",
        samples,
    }
}

fn sample(labels: Vec<(&'static str, String)>, value: f64) -> Sample {
    Sample {
        suffix: "",
        labels,
        value,
    }
}

/// Resident memory of this process in bytes, where the system tells it.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Bytes that this user may still write on the disk of a folder, where the system tells it.
#[must_use]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let told = rustix::fs::statvfs(folder).ok()?;
        Some(told.f_bavail.saturating_mul(told.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// `true` for the error of a full table of descriptors, of this process or of the system.
#[must_use]
pub fn no_descriptor(error: &std::io::Error) -> bool {
    #[cfg(unix)]
    {
        let (own, all) = (rustix::io::Errno::MFILE, rustix::io::Errno::NFILE);
        error
            .raw_os_error()
            .is_some_and(|code| code == own.raw_os_error() || code == all.raw_os_error())
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}
