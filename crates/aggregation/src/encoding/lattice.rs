//! The lattice that rotated encodings share: scale, clip, rotate, clip again, round conditionally.

use undertone_accounting::distributed::RoundedSensitivity;
use undertone_mechanisms::{NoiseKey, UniformWords};

use super::rounding::{LARGEST, Placement, energy, largest, round_within};
use crate::error::{AggregationError, Result, positive};
use crate::rotation::Rotation;
use crate::weight::check_weight;

/// The constant of conditional rounding, `alpha = exp(-1/2)` as in production: an attempt fails with at most this
/// probability.
pub(super) const ALPHA: f64 = 0.606_530_659_712_633_4;

/// Room that the clip leaves for the rounding errors of an `f32` rotation.
///
/// Each of at most 31 levels of butterflies adds at most `2^-24` of the norm, and so do the factor and the product with
/// it: together below `2^-18`.
const CLIP_ROOM: f64 = 1.0 - 1.0 / (1u64 << 18) as f64;

/// Integer vectors of bounded norm that stand for clipped updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lattice {
    /// `s`: grid steps in one unit.
    scale: f64,
    clip_norm: f64,
    padded: usize,
    /// `C_inf`: largest magnitude of a coordinate.
    cap: u64,
    /// Largest squared norm of the integers.
    bound: u128,
    sensitivity: RoundedSensitivity,
}

impl Lattice {
    /// # Errors
    /// A scale that is not positive and finite, or so large that coordinates leave `2^24` or fall below single precision.
    pub(super) fn new(dim: usize, clip_norm: f64, scale: f64) -> Result<Self> {
        let padded = dim.next_power_of_two();
        positive("scale", scale)?;
        let cap = infinity_cap(padded, clip_norm * scale);
        if cap > LARGEST {
            return Err(AggregationError::EncodingTooLarge {
                what: "coordinates in grid steps",
                limit: 24,
                got: cap.log2(),
                remedy: "choose a smaller scale",
            });
        }
        let sensitivity = RoundedSensitivity::new(clip_norm, scale.recip(), padded as u64, ALPHA)?;
        // PRIVACY: rounded down, past what the floating-point evaluation of the formula can be off.
        let steps = sensitivity.l2() * scale;
        let bound = (steps * steps * (1.0 - 1e-14)).floor() as u128;
        Ok(Self {
            scale,
            clip_norm,
            padded,
            cap: cap as u64,
            bound,
            sensitivity,
        })
    }

    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Largest norm of the integers of one client, rounded up.
    pub(super) fn integer_norm(&self) -> f64 {
        (self.bound as f64).sqrt().next_up()
    }

    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    /// Norms of what one client adds, in the unit of the updates.
    pub(super) fn sensitivity(&self) -> RoundedSensitivity {
        self.sensitivity
    }

    /// The maximum that one client's rounding adds to the squared error of a coordinate of the sum.
    pub(super) fn rounding_variance(&self) -> f64 {
        0.25 / (self.scale * self.scale)
    }

    /// The integers of one client, block by block; `work` holds the rotated update afterwards.
    pub(super) fn encode(
        &self,
        rotation: &Rotation,
        (update, weight): (&[f32], f64),
        (key, round): (&NoiseKey, u64),
        work: &mut [f32],
        put: impl FnMut(usize, &[i32]) -> Result<()>,
    ) -> Result<()> {
        let factor = clip_factor(update, weight, self.clip_norm)? * self.scale / (self.padded as f64).sqrt();
        rotation.forward(update, factor as f32, work)?;
        let placement = self.placement(largest(work));
        let words = UniformWords::rounding(key, round)?;
        round_within(work, placement, words, self.bound, put)
    }

    /// The infinity clip of the paper: the whole vector shrinks until its largest coordinate fits.
    fn placement(&self, largest: f32) -> Placement {
        let cap = self.cap as f32;
        Placement {
            shrink: if largest > cap { cap / largest } else { 1.0 },
            cap,
            half: 0.0,
        }
    }
}

/// `C_inf = ceil(2 s C ln(d) / sqrt(d))`, but never more than `ceil(s C)`, which no coordinate exceeds; in one or two
/// dimensions, where the logarithm is no bound, exactly that.
fn infinity_cap(padded: usize, steps: f64) -> f64 {
    let d = padded as f64;
    let fraction = if padded <= 2 {
        1.0
    } else {
        (2.0 * d.ln() / d.sqrt()).min(1.0)
    };
    (fraction * steps).ceil()
}

/// `w min(1, C / norm)`, short of what single precision may add.
///
/// # Errors
/// [`AggregationError::NotFinite`], and a weight outside `[0, 1]`.
pub(super) fn clip_factor(update: &[f32], weight: f64, clip_norm: f64) -> Result<f64> {
    let norm = checked_energy(update, weight)?.sqrt();
    Ok(weight * (CLIP_ROOM * clip_norm / norm).min(1.0))
}

/// The squared norm of an update that can be weighted.
pub(super) fn checked_energy(update: &[f32], weight: f64) -> Result<f64> {
    check_weight(weight)?;
    let energy = energy(update);
    if !energy.is_finite() {
        let index = update.iter().position(|x| !x.is_finite()).unwrap_or_default();
        let what = "update";
        return Err(AggregationError::NotFinite { what, index });
    }
    Ok(energy)
}
