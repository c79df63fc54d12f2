//! Rows of independent standard normal noise, addressed by key, row and block.

use zeroize::Zeroize;

use crate::error::Result;
use crate::sampler::gaussian32::{BLOCK, Scratch, fill_block};
use crate::sampler::uniform::{NoiseKey, Purpose};

/// Makes blocks of normal samples on one thread.
pub(crate) struct Maker<'a> {
    key: &'a NoiseKey,
    scratch: Scratch,
    block: Box<[f32; BLOCK]>,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(key: &'a NoiseKey) -> Self {
        Self {
            key,
            scratch: Scratch::new(),
            block: Box::new([0.0; BLOCK]),
        }
    }

    /// Fills `out` with the samples of `row` from the beginning of `block` on.
    pub(crate) fn fill(&mut self, row: u64, block: usize, out: &mut [f32]) -> Result<()> {
        let uniform = self.key.stream(Purpose::Gaussian32, row)?;
        let tail = self.key.stream(Purpose::Gaussian32Tail, row)?;
        if let Ok(out) = <&mut [f32; BLOCK]>::try_from(&mut *out) {
            fill_block(&uniform, &tail, block as u64, &mut self.scratch, out);
        } else {
            fill_block(&uniform, &tail, block as u64, &mut self.scratch, &mut self.block);
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
