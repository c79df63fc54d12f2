//! Events in time order: bins of a minute, and a heap for the one that is being emptied.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Seconds of a bin.
const BIN: u32 = 64;

/// Bins of the ring: twelve days. An event farther away waits in its bin while the ring turns.
const BINS: usize = 1 << 14;

/// The pending events of all devices.
///
/// A bin is written at its end alone and sorted when its time comes, so scheduling touches little memory whatever the
/// number of devices; one heap of all events would touch twenty places of a large array.
#[derive(Debug)]
pub(super) struct Calendar {
    /// Events of bins to come, as [`event`] writes them.
    bins: Vec<Vec<u64>>,
    /// The bin that is being emptied.
    now: u32,
    current: BinaryHeap<Reverse<u64>>,
}

/// A device's event as a number that sorts by time, then by device.
fn event(device: u32, time: u32) -> u64 {
    u64::from(time) << 32 | u64::from(device)
}

fn time_of(event: u64) -> u32 {
    (event >> 32) as u32
}

impl Calendar {
    /// A calendar without events, from this second on.
    pub(super) fn new(now: u32) -> Self {
        Self {
            bins: vec![Vec::new(); BINS],
            now: now / BIN,
            current: BinaryHeap::new(),
        }
    }

    /// Schedules an event of the device at this time, which must not be over.
    pub(super) fn schedule(&mut self, device: u32, time: u32) {
        let (event, bin) = (event(device, time), time / BIN);
        if bin <= self.now {
            self.current.push(Reverse(event));
        } else {
            self.bins[bin as usize % BINS].push(event);
        }
    }

    /// Moves on to the bin of this second. Returns `true` if it is a new one.
    pub(super) fn advance(&mut self, second: u32) -> bool {
        let before = self.now;
        while self.now < second / BIN {
            self.now += 1;
            // The bin gives its memory back: none is filled again for twelve days.
            for event in std::mem::take(&mut self.bins[self.now as usize % BINS]) {
                if time_of(event) / BIN <= self.now {
                    self.current.push(Reverse(event));
                } else {
                    self.bins[self.now as usize % BINS].push(event);
                }
            }
        }
        self.now > before
    }

    /// Devices with events in the current bin, in no order.
    pub(super) fn current(&self) -> impl Iterator<Item = u32> {
        self.current.iter().map(|Reverse(event)| *event as u32)
    }

    /// The next device with an event up to this second, which [`Calendar::advance`] has moved to.
    pub(super) fn next(&mut self, second: u32) -> Option<u32> {
        let Reverse(event) = *self.current.peek()?;
        if time_of(event) > second {
            return None;
        }
        self.current.pop();
        Some(event as u32)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;

    use super::super::super::ParticipationKey;
    use super::*;

    #[test]
    fn every_event_comes_in_its_second() {
        let turn = BIN * BINS as u32;
        let (devices, start) = (500, 1000);
        let mut calendar = Calendar::new(start);
        let mut generator = ParticipationKey::from_bytes([3; 32]).generator(b"test");
        // Up to three turns of the ring ahead.
        let mut times: Vec<u32> = (0..devices)
            .map(|_| start + (generator.next_u64() % u64::from(3 * turn)) as u32)
            .collect();
        for (device, &time) in (0..devices).zip(&times) {
            calendar.schedule(device, time);
        }
        let mut seen = 0;
        for now in start..start + 4 * turn {
            calendar.advance(now);
            while let Some(device) = calendar.next(now) {
                let time = &mut times[device as usize];
                assert_eq!(*time, now);
                seen += 1;
                // Half of them come again, some in the same bin.
                if seen % 2 == 0 && seen < 900 {
                    *time = now + 1 + (generator.next_u64() % 200) as u32;
                    calendar.schedule(device, *time);
                }
            }
        }
        assert_eq!(calendar.current().count(), 0);
        assert!(calendar.bins.iter().all(Vec::is_empty));
        assert!(seen > 700, "{seen}");
    }

    #[test]
    fn devices_of_a_second_come_in_order() {
        let mut calendar = Calendar::new(0);
        for device in [2, 0, 1] {
            calendar.schedule(device, 7);
        }
        assert_eq!((calendar.next(6), calendar.next(7)), (None, Some(0)));
        assert_eq!(
            (calendar.next(7), calendar.next(9), calendar.next(9)),
            (Some(1), Some(2), None)
        );
    }
}
