//! Fresh integer noise for releases, addressed by key, row and block.

use zeroize::Zeroize;

use crate::error::Result;
use crate::sampler::snapped::{Scratch, SnappedGaussian};
use crate::sampler::uniform::NoiseKey;

pub(crate) use crate::sampler::snapped::BLOCK;

/// Standard deviations that a sample leaves with probability below [`BEYOND_REACH`].
pub(super) const REACH: f64 = 15.0;

/// `P(|G| > 15) < 8e-51`.
const BEYOND_REACH: f64 = 1e-50;

/// Total variation between a sample of standard deviation `steps` and the ideal one within reach.
pub(super) fn total_variation(steps: f64) -> Result<f64> {
    Ok(SnappedGaussian::new(steps)?.total_variation_per_sample() + BEYOND_REACH)
}

/// Makes blocks of rounded Gaussian integers on one thread.
pub(super) struct Maker<'a> {
    key: &'a NoiseKey,
    scratch: Scratch,
    block: Box<[i64; BLOCK]>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(key: &'a NoiseKey) -> Self {
        Self {
            key,
            scratch: Scratch::new(),
            block: Box::new([0; BLOCK]),
        }
    }

    /// Fills `out` with the samples of `row` from the beginning of `block` on, of standard deviation `steps`.
    pub(super) fn fill(&mut self, row: u64, block: usize, steps: f64, out: &mut [i64]) -> Result<()> {
        let stream = SnappedGaussian::new(steps)?.stream(self.key, row)?;
        if let Ok(out) = <&mut [i64; BLOCK]>::try_from(&mut *out) {
            stream.fill_block(block as u64, &mut self.scratch, out);
        } else {
            stream.fill_block(block as u64, &mut self.scratch, &mut self.block);
            out.copy_from_slice(&self.block[..out.len()]);
        }
        Ok(())
    }
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        self.block.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_leave_the_reach() {
        // P(|G| > x) < 2 phi(x) / x.
        let bound = 2.0 * (-0.5 * REACH * REACH).exp() / (2.0 * std::f64::consts::PI).sqrt() / REACH;
        assert!(bound < BEYOND_REACH, "{bound}");
        assert!(total_variation(1e12).unwrap() > BEYOND_REACH && total_variation(0.5).is_err());
    }
}
