//! The pairs that are composed, and the number that is asked of them.

use super::pair::Pair;

/// Relative accuracy of epsilon aimed at by a first look.
pub(super) const COARSE: f64 = 5e-4;
/// No delta below this is told apart from zero: the smallest normal number is e^-708.
pub(super) const MIN_LOG_DELTA: f64 = -800.0;

/// Pairs with how often each is composed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composition {
    pub(super) parts: Vec<(Pair, u64)>,
}

impl Composition {
    pub(crate) fn push(&mut self, pair: Pair, count: u64) {
        self.parts.push((pair, count));
    }
}

/// The number to solve for: the smallest epsilon at `ln delta`, or `ln delta` at an epsilon.
#[derive(Debug, Clone, Copy)]
pub(super) enum Solve {
    LogDelta(f64),
    Epsilon(f64),
}
