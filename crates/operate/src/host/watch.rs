//! Looks at the machine: room on the disk, and the clock. Each is a trouble while it is wrong.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use undertone_service::server::Service;
use undertone_service::trouble::{Trouble, Troubles};

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// The time between two tries to write.
const WRITE: Duration = Duration::from_secs(5);

/// Bytes of a try to write.
const TRIED: [u8; 4096] = [0; 4096];

/// The time by which clocks may differ, in milliseconds.
const APART: u64 = 60_000;

/// A step of the clock may be the end of a wrong time. After so long the time after it is taken as right.
const SETTLED: Duration = Duration::from_secs(600);

/// The looks at the machine.
#[derive(Debug)]
pub(super) struct Watch {
    folder: PathBuf,
    /// Bytes that the disk of the data folder must have free.
    floor: u64,
    looked: Option<Instant>,
    wrote: Option<Instant>,
    clock: Steps,
}

impl Watch {
    pub(super) fn new(folder: &Path, floor: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            floor,
            looked: None,
            wrote: None,
            clock: Steps::default(),
        }
    }

    /// Looks at the machine, once per second.
    pub(super) fn look(&mut self, service: &Service) {
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let troubles = service.troubles();
        self.disk(troubles);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        match self
            .clock
            .wrong(wall, Instant::now(), service.shared().store.now())
        {
            Some(reason) => troubles.failed(Trouble::Clock, &reason),
            None => troubles.works(Trouble::Clock),
        }
    }

    fn disk(&mut self, troubles: &Troubles) {
        let free = undertone_service::metrics::free_bytes(&self.folder);
        if let Some(free) = free.filter(|free| *free < self.floor) {
            let (folder, floor) = (self.folder.display(), self.floor);
            let reason = format!("{folder}: expected {floor} bytes or more that are free, got {free}");
            return troubles.failed(Trouble::Disk, &reason);
        }
        if self.wrote.is_some_and(|at| at.elapsed() < WRITE) {
            return;
        }
        self.wrote = Some(Instant::now());
        // A file without a name, so nothing is left behind.
        let written = tempfile::tempfile_in(&self.folder).and_then(|mut file| file.write_all(&TRIED));
        match written {
            Ok(()) => troubles.works(Trouble::Disk),
            // The kinds of a full table of files, and of a full disk, differ.
            Err(error) if undertone_service::metrics::no_descriptor(&error) => {
                troubles.failed(Trouble::Descriptors, &error);
            }
            Err(error) => troubles.failed(Trouble::Disk, &format!("{}: {error}", self.folder.display())),
        }
    }
}

/// The steps of the clock of this machine, by a clock that has none.
#[derive(Debug, Default)]
struct Steps {
    /// The time of day and the steady time at which the two agreed.
    agreed: Option<(u64, Instant)>,
    stepped: Option<Instant>,
}

impl Steps {
    /// The reason for which the clock is wrong at a time of day, a steady time, and a time of the store.
    fn wrong(&mut self, wall: u64, steady: Instant, store: u64) -> Option<String> {
        let (then, since) = *self.agreed.get_or_insert((wall, steady));
        let passed = steady.duration_since(since).as_millis() as u64;
        let expected = then.saturating_add(passed);
        if wall.abs_diff(expected) > APART {
            let stepped = *self.stepped.get_or_insert(steady);
            if steady.duration_since(stepped) < SETTLED {
                return Some(format!(
                    "the clock of this machine has jumped by {} s",
                    wall.abs_diff(expected) / 1000
                ));
            }
            self.agreed = Some((wall, steady));
        }
        self.stepped = None;
        let apart = wall.abs_diff(store);
        (apart > APART).then(|| {
            format!(
                "the clock of this machine and that of the store are {} s apart",
                apart / 1000
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    #[test]
    fn a_clock_that_jumps_is_wrong_until_it_is_back_or_has_settled() {
        let (mut steps, begun) = (Steps::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert_eq!(steps.wrong(NOW, at(0), NOW), None);
        assert_eq!(steps.wrong(NOW + 10_000, at(10), NOW + 10_000), None);
        let ahead = NOW + 3_600_000;
        let said = steps.wrong(ahead, at(11), ahead).unwrap();
        assert!(said.contains("jumped by 3589 s"), "{said}");
        // It is back.
        assert_eq!(steps.wrong(NOW + 12_000, at(12), NOW + 12_000), None);
        // It stays: the new time is right.
        assert!(steps.wrong(ahead, at(13), ahead).is_some());
        assert!(steps.wrong(ahead + 500_000, at(513), ahead + 500_000).is_some());
        assert_eq!(steps.wrong(ahead + 601_000, at(614), ahead + 601_000), None);
        assert_eq!(steps.wrong(ahead + 602_000, at(615), ahead + 602_000), None);
    }

    #[test]
    fn a_clock_that_is_not_that_of_the_store_is_wrong_until_they_meet() {
        let (mut steps, begun) = (Steps::default(), Instant::now());
        let said = steps.wrong(NOW, begun, NOW + 120_000).unwrap();
        assert!(said.contains("120 s apart"), "{said}");
        let later = begun + Duration::from_secs(90);
        assert_eq!(steps.wrong(NOW + 90_000, later, NOW + 120_000), None);
    }

    #[test]
    fn a_disk_without_room_is_a_trouble_and_one_with_room_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let troubles = Troubles::with_quiet(Duration::ZERO);
        let there = || {
            troubles
                .counts()
                .iter()
                .any(|(kind, n)| *kind == Trouble::Disk && *n > 0)
        };
        Watch::new(folder.path(), u64::MAX).disk(&troubles);
        assert!(there());
        Watch::new(folder.path(), 0).disk(&troubles);
        assert!(!there());
        Watch::new(&folder.path().join("absent"), 0).disk(&troubles);
        assert!(there());
    }
}
