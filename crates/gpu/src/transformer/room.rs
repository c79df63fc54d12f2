//! Places of the activations and gradients of a slot in its workspace.

use super::shape::Shape;
use crate::call::{Array, PARTS, SPANS};
use crate::frame::{Extents, Frame, Ground};

/// Rows whose logits exist at once.
const CHUNK: u32 = 2048;

/// Values that the forward pass of a block keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) stats1: Array,
    pub(crate) norm1: Array,
    /// Queries, keys and values before their heads are normalised. They are `qkv` itself where heads are not.
    pub(crate) raw: Array,
    /// The statistics of the heads of queries, and of those of keys.
    pub(crate) head_stats: [Array; 2],
    pub(crate) qkv: Array,
    pub(crate) attended: Array,
    pub(crate) middle: Array,
    pub(crate) stats2: Array,
    pub(crate) norm2: Array,
    pub(crate) up: Array,
    pub(crate) activated: Array,
    /// The products of the inputs of the four matrices with the first matrices of adapters.
    pub(crate) narrow: [Array; 4],
}

/// The arrays of a slot's workspace.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) frame: Frame,
    /// Rows whose logits exist at once.
    pub(crate) chunk: u32,
    /// The input of each block, and the output of the last one.
    pub(crate) residual: Vec<Array>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) scores: Array,
    pub(crate) scores_gradient: Array,
    pub(crate) qkv_gradient: Array,
    pub(crate) up_gradient: Array,
    pub(crate) activated_gradient: Array,
    /// The gradient of the input of a matrix.
    pub(crate) input_gradient: Array,
    pub(crate) adapter_gradient: Array,
    pub(crate) gradient: Array,
    pub(crate) states: Array,
    pub(crate) state_stats: Array,
    pub(crate) logits: Array,
    pub(crate) parts: Array,
    pub(crate) columns: Array,
    pub(crate) spans: Array,
    /// The gradient of the output matrix, where it cannot go to the parameters at once.
    pub(crate) word_gradient: Array,
    /// The first of the values that never change, behind those of the base.
    pub(crate) turns: u64,
}

impl Room {
    /// The arrays for batches of these extents, behind `base` values that are not trained and with `turns` angles.
    pub(crate) fn new(shape: &Shape, extents: Extents, base: u64, turns: u64) -> Self {
        let sizes = shape.sizes;
        let rows = u64::from(extents.sequences * extents.steps);
        let [width, attended, qkv, up, inner] = [
            sizes.width,
            sizes.query_width(),
            sizes.qkv_width(),
            sizes.up_width(),
            sizes.inner,
        ]
        .map(|size| size as u32);
        let chunk = CHUNK.min(rows as u32).max(1);
        let heads = shape.heads();
        let mut ground = Ground(0);
        let residual = (0..=sizes.layers).map(|_| ground.take(rows, width)).collect();
        let block = |of: &super::shape::Block| {
            let of_qkv = ground.take(rows, qkv);
            let adapted = [&of.qkv, &of.o, &of.up, &of.down].map(|linear| linear.adapter.is_some());
            let normed = |heads: u32| if of.of_heads.is_some() { 2 * heads } else { 0 };
            Kept {
                stats1: ground.take(rows, 2),
                norm1: ground.take(rows, width),
                raw: match of.of_heads {
                    Some(_) => ground.take(rows, qkv),
                    None => of_qkv,
                },
                head_stats: heads.map(|heads| ground.take(rows, normed(heads))),
                qkv: of_qkv,
                attended: ground.take(rows, attended),
                middle: ground.take(rows, width),
                stats2: ground.take(rows, 2),
                norm2: ground.take(rows, width),
                up: ground.take(rows, up),
                activated: ground.take(rows, inner),
                narrow: adapted.map(|adapted| ground.take(if adapted { rows } else { 0 }, shape.rank)),
            }
        };
        let kept = shape.blocks.iter().map(block).collect();
        let of_scores = u64::from(heads[0]) * rows;
        let waits = shape.output.write.is_some() && !shape.is_gradient;
        let words = if waits { sizes.vocab as u64 } else { 0 };
        let scores = ground.take(of_scores, extents.steps);
        let scores_gradient = ground.take(of_scores, extents.steps);
        let qkv_gradient = ground.take(rows, qkv);
        let up_gradient = ground.take(rows, up);
        let activated_gradient = ground.take(rows, inner);
        let input_gradient = ground.take(rows, width.max(attended));
        let adapter_gradient = ground.take(rows, shape.rank);
        let gradient = ground.take(rows, width);
        let states = ground.take(rows, width);
        let state_stats = ground.take(rows, 2);
        let logits = ground.take(u64::from(chunk), sizes.vocab as u32);
        let parts = ground.take(u64::from(chunk), 2 * PARTS as u32);
        let columns = ground.take(PARTS as u64, width.max(qkv).max(up));
        let spans = ground.take(shape.largest_matrix(), SPANS);
        let word_gradient = ground.take(words, width);
        let common = base.next_multiple_of(2) + 2 * turns;
        Self {
            frame: Frame::new(extents, shape.parameters, sizes.vocab as u32, ground.0, common),
            chunk,
            residual,
            kept,
            scores,
            scores_gradient,
            qkv_gradient,
            up_gradient,
            activated_gradient,
            input_gradient,
            adapter_gradient,
            gradient,
            states,
            state_stats,
            logits,
            parts,
            columns,
            spans,
            word_gradient,
            turns: Frame::common_at(shape.parameters) + base.next_multiple_of(2),
        }
    }
}
