//! Fixed point without rotation or noise: the plain sum, modulo `M`.

use undertone_mechanisms::FRACTION_BITS;
use undertone_simd::vectorised;

use super::EncodingSize;
use super::lattice::checked_energy;
use crate::error::{AggregationError, Result};
use crate::modular::Modulus;
use crate::weight::truncate_weight;

/// Minimum number of fractional bits.
const MIN_BITS: u32 = 10;

/// Truncation toward zero onto a grid of `2^-fraction_bits`.
///
/// The grid is that of the plain sum, `2^-40`, if the modulus then has at most 62 bits, and otherwise the finest one of
/// which that is true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Identity {
    fraction_bits: u32,
    clip_norm: f64,
    /// Largest magnitude of a coordinate, in grid steps.
    cap: u64,
}

impl Identity {
    pub(super) fn new(size: &EncodingSize) -> Result<Self> {
        let cap = |bits: u32| size.clip_norm * (1u64 << bits) as f64;
        let fits = |bits: u32| 2.0 * cap(bits) * size.max_clients as f64 + 1.0 < Modulus::MAX as f64;
        let fraction_bits = (MIN_BITS..=FRACTION_BITS).rev().find(|&bits| fits(bits));
        let fraction_bits = fraction_bits.ok_or(AggregationError::EncodingTooLarge {
            what: "the sum in grid steps",
            limit: 62,
            got: (2.0 * cap(MIN_BITS) * size.max_clients as f64).log2(),
            remedy: "choose a smaller clip norm or fewer clients",
        })?;
        Ok(Self {
            fraction_bits,
            clip_norm: size.clip_norm,
            cap: cap(fraction_bits) as u64,
        })
    }

    pub(super) fn fraction_bits(&self) -> u32 {
        self.fraction_bits
    }

    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    /// The integers of a client whose update was clipped already.
    ///
    /// # Errors
    /// An update that is longer than the clip norm: nothing here shortens it.
    pub(super) fn encode(
        &self,
        update: &[f32],
        weight: f64,
        mut put: impl FnMut(usize, &[i64]) -> Result<()>,
    ) -> Result<()> {
        let energy = checked_energy(update, weight)?;
        let weight = truncate_weight(weight);
        // PRIVACY: the clip is `Clipping`'s, which is exact; this refuses updates that never met it. The margin is that of
        // the floating-point sum of squares.
        let (norm, bound) = (weight * energy.sqrt(), self.clip_norm * (1.0 + 1e-9));
        if norm > bound {
            return Err(AggregationError::EncodedNorm { norm, bound });
        }
        let scale = weight * (1u64 << self.fraction_bits) as f64;
        let mut steps = [0; super::rounding::BLOCK];
        for (block, values) in update.chunks(steps.len()).enumerate() {
            let steps = &mut steps[..values.len()];
            truncate(values, scale, self.cap as i64, steps);
            put(block, steps)?;
        }
        Ok(())
    }
}

vectorised! {
    fn truncate(values: &[f32], scale: f64, cap: i64, out: &mut [i64]) {
        for (&x, out) in values.iter().zip(out) {
            // The product is exact (24 bits times at most 29), and the conversion truncates toward zero.
            *out = ((f64::from(x) * scale) as i64).clamp(-cap, cap);
        }
    }
}
