//! Vectors of the model's dimension, stored block by block, so that one block of all of them lies together.

use zeroize::Zeroize;

use crate::error::{MechanismError, Result};
use crate::sampler::gaussian32::BLOCK;

/// `slots` vectors of `dim` numbers: block after block of [`BLOCK`] coordinates, in each the slots one after another.
///
/// PRIVACY: they are noise, or what noise is made of; wiped on drop, never printed.
pub(crate) struct Field<E: Zeroize> {
    slots: usize,
    dim: usize,
    values: Vec<E>,
    /// True if the values were handed out for writing.
    written: bool,
}

impl<E: Zeroize> Drop for Field<E> {
    fn drop(&mut self) {
        // Wiping takes memory from the system first, where nothing was ever written: a mechanism that only accounts would
        // cost as much as one that releases.
        if self.written {
            self.values.zeroize();
        }
    }
}

impl<E: Zeroize + Copy + Default + Send> Field<E> {
    /// All zero.
    pub(crate) fn new(slots: usize, dim: usize) -> Result<Self> {
        let too_large = MechanismError::StateTooLarge {
            vectors: slots,
            dimension: dim,
        };
        let length = slots.checked_mul(dim).ok_or(too_large.clone())?;
        // Asked first, since the allocation itself would end the process.
        Vec::<E>::new().try_reserve_exact(length).map_err(|_| too_large)?;
        // Zeros from the system: memory that is never written is never taken, so that a mechanism which only accounts, and
        // releases nothing, costs none.
        let values = vec![E::default(); length];
        Ok(Self {
            slots,
            dim,
            values,
            written: false,
        })
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// One piece a block, in order; empty pieces where there are no slots.
    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut [E]> {
        self.written = true;
        let mut rest = &mut self.values[..];
        let mut blocks = Vec::with_capacity(self.dim.div_ceil(BLOCK));
        let mut begin = 0;
        while begin < self.dim {
            let length = BLOCK.min(self.dim - begin);
            let (block, later) = rest.split_at_mut(self.slots * length);
            blocks.push(block);
            rest = later;
            begin += length;
        }
        blocks
    }

    /// All numbers, in the order in which they are stored.
    pub(crate) fn values(&self) -> &[E] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut [E] {
        self.written = true;
        &mut self.values
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if self.written {
            self.values.fill(E::default());
        }
    }
}

/// Slot `slot` of a block that has `length` coordinates.
pub(crate) fn slot<E>(block: &[E], slot: usize, length: usize) -> &[E] {
    &block[slot * length..(slot + 1) * length]
}

/// Slot `slot` of a block that has `length` coordinates.
pub(crate) fn slot_mut<E>(block: &mut [E], slot: usize, length: usize) -> &mut [E] {
    &mut block[slot * length..(slot + 1) * length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_field() {
        for (slots, dim) in [(0, 10_000), (3, 0), (2, BLOCK), (3, 2 * BLOCK + 5), (1, 1)] {
            let mut field = Field::<f32>::new(slots, dim).unwrap();
            assert!(!field.written);
            let lengths: Vec<usize> = field.blocks_mut().iter().map(|block| block.len()).collect();
            assert!(field.written);
            assert_eq!(lengths.len(), dim.div_ceil(BLOCK));
            assert_eq!(lengths.iter().sum::<usize>(), slots * dim);
            if let Some(last) = field.blocks_mut().last_mut().filter(|block| !block.is_empty()) {
                let length = last.len() / slots;
                slot_mut(last, slots - 1, length).fill(1.0);
                assert_eq!(slot(last, slots - 1, length), vec![1.0; length]);
            }
            field.clear();
            assert!(field.values().iter().all(|&value| value == 0.0));
        }
        assert!(Field::<f32>::new(usize::MAX, 2).is_err());
        assert!(Field::<f64>::new(1 << 40, 1 << 20).is_err());
    }
}
