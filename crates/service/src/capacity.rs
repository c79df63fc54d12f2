//! The share of its machine that a service takes.

use std::path::PathBuf;

use crate::{http, spool};

/// The share of its machine that a service takes.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// Memory for uploads on their way, in bytes. Uploads beyond it stand in an encrypted file without a name.
    pub spool_ram: u64,
    /// The folder of that file; the data folder of a host, or the folder for temporary files, where it is empty.
    pub spool_folder: Option<PathBuf>,
    /// Memory for bodies of requests that are being received, in bytes. A request beyond it is refused as busy.
    pub in_flight: u64,
    /// Number of updates that are checked and added at one time; one per core by default.
    pub workers: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            spool_ram: spool::DEFAULT_RAM,
            spool_folder: None,
            in_flight: http::DEFAULT_IN_FLIGHT,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
