//! The threads of the module: one pool of its own, made anew in a child process.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::count;

struct Pool {
    pool: Option<Arc<ThreadPool>>,
    /// The process that the threads run in: a child process of `fork` has none of them.
    process: u32,
    /// `None` is one thread per core.
    wanted: Option<usize>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    pool: None,
    process: 0,
    wanted: None,
});

/// Runs `work` on the module's threads; on the caller's thread where the system gives no others.
pub(crate) fn install<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// The pool of the module, or with a number of threads one of its own.
///
/// # Errors
/// Threads that cannot be started.
pub(crate) fn pool_of(threads: Option<NonZeroUsize>) -> Result<Arc<ThreadPool>, ThreadPoolBuildError> {
    if threads.is_none()
        && let Some(pool) = pool()
    {
        return Ok(pool);
    }
    let wanted = threads.map_or(0, NonZeroUsize::get);
    Ok(Arc::new(ThreadPoolBuilder::new().num_threads(wanted).build()?))
}

fn pool() -> Option<Arc<ThreadPool>> {
    let mut held = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if held.process != process {
        // The threads of the parent do not exist here: to wait for their end would be to wait for ever.
        std::mem::forget(held.pool.take());
        held.process = process;
    }
    if held.pool.is_none() {
        let threads = held.wanted.unwrap_or(0);
        held.pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("undertone-{index}"))
            .build()
            .ok()
            .map(Arc::new);
    }
    held.pool.clone()
}

/// Sets the number of threads that the package computes on; the number of cores by default.
///
/// Results do not depend on it.
///
/// Examples
/// --------
/// >>> import undertone_dp as udp
/// >>> udp.set_threads(1)
/// >>> udp.set_threads(0)
/// Traceback (most recent call last):
/// ValueError: threads must be at least 1, got 0
#[pyfunction]
pub(crate) fn set_threads(#[pyo3(from_py_with = count::threads)] threads: usize) -> PyResult<()> {
    if threads == 0 {
        return Err(PyValueError::new_err("threads must be at least 1, got 0"));
    }
    let mut held = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    held.wanted = Some(threads);
    // Work that runs now keeps the old threads until it ends.
    if held.process == std::process::id() {
        held.pool = None;
    } else {
        std::mem::forget(held.pool.take());
    }
    Ok(())
}
