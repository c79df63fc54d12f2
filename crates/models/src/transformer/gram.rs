//! Norms of per-sequence gradients that are never written out.
//!
//! The gradient of a matrix that multiplied the rows `a_t` and whose outputs have gradients `b_t` is `sum_t a_t b_t^T`; its
//! squared norm is `sum_{t,s} (a_t . a_s)(b_t . b_s)` (Goodfellow, "Efficient per-example gradient computations", 2015; Li
//! et al., "Large language models can be strong differentially private learners", ICLR 2022, section 4).

use super::linear::WeightGradient;
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    pack::{pack_panels_transposed, panels_len},
    vector::dot,
};
use crate::scalar::Scalar;

/// Rows of a Gram matrix computed together; what stands right of them is skipped, for it is symmetric.
const ROWS: usize = 32;

#[derive(Debug)]
pub(super) struct Gram<T> {
    isa: Isa,
    panels: Vec<T>,
    left: Vec<T>,
    right: Vec<T>,
    product: Vec<T>,
}

impl<T: Scalar> Gram<T> {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            isa,
            panels: Vec::new(),
            left: Vec::new(),
            right: Vec::new(),
            product: Vec::new(),
        }
    }

    /// Takes room for sequences of `longest` rows and rows of `widest` columns; nothing when there is enough.
    pub(super) fn reserve(&mut self, longest: usize, widest: usize) {
        let grow = |values: &mut Vec<T>, len: usize| values.resize(values.len().max(len), T::ZERO);
        grow(&mut self.panels, panels_len(widest, longest));
        grow(&mut self.left, longest * longest);
        grow(&mut self.right, longest * longest);
    }

    /// Squared norm of `x^T y`, for `x` `[rows, input]` and `y` `[rows, output]`.
    pub(super) fn squared_norm(
        &mut self,
        x: &[T],
        input: usize,
        y: &[T],
        output: usize,
        explicit: &mut WeightGradient<T>,
    ) -> f64 {
        let rows = x.len() / input;
        // Half of each Gram matrix is computed, and the diagonal blocks whole.
        let ghost = rows * (rows + ROWS) / 2 * (input + output);
        if ghost > rows * input * output {
            self.product.clear();
            self.product.resize(input * output, T::ZERO);
            explicit.add(&mut self.product, T::ONE, x, input, y, output);
            return self.product.iter().map(|value| value.wide() * value.wide()).sum();
        }
        let mut left = std::mem::take(&mut self.left);
        let mut right = std::mem::take(&mut self.right);
        self.lower(x, input, &mut left);
        self.lower(y, output, &mut right);
        let total = sum_of_products(self.isa, &left, &right, rows);
        (self.left, self.right) = (left, right);
        total
    }

    /// The lower triangle of `rows rows^T`, and more right of it up to a multiple of [`ROWS`].
    fn lower(&mut self, rows: &[T], width: usize, gram: &mut [T]) {
        let count = rows.len() / width;
        pack_panels_transposed(self.isa, rows, width, width, count, &mut self.panels);
        for first in (0..count).step_by(ROWS) {
            let extent = Extent {
                rows: ROWS.min(count - first),
                cols: (first + ROWS).min(count),
                depth: width,
            };
            let left = Left::strided(&rows[first * width..], width, 1);
            let right = Right::Panels(&self.panels);
            matmul(
                self.isa,
                extent,
                T::ONE,
                left,
                right,
                &mut gram[first * count..],
                count,
                false,
            );
        }
    }

    /// Adds the lower triangle of `columns^T columns` to the same of `gram`: `columns` is a block of lines `stride` apart, of
    /// which the first `count` entries are read.
    pub(super) fn add_lower_of_columns(
        &self,
        columns: &[T],
        stride: usize,
        count: usize,
        lines: usize,
        gram: &mut [T],
    ) {
        for first in (0..count).step_by(ROWS) {
            let extent = Extent {
                rows: ROWS.min(count - first),
                cols: (first + ROWS).min(count),
                depth: lines,
            };
            let left = Left::strided(&columns[first..], 1, stride);
            let right = Right::Rows(columns, stride);
            matmul(
                self.isa,
                extent,
                T::ONE,
                left,
                right,
                &mut gram[first * count..],
                count,
                true,
            );
        }
    }

    /// `sum_{t,s} gram[t][s] (x_t . x_s)` for a lower triangle `gram`.
    pub(super) fn against(&mut self, gram: &[T], x: &[T], width: usize) -> f64 {
        let mut left = std::mem::take(&mut self.left);
        self.lower(x, width, &mut left);
        let total = sum_of_products(self.isa, &left, gram, x.len() / width);
        self.left = left;
        total
    }
}

