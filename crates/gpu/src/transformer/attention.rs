//! Attention: scores, their softmax, and the products with values, keys and queries.

use super::Step;
use super::room::Kept;
use super::shape::Block;
use crate::call::{Array, Call, Kernel, LANES, Precision, THREADS, Tile, count, place, product};

/// The products that have kernels of their own for transformers, in both precisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Spans,
    Scores,
    Mix,
    Keys,
}

impl Work {
    /// The kernel and its tile, as `kernels/transformer.c` has them.
    pub(super) fn kernel(self, precision: Precision) -> (Kernel, Tile) {
        let (fine, coarse, cols) = match self {
            Self::Spans => (Kernel::ProductOfSpans, Kernel::ProductOfSpansCoarse, 128),
            Self::Scores => (Kernel::ScoresOfHeads, Kernel::ScoresOfHeadsCoarse, 128),
            Self::Mix => (Kernel::MixOfHeads, Kernel::MixOfHeadsCoarse, 64),
            Self::Keys => (Kernel::KeysOfHeads, Kernel::KeysOfHeadsCoarse, 64),
        };
        match precision {
            Precision::F32 => (fine, Tile { rows: 64, cols }),
            Precision::Bf16 => (coarse, Tile { rows: 128, cols }),
        }
    }
}

impl Step<'_> {
    /// Queries, keys and values in an array that has them side by side.
    pub(super) fn heads_of(&self, qkv: Array) -> [Array; 3] {
        let (queries, keys) = (self.shape.sizes.query_width(), self.shape.sizes.key_width());
        [0, queries, queries + keys].map(|col| qkv.after_cols(col as u32))
    }

    /// Norms of heads, and rotary positions.
    pub(super) fn prepare_heads(&mut self, block: &Block, kept: &Kept) {
        let (shape, width) = (self.shape, self.shape.head_width());
        if let Some(norms) = block.of_heads {
            let (from, to) = (self.heads_of(kept.raw), self.heads_of(kept.qkv));
            for (side, norm) in norms.into_iter().enumerate() {
                let heads = (shape.heads()[side], width);
                self.norm(norm, heads, from[side], to[side], kept.head_stats[side]);
            }
            let call = Call {
                rows: count::ALL_ROWS,
                a: from[2],
                c: to[2],
                ..self.call()
            };
            self.of_each(Kernel::Copy, shape.sizes.key_width() as u32, call);
        }
        self.turn(kept.qkv, false);
    }

    pub(super) fn turn(&mut self, qkv: Array, back: bool) {
        if self.shape.positions.is_some() {
            return;
        }
        let [queries, keys] = self.shape.heads();
        let (heads, pairs) = (queries + keys, self.shape.head_width() / 2);
        let angles = Array {
            at: self.room.turns,
            row: 2,
            col: 1,
            place: place::COMMON,
            shift: 0,
        };
        let call = Call {
            cols: pairs,
            heads,
            mode: u32::from(back),
            b: angles,
            c: qkv,
            ..self.call()
        };
        let threads = u64::from(self.sizes.rows) * u64::from(heads) * u64::from(pairs);
        self.calls.push((Kernel::Turn, threads, call));
    }

    /// A kernel over the heads of queries, or over those of keys.
    pub(super) fn attention(&mut self, work: Work, (a, b, c): (Array, Array, Array)) {
        let (kernel, tile) = work.kernel(self.room.frame.precision);
        let [heads, key_heads] = self.shape.heads();
        let depth = self.shape.head_width();
        let rows = self.sizes.steps;
        let call = Call {
            rows,
            cols: self.room.frame.rows,
            depth,
            heads,
            sequences: heads / key_heads,
            mode: product::SET,
            a,
            b,
            c,
            ..self.call()
        };
        let cols = if work == Work::Scores { rows } else { depth };
        let tiles = tile.count(u64::from(rows), u64::from(cols));
        let pieces = u64::from(self.sizes.sequences) * u64::from(heads);
        self.calls.push((kernel, pieces * tiles * THREADS, call));
    }

    /// The probabilities of a block.
    pub(super) fn attend(&mut self, kept: &Kept) {
        let [queries, keys, _] = self.heads_of(kept.qkv);
        let scores = self.room.scores;
        self.attention(Work::Scores, (queries, keys, scores));
        self.softmax(Kernel::SoftmaxOfScores, Array::default());
    }

    pub(super) fn softmax(&mut self, kernel: Kernel, gradient: Array) {
        let [heads, _] = self.shape.heads();
        let call = Call {
            cols: self.room.frame.rows,
            heads,
            factor: (1.0 / f64::from(self.shape.head_width()).sqrt()) as f32,
            a: self.room.scores,
            c: gradient,
            ..self.call()
        };
        let rows = u64::from(self.sizes.rows) * u64::from(heads);
        self.calls.push((kernel, rows * LANES, call));
    }
}
