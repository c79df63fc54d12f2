//! Fresh integer noise for releases, addressed by key, row and block.

use zeroize::Zeroize;

use crate::error::Result;
use crate::sampler::gaussian::{Scratch, fill_block};
use crate::sampler::uniform::{NoiseKey, Purpose};

pub(crate) use crate::sampler::gaussian::{BLOCK, MAX_MAGNITUDE};

/// Total variation between a sample and the ideal one, by the tail that is cut off: `2^-128` a pair.
pub(super) const TOTAL_VARIATION: f64 = 1.0 / (1u128 << 127) as f64 / 2.0;

/// Makes blocks of rounded Gaussian integers on one thread.
pub(super) struct Maker<'a> {
    key: &'a NoiseKey,
    scratch: Scratch,
    samples: Box<[f64; BLOCK]>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(key: &'a NoiseKey) -> Self {
        Self {
            key,
            scratch: Scratch::new(),
            samples: Box::new([0.0; BLOCK]),
        }
    }

    /// Fills `out` with the samples of `row` from the beginning of `block` on, of standard deviation `steps`.
    pub(super) fn fill(&mut self, row: u64, block: usize, steps: f64, out: &mut [i64]) -> Result<()> {
        let uniform = self.key.stream(Purpose::Gaussian, row)?;
        let tail = self.key.stream(Purpose::GaussianTail, row)?;
        fill_block(
            &uniform,
            &tail,
            block as u64,
            &mut self.scratch,
            &mut self.samples,
        );
        for (out, sample) in out.iter_mut().zip(self.samples.iter()) {
            *out = (steps * sample).round_ties_even() as i64;
        }
        Ok(())
    }
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        self.samples.zeroize();
    }
}
