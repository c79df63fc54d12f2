//! Output matrix and cross-entropy, over runs of rows and blocks of the vocabulary.
//!
//! Logits stand transposed, one line per word and one lane per row, so that the output matrix is the left operand of every
//! product, unpacked, and softmax reductions are elementwise. A block of logits is turned into exponentials, relative to the
//! maximum so far, while it is in cache; when the last block has told maximum and sum, each is brought to a gradient of
//! logits and multiplied into the gradients of states and output matrix. Only one run's exponentials exist at a time, unless the
//! gradient of the output matrix has to wait for weights of the sequences.

mod evaluation;
mod kept;

use super::TransformerSizes;
use super::gram::{Gram, Square};
use super::rows::Rows;
use crate::batch::IGNORE;
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul, matmul_ahead},
    pack::{pack_panels, pack_panels_transposed, panels_len},
    soft_cap::soft_cap_with_slopes,
    softmax::{exponentials, scale_and_maximum, scale_lanes},
    vector::multiply,
};
use crate::scalar::Scalar;
use std::ops::Range;

/// Rows handled together, unless one sequence is longer.
const CHUNK: usize = 256;
/// Values of the output matrix that a block of words has at most: with its logits, it stays in a core's cache.
const BLOCK_VALUES: usize = 1 << 16;
/// Lanes are padded to whole vectors.
const LANES: usize = 16;

#[derive(Debug)]
pub(super) struct Head<T> {
    isa: Isa,
    vocab: usize,
    width: usize,
    /// Words of a block.
    block: usize,
    /// A run's states in panels: transposed, then as they are.
    states: Vec<T>,
    /// Exponentials, then gradients of logits: `[vocab, lanes]` of one run, or of every run one after the other.
    logits: Vec<T>,
    /// The cap of logits, and their derivatives in one run, `[vocab, lanes]`; empty without a cap.
    cap: Option<T>,
    slopes: Vec<T>,
    maximum: Vec<T>,
    previous: Vec<T>,
    /// Maximum so far when each block was computed, `[blocks, lanes]`.
    block_maximum: Vec<T>,
    sum: Vec<T>,
    factor: Vec<T>,
    weight: Vec<T>,
    target_logit: Vec<T>,
    /// Loss of every row with a target and whether it was predicted.
    pub(super) loss: Vec<f64>,
    pub(super) correct: Vec<bool>,
}

fn lanes_of(rows: usize) -> usize {
    rows.next_multiple_of(LANES)
}

impl<T: Scalar> Head<T> {
    pub(super) fn new(isa: Isa, sizes: TransformerSizes, longest: usize, max_rows: usize) -> Self {
        let TransformerSizes { vocab, width, .. } = sizes;
        let cap = sizes.architecture.soft_caps.logits;
        let rows = CHUNK.max(longest).min(max_rows);
        let lanes = lanes_of(rows);
        let block = (BLOCK_VALUES / width).next_multiple_of(8).clamp(8, 256);
        let zeros = |len: usize| vec![T::ZERO; len];
        Self {
            isa,
            vocab,
            width,
            block,
            states: zeros(panels_len(width, lanes).max(panels_len(rows, width))),
            logits: zeros(vocab * lanes.max(evaluation::ROWS.min(max_rows))),
            cap: cap.map(T::of),
            slopes: zeros(if cap.is_some() { vocab * lanes } else { 0 }),
            maximum: zeros(lanes),
            previous: zeros(lanes),
            block_maximum: zeros(vocab.div_ceil(block) * lanes),
            sum: zeros(lanes),
            factor: zeros(lanes),
            weight: zeros(lanes),
            target_logit: zeros(lanes),
            loss: vec![0.0; max_rows],
            correct: vec![false; max_rows],
        }
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let (vocab, block) = (self.vocab, self.block);
        (0..vocab)
            .step_by(block)
            .map(move |start| start..vocab.min(start + block))
    }

