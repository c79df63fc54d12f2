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
use std::ops::AddAssign;

/// A sum of squares that is a smaller part than this of what was added up to it is computed again from the product itself: in
/// single precision what is left of the terms is too rough. At this part the norm is right to some 3e-5.
const CANCELLED: f64 = 1e-3;
/// Less than this part of its terms no squared norm counts for: the product itself is rounded by as much as a norm below it
/// could be wrong by.
const MIN_FRACTION: f64 = 1e-6;

/// A squared norm of a sum of outer products `a_t b_t^T`, and what it was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Square {
    pub(super) value: f64,
    /// `(sum_t |a_t| |b_t|)^2`: the squared norm if all terms pointed the same way.
    pub(super) terms: f64,
}

impl Square {
    /// Returns `true` if rounding may have spoilt the value, and for NaN.
    fn is_lost(self) -> bool {
        let certain = self.value >= CANCELLED * self.terms;
        !certain
    }

    /// The squared norm to clip by.
    ///
    /// PRIVACY: never so small that the roundings of a gradient of terms that cancel, scaled up to the bound, would
    /// exceed a ten-thousandth of it; and never zero because a sum of products was rounded below zero.
    pub(super) fn bounded(self) -> f64 {
        self.value.max(MIN_FRACTION * self.terms)
    }
}

impl AddAssign for Square {
    /// The squares of disjoint parameters add up.
    fn add_assign(&mut self, other: Self) {
        self.value += other.value;
        self.terms += other.terms;
    }
}

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
    ) -> Square {
        let rows = x.len() / input;
        // Half of each Gram matrix is computed, and the diagonal blocks whole.
        let ghost = rows * (rows + ROWS) / 2 * (input + output);
        if ghost > rows * input * output {
            let length = |row: &[T]| sum_of_squares(row).sqrt();
            let rows = x.chunks_exact(input).zip(y.chunks_exact(output));
            let lengths: f64 = rows.map(|(x, y)| length(x) * length(y)).sum();
            return Square {
                value: self.of_product(x, input, y, output, explicit),
                terms: lengths * lengths,
            };
        }
        let mut left = std::mem::take(&mut self.left);
        let mut right = std::mem::take(&mut self.right);
        self.lower(x, input, &mut left);
        self.lower(y, output, &mut right);
        let mut total = sum_of_products(&left, &right, rows);
        (self.left, self.right) = (left, right);
        if total.is_lost() {
            total.value = self.of_product(x, input, y, output, explicit);
        }
        total
    }

    /// Squared norm of `x^T y`, written out.
    fn of_product(
        &mut self,
        x: &[T],
        input: usize,
        y: &[T],
        output: usize,
        explicit: &mut WeightGradient<T>,
    ) -> f64 {
        self.product.clear();
        self.product.resize(input * output, T::ZERO);
        explicit.add(&mut self.product, T::ONE, x, input, y, output);
        sum_of_squares(&self.product)
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
    pub(super) fn against(&mut self, gram: &[T], x: &[T], width: usize) -> Square {
        let mut left = std::mem::take(&mut self.left);
        self.lower(x, width, &mut left);
        let total = sum_of_products(&left, gram, x.len() / width);
        self.left = left;
        total
    }
}

/// The parts of one sequence's gradients of embedding and output matrix.
#[derive(Clone, Copy)]
pub(super) struct Table<'a, T> {
    pub(super) width: usize,
    pub(super) inputs: &'a [u32],
    /// The gradient of each row of the residual stream, which the rows of the embedding that `inputs` point at get `scale` times.
    pub(super) gathered: &'a [T],
    pub(super) scale: f64,
    pub(super) states: &'a [T],
    /// Gradients of logits as [`Head::each_kept`](super::head::Head::each_kept) gives them.
    pub(super) logits: &'a [T],
    pub(super) lanes: usize,
}

impl<'a, T: Scalar> Table<'a, T> {
    fn gathered(self, t: usize) -> &'a [T] {
        &self.gathered[t * self.width..(t + 1) * self.width]
    }

    /// Squared norm of the gradient of an embedding that is no output matrix: the rows of one token are added up first.
    pub(super) fn of_lookups(self) -> Square {
        let (mut total, mut lengths) = (0.0, 0.0);
        let mut sum = vec![0.0; self.width];
        for (t, token) in self.inputs.iter().enumerate() {
            lengths += sum_of_squares(self.gathered(t)).sqrt();
            if self.inputs[..t].contains(token) {
                continue;
            }
            sum.fill(0.0);
            for s in (t..self.inputs.len()).filter(|&s| self.inputs[s] == *token) {
                let row = sum.iter_mut().zip(self.gathered(s));
                row.for_each(|(sum, value)| *sum += value.wide());
            }
            total += sum.iter().map(|value| value * value).sum::<f64>();
        }
        let square = self.scale * self.scale;
        Square {
            value: square * total,
            terms: square * lengths * lengths,
        }
    }
}

