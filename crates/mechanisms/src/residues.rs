//! The road of a sum of residues as types: raw residues, noised residues, noised average.
//!
//! A modular sum is lifted after the noise is in it, and never before. Let `h` be the sum of the integers of all clients who follow
//! the encoding, `n` the noise and `a` whatever the other clients sent. The release is `(h + n + a) mod Q`, a function of `h + n`
//! and `a`; and `h + n` is a release of the mechanism on whole numbers, whose sensitivity is the integer bound of the encoding. A
//! server that lifted first would let the others choose where an honest change of 1 becomes a change of `Q`.
//!
//! PRIVACY: the memory of a mechanism keeps unreduced noise. With reduced memory a wrap would shift later rounds for one of two
//! neighbours only; `residues/tests.rs` enumerates a case in which that breaks the guarantee.

use crate::error::{Result, ensure, setting};
use crate::release::{Denominator, GRID, NoisedAverage, NonPrivate};

/// Maximum modulus: residues and their sums with reduced noise stay below `2^63`.
pub const MAX_MODULUS: u64 = 1 << 62;

impl Denominator {
    /// The denominator of averages whose integers stand for themselves, as residues do: one step is worth 1.
    pub const WHOLE_STEPS: Self = Self::Fixed(GRID);
}

/// The sum of a round modulo a number, without noise. As secret as a [`RawSum`](crate::RawSum).
///
/// ```compile_fail,E0277
/// let sum = undertone_mechanisms::RawResidues::new(vec![1, 2], 16).unwrap();
/// println!("{:?}", sum);
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct RawResidues {
    values: Vec<u64>,
    modulus: u64,
}

impl RawResidues {
    /// Residues modulo a number.
    ///
    /// # Errors
    /// A modulus outside `2..=2^62`, and a value that is no residue.
    pub fn new(values: Vec<u64>, modulus: u64) -> Result<Self> {
        let holds = (2..=MAX_MODULUS).contains(&modulus);
        ensure(holds, "modulus", "from 2 to 2^62", modulus as f64)?;
        match values.iter().find(|&&value| value >= modulus) {
            Some(&value) => Err(setting("residue", "below the modulus", value as f64)),
            None => Ok(Self { values, modulus }),
        }
    }

    /// The residues and the modulus, for the difference of an audit.
    pub(crate) fn into_parts(self) -> (Vec<u64>, u64) {
        (self.values, self.modulus)
    }

    /// Number of coordinates.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds unreduced noise and reduces the sum.
    pub(crate) fn release(mut self, noise: &[i64], noise_std: f64) -> NoisedResidues {
        let (modulus, power_of_two) = (self.modulus, self.modulus.is_power_of_two());
        for (value, &noise) in self.values.iter_mut().zip(noise) {
            *value = match power_of_two {
                true => value.wrapping_add(noise as u64) & (modulus - 1),
                // Both are below 2^62.
                false => (*value + noise.rem_euclid(modulus as i64) as u64) % modulus,
            };
        }
        NoisedResidues {
            values: self.values,
            modulus: self.modulus,
            noise_std,
        }
    }
}

impl NonPrivate {
    /// Releases the residues as they are.
    ///
    /// # Guarantee
    /// No guarantee: its event has no finite (eps, delta).
    #[must_use]
    pub fn privatize_residues(&self, _round: u64, residues: RawResidues) -> NoisedResidues {
        residues.release(&[], 0.0)
    }
}

/// The sum of a round modulo a number, with the noise of the server in it. Everything that is computed from it is post-processing.
#[derive(Debug, Clone, PartialEq)]
pub struct NoisedResidues {
    values: Vec<u64>,
    modulus: u64,
    noise_std: f64,
}

impl NoisedResidues {
    /// The residues.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The modulus.
    #[must_use]
    pub fn modulus(&self) -> u64 {
        self.modulus
    }

    /// Standard deviation of the noise in each coordinate, in steps.
    #[must_use]
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The released average: `values`, decoded from these residues, of which one step was worth `step`.
    #[must_use]
    pub fn into_average(self, values: Vec<f32>, step: f64) -> NoisedAverage {
        NoisedAverage::of_noised(values, self.noise_std * step)
    }
}

#[cfg(test)]
mod tests;
