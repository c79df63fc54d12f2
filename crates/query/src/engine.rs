//! The query engine, in bounded memory.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::error::{QueryError, Result};

/// Steps that an error about memory names, largest first.
const MAX_NAMED: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

/// A session whose operators share `memory` bytes and spill into `folder` what does not fit.
pub(crate) fn session(memory: usize, threads: usize, folder: &Path) -> Result<SessionContext> {
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![folder.to_owned()]))
        // The disk itself is the limit.
        .with_max_temp_directory_size(u64::MAX)
        // A merge holds a batch of each run, which it does not give back: of all runs at once they would leave nothing to other steps.
        .with_max_spill_merge_fan_in(8);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(
            FairSpillPool::new(memory),
            MAX_NAMED,
        )))
        .with_disk_manager_builder(disk)
        .build_arc()
        .map_err(|error| QueryError::planning(&error))?;
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        // An operator holds several batches of each of its parts, and texts may be long.
        .with_batch_size((memory / (threads * (256 << 10))).clamp(64, 8192));
    let options = config.options_mut();
    // A hash join holds one of its tables in memory, whatever its size; a merge join sorts both, and sorts spill.
    options.optimizer.prefer_hash_join = false;
    // What a sort sets aside for merging what it spilled: ten megabytes a thread unless told, which small memories do not have.
    let reserved = memory / (8 * threads);
    options.execution.sort_spill_reservation_bytes = reserved.min(10 << 20);
    // Folders in a table's folder are read, too: text that is passed over in silence is missed by nobody.
    options.execution.listing_table_ignore_subdirectory = false;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}
