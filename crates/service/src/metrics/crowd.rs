//! Devices that come: reads of boards, and check-ins by their time and by the version of their app.

use std::collections::{BTreeMap, BTreeSet};

use undertone_protocol::{Digest32, digest_of};
use undertone_store::Millis;

use super::{Metrics, STEP, in_steps};

/// Check-ins are counted over spans of this many milliseconds.
pub const SPAN: Millis = 30_000;

/// Number of spans that are kept: an hour.
const SPANS: u64 = 120;

/// Max number of versions that are counted apart, so that hostile devices cannot fill the memory.
const MAX_VERSIONS: usize = 32;

/// A count that is shown once it covers at least ten different devices.
///
/// PRIVACY: keyed names of the first devices stand in memory until there are ten of them, and no longer.
#[derive(Default)]
pub(super) struct Crowd {
    count: u64,
    first: BTreeSet<[u8; 8]>,
    enough: bool,
}

impl Crowd {
    pub(super) fn add(&mut self, device: [u8; 8]) {
        self.count += 1;
        if !self.enough {
            self.first.insert(device);
            self.enough = self.first.len() as u64 >= STEP;
        }
        if self.enough {
            self.first.clear();
        }
    }

    pub(super) fn shown(&self) -> Option<u64> {
        in_steps(self.count).filter(|_| self.enough)
    }
}

/// The devices of a population that came since the start of the process.
#[derive(Default)]
pub(super) struct Arrivals {
    boards: u64,
    all: Crowd,
    versions: BTreeMap<u32, Crowd>,
    spans: BTreeMap<u64, Crowd>,
}

/// The figures of arrivals that may be shown. `None` stands for a count below ten.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arrived {
    /// Number of times that the board was read.
    pub boards: Option<u64>,
    /// Number of check-ins.
    pub check_ins: Option<u64>,
    /// Check-ins by the version of the app, for versions of at least ten devices.
    pub versions: Vec<(u32, u64)>,
    /// The begin of each span of the last hour, and its check-ins.
    pub spans: Vec<(Millis, Option<u64>)>,
}

impl Metrics {
    /// Counts a reading of the board of a population, which exists.
    pub(crate) fn board_read(&self, population: &str) {
        self.arrivals(population, |arrivals, _| arrivals.boards += 1);
    }

    /// Counts a check-in of a member of a population.
    pub(crate) fn arrived(&self, population: &str, device: &Digest32, version: u32, now: Millis) {
        self.arrivals(population, |arrivals, salt| {
            let mut name = [0; 8];
            let digest = digest_of(&[&salt[..], &device[..]].concat());
            name.copy_from_slice(&digest[..8]);
            arrivals.all.add(name);
            let known = arrivals.versions.len() < MAX_VERSIONS || arrivals.versions.contains_key(&version);
            if known {
                arrivals.versions.entry(version).or_default().add(name);
            }
            let span = now / SPAN;
            arrivals.spans.entry(span).or_default().add(name);
            arrivals
                .spans
                .retain(|number, _| *number + SPANS > span && *number <= span);
        });
    }

    /// The arrivals of a population.
    pub fn arrivals_of(&self, population: &str, now: Millis) -> Arrived {
        let inner = self.lock();
        let Some(found) = inner.arrivals.get(population) else {
            return Arrived::default();
        };
        let last = now / SPAN;
        let first = found.spans.keys().next().copied().unwrap_or(last);
        let first = first.max(last.saturating_sub(SPANS - 1));
        let shown = |number: u64| found.spans.get(&number).and_then(Crowd::shown);
        Arrived {
            boards: in_steps(found.boards),
            check_ins: found.all.shown(),
            versions: found
                .versions
                .iter()
                .filter_map(|(version, crowd)| Some((*version, crowd.shown()?)))
                .collect(),
            spans: (first..=last)
                .map(|number| (number * SPAN, shown(number)))
                .collect(),
        }
    }

    fn arrivals(&self, population: &str, change: impl FnOnce(&mut Arrivals, &Digest32)) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let salt = match inner.salt {
            Some(salt) => salt,
            // Without entropy nothing is counted.
            None => match crate::keys::random() {
                Ok(salt) => *inner.salt.insert(salt),
                Err(_) => return,
            },
        };
        if !inner.arrivals.contains_key(population) {
            inner.arrivals.insert(population.to_owned(), Arrivals::default());
        }
        if let Some(arrivals) = inner.arrivals.get_mut(population) {
            change(arrivals, &salt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(number: u32) -> Digest32 {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn check_ins_of_fewer_than_ten_devices_are_never_shown() {
        let metrics = Metrics::default();
        for _ in 0..50 {
            (0..9).for_each(|number| metrics.arrived("p", &device(number), 3, 5 * SPAN));
        }
        let nine = metrics.arrivals_of("p", 5 * SPAN);
        assert_eq!((nine.check_ins, nine.versions.len()), (None, 0));
        assert_eq!(nine.spans, [(5 * SPAN, None)]);
        metrics.arrived("p", &device(9), 3, 5 * SPAN);
        let ten = metrics.arrivals_of("p", 6 * SPAN);
        assert_eq!((ten.check_ins, ten.versions), (Some(450), vec![(3, 450)]));
        assert_eq!(ten.spans, [(5 * SPAN, Some(450)), (6 * SPAN, None)]);
        assert_eq!(metrics.arrivals_of("q", 0), Arrived::default());
    }

    #[test]
    fn hostile_versions_and_old_spans_take_no_memory() {
        let metrics = Metrics::default();
        for number in 0..10_000 {
            metrics.arrived("p", &device(number), number, u64::from(number) * SPAN);
        }
        let inner = metrics.lock();
        let arrivals = &inner.arrivals["p"];
        assert_eq!(arrivals.versions.len(), MAX_VERSIONS);
        assert_eq!(arrivals.spans.len() as u64, SPANS);
        assert!(arrivals.all.first.is_empty());
    }
}
