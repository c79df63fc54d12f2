//! The transform of an update with random signs: signs, factor and padding on the way into the first cache.

use undertone_simd::vectorised;

#[cfg(target_arch = "x86_64")]
use super::{BLOCK, avx512};
use super::{block_f32, transform_f32};
use crate::error::{AggregationError, Result};

/// The input of a signed transform: `factor update` with one sign per coordinate, and zeros where the update is shorter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    /// `None`: the first `dim` numbers that are there.
    pub(crate) update: Option<&'a [f32]>,
    pub(crate) dim: usize,
    /// Bit `i` set: coordinate `i` changes its sign.
    pub(crate) signs: &'a [u32],
    pub(crate) factor: f32,
}

/// [`walsh_hadamard`](super::walsh_hadamard) of `signed` into `values`, without a pass through memory for the signs.
pub(crate) fn signed_walsh_hadamard(signed: Signed<'_>, values: &mut [f32]) -> Result<()> {
    if !values.len().is_power_of_two() {
        return Err(AggregationError::NotAPowerOfTwo { got: values.len() });
    }
    transform_f32(values, &mut |start, block| signed.block(start, block));
    Ok(())
}

impl Signed<'_> {
    fn block(&self, start: usize, block: &mut [f32]) {
        let start = start.min(self.dim);
        let used = block.len().min(self.dim - start);
        // Blocks start at multiples of a word's 32 coordinates.
        let signs = &self.signs[start.div_ceil(32)..];
        let update = self.update.map(|update| &update[start..start + used]);
        #[cfg(target_arch = "x86_64")]
        if used == BLOCK && is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was detected on this processor.
            return unsafe { avx512::signed_block(update, signs, self.factor, block) };
        }
        if let Some(update) = update {
            block[..used].copy_from_slice(update);
        }
        change_signs(&mut block[..used], signs, self.factor);
        block[used..].fill(0.0);
        block_f32(block);
    }
}

vectorised! {
    fn change_signs(values: &mut [f32], signs: &[u32], factor: f32) {
        for (values, &word) in values.chunks_mut(32).zip(signs) {
            for (bit, value) in values.iter_mut().enumerate() {
                let sign = (word >> bit) << 31;
                *value *= f32::from_bits(factor.to_bits() ^ sign);
            }
        }
    }
}
