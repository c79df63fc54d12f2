//! Work that several threads share.

use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_local::on_threads;

use crate::error::Result;

/// Does the work items `0..count`, each by the next free worker on its own thread. Returns the results in the order of the
/// items, so that they do not depend on the number of workers.
///
/// # Errors
/// From an item. The workers then begin no other.
pub(crate) fn work_items<W: Send, T: Send>(
    workers: &mut [W],
    count: usize,
    work: impl Fn(&mut W, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let by_worker = on_threads(workers, |worker| -> Result<Vec<(usize, T)>> {
        let mut made = Vec::new();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= count {
                return Ok(made);
            }
            let result = work(worker, item).inspect_err(|_| next.store(count, Ordering::Relaxed))?;
            made.push((item, result));
        }
    })?;
    let mut made: Vec<(usize, T)> = by_worker.into_iter().flatten().collect();
    made.sort_unstable_by_key(|(item, _)| *item);
    Ok(made.into_iter().map(|(_, result)| result).collect())
}
