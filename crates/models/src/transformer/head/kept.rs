//! Gradients of logits that wait for weights of the sequences.

use super::super::rows::Rows;
use super::{CHUNK, Head, lanes_of};
use crate::kernels::{
    matmul::{Extent, Left, Right, matmul},
    pack::pack_panels,
    vector::scale_rows,
};
use crate::scalar::Scalar;

impl<T: Scalar> Head<T> {
    /// Makes room for the gradients of the logits of a whole batch.
    pub(in super::super) fn reserve(&mut self, rows: &Rows) {
        let lanes: usize = rows
            .chunks(CHUNK)
            .map(|run| lanes_of(rows.span(&run).len()))
            .sum();
        let len = self.logits.len().max(lanes * self.vocab);
        self.logits.resize(len, T::ZERO);
    }

    /// Calls `visit(sequence, columns, lanes)` for every sequence after a pass with [`Output::Norms`]: its gradient of
    /// logits, entry `v` of row `t` at `v * lanes + t` of `columns`.
    pub(in super::super) fn each_kept(&self, rows: &Rows, mut visit: impl FnMut(usize, &[T], usize)) {
        let mut offset = 0;
        for run in rows.chunks(CHUNK) {
            let span = rows.span(&run);
            let lanes = lanes_of(span.len());
            let logits = &self.logits[offset..offset + lanes * self.vocab];
            for sequence in run {
                visit(
                    sequence,
                    &logits[rows.range(sequence).start - span.start..],
                    lanes,
                );
            }
            offset += logits.len();
        }
    }

    /// Adds the gradient of the output matrix with every row multiplied by its weight, after a pass with [`Output::Norms`].
    /// `states` are multiplied in place.
    pub(in super::super) fn add_weighted(
        &mut self,
        rows: &Rows,
        states: &mut [T],
        row_weight: &[T],
        target: &mut [T],
    ) {
        let (isa, width) = (self.isa, self.width);
        let mut offset = 0;
        for run in rows.chunks(CHUNK) {
            let span = rows.span(&run);
            let (count, lanes) = (span.len(), lanes_of(span.len()));
            let states = &mut states[span.start * width..span.end * width];
            scale_rows(isa, states, width, &row_weight[span]);
            pack_panels(isa, states, width, count, width, &mut self.states);
            for words in self.blocks() {
                let extent = Extent {
                    rows: words.len(),
                    cols: width,
                    depth: count,
                };
                let left = Left::strided(&self.logits[offset + words.start * lanes..], lanes, 1);
                let target = &mut target[words.start * width..words.end * width];
                matmul(
                    isa,
                    extent,
                    T::ONE,
                    left,
                    Right::Panels(&self.states),
                    target,
                    width,
                    true,
                );
            }
            offset += self.vocab * lanes;
        }
    }
}
