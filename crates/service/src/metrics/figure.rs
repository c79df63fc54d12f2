//! A number of events and the sum of their values, shown in steps.

/// Events that are shown in steps of a number of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    step: u64,
    shown: (u64, f64),
    /// Events since the last step. Nobody sees them.
    waiting: (u64, f64),
}

impl Figure {
    pub(super) fn in_steps_of(step: u64) -> Self {
        Self {
            step,
            shown: (0, 0.0),
            waiting: (0, 0.0),
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + value);
        if self.waiting.0 == self.step {
            let (count, sum) = core::mem::take(&mut self.waiting);
            self.shown = (self.shown.0 + count, self.shown.1 + sum);
        }
    }

    /// The number of events and the sum of their values; `None` before the first step.
    pub(super) fn shown(&self) -> Option<(u64, f64)> {
        (self.shown.0 > 0).then_some(self.shown)
    }
}

/// A number of devices that are there now: the multiple of the step below it; `None` below the first step.
#[must_use]
pub fn in_steps(number: u64) -> Option<u64> {
    (number >= super::STEP).then_some(number - number % super::STEP)
}
