//! The times at which devices may work.

use crate::error::{FleetError, Result};

/// The times at which each device may work. A session that runs when its device stops being available is stopped.
pub trait Availability: Send + Sync {
    /// The first time from `at_ms` on at which the device may work; `None` if it never may again. Times are in milliseconds since 1970.
    fn next(&self, device: usize, at_ms: u64) -> Option<u64>;
}

/// Devices that may always work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Always;

impl Availability for Always {
    fn next(&self, _: usize, at_ms: u64) -> Option<u64> {
        Some(at_ms)
    }
}

/// Windows of time that repeat with a period, such as the nights of a recorded week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    period_ms: u64,
    windows: Vec<Vec<(u64, u64)>>,
}

impl Trace {
    /// The windows `from..to` of each row, in milliseconds from the start of a period. Device `i` follows row `i` modulo their number.
    ///
    /// # Errors
    /// [`FleetError::Value`] for no rows, and for windows that are empty, not in order, or end after the period.
    pub fn new(period_ms: u64, windows: Vec<Vec<(u64, u64)>>) -> Result<Self> {
        let expected = "at least one row of windows";
        if windows.is_empty() {
            return Err(FleetError::value("availability.windows", expected, "no row"));
        }
        for row in &windows {
            let mut free_from = 0;
            for &(from, to) in row {
                if from < free_from || to <= from || to > period_ms {
                    let expected = format!("in order, not empty and within {period_ms} ms");
                    return Err(FleetError::value(
                        "availability.windows",
                        expected,
                        format!("{from}..{to}"),
                    ));
                }
                free_from = to;
            }
        }
        Ok(Self { period_ms, windows })
    }
}

impl Availability for Trace {
    fn next(&self, device: usize, at_ms: u64) -> Option<u64> {
        let row = &self.windows[device % self.windows.len()];
        let (start, within) = (at_ms - at_ms % self.period_ms, at_ms % self.period_ms);
        match row.iter().find(|(_, to)| within < *to) {
            Some((from, _)) => Some(start + within.max(*from)),
            None => row.first().map(|(from, _)| start + self.period_ms + from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_works_in_its_windows_alone() {
        let trace = Trace::new(100, vec![vec![(10, 20), (50, 60)], vec![]]).unwrap();
        for (at, expected) in [(0, 10), (10, 10), (19, 19), (20, 50), (60, 110), (355, 355)] {
            assert_eq!(trace.next(0, at), Some(expected), "at {at}");
            assert_eq!(trace.next(2, at), Some(expected), "rows repeat");
        }
        assert_eq!(trace.next(1, 5), None);
        assert_eq!(Always.next(3, 5), Some(5));
    }

    #[test]
    fn windows_out_of_order_or_beyond_the_period_are_refused() {
        for bad in [
            vec![],
            vec![vec![(5, 5)]],
            vec![vec![(5, 101)]],
            vec![vec![(20, 30), (10, 15)]],
            vec![vec![(10, 20), (15, 30)]],
        ] {
            assert!(Trace::new(100, bad.clone()).is_err(), "{bad:?}");
        }
    }
}
