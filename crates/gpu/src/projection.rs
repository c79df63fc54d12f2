//! The projection of each user's parameters after every local step. It belongs to the algorithm, and nothing of a guarantee rests on it.

use std::sync::Arc;

use undertone_aggregation::{Block, Bound, ClipReport, Clipping};
use undertone_local::{LocalError, LocalTask};

use crate::call::{Array, Call, Kernel, PARTS};
use crate::check::unusable;
use crate::frame::{Frame, Launch, parameter};

/// A norm that is scaled down ends short of its bound by this part of it, as on the processor.
const MARGIN: f64 = 1.0 / (1 << 21) as f64;

/// The clip groups of a round with their bounds.
pub(crate) struct Projection {
    groups: Vec<(Vec<Block>, f64)>,
}

impl Projection {
    /// The projection of a round; `None` without clipping.
    ///
    /// # Errors
    /// More groups than there is room for, or another number of bounds.
    pub(crate) fn new(task: &LocalTask<'_>, room_for: usize) -> Result<Option<Self>, LocalError> {
        let bounds = match task.clipping {
            Clipping::None => return Ok(None),
            Clipping::Flat { clip_norm } => vec![*clip_norm],
            Clipping::PerLayer { clip_norms } => clip_norms.clone(),
        };
        let layout = Arc::new(task.layout.clone());
        let groups = Bound::new(layout, task.clipping.clone(), task.non_finite).groups();
        if groups.len() != bounds.len() || groups.len() > room_for {
            let expected = format!("{} clip groups", groups.len().min(room_for));
            return Err(unusable("clip", &expected, &bounds.len().to_string()));
        }
        let groups = groups.into_iter().zip(bounds).collect();
        Ok(Some(Self { groups }))
    }

    /// The calls that measure how far parameters are from those of the round.
    pub(crate) fn distances(&self, frame: &Frame) -> Vec<Launch> {
        self.per_block(frame, |group, number, call| {
            let c = Array {
                at: frame.distances.at + (2 * PARTS * group) as u64,
                ..frame.distances
            };
            let mode = u32::from(number > 0);
            (Kernel::Distances, PARTS as u64, Call { c, mode, ..call })
        })
    }

    /// The calls that move parameters by the factors.
    pub(crate) fn calls(&self, frame: &Frame) -> Vec<Launch> {
        self.per_block(frame, |group, _, call| {
            let b = Array {
                at: frame.factors.at + 2 * group as u64,
                ..frame.factors
            };
            let threads = u64::from(call.rows) * u64::from(call.cols);
            (Kernel::Project, threads, Call { b, ..call })
        })
    }

    fn per_block(&self, frame: &Frame, launch: impl Fn(usize, usize, Call) -> Launch) -> Vec<Launch> {
        let mut calls = Vec::new();
        for (group, (blocks, _)) in self.groups.iter().enumerate() {
            for (number, block) in blocks.iter().enumerate() {
                let call = Call {
                    rows: block.rows as u32,
                    cols: block.cols as u32,
                    a: parameter(block.offset as u64, block.row_stride as u32),
                    ..frame.call()
                };
                calls.push(launch(group, number, call));
            }
        }
        calls
    }

    /// The norm of each slot, and the factors of its groups as the kernel reads them.
    pub(crate) fn measure(
        &self,
        parts: &[f64],
        slots: usize,
        distances: &Array,
        factors: &Array,
    ) -> (Vec<ClipReport>, Vec<f64>) {
        let (of_slot, factors_of_slot) = (distances.col as usize / 2, factors.col as usize / 2);
        let mut scales = vec![1.0; slots * factors_of_slot];
        let mut reports = Vec::with_capacity(slots);
        for slot in 0..slots {
            let (mut total, mut clipped) = (0.0, false);
            for (group, &(_, bound)) in self.groups.iter().enumerate() {
                let parts = &parts[slot * of_slot + group * PARTS..][..PARTS];
                let square: f64 = parts.iter().sum();
                total += square;
                let norm = square.sqrt();
                if norm > bound {
                    clipped = true;
                    scales[slot * factors_of_slot + group] = bound / norm * (1.0 - MARGIN);
                }
            }
            reports.push(ClipReport {
                norm: total.sqrt(),
                clipped,
            });
        }
        (reports, scales)
    }
}
