//! Fresh integer noise for releases, addressed by key, row and block.

use undertone_simd::vectorised;
use zeroize::Zeroize;

use crate::error::{MechanismError, Result};
use crate::sampler::snapped::{Scratch, SnappedGaussian};
use crate::sampler::uniform::NoiseKey;

pub(crate) use crate::sampler::snapped::BLOCK;

/// Fewest grid steps that one standard deviation of a release's fresh noise must span. The guarantee holds for any number;
/// below this one the grid itself would cost accuracy.
const MIN_STEPS: f64 = (1u64 << 10) as f64;

/// Most grid steps that it may span.
const MAX_STEPS: f64 = SnappedGaussian::MAX_STEPS;

/// A standard deviation in steps of a grid.
///
/// # Errors
/// [`MechanismError::NoiseBelowGrid`] and [`MechanismError::NoiseAboveGrid`] where the sampler does not suit the grid.
pub(crate) fn steps(noise_std: f64, grid_step: f64) -> Result<f64> {
    let (got, steps) = (noise_std, noise_std / grid_step);
    if steps < MIN_STEPS {
        let minimum = MIN_STEPS * grid_step;
        return Err(MechanismError::NoiseBelowGrid { got, minimum });
    }
    // Not a number is neither below nor within.
    if steps.is_nan() || steps > MAX_STEPS {
        let maximum = MAX_STEPS * grid_step;
        return Err(MechanismError::NoiseAboveGrid { got, maximum });
    }
    Ok(steps)
}

/// Makes blocks of rounded Gaussian integers on one thread.
pub(crate) struct Maker<'a> {
    key: &'a NoiseKey,
    scratch: Scratch,
    block: Box<[i64; BLOCK]>,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(key: &'a NoiseKey) -> Self {
        Self {
            key,
            scratch: Scratch::new(),
            block: Box::new([0; BLOCK]),
        }
    }

    /// Fills `out` with the samples of `row` from the beginning of `block` on, of standard deviation `steps`.
    pub(crate) fn fill(&mut self, row: u64, block: usize, steps: f64, out: &mut [i64]) -> Result<()> {
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

vectorised! {
    /// Adds a block's noise in place. A value that leaves the range becomes the end of the range.
    ///
    /// PRIVACY: whether a release succeeds must not depend on a value. Saturation is a function of the exact sum of value and noise,
    /// so it is post-processing.
    pub(crate) fn add(values: &mut [i64], noise: &[i64]) {
        for (value, noise) in values.iter_mut().zip(noise) {
            *value = value.saturating_add(*noise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    #[test]
    fn a_sum_beyond_the_range_is_the_end_of_the_range() {
        let mut values = [i64::MAX - 1, i64::MIN + 1, 5];
        add(&mut values, &[3, -3, -7]);
        assert_eq!(values, [i64::MAX, i64::MIN, -2]);
    }

    #[test]
    fn noise_suits_its_grid() {
        says(steps(1024.0, 1.0), "ok");
        says(steps(1023.9, 1.0), "too small for the fixed-point grid");
        says(steps(MAX_STEPS, 1.0), "ok");
        for above in [MAX_STEPS.next_up(), f64::NAN] {
            says(steps(above, 1.0), "too large for the fixed-point grid");
        }
        assert_eq!(steps(3e6, 2.0).unwrap(), 1.5e6);
    }

    #[test]
    fn blocks_are_those_of_the_sampler() {
        let key = NoiseKey::from_bytes([2; 32]);
        let mut whole = vec![0; 2 * BLOCK + 9];
        SnappedGaussian::new(5e4)
            .unwrap()
            .fill(&key, 3, &mut whole)
            .unwrap();
        let mut maker = Maker::new(&key);
        for (block, expected) in whole.chunks(BLOCK).enumerate().rev() {
            let mut out = vec![0; expected.len()];
            maker.fill(3, block, 5e4, &mut out).unwrap();
            assert_eq!(out, expected);
        }
        assert!(maker.fill(3, 0, 0.5, &mut [0]).is_err());
    }
}