/// Gradients of matrices with a row per token.
impl<T: Scalar> Gram<T> {
    /// The squared norm of a sequence's gradient of an output matrix that is no embedding. `part` is that of `logits states` by Gram
    /// matrices.
    pub(super) fn of_output(&mut self, part: Square, table: Table<'_, T>) -> Square {
        let mut total = part;
        if total.is_lost() {
            self.write_output(table);
            total.value = sum_of_squares(&self.product);
        }
        total
    }

    /// The squared norm of a sequence's gradient of the embedding of a model that predicts with it. `part` is that of `logits states`
    /// alone; the rows `inputs` point at get `gathered` on top, those of one token added up.
    pub(super) fn of_tied(&mut self, part: Square, table: Table<'_, T>) -> Square {
        let Table {
            width,
            inputs,
            gathered,
            scale,
            states,
            logits,
            lanes,
        } = table;
        let count = inputs.len();
        let mut total = part.value;
        let mut lengths = part.terms.sqrt();
        for t in 0..count {
            let row = table.gathered(t);
            let square = scale * scale * dot(self.isa, row, row).wide();
            lengths += square.sqrt();
            total += square;
            for s in (0..t).filter(|&s| inputs[s] == inputs[t]) {
                total += scale * scale * 2.0 * dot(self.isa, row, table.gathered(s)).wide();
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
            let along = dot(self.isa, along, &logits[token as usize * lanes..][..count]).wide();
            total += scale * 2.0 * along;
        }
        let mut total = Square {
            value: total,
            terms: lengths * lengths,
        };
        if total.is_lost() {
            self.write_output(table);
            let scale = T::of(scale);
            for (t, &token) in inputs.iter().enumerate() {
                let line = &mut self.product[token as usize * width..][..width];
                let row = line.iter_mut().zip(table.gathered(t));
                row.for_each(|(sum, value)| *sum += scale * *value);
            }
            total.value = sum_of_squares(&self.product);
        }
        total
    }

    /// Writes the gradient of an output matrix out.
    fn write_output(&mut self, table: Table<'_, T>) {
        let Table {
            width,
            inputs,
            states,
            logits,
            lanes,
            ..
        } = table;
        // The last line of `logits` may end with the sequence's own lanes.
        let words = (logits.len() + lanes - inputs.len()) / lanes;
        self.product.clear();
        self.product.resize(words * width, T::ZERO);
        let extent = Extent {
            rows: words,
            cols: width,
            depth: inputs.len(),
        };
        matmul(
            self.isa,
            extent,
            T::ONE,
            Left::strided(logits, lanes, 1),
            Right::Rows(states, width),
            &mut self.product,
            width,
            false,
        );
    }
}

/// `sum_{t,s} a[t][s] b[t][s]` of two Gram matrices given by their lower triangles, the terms added up in double precision.
fn sum_of_products<T: Scalar>(a: &[T], b: &[T], count: usize) -> Square {
    let (mut value, mut lengths) = (0.0, 0.0);
    for row in 0..count {
        let (a, b) = (&a[row * count..][..=row], &b[row * count..][..=row]);
        let own = a[row].wide() * b[row].wide();
        value += 2.0 * wide_dot(a, b) - own;
        lengths += own.max(0.0).sqrt();
    }
    Square {
        value,
        terms: lengths * lengths,
    }
}

fn sum_of_squares<T: Scalar>(values: &[T]) -> f64 {
    wide_dot(values, values)
}

/// An inner product in double precision, in lanes that a compiler can put side by side.
fn wide_dot<T: Scalar>(a: &[T], b: &[T]) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0; LANES];
    let ((whole_a, rest_a), (whole_b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in whole_a.iter().zip(whole_b) {
        for j in 0..LANES {
            lanes[j] += a[j].wide() * b[j].wide();
        }
    }
    let rest = rest_a.iter().zip(rest_b).map(|(a, b)| a.wide() * b.wide());
    lanes.iter().sum::<f64>() + rest.sum::<f64>()
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

    fn squared_norm(isa: Isa, (x, input): (&[f32], usize), (y, output): (&[f32], usize)) -> Square {
        let rows = x.len() / input;
        let mut gram = Gram::new(isa);
        gram.reserve(rows, input.max(output));
        gram.squared_norm(x, input, y, output, &mut WeightGradient::new(isa, rows, input))
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
            let got = squared_norm(isa, (&x, input), (&y, output)).value;
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

    /// Two rows whose outer products nearly cancel: `x_1 = (1 + part) x_0` and `y_1 = -y_0`.
    fn cancelling(part: f32, input: usize, output: usize) -> (Vec<f32>, Vec<f32>, f64) {
        let (first, weights) = (numbers(input, 3), numbers(output, 4));
        let second: Vec<f32> = first.iter().map(|value| value + part * value).collect();
        let negated: Vec<f32> = weights.iter().map(|value| -value).collect();
        let left: f64 = (second.iter().zip(&first))
            .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
            .sum();
        let right: f64 = weights.iter().map(|value| f64::from(*value).powi(2)).sum();
        (
            [first, second].concat(),
            [weights, negated].concat(),
            left * right,
        )
    }

    #[test]
    fn norms_that_cancel_are_computed_from_the_product() {
        for part in [1e-2, 1e-3, 2e-4] {
            let (x, y, expected) = cancelling(part, 120, 90);
            for isa in Isa::available() {
                let got = squared_norm(isa, (&x, 120), (&y, 90));
                assert!(got.value < CANCELLED * got.terms);
                assert!(
                    (got.value / expected - 1.0).abs() < 2e-3,
                    "{part}: {got:?} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_norm_that_is_rounded_away_still_clips() {
        // Half an ulp apart: what is left of the product is rounding.
        let (x, y, _) = cancelling(6e-8, 120, 90);
        for isa in Isa::available() {
            let got = squared_norm(isa, (&x, 120), (&y, 90));
            assert!(got.value >= 0.0, "{got:?}");
            assert!(
                got.bounded() >= MIN_FRACTION * got.terms && got.terms > 1.0,
                "{got:?}"
            );
        }
        let below_zero = Square {
            value: -1e-9,
            terms: 4.0,
        };
        assert_eq!(below_zero.bounded(), 4.0 * MIN_FRACTION);
    }

    /// The output part and the input part of an embedding's gradient cancel where a row gets minus what its logits add.
    #[test]
    fn embeddings_that_cancel_are_computed_from_the_product() {
        const WIDTH: usize = 40;
        const LANES: usize = 16;
        let inputs = [3u32, 1, 3, 0];
        for part in [0.3, 1e-3, 2e-4] {
            let states = numbers(inputs.len() * WIDTH, 5);
            // One word's logits alone have a gradient, so the output part is one row.
            let mut logits = vec![0.0f32; 6 * LANES];
            let gradients = numbers(inputs.len(), 6);
            logits[3 * LANES..][..inputs.len()].copy_from_slice(&gradients);
            let mut output = vec![0.0f64; WIDTH];
            for (row, gradient) in states.chunks_exact(WIDTH).zip(&gradients) {
                for (sum, value) in output.iter_mut().zip(row) {
                    *sum += f64::from(*gradient) * f64::from(*value);
                }
            }
            let mut gathered = vec![0.0f32; inputs.len() * WIDTH];
            for (place, value) in gathered[..WIDTH].iter_mut().zip(&output) {
                *place = ((part - 1.0) * value) as f32;
            }
            let expected: f64 = (output.iter().zip(&gathered))
                .map(|(a, b)| (a + f64::from(*b)).powi(2))
                .sum();
            for isa in Isa::available() {
                let mut gram = Gram::new(isa);
                gram.reserve(LANES, WIDTH);
                let mut own = vec![0.0f32; inputs.len().pow(2)];
                gram.add_lower_of_columns(&logits, LANES, inputs.len(), 6, &mut own);
                let output_part = gram.against(&own, &states, WIDTH);
                let table = Table {
                    width: WIDTH,
                    inputs: &inputs,
                    gathered: &gathered,
                    scale: 1.0,
                    states: &states,
                    logits: &logits,
                    lanes: LANES,
                };
                let got = gram.of_tied(output_part, table);
                assert!(
                    (got.value / expected - 1.0).abs() < 5e-3,
                    "{part}: {got:?} {expected}"
                );
            }
        }
    }
}
