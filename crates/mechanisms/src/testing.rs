//! Helpers for the tests of several modules.

use undertone_accounting::participation::{Gap, Participation};

use crate::error::Result;

/// Checks that a result is an error that says `expected`, or "ok".
#[track_caller]
pub(crate) fn says<T>(result: Result<T>, expected: &str) {
    let message = result.err().map_or("ok".to_owned(), |error| error.to_string());
    assert!(message.contains(expected), "{message} instead of {expected}");
}

/// Users who take part at most `max_par` times, at least `gap` rounds apart.
pub(crate) fn at_least(gap: u64, max_par: u64) -> Participation {
    Participation::at_least(Gap::new(gap).unwrap(), max_par).unwrap()
}

/// Runs `work` on a pool of so many threads.
pub(crate) fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(work)
}

/// Checks a relative error.
#[track_caller]
pub(crate) fn close(got: f64, want: f64, tolerance: f64) {
    assert!((got / want - 1.0).abs() <= tolerance, "{got} {want}");
}
