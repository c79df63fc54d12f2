//! k-level stochastic quantisation with a binomial share of noise from every client (\[cpSGD\]).

use undertone_accounting::binomial::theorem::{BinomialNoise, Sensitivities};
use undertone_accounting::{Delta, Event};
use undertone_mechanisms::{Binomial, NoiseKey, UniformWords};

use super::lattice::clip_factor;
use super::rounding::{Placement, round_once};
use super::{EncodingSize, Levels};
use crate::error::{Result, ensure, positive};
use crate::rotation::Rotation;

/// Maximum number of levels: fractions between them still have 7 bits of single precision.
const MAX_LEVELS: u64 = 1 << 17;

/// Quantisation to levels, and shares of noise in units of the bin width.
#[derive(Debug, Clone)]
pub(super) struct Quantisation {
    levels: Levels,
    clip_norm: f64,
    x_max: f64,
    padded: usize,
    sampler: Binomial,
    event: Event,
    sensitivities: Sensitivities,
}

impl Quantisation {
    /// # Errors
    /// Fewer than two levels, no trials, a probability outside `(0, 1)`, a range that is not positive, a delta outside
    /// `(0, 1)`; [`undertone_accounting::AccountingError::BinomialVariance`] where Theorem 1 does not hold.
    pub(super) fn new(size: &EncodingSize, levels: Levels) -> Result<Self> {
        let padded = if levels.rotate {
            size.dim.next_power_of_two()
        } else {
            size.dim
        };
        let holds = (2..=MAX_LEVELS).contains(&levels.levels);
        ensure(holds, "levels", "from 2 to 2^17", levels.levels as f64)?;
        let (numerator, denominator) = levels.success_probability;
        let sampler = Binomial::new(levels.trials, numerator, denominator)?;
        let total = Delta::new(levels.delta)?;
        // Half for the norms of the quantised vectors, half for Theorem 1.
        let half = Delta::new(0.5 * total.get())?;
        let x_max = match levels.x_max {
            Some(x_max) => positive("x_max", x_max)?,
            None if levels.rotate => rotated_range(size, padded, half),
            None => size.clip_norm,
        };
        let sensitivities =
            Sensitivities::of_quantization(padded as u64, levels.levels, size.clip_norm, x_max, half)?;
        let trials = levels.trials.saturating_mul(size.min_clients);
        let success_probability = numerator as f64 / denominator as f64;
        let event = if padded == 1 {
            // One integer: its divergence is known exactly. Rounded under the same word, two numbers at distance t come
            // out at most ceil(t) apart, and no further than all levels.
            let moved = size.clip_norm / (2.0 * x_max / (levels.levels - 1) as f64);
            let shift = (moved * (1.0 + 1e-12)).ceil().min((levels.levels - 1) as f64) as u64;
            Event::Binomial {
                trials,
                success_probability,
                shift,
            }
        } else {
            let noise = BinomialNoise::new(padded as u64, trials, success_probability, 1.0)?;
            Event::ApproximateDp {
                epsilon: noise.epsilon(&sensitivities, half)?,
                delta: Some(total),
            }
        };
        Ok(Self {
            levels,
            clip_norm: size.clip_norm,
            x_max,
            padded,
            sampler,
            event,
            sensitivities,
        })
    }

    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    pub(super) fn rotates(&self) -> bool {
        self.levels.rotate
    }

    pub(super) fn padded(&self) -> usize {
        self.padded
    }

    /// Equation 10, in units of the bin width.
    pub(super) fn sensitivities(&self) -> Sensitivities {
        self.sensitivities
    }

    /// Distance of two levels.
    pub(super) fn bin_width(&self) -> f64 {
        2.0 * self.x_max / (self.levels.levels - 1) as f64
    }

    /// Largest integer that one client sends, the smallest being 0.
    pub(super) fn top(&self) -> u64 {
        self.levels.levels - 1 + self.levels.trials
    }

    /// Variance of one client's share, in squared bin widths.
    pub(super) fn share_variance(&self) -> f64 {
        let p = self.success_probability();
        self.levels.trials as f64 * p * (1.0 - p)
    }

    /// The mean integer that a client sends for a coordinate of zero.
    pub(super) fn bias(&self) -> f64 {
        0.5 * (self.levels.levels - 1) as f64 + self.levels.trials as f64 * self.success_probability()
    }

    fn success_probability(&self) -> f64 {
        let (numerator, denominator) = self.levels.success_probability;
        numerator as f64 / denominator as f64
    }

    /// The offset between the integers of [`encode`](Self::encode) and levels counted from 0.
    pub(super) fn lowest(&self) -> i64 {
        ((self.levels.levels - 1) / 2) as i64
    }

    /// The levels of one client, counted around the middle one, block by block.
    pub(super) fn encode(
        &self,
        rotation: Option<&Rotation>,
        (update, weight): (&[f32], f64),
        (key, round): (&NoiseKey, u64),
        work: &mut [f32],
        put: impl FnMut(usize, &[i32]) -> Result<()>,
    ) -> Result<()> {
        let factor = clip_factor(update, weight, self.clip_norm)? / self.bin_width();
        match rotation {
            Some(rotation) => {
                let factor = factor / (self.padded as f64).sqrt();
                rotation.forward(update, factor as f32, work)?;
            }
            None => work
                .iter_mut()
                .zip(update)
                .for_each(|(to, x)| *to = x * factor as f32),
        }
        let reach = 0.5 * (self.levels.levels - 1) as f32;
        // PRIVACY: coordinates are cut to the range one by one, which brings no two vectors further apart. So a coordinate
        // beyond x_max costs accuracy and no privacy: the third delta of Theorem 4 is not needed.
        let placement = Placement {
            shrink: 1.0,
            cap: reach,
            // With an even number of levels zero lies between two of them.
            half: if self.levels.levels.is_multiple_of(2) {
                0.5
            } else {
                0.0
            },
        };
        round_once(work, placement, UniformWords::rounding(key, round)?, put)
    }

    pub(super) fn noise(&self, key: &NoiseKey, round: u64, block: u64, out: &mut [i64]) -> Result<()> {
        Ok(self.sampler.fill_block(key, round, block, out)?)
    }
}

/// `X_max = 2 D sqrt(ln(2 n d / delta) / d)` of Theorem 4.
fn rotated_range(size: &EncodingSize, padded: usize, delta: Delta) -> f64 {
    let d = padded as f64;
    let logarithm = (2.0 * size.max_clients as f64 * d / delta.get()).ln();
    // A coordinate is never larger than the norm.
    size.clip_norm * (2.0 * (logarithm / d).sqrt()).min(1.0)
}
