//! One release alone: integrated, not composed.

use super::composition::MIN_LOG_DELTA;
use super::mixture::GaussianMixtures;
use crate::{Epsilon, NoiseMultiplier, gaussian};

/// One release of a pair of Gaussian mixtures.
pub(super) struct SingleRelease<'a>(pub(super) &'a GaussianMixtures);

impl SingleRelease<'_> {
    pub(super) fn log_delta(&self, epsilon: f64) -> f64 {
        if let (Some(z), Ok(epsilon)) = (self.gaussian(), Epsilon::new(epsilon)) {
            return gaussian::log_delta(z, epsilon);
        }
        let mut log_tail = -100.0;
        loop {
            let log_delta = self
                .0
                .log_hockey_stick(epsilon, log_tail)
                .max(self.0.log_hockey_stick_reversed(epsilon, log_tail));
            if log_delta > log_tail + 50.0 || log_tail < 2.0 * MIN_LOG_DELTA {
                return log_delta.min(0.0);
            }
            log_tail *= 2.0;
        }
    }

    /// The noise multiplier of a plain Gaussian.
    fn gaussian(&self) -> Option<NoiseMultiplier> {
        self.0.as_gaussian().and_then(|z| NoiseMultiplier::new(z).ok())
    }

    pub(super) fn epsilon(&self, log_delta: f64) -> f64 {
        if let Some(z) = self.gaussian() {
            return gaussian::epsilon_at_log_delta(z, log_delta).map_or(f64::INFINITY, Epsilon::get);
        }
        if self.log_delta(0.0) <= log_delta {
            return 0.0;
        }
        let mut high = 1.0;
        while self.log_delta(high) > log_delta {
            high *= 2.0;
        }
        crate::search::first_true(0.0, high, 1e-14, |epsilon| self.log_delta(epsilon) <= log_delta)
    }
}
