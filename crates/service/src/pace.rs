//! Pace steering: the time at which a device comes back.
//!
//! A device draws a moment of the window that it is given, uniformly. The windows make devices arrive at the rate that a task can
//! use, whatever the size of the population. A small population meets: its windows end soon after the next attempt opens.
//!
//! Everything here is a function of its arguments. Times are in milliseconds.

mod population;

use undertone_protocol::RetryWindow;
use undertone_store::Millis;

pub use population::CheckInCounter;

/// Windows of small populations end this long after the next planned attempt.
pub(crate) const MEETING: Millis = 60_000;

/// Windows never end later than this: a device that comes back is seen once per week at least.
pub(crate) const MAX_WAIT: Millis = 7 * 24 * 3_600_000;

/// A population below this multiple of the goal meets.
const SMALL: u64 = 10;

/// Doublings of a window after which it grows no more.
const MAX_DOUBLINGS: u32 = 6;

/// The arrivals that a task can use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Number of reports that end a round.
    pub goal: u32,
    /// Sessions that are open at one time, per report of the goal.
    pub over_selection: f64,
    /// Check-ins that are asked for, per session that is needed.
    pub checkins_per_needed: f64,
    /// Min time between two check-ins of a device.
    pub min_interval: Millis,
}

impl Demand {
    /// Sessions that the task needs per second, at this time per round.
    #[must_use]
    pub(crate) fn needed(&self, round: Millis) -> f64 {
        self.over_selection * f64::from(self.goal) / (round.max(1) as f64 / 1000.0)
    }

    /// Check-ins that the task asks for per second, at this time per round.
    #[must_use]
    pub fn offered(&self, round: Millis) -> f64 {
        self.checkins_per_needed * self.needed(round)
    }

    /// `true` if a population of this size meets.
    #[must_use]
    pub(crate) fn is_small(&self, population: u64) -> bool {
        population < SMALL * u64::from(self.goal)
    }

    /// The mean time between two check-ins of a device, for a population of this size.
    #[must_use]
    pub(crate) fn interval(&self, population: u64, round: Millis) -> Millis {
        let interval = 1000.0 * population as f64 / self.offered(round);
        let interval = if interval.is_finite() {
            interval as Millis
        } else {
            MAX_WAIT
        };
        interval.max(self.min_interval).min(MAX_WAIT)
    }
}

/// The present of a task, as pace steering sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// The arrivals that it can use.
    pub demand: Demand,
    /// The estimated number of devices.
    pub population: u64,
    /// The expected time of a round.
    pub round: Millis,
    /// The time until the next planned attempt opens; 0 while one takes devices.
    pub next_attempt: Millis,
}

/// The reason why a device gets a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The session of the device has ended, or the task had no place for the device.
    Later,
    /// The subject of the device may take part again after this many rounds.
    TooSoon {
        /// Number of rounds that must pass first, the present one included.
        rounds: u64,
    },
    /// The subject of the device has an open session for at least this many milliseconds.
    After(Millis),
    /// The server has too much to do, for the device's n-th time in a row.
    Busy {
        /// The number of refusals in a row, from 1.
        times: u32,
    },
    /// The task never takes the device again.
    Never,
}

/// The window in which a device comes back, in milliseconds from now.
#[must_use]
pub fn window(outlook: &Outlook, cause: Cause) -> RetryWindow {
    match cause {
        Cause::Later => regular(outlook, 0),
        Cause::TooSoon { rounds } => regular(outlook, outlook.round.saturating_mul(rounds)),
        Cause::After(wait) => regular(outlook, wait),
        Cause::Busy { times } => doubled(spread(outlook), times),
        Cause::Never => RetryWindow::between(MAX_WAIT / 2, MAX_WAIT),
    }
}

/// A window for a device for which the board has no task: it spreads devices over the min interval.
#[must_use]
pub(crate) fn idle(min_interval: Millis) -> RetryWindow {
    let interval = min_interval.clamp(1000, MAX_WAIT / 2);
    RetryWindow::between(interval, 2 * interval)
}

/// A window that is doubled for each refusal in a row.
#[must_use]
pub(crate) fn doubled(window: RetryWindow, times: u32) -> RetryWindow {
    let factor = 1 << times.min(MAX_DOUBLINGS);
    let longer = |wait: Millis| wait.saturating_mul(factor).min(MAX_WAIT);
    RetryWindow::between(longer(window.min_ms), longer(window.max_ms))
}

/// A window that begins at `earliest` or later.
fn regular(outlook: &Outlook, earliest: Millis) -> RetryWindow {
    let earliest = earliest.min(MAX_WAIT / 2);
    if outlook.demand.is_small(outlook.population) {
        return meeting(outlook, earliest);
    }
    let window = spread(outlook);
    let width = window.max_ms - window.min_ms;
    let start = window.min_ms.max(earliest);
    RetryWindow::between(start, start + width)
}

/// The mean interval of a device, plus and minus one half. It never begins before the min interval.
fn spread(outlook: &Outlook) -> RetryWindow {
    let demand = &outlook.demand;
    let interval = demand.interval(outlook.population, outlook.round);
    let start = (interval / 2).max(demand.min_interval);
    RetryWindow::between(start, start.saturating_add(interval.max(1000)))
}

/// The first opening of an attempt that is far enough away, and a minute after it. Attempts are expected once per round time.
fn meeting(outlook: &Outlook, earliest: Millis) -> RetryWindow {
    let earliest = earliest.max(outlook.demand.min_interval);
    let round = outlook.round.max(1);
    let missing = earliest.saturating_sub(outlook.next_attempt);
    let rounds = missing.div_ceil(round);
    let start = outlook.next_attempt.saturating_add(rounds.saturating_mul(round));
    let start = start.min(MAX_WAIT - MEETING);
    RetryWindow::between(start, start + MEETING)
}

/// The expected time of a round: a mean over past rounds that forgets by one fifth per round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RoundTime(f64);

impl RoundTime {
    /// The expectation before the first round.
    #[must_use]
    pub(crate) fn new(expected: Millis) -> Self {
        Self(expected.max(1000) as f64)
    }

    /// Takes the time of a round, of at least a second.
    pub(crate) fn observe(&mut self, time: Millis) {
        self.0 += 0.2 * (time.max(1000) as f64 - self.0);
    }

    /// The expectation.
    #[must_use]
    pub(crate) fn expected(&self) -> Millis {
        self.0 as Millis
    }
}

#[cfg(test)]
mod tests;
