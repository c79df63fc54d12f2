//! The share of its machine that a service takes.

use std::path::PathBuf;

use crate::storage::spool;

/// Descriptors that are kept back for files, the database, other processes and operators.
pub const KEPT_BACK: u64 = 192;

/// Bytes of bodies on their way at one time, unless a host sets it: 128 MiB.
pub const DEFAULT_IN_FLIGHT: u64 = 128 << 20;

/// Connections that are open at one time, unless a host sets it.
pub(crate) const DEFAULT_CONNECTIONS: usize = 20_000;

/// Downloads that are open at one time, unless a host sets it.
const DEFAULT_DOWNLOADS: usize = 1_000;

/// Bytes of a piece of a download.
pub(crate) const DOWNLOAD_PIECE: usize = 32 << 10;

/// Max memory of a download in bytes: one piece that is read, and those that the connection keeps.
pub const DOWNLOAD_MEMORY: u64 = 3 * DOWNLOAD_PIECE as u64;

/// Bytes that the disk of the data folder keeps free, unless a host sets it: 64 MiB.
const DISK_FLOOR: u64 = 64 << 20;

/// The share of its machine that a service takes.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// Memory for uploads on their way, in bytes. Uploads beyond it stand in an encrypted file without a name.
    pub spool_ram: u64,
    /// The folder of that file; the data folder of a host, or the folder for temporary files, where it is empty.
    pub spool_folder: Option<PathBuf>,
    /// Memory for bodies of requests that are being received, in bytes. A request beyond it is refused as busy. A fifth of it is kept
    /// for check-ins and enrolments.
    pub in_flight: u64,
    /// Number of downloads that are open at one time. Each takes up to 96 KiB of memory.
    pub downloads: usize,
    /// Number of connections of devices that are open at one time.
    pub connections: usize,
    /// Max number of descriptors of this process, where it is known. Connections leave [`KEPT_BACK`] of them free.
    pub descriptors: Option<u64>,
    /// The rates that clients must keep to.
    pub rates: RateLimits,
    /// Bytes that the disk of the data folder must have free. With fewer the process is not ready.
    pub disk_floor: u64,
    /// Number of updates that are checked and added at one time; one per core by default.
    pub workers: usize,
}

/// Limits on requests per second. A limit of `None` is none. A second's worth of requests may come at once, and at least ten.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateLimits {
    /// Check-ins of all devices together.
    pub check_ins: Option<f64>,
    /// Enrolments and certificates of all devices together.
    pub enrolments: Option<f64>,
    /// Requests of one address. Devices behind one proxy have one address.
    pub requests_per_address: Option<f64>,
}

impl Capacity {
    /// Number of connections that the descriptors of this process allow.
    #[must_use]
    pub fn connections(&self) -> usize {
        let free = self.descriptors.map_or(u64::MAX, |limit| {
            // A process with very few descriptors serves some devices rather than none.
            limit.saturating_sub(KEPT_BACK).max(limit / 4)
        });
        self.connections.min(usize::try_from(free).unwrap_or(usize::MAX))
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            spool_ram: spool::DEFAULT_RAM,
            spool_folder: None,
            in_flight: DEFAULT_IN_FLIGHT,
            downloads: DEFAULT_DOWNLOADS,
            connections: DEFAULT_CONNECTIONS,
            descriptors: None,
            rates: RateLimits::default(),
            disk_floor: DISK_FLOOR,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_files_and_operators() {
        let with = |descriptors| Capacity {
            descriptors,
            ..Capacity::default()
        };
        assert_eq!(with(None).connections(), 20_000);
        assert_eq!(with(Some(1 << 20)).connections(), 20_000);
        assert_eq!(with(Some(1024)).connections(), 832);
        assert_eq!(with(Some(100)).connections(), 25);
    }
}
