//! One round of an integer recurrence in one block of coordinates.

use zeroize::Zeroizing;

use super::arithmetic::{add_nearest, buffers, join, nearest, to_reals};
use crate::error::Result;
use crate::sampler::fresh::BLOCK;
use crate::stream::field::{slot, slot_mut};
use crate::stream::past;
use crate::stream::program::Source;
use crate::stream::tree::{self, Place};

/// A round's work, the same for all blocks.
pub(super) enum Step {
    Fresh,
    Buffers {
        weights: Vec<f64>,
        complement: Vec<f64>,
        factor: f64,
    },
    History {
        step: past::Step<f64>,
        source: Source,
    },
    Tree {
        place: Place,
    },
    Blocks {
        weights: Vec<(usize, f64)>,
        merged: usize,
    },
}

/// The scratch space of a thread for one block; wiped.
pub(super) struct Workspace {
    pub(super) noise: Zeroizing<Vec<i64>>,
    pub(super) spare: Zeroizing<Vec<i64>>,
    pub(super) reals: Zeroizing<Vec<f64>>,
}

impl Workspace {
    pub(super) fn new() -> Self {
        Self {
            noise: Zeroizing::new(vec![0; BLOCK]),
            spare: Zeroizing::new(vec![0; 2 * BLOCK]),
            reals: Zeroizing::new(vec![0.0; 2 * BLOCK]),
        }
    }
}

impl Step {
    /// The noise of a round from memory in integers.
    pub(super) fn integers(
        &self,
        round: u64,
        noise: &mut [i64],
        state: &mut [i64],
        kept: bool,
        spare: &mut [i64],
        make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
    ) -> Result<()> {
        let length = noise.len();
        match self {
            Step::Fresh | Step::History { .. } => make(round, noise),
            Step::Buffers {
                weights,
                complement,
                factor,
            } => {
                make(round, noise)?;
                buffers(noise, state, weights, complement, *factor);
                Ok(())
            }
            Step::Tree { place } if kept => estimate(*place, noise, state, spare, make),
            Step::Tree { place } => {
                // All estimates under the round's node once more, from its first leaf on.
                let mut slots = Zeroizing::new(vec![0; (place.height + 1) * length]);
                let leaves = 1usize << place.height;
                let first = round as usize + 1 - leaves;
                for leaf in first..=round as usize {
                    estimate(Place::within(leaf, place.begin), noise, &mut slots, spare, make)?;
                }
                Ok(())
            }
            Step::Blocks { weights, merged } => {
                make(round, noise)?;
                let spare = &mut spare[..length];
                spare.copy_from_slice(noise);
                for (place, noise) in noise.iter_mut().enumerate() {
                    let taken: f64 = weights
                        .iter()
                        .map(|(height, weight)| weight * state[height * length + place] as f64)
                        .sum();
                    *noise -= nearest(taken);
                }
                spare.copy_from_slice(noise);
                for height in 0..*merged {
                    for (sum, part) in spare.iter_mut().zip(slot(state, height, length)) {
                        *sum += part;
                    }
                }
                slot_mut(state, *merged, length).copy_from_slice(spare);
                Ok(())
            }
        }
    }

    /// The noise of a round from a history of integers in `f64`.
    pub(super) fn reals(
        &self,
        round: u64,
        noise: &mut [i64],
        state: &mut [f64],
        reals: &mut [f64],
        spare: &mut [i64],
        make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
    ) -> Result<()> {
        make(round, noise)?;
        let Step::History { step, source } = self else {
            return Ok(());
        };
        let length = noise.len();
        let (sum, row) = reals.split_at_mut(BLOCK);
        let (sum, row, spare) = (&mut sum[..length], &mut row[..length], &mut spare[..length]);
        sum.fill(0.0);
        step.gather(state, sum, row, |index, out| {
            make(index, spare)?;
            to_reals(out, spare);
            Ok(())
        })?;
        if *source == Source::Fresh {
            to_reals(row, noise);
        }
        add_nearest(noise, sum);
        if *source == Source::Outputs {
            to_reals(row, noise);
        }
        step.remember(state, row);
        Ok(())
    }
}

/// One leaf of a tree: `noise` receives the new estimate less those that are merged into it.
pub(super) fn estimate(
    place: Place,
    noise: &mut [i64],
    slots: &mut [i64],
    spare: &mut [i64],
    make: &mut impl FnMut(u64, &mut [i64]) -> Result<()>,
) -> Result<()> {
    let length = noise.len();
    let (node, removed) = spare.split_at_mut(BLOCK);
    let (node, removed) = (&mut node[..length], &mut removed[..length]);
    make(place.leaf, noise)?;
    removed.fill(0);
    for height in 0..place.height {
        make(place.leaf + height as u64 + 1, node)?;
        join(
            noise,
            removed,
            slot(slots, height, length),
            node,
            tree::own_weight(height + 1),
        );
    }
    slot_mut(slots, place.height, length).copy_from_slice(noise);
    for (noise, removed) in noise.iter_mut().zip(removed.iter()) {
        *noise -= removed;
    }
    Ok(())
}