/// Gradients of token vectors that are both read and predicted from.
impl<T: Scalar> Gram<T> {
    /// What a sequence adds to the squared norm of the embedding's gradient beside `|output part|^2`: the rows `inputs`
    /// point at get `gathered`, those of one token added up, and the output part is `logits states`, `logits` as
    /// [`Head::each_kept`](super::head::Head::each_kept) gives it.
    pub(super) fn of_inputs(
        &mut self,
        inputs: &[u32],
        gathered: &[T],
        states: &[T],
        width: usize,
        logits: &[T],
        lanes: usize,
    ) -> f64 {
        let count = inputs.len();
        let row = |t: usize| &gathered[t * width..(t + 1) * width];
        let mut total = 0.0;
        for t in 0..count {
            total += dot(self.isa, row(t), row(t)).wide();
            for s in (0..t).filter(|&s| inputs[s] == inputs[t]) {
                total += 2.0 * dot(self.isa, row(t), row(s)).wide();
            }
        }
        pack_panels_transposed(self.isa, states, width, width, count, &mut self.panels);
        let extent = Extent {
            rows: count,
            cols: count,
            depth: width,
        };
        let left = Left::strided(gathered, width, 1);
        let right = Right::Panels(&self.panels);
        matmul(
            self.isa,
            extent,
            T::ONE,
            left,
            right,
            &mut self.left,
            count,
            false,
        );
        for (t, &token) in inputs.iter().enumerate() {
            let along = &self.left[t * count..(t + 1) * count];
            total += 2.0 * dot(self.isa, along, &logits[token as usize * lanes..][..count]).wide();
        }
        total
    }
}

/// `sum_{t,s} a[t][s] b[t][s]` of two symmetric matrices given by their lower triangles.
fn sum_of_products<T: Scalar>(isa: Isa, a: &[T], b: &[T], count: usize) -> f64 {
    let line = |row: usize| {
        let (a, b) = (&a[row * count..][..=row], &b[row * count..][..=row]);
        2.0 * dot(isa, a, b).wide() - a[row].wide() * b[row].wide()
    };
    (0..count).map(line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial::Initializer;

    fn numbers(len: usize, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; len];
        Initializer::new(seed).uniform(&mut values, 1.0);
        values
    }

    fn check(rows: usize, input: usize, output: usize) {
        let (x, y) = (numbers(rows * input, 1), numbers(rows * output, 2));
        let mut expected = 0.0;
        for i in 0..input {
            for j in 0..output {
                let entry: f64 = (0..rows)
                    .map(|t| f64::from(x[t * input + i]) * f64::from(y[t * output + j]))
                    .sum();
                expected += entry * entry;
            }
        }
        for isa in Isa::available() {
            let mut gram = Gram::new(isa);
            gram.reserve(rows, input.max(output));
            let mut explicit = WeightGradient::new(isa, rows, input);
            let got = gram.squared_norm(&x, input, &y, output, &mut explicit);
            assert!(
                (got / expected - 1.0).abs() < 1e-5,
                "{rows} {input} {output}: {got} {expected}"
            );
        }
    }

    #[test]
    fn norms_are_those_of_the_product() {
        // Few rows and wide matrices take the Gram matrices, many rows and a thin matrix the product.
        for (rows, input, output) in [
            (1, 3, 5),
            (7, 40, 30),
            (33, 100, 120),
            (65, 200, 90),
            (80, 64, 4),
            (50, 5, 6),
        ] {
            check(rows, input, output);
        }
    }
}