    /// Losses, and the gradient of the states where `row_weight` is each row's part of the loss.
    ///
    /// `states` and `states_gradient` are `[rows, width]`. The gradient of the output matrix is added to the slice in `then`,
    /// or the squared norm of each sequence's part of it to the list, while the gradients of the logits are kept for
    /// [`add_weighted`](Self::add_weighted).
    pub(super) fn forward_backward(
        &mut self,
        matrix: &[T],
        rows: &Rows,
        states: &[T],
        row_weight: &[T],
        states_gradient: &mut [T],
        mut then: Output<'_, T>,
    ) {
        let mut offset = 0;
        for run in rows.chunks(CHUNK) {
            let span = rows.span(&run);
            let lanes = lanes_of(span.len());
            let place = offset..offset + self.vocab * lanes;
            if let Output::Norms { .. } = then {
                offset = place.end;
            }
            let mut logits = std::mem::take(&mut self.logits);
            let states = &states[span.start * self.width..span.end * self.width];
            self.exponentials(
                matrix,
                states,
                &rows.targets[span.clone()],
                &mut logits[place.clone()],
            );
            self.losses(rows, &span, row_weight);
            self.gradients(
                matrix,
                rows,
                &run,
                states,
                states_gradient,
                &mut logits[place],
                &mut then,
            );
            self.logits = logits;
        }
    }

    /// Exponentials of one run's logits, with sums and maxima.
    fn exponentials(&mut self, matrix: &[T], states: &[T], targets: &[u32], logits: &mut [T]) {
        let (isa, width, count) = (self.isa, self.width, targets.len());
        let lanes = lanes_of(count);
        pack_panels_transposed(isa, states, width, width, count, &mut self.states);
        self.maximum[..lanes].fill(T::LOWEST);
        self.sum[..lanes].fill(T::ZERO);
        self.target_logit[..lanes].fill(T::ZERO);
        for (number, words) in self.blocks().enumerate() {
            let logits = &mut logits[words.start * lanes..words.end * lanes];
            let extent = Extent {
                rows: words.len(),
                cols: lanes,
                depth: width,
            };
            let left = Left::strided(&matrix[words.start * width..], width, 1);
            let next = words.end * width..(words.end + self.block).min(self.vocab) * width;
            matmul_ahead(
                isa,
                extent,
                T::ONE,
                left,
                Right::Panels(&self.states),
                logits,
                lanes,
                false,
                &matrix[next],
            );
            if let Some(cap) = self.cap {
                let slopes = &mut self.slopes[words.start * lanes..words.end * lanes];
                soft_cap_with_slopes(isa, logits, slopes, T::ONE, cap);
            }
            for (lane, &target) in targets.iter().enumerate() {
                if words.contains(&(target as usize)) {
                    self.target_logit[lane] = logits[(target as usize - words.start) * lanes + lane];
                }
            }
            self.previous[..lanes].copy_from_slice(&self.maximum[..lanes]);
            scale_and_maximum(isa, logits, lanes, &[], &[], &mut self.maximum[..lanes]);
            for lane in 0..lanes {
                let (before, now) = (self.previous[lane], self.maximum[lane]);
                if before != now {
                    self.sum[lane] *= (before - now).exponential_of_negative::<false>();
                }
            }
            exponentials(
                isa,
                logits,
                lanes,
                &[],
                &self.maximum[..lanes],
                &mut self.sum[..lanes],
            );
            self.block_maximum[number * lanes..][..lanes].copy_from_slice(&self.maximum[..lanes]);
        }
    }

    /// Loss and prediction of every row of a run, and the weights of its lanes.
    fn losses(&mut self, rows: &Rows, span: &Range<usize>, row_weight: &[T]) {
        self.weight[..lanes_of(span.len())].fill(T::ZERO);
        for (lane, row) in span.clone().enumerate() {
            (self.loss[row], self.correct[row]) = (0.0, false);
            if rows.targets[row] == IGNORE {
                continue;
            }
            let (maximum, logit) = (self.maximum[lane], self.target_logit[lane]);
            self.loss[row] = maximum.wide() + self.sum[lane].wide().ln() - logit.wide();
            self.correct[row] = logit >= maximum;
            self.weight[lane] = row_weight[row];
        }
    }

