//! Adaptive clipping: a clip norm that follows a quantile of the users' update norms, privately.

use serde::{Deserialize, Serialize};

use crate::task::ClipConfig;

/// The estimate of the quantile, and the norm that is in force.
///
/// Each user returns one bit: 1 if its update is no longer than the estimate `C^t`. From the noised prefix sum of the mean
/// bits, `C^{t+1} = C^0 exp(-eta (b^t - (t + 1) gamma))` with `t` counted from the last restart. Where the trees restart, the
/// estimate becomes the norm in force and the new `C^0`.
///
/// # Guarantee
/// The estimate is computed only from released bits, whose cost is in the plan.
///
/// # Source
/// \[Gboard\] Algorithm 1; Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive Clipping"
/// (2021), section 2.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AdaptiveClip {
    /// `C_theta`: the bound on each update.
    active: f64,
    /// `C^t`: the norm that the bits compare with.
    estimate: f64,
    /// The estimate at the start of this segment.
    start: f64,
    /// Noised prefix sum of the mean bits, each less one half.
    centred: f64,
    /// Rounds since the last restart.
    rounds: u64,
    quantile: f64,
    learning_rate: f64,
}

impl AdaptiveClip {
    /// The state before the first round; `None` for other kinds of clipping.
    #[must_use]
    pub fn new(config: &ClipConfig) -> Option<Self> {
        let ClipConfig::Adaptive {
            initial_norm,
            quantile,
            learning_rate,
            ..
        } = *config
        else {
            return None;
        };
        Some(Self {
            active: initial_norm,
            estimate: initial_norm,
            start: initial_norm,
            centred: 0.0,
            rounds: 0,
            quantile,
            learning_rate,
        })
    }

    /// The norm that bounds every update.
    #[must_use]
    pub fn active(&self) -> f64 {
        self.active
    }

    /// The norm that the users' bits compare with.
    #[must_use]
    pub fn estimate(&self) -> f64 {
        self.estimate
    }

    /// Takes the noised mean of a round's bits, each less one half.
    pub fn observe(&mut self, centred_mean: f64) {
        self.centred += centred_mean;
        self.rounds += 1;
        // The mean bit is the centred one and a half; gamma is taken from every round alike.
        let excess = self.centred + (0.5 - self.quantile) * self.rounds as f64;
        let estimate = self.start * (-self.learning_rate * excess).exp();
        // Noise alone must not drive the norm out of the range of numbers that a model's updates can have.
        self.estimate = estimate.clamp(MIN_NORM, MAX_NORM);
    }

    /// Puts the estimate into force, where the trees restart.
    pub fn restart(&mut self) {
        self.restart_at(self.estimate);
    }

    /// The trees restart with this norm in force.
    pub(crate) fn restart_at(&mut self, norm: f64) {
        (self.active, self.estimate, self.start) = (norm, norm, norm);
        self.centred = 0.0;
        self.rounds = 0;
    }
}

/// No update of a model that trains is shorter than this on the sum's grid of 2^-40, nor longer than its range.
const MIN_NORM: f64 = 1e-6;
const MAX_NORM: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(quantile: f64) -> AdaptiveClip {
        AdaptiveClip::new(&ClipConfig::Adaptive {
            initial_norm: 1.0,
            quantile,
            learning_rate: 0.2,
            bit_noise_std: None,
        })
        .unwrap()
    }

    /// Without noise, on norms that are uniform in [0, 5]: the quantile is found, and comes into force at restarts only.
    #[test]
    fn the_clip_norm_finds_the_quantile() {
        for quantile in [0.25, 0.5, 0.9] {
            let mut clip = clip(quantile);
            for _ in 0..2 {
                let before = clip.active();
                for _ in 0..200 {
                    let below = (clip.estimate() / 5.0).min(1.0);
                    clip.observe(below - 0.5);
                    assert_eq!(clip.active(), before);
                }
                clip.restart();
                assert_eq!(clip.active(), clip.estimate());
            }
            assert!((clip.active() - 5.0 * quantile).abs() < 0.01, "{clip:?}");
        }
    }

    #[test]
    fn one_step_is_the_formula() {
        let mut clip = clip(0.5);
        clip.observe(0.3);
        clip.observe(-0.1);
        assert!((clip.estimate() - (-0.2f64 * 0.2).exp()).abs() < 1e-15);
        assert_eq!(clip.active(), 1.0);
        clip.observe(-1e9);
        assert_eq!(clip.estimate(), MAX_NORM);
    }

    #[test]
    fn other_kinds_have_no_adaptive_clip() {
        assert!(
            AdaptiveClip::new(&ClipConfig::Flat {
                norm: 1.0,
                normalised: false
            })
            .is_none()
        );
    }
}
