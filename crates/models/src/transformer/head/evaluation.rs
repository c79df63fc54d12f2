use super::Head;
use crate::kernels::{
    matmul::{Extent, Left, PANEL, Right, matmul},
    pack::pack_panels_transposed,
    soft_cap::soft_cap,
    softmax::stream_rows,
};
use crate::scalar::Scalar;

/// Rows whose logits are laid out together.
pub(super) const ROWS: usize = 64;

impl<T: Scalar> Head<T> {
    /// Streams each row's logits and log-normaliser; `states` stand in the order of the rows. Returns the first
    /// normaliser that is not finite.
    pub(in super::super) fn evaluate(
        &mut self,
        matrix: &[T],
        states: &[T],
        sink: &mut dyn FnMut(usize, &[T], T),
    ) -> Result<(), f64> {
        let (isa, vocab, width) = (self.isa, self.vocab, self.width);
        for (number, states) in states.chunks(ROWS * width).enumerate() {
            let rows = states.len() / width;
            for start in (0..vocab).step_by(PANEL) {
                let words = PANEL.min(vocab - start);
                let vectors = &matrix[start * width..(start + words) * width];
                pack_panels_transposed(isa, vectors, width, width, words, &mut self.states);
                let extent = Extent {
                    rows,
                    cols: words,
                    depth: width,
                };
                let left = Left::strided(states, width, 1);
                let right = Right::Panels(&self.states);
                matmul(
                    isa,
                    extent,
                    T::ONE,
                    left,
                    right,
                    &mut self.logits[start..],
                    vocab,
                    false,
                );
            }
            if let Some(cap) = self.cap {
                soft_cap(isa, &mut self.logits[..rows * vocab], T::ONE, cap);
            }
            stream_rows(isa, &self.logits[..rows * vocab], vocab, number * ROWS, sink)?;
        }
        Ok(())
    }
}
