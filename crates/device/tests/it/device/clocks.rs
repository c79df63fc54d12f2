//! Clocks that were wrong for a while.

use std::sync::atomic::Ordering;

use undertone_device::{AlwaysMet, Device, Ended, NetworkLost, Reply, Request, Stop, Transport};
use undertone_protocol::{SumMode, Verdict};

use crate::device::lab::Lab;
use crate::harness::{START, Service, plan};

/// Twelve years, in milliseconds.
const AHEAD: u64 = 12 * 365 * 24 * 3_600_000;

/// A service with a clock of its own, whatever that of the device shows.
struct Right {
    service: Service,
    now: u64,
}

impl Right {
    fn at(now: u64) -> Self {
        let service = Service::new(plan(SumMode::Plain));
        Self { service, now }
    }
}

impl Transport for Right {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        self.service.now = self.now;
        Ok(self.service.handle(request))
    }
}

fn run(device: &mut Device, service: &mut Right) -> Ended {
    device.run(service, &AlwaysMet, &Stop::default()).unwrap().ended
}

#[test]
fn a_clock_that_was_once_wrong_neither_deletes_texts_nor_locks_the_device_out() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let before = device.status().unwrap();
    assert!(before.training_examples > 0 && before.withheld_examples > 0);
    let mut service = Right::at(START + 2000);
    lab.clock.0.store(START + AHEAD, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(run(&mut device, &mut service), Ended::Clock);
    }
    // A start under the wrong clock, and a text that is added under it.
    drop(device);
    let mut device = lab.open();
    device.examples().sweep().unwrap();
    assert_eq!(run(&mut device, &mut service), Ended::Clock);
    lab.clock.0.store(START + 2000, Ordering::SeqCst);
    let after = device.status().unwrap();
    assert_eq!(
        (after.training_examples, after.withheld_examples),
        (before.training_examples, before.withheld_examples)
    );
    assert_eq!(after.wake_ms, 0, "a time of the wrong clock bars no session");
    assert_eq!(
        run(&mut device, &mut service),
        Ended::Reported(Some(Verdict::Included))
    );
}

#[test]
fn a_device_that_an_earlier_version_has_locked_takes_part_once_the_clock_is_right() {
    let lab = Lab::new();
    drop(lab.ready());
    let file = rusqlite::Connection::open(lab.store().join("device.sqlite")).unwrap();
    let late = (START + AHEAD).to_le_bytes().to_vec();
    let changed = file.execute(
        "UPDATE meta SET value = ?1 WHERE name IN ('latest_ms', 'trusted_from_ms')",
        [late],
    );
    assert_eq!(changed.unwrap(), 2);
    drop(file);
    let mut service = Right::at(START + 2000);
    let mut device = lab.open();
    // The time from which the file is trusted starts anew, so the timer of the task does too.
    let Ended::NotEligible(reasons) = run(&mut device, &mut service) else {
        panic!("the device waits for its timer");
    };
    let until = match reasons[..] {
        [(_, undertone_device::Ineligible::TooNew { until_ms })] => until_ms,
        _ => panic!("{reasons:?}"),
    };
    assert!(until < START + AHEAD / 100, "{until}");
    assert!(device.memory().unwrap().latest_ms < START + AHEAD / 100);
}

#[test]
fn a_clock_that_was_set_back_bars_the_device_until_a_board_confirms_it() {
    let lab = Lab::new();
    let mut device = lab.ready();
    let (early, late) = (START + 1_000_000, START + 5_000_000);
    let mut service = Right::at(late);
    lab.clock.0.store(late, Ordering::SeqCst);
    service.service.lies.board = Some(Box::new(|board| board.tasks.clear()));
    assert_eq!(run(&mut device, &mut service), Ended::NotEligible(Vec::new()));
    service.service.lies.board = None;
    lab.clock.0.store(early, Ordering::SeqCst);
    assert_eq!(run(&mut device, &mut service), Ended::Clock);
    assert_eq!(device.memory().unwrap().latest_ms, late);
    // The later time was wrong: the board says so.
    service.now = early;
    let ended = run(&mut device, &mut service);
    assert_eq!(ended, Ended::Reported(Some(Verdict::Included)));
    assert!(device.memory().unwrap().latest_ms < late);
}