    /// Turns exponentials into gradients of logits, and these into gradients of states and output matrix.
    ///
    /// The letters of the formulas: `M_w` is the row of word `w` in the output matrix. Row `j` has the state `s_j`, the target `y_j`, the
    /// weight `a_j`, the largest logit `m_j` and the sum of exponentials `sum_j`. `z_wj` is the logit after the cap, `c_wj` the slope of the
    /// cap or 1, and `g_wj` the gradient of the logit before it. `[y_j = w]` is 1 if the words are equal and else 0.
    #[allow(clippy::too_many_arguments)]
    fn gradients(
        &mut self,
        matrix: &[T],
        rows: &Rows,
        run: &Range<usize>,
        states: &[T],
        states_gradient: &mut [T],
        logits: &mut [T],
        then: &mut Output<'_, T>,
    ) {
        let (isa, width, span) = (self.isa, self.width, rows.span(run));
        let (count, lanes) = (span.len(), lanes_of(span.len()));
        let targets = &rows.targets[span.clone()];
        let states_gradient = &mut states_gradient[span.start * width..span.end * width];
        match then {
            Output::Add(_) => pack_panels(isa, states, width, count, width, &mut self.states),
            Output::Norms { grams, .. } => {
                let len: usize = run
                    .clone()
                    .map(|sequence| rows.range(sequence).len().pow(2))
                    .sum();
                grams.clear();
                grams.resize(len, T::ZERO);
            }
            Output::Frozen => {}
        }
        // g_wj = a_j (exp(z_wj - m_j) / sum_j - [y_j = w]) c_wj
        // ds_j = sum_w g_wj M_w
        // dM_w += sum_j g_wj s_j; or, per sequence, K_ij += sum_w g_wi g_wj for j <= i.
        for (number, words) in self.blocks().enumerate() {
            let block_maximum = &self.block_maximum[number * lanes..][..lanes];
            if number == 0 || *block_maximum != self.block_maximum[(number - 1) * lanes..][..lanes] {
                for (lane, &before) in block_maximum.iter().enumerate() {
                    let lag = (before - self.maximum[lane]).exponential_of_negative::<false>();
                    self.factor[lane] = self.weight[lane] * lag / self.sum[lane];
                }
            }
            let logits = &mut logits[words.start * lanes..words.end * lanes];
            scale_lanes(isa, logits, lanes, &self.factor[..lanes]);
            for (lane, &target) in targets.iter().enumerate() {
                if words.contains(&(target as usize)) {
                    logits[(target as usize - words.start) * lanes + lane] -= self.weight[lane];
                }
            }
            if self.cap.is_some() {
                multiply(isa, logits, &self.slopes[words.start * lanes..words.end * lanes]);
            }
            let back = Extent {
                rows: count,
                cols: width,
                depth: words.len(),
            };
            let vectors = words.start * width..words.end * width;
            let right = Right::Rows(&matrix[vectors.clone()], width);
            let left = Left::strided(logits, 1, lanes);
            matmul(isa, back, T::ONE, left, right, states_gradient, width, number > 0);
            match then {
                Output::Add(target) => {
                    let extent = Extent {
                        rows: words.len(),
                        cols: width,
                        depth: count,
                    };
                    let left = Left::strided(logits, lanes, 1);
                    let right = Right::Panels(&self.states);
                    matmul(
                        isa,
                        extent,
                        T::ONE,
                        left,
                        right,
                        &mut target[vectors],
                        width,
                        true,
                    );
                }
                Output::Norms { gram, grams, .. } => {
                    let mut start = 0;
                    for sequence in run.clone() {
                        let range = rows.range(sequence);
                        let own = &mut grams[start..start + range.len().pow(2)];
                        start += own.len();
                        let columns = &logits[range.start - span.start..];
                        gram.add_lower_of_columns(columns, lanes, range.len(), words.len(), own);
                    }
                }
                Output::Frozen => {}
            }
        }
        if let Output::Norms { gram, grams, squares } = then {
            let mut start = 0;
            // |dM|^2 = |sum_i g_i s_i^T|^2 = sum_ij K_ij (s_i . s_j)
            for sequence in run.clone() {
                let range = rows.range(sequence);
                let own = &grams[start..start + range.len().pow(2)];
                start += own.len();
                let states = &states[(range.start - span.start) * width..(range.end - span.start) * width];
                squares[sequence] += gram.against(own, states, width);
            }
        }
    }
}

/// The use of the output matrix's gradient.
pub(super) enum Output<'a, T> {
    /// The gradient is dropped: the output matrix is not trained.
    Frozen,
    /// The gradient is added to this.
    Add(&'a mut [T]),
    /// The squared norm per sequence is added to `squares`. The gradient itself is added when weights are known.
    Norms {
        gram: &'a mut Gram<T>,
        grams: &'a mut Vec<T>,
        squares: &'a mut [Square],
    },
}
