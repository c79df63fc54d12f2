//! Clocks of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Millis;

/// The last time that a store reads: databases count in signed 64 bits.
pub(crate) const MAX_MILLIS: Millis = i64::MAX as u64;

/// A source of the time that a store goes by.
pub trait Clock: Send + Sync {
    /// The time in milliseconds since 1970.
    fn now(&self) -> Millis;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(MAX_MILLIS)
    }
}

/// A clock that stands until its owner moves it, for tests and simulations. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at this time.
    #[must_use]
    pub fn at(now: Millis) -> Self {
        Self(Arc::new(AtomicU64::new(now)))
    }

    /// Moves the clock forward by this number of milliseconds.
    pub fn advance(&self, by: Millis) {
        let forward = |now: u64| Some(now.saturating_add(by).min(MAX_MILLIS));
        // The closure always gives a value, so the update always succeeds.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, forward);
    }

    /// Sets the clock, also back.
    pub fn set(&self, now: Millis) {
        self.0.store(now, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.0.load(Ordering::SeqCst)
    }
}

/// A clock that never goes back: a lease that has ended stays ended when the machine's clock is set back.
pub(crate) struct Watch {
    clock: Arc<dyn Clock>,
    latest: AtomicU64,
}

impl Watch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            latest: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Millis {
        let now = self.clock.now().min(MAX_MILLIS);
        self.latest.fetch_max(now, Ordering::SeqCst).max(now)
    }
}

/// The time so many milliseconds from `now`.
pub(crate) fn after(now: Millis, ttl: Millis) -> Millis {
    now.saturating_add(ttl).min(MAX_MILLIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_store_never_goes_back() {
        let clock = ManualClock::at(50);
        let watch = Watch::new(Arc::new(clock.clone()));
        assert_eq!(watch.now(), 50);
        clock.set(20);
        assert_eq!(watch.now(), 50);
        clock.advance(100);
        assert_eq!(watch.now(), 120);
        clock.set(u64::MAX);
        assert_eq!(watch.now(), MAX_MILLIS);
    }

    #[test]
    fn the_machine_s_clock_is_after_2020() {
        assert!(SystemClock.now() > 1_577_836_800_000);
    }
}
