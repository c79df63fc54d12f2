//! The clock that a fleet lives by: that of the machine, or one that skips the time in which every device sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of time for all devices of a fleet.
pub trait FleetClock: Send + Sync {
    /// The present, in milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// Moves the clock towards `until_ms` while every device sleeps. Returns `false` for a clock that moves by itself.
    fn skip_to(&self, until_ms: u64) -> bool;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineClock;

impl FleetClock for MachineClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn skip_to(&self, _: u64) -> bool {
        false
    }
}

type Follower = Arc<dyn Fn(u64) + Send + Sync>;

/// A clock that stands until every device sleeps, and then moves to the next waking. Clones show the same time.
///
/// A service in the same process follows it: see [`followed_by`](Self::followed_by).
#[derive(Clone)]
pub struct VirtualClock {
    now: Arc<AtomicU64>,
    step_ms: u64,
    follower: Option<Follower>,
}

impl std::fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualClock")
            .field("now", &self.now)
            .field("step_ms", &self.step_ms)
            .finish_non_exhaustive()
    }
}

impl VirtualClock {
    /// A clock that stands at this time, in milliseconds since 1970.
    #[must_use]
    pub fn at(now_ms: u64) -> Self {
        Self {
            now: Arc::new(AtomicU64::new(now_ms)),
            step_ms: u64::MAX,
            follower: None,
        }
    }

    /// Moves by at most `step_ms` at once, so that a service gets its turns in between. A step of 0 counts as 1.
    #[must_use]
    pub fn with_step(self, step_ms: u64) -> Self {
        Self {
            step_ms: step_ms.max(1),
            ..self
        }
    }

    /// Tells every new time to `follower`, such as the clock of a store.
    #[must_use]
    pub fn followed_by(self, follower: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self {
            follower: Some(Arc::new(follower)),
            ..self
        }
    }
}

impl FleetClock for VirtualClock {
    fn now_ms(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    fn skip_to(&self, until_ms: u64) -> bool {
        let now = self.now_ms();
        let next = until_ms.min(now.saturating_add(self.step_ms)).max(now);
        self.now.fetch_max(next, Ordering::SeqCst);
        if let Some(follower) = &self.follower {
            follower(next);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_in_steps_and_never_back() {
        let shown = Arc::new(AtomicU64::new(0));
        let follower = Arc::clone(&shown);
        let clock = VirtualClock::at(100)
            .with_step(30)
            .followed_by(move |now| follower.store(now, Ordering::SeqCst));
        for (until, expected) in [(110, 110), (200, 140), (50, 140)] {
            assert!(clock.skip_to(until));
            assert_eq!(
                (clock.now_ms(), shown.load(Ordering::SeqCst)),
                (expected, expected)
            );
        }
    }

    #[test]
    fn the_clock_of_the_machine_cannot_be_skipped() {
        let before = MachineClock.now_ms();
        assert!(!MachineClock.skip_to(u64::MAX));
        assert!(MachineClock.now_ms() < before + 3_600_000);
    }
}
