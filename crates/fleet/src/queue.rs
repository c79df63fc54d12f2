//! The order in which devices wake.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Devices by the time of their next step. Of equal times, the device that was put in first comes out first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pushed: u64,
}

impl Queue {
    /// Puts a device in, to wake at `wake_ms`.
    pub(crate) fn push(&mut self, wake_ms: u64, device: usize) {
        self.heap.push(Reverse((wake_ms, self.pushed, device)));
        self.pushed += 1;
    }

    /// Takes out the first device whose time has come.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<usize> {
        let Reverse((wake_ms, _, device)) = *self.heap.peek()?;
        if wake_ms > now_ms {
            return None;
        }
        self.heap.pop();
        Some(device)
    }

    /// The time of the next waking.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((wake_ms, ..))| *wake_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_wake_in_order_of_time_and_then_of_arrival() {
        let mut queue = Queue::default();
        for (wake, device) in [(30, 0), (10, 1), (20, 2), (10, 3), (10, 4), (20, 5)] {
            queue.push(wake, device);
        }
        assert_eq!(queue.next_ms(), Some(10));
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop_due(u64::MAX)).collect();
        assert_eq!(order, [1, 3, 4, 2, 5, 0]);
        assert_eq!(queue.next_ms(), None);
    }

    #[test]
    fn no_device_wakes_before_its_time() {
        let mut queue = Queue::default();
        queue.push(11, 7);
        assert_eq!(queue.pop_due(10), None);
        assert_eq!(queue.pop_due(11), Some(7));
        assert_eq!(queue.pop_due(12), None);
    }
}
