//! Output layer and cross-entropy, fused over blocks of the vocabulary.
//!
//! Logits are kept transposed, one line per word and one lane per row of the batch: the output matrix is then the
//! left operand of every product, in either storage order and without packing, and the softmax reductions are
//! elementwise. A block of words is multiplied, exponentiated and folded into the gradient of the projected states
//! while it is in cache, relative to the maximum seen so far; each lane is rescaled when its maximum rises. The
//! exponentials are read once more, for the gradient of the output matrix.

use super::{Dimensions, Output, Tensors};
use crate::batch::{IGNORE, SequenceBatch};
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul, matmul_ahead},
    pack::pack_left,
    softmax::{exponentials, scale_and_maximum, stream_rows},
    transpose::transpose,
    vector::{add_projected, add_scaled, dot, inverse_norms, step_projected},
};
use crate::scalar::Scalar;
use crate::sequence::StepStats;
use crate::target::UpdateTarget;
use std::ops::Range;

/// Words handled together: with 320 rows a block of logits takes 300 kB and stays in a core's cache.
const BLOCK: usize = 240;
/// Lanes are padded to whole vectors.
const LANES: usize = 16;
/// Rows whose logits are laid out together in evaluation.
const EVALUATION_ROWS: usize = 48;

/// Workspace of the output layer.
#[derive(Debug)]
pub(crate) struct Head<T> {
    isa: Isa,
    dimensions: Dimensions,
    output: Output,
    /// Projected states transposed, `[projection, lanes]`.
    states: Vec<T>,
    /// Exponentials, `[vocab, lanes]`, relative to the maximum known when their block was computed.
    exponentials: Vec<T>,
    /// Gradient of the states, transposed and not normalised, `[projection, lanes]`.
    states_gradient: Vec<T>,
    /// Gradient of the projected states, `[rows, projection]`.
    pub(crate) gradient: Vec<T>,
    maximum: Vec<T>,
    previous_maximum: Vec<T>,
    /// Maximum per block, `[blocks, lanes]`.
    block_maximum: Vec<T>,
    sum: Vec<T>,
    target_logit: Vec<T>,
    /// 1 / targets for unmasked rows, 0 for masked ones.
    weight: Vec<T>,
    scale: Vec<T>,
    scaled_states: Vec<T>,
    inverse_norm: Vec<T>,
    /// Gradient of a block of output vectors, `[BLOCK, projection]`, and its transpose.
    block_gradient: Vec<T>,
    block_transposed: Vec<T>,
    by_target: Vec<u32>,
    by_input: Vec<u32>,
}

impl<T: Scalar> Head<T> {
    pub(crate) fn new(isa: Isa, dimensions: Dimensions, output: Output, max_rows: usize) -> Self {
        let Dimensions {
            vocab, projection, ..
        } = dimensions;
        let lanes = max_rows.next_multiple_of(LANES);
        let zeros = |len: usize| vec![T::ZERO; len];
        Self {
            isa,
            dimensions,
            output,
            states: zeros(projection * lanes),
            exponentials: zeros(vocab * lanes),
            states_gradient: zeros(projection * lanes),
            gradient: zeros(max_rows * projection),
            maximum: zeros(lanes),
            previous_maximum: zeros(lanes),
            block_maximum: zeros(vocab.div_ceil(BLOCK) * lanes),
            sum: zeros(lanes),
            target_logit: zeros(lanes),
            weight: zeros(lanes),
            scale: zeros(lanes),
            scaled_states: zeros(max_rows * projection),
            inverse_norm: zeros(vocab),
            block_gradient: zeros(BLOCK * projection.max(EVALUATION_ROWS)),
            block_transposed: zeros(BLOCK * projection),
            by_target: Vec::with_capacity(max_rows),
            by_input: Vec::with_capacity(max_rows),
        }
    }

    fn unit_norm(&self) -> bool {
        self.output == Output::Tied { unit_norm: true }
    }

    /// Output vectors of a block of words as an operand with one row per word, and their bias.
    fn words<'a>(
        &self,
        params: &'a [T],
        tensors: &Tensors,
        block: &Range<usize>,
    ) -> (&'a [T], usize, usize, &'a [T]) {
        match self.output {
            Output::Tied { .. } => {
                let projection = self.dimensions.projection;
                (
                    &params[tensors.embedding.clone()][block.start * projection..],
                    projection,
                    1,
                    &[],
                )
            }
            Output::Dense => {
                let bias = &params[tensors.out_bias.clone()][block.clone()];
                (
                    &params[tensors.out.clone()][block.start..],
                    1,
                    self.dimensions.vocab,
                    bias,
                )
            }
        }
    }

    /// Forward pass and gradient of the projected states `[rows, projection]`; leaves what [`accumulate`](Self::accumulate)
    /// needs.
    ///
    /// The letters of the formulas: `V_w` is the output vector of word `w`, `b_w` its bias, `n_w` one over its norm in a model of unit
    /// norm; without them they are 0 and 1. `r_j` is the projected state of row `j` and `y_j` its target. `m_j`, `sum_j` and `D_j` are the
    /// largest logit so far, and relative to it the sum of exponentials and the sum of output vectors weighted by them. With the weight
    /// `a_j` of a row, [`finish`](Self::finish) makes the gradient from them: `dr_j = a_j (D_j / sum_j - n_y V_y)` with `y = y_j`.
    pub(crate) fn forward_backward(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected: &[T],
    ) -> StepStats {
        let Dimensions {
            vocab, projection, ..
        } = self.dimensions;
        let (isa, rows, unit_norm) = (self.isa, batch.rows(), self.unit_norm());
        let lanes = rows.next_multiple_of(LANES);
        sort_rows(&mut self.by_target, batch.targets);
        sort_rows(&mut self.by_input, batch.inputs);
        transpose(
            isa,
            projected,
            projection,
            rows,
            projection,
            &mut self.states,
            lanes,
        );
        self.maximum[..lanes].fill(T::LOWEST);
        self.sum[..lanes].fill(T::ZERO);
        self.states_gradient[..projection * lanes].fill(T::ZERO);
        self.gradient[..rows * projection].fill(T::ZERO);
        let mut by_target = Cursor(0);

        // z_wj = n_w V_w . r_j + b_w, and m_j = max(m_j, z_wj)
        // e_wj = exp(z_wj - m_j), sum_j += sum_w e_wj, D_j += sum_w e_wj n_w V_w
        // Where m_j rises from m to m', sum_j and D_j are multiplied by exp(m - m') first. The target y of row j leaves n_y V_y.
        for start in (0..vocab).step_by(BLOCK) {
            let block = start..vocab.min(start + BLOCK);
            let count = block.len();
            let (words, word_stride, feature_stride, bias) = self.words(params, tensors, &block);
            if unit_norm {
                inverse_norms(
                    isa,
                    &words[..count * projection],
                    projection,
                    &mut self.inverse_norm[block.clone()],
                );
            }
            let inverse: &[T] = if unit_norm {
                &self.inverse_norm[block.clone()]
            } else {
                &[]
            };
            let logits = &mut self.exponentials[start * lanes..block.end * lanes];
            let extent = Extent {
                rows: count,
                cols: rows,
                depth: projection,
            };
            let mut left = Left::strided(words, word_stride, feature_stride);
            if self.output == Output::Dense {
                // Lines of the output matrix are many pages apart; each would be visited by every tile.
                let packed = &mut self.block_transposed;
                pack_left(words, vocab, count, projection, 0, projection, packed);
                left = Left::packed(packed, projection);
            }
            matmul(
                isa,
                extent,
                T::ONE,
                left,
                Right::Rows(&self.states, lanes),
                logits,
                lanes,
                false,
            );
            self.previous_maximum[..lanes].copy_from_slice(&self.maximum[..lanes]);
            scale_and_maximum(isa, logits, lanes, inverse, bias, &mut self.maximum[..lanes]);

            // While the block is in cache: the logit and the output vector of each row whose target is in it.
            for &row in by_target.take(&self.by_target, batch.targets, block.end) {
                let (row, word) = (row as usize, batch.targets[row as usize] as usize - start);
                self.target_logit[row] = logits[word * lanes + row];
                let factor = inverse.get(word).copied().unwrap_or(T::ONE);
                let gradient = &mut self.gradient[row * projection..][..projection];
                for (feature, gradient) in gradient.iter_mut().enumerate() {
                    *gradient = words[word * word_stride + feature * feature_stride] * factor;
                }
            }

            if self.maximum[..lanes] != self.previous_maximum[..lanes] {
                for lane in 0..lanes {
                    let (old, new) = (self.previous_maximum[lane], self.maximum[lane]);
                    let factor = if old == new {
                        T::ONE
                    } else {
                        (old - new).exponential::<false>()
                    };
                    self.scale[lane] = factor;
                    self.sum[lane] *= factor;
                }
                if start > 0 {
                    for line in self.states_gradient[..projection * lanes].chunks_exact_mut(lanes) {
                        for (value, &factor) in line.iter_mut().zip(&self.scale) {
                            *value *= factor;
                        }
                    }
                }
            }
            let maximum = &self.maximum[..lanes];
            exponentials(isa, logits, lanes, inverse, maximum, &mut self.sum[..lanes]);
            self.block_maximum[start / BLOCK * lanes..][..lanes].copy_from_slice(maximum);
            let extent = Extent {
                rows: projection,
                cols: rows,
                depth: count,
            };
            let left = Left::strided(words, feature_stride, word_stride);
            let right = Right::Rows(logits, lanes);
            let next = (block.end + BLOCK).min(vocab) - block.end;
            let ahead = if self.output == Output::Dense {
                &[]
            } else {
                &words[count * projection..][..next * projection]
            };
            matmul_ahead(
                isa,
                extent,
                T::ONE,
                left,
                right,
                &mut self.states_gradient,
                lanes,
                true,
                ahead,
            );
        }
        self.finish(batch)
    }

    /// Normalises the gradient of the states and measures the loss.
    fn finish(&mut self, batch: &SequenceBatch<'_>) -> StepStats {
        let projection = self.dimensions.projection;
        let rows = batch.rows();
        let lanes = rows.next_multiple_of(LANES);
        let mut stats = StepStats {
            targets: batch.targets_count(),
            ..StepStats::default()
        };
        let fraction = if stats.targets == 0 {
            0.0
        } else {
            1.0 / stats.targets as f64
        };
        self.weight[..lanes].fill(T::ZERO);
        for (row, &target) in batch.targets.iter().enumerate() {
            if target == IGNORE {
                continue;
            }
            let logit = self.target_logit[row];
            stats.loss_sum += self.maximum[row].wide() + self.sum[row].wide().ln() - logit.wide();
            stats.correct += usize::from(logit >= self.maximum[row]);
            self.weight[row] = T::of(fraction);
        }
        for (row, gradient) in self.gradient[..rows * projection]
            .chunks_exact_mut(projection)
            .enumerate()
        {
            let weight = self.weight[row];
            let factor = weight / self.sum[row];
            for (feature, gradient) in gradient.iter_mut().enumerate() {
                *gradient = self.states_gradient[feature * lanes + row] * factor - *gradient * weight;
            }
        }
        stats
    }

    /// Adds `factor` times the gradients of embedding and output to the target, from the exponentials of the last
    /// [`forward_backward`](Self::forward_backward) and the gradient of the input vectors.
    ///
    /// The letters of the formulas are those of `forward_backward`. `k` is the factor, `[y = w]` is 1 if the words are equal and else 0,
    /// `x_j` is the input token of row `j`, `dx_j` the gradient of its input vector, and `E` an embedding that is no output matrix.
    pub(crate) fn accumulate(
        &mut self,
        target: &mut UpdateTarget<'_, T>,
        factor: T,
        tensors: &Tensors,
        batch: &SequenceBatch<'_>,
        projected: &[T],
        input_gradient: &[T],
    ) {
        let Dimensions {
            vocab, projection, ..
        } = self.dimensions;
        let (isa, rows, unit_norm) = (self.isa, batch.rows(), self.unit_norm());
        let lanes = rows.next_multiple_of(LANES);
        let (mut by_target, mut by_input) = (Cursor(0), Cursor(0));
        // p_wj = exp(z_wj - m_j) / sum_j
        // G_w = n_w sum_j a_j (p_wj - [y_j = w]) r_j, and in a tied model G_w += n_w sum_{j: x_j = w} dx_j
        // V_w += k (G_w - u_w (u_w . G_w)) with u_w = n_w V_w in a model of unit norm, otherwise V_w += k G_w
        // b_w += k sum_j a_j (p_wj - [y_j = w])
        for start in (0..vocab).step_by(BLOCK) {
            let block = start..vocab.min(start + BLOCK);
            let count = block.len();
            let number = start / BLOCK;
            let block_maximum = &self.block_maximum[number * lanes..][..lanes];
            if number == 0 || *block_maximum != self.block_maximum[(number - 1) * lanes..][..lanes] {
                for row in 0..rows {
                    let lag = (block_maximum[row] - self.maximum[row]).exponential::<false>();
                    let scale = self.weight[row] * lag / self.sum[row];
                    self.scale[row] = scale;
                    let states = &projected[row * projection..][..projection];
                    for (scaled, &state) in self.scaled_states[row * projection..].iter_mut().zip(states) {
                        *scaled = scale * state;
                    }
                }
            }
            let exponentials = &self.exponentials[start * lanes..block.end * lanes];
            let gradient = &mut self.block_gradient[..count * projection];
            let extent = Extent {
                rows: count,
                cols: projection,
                depth: rows,
            };
            let left = Left::strided(exponentials, lanes, 1);
            let right = Right::Rows(&self.scaled_states, projection);
            let place = tensors.embedding.start + start * projection
                ..tensors.embedding.start + block.end * projection;
            // The rows that are updated right after the product.
            let ahead = match self.output {
                Output::Tied { .. } => &target.slice()[place.clone()],
                Output::Dense => &[],
            };
            matmul_ahead(
                isa,
                extent,
                T::ONE,
                left,
                right,
                gradient,
                projection,
                false,
                ahead,
            );
            let inverse: &[T] = if unit_norm {
                &self.inverse_norm[block.clone()]
            } else {
                &[]
            };
            let inverse_of = |word: usize| inverse.get(word).copied().unwrap_or(T::ONE);
            let targets = by_target.take(&self.by_target, batch.targets, block.end);
            for &row in targets {
                let (row, word) = (row as usize, batch.targets[row as usize] as usize - start);
                let fraction = -self.weight[row] * inverse_of(word);
                let states = &projected[row * projection..][..projection];
                add_scaled(
                    isa,
                    &mut gradient[word * projection..][..projection],
                    fraction,
                    states,
                );
            }
            if self.output == Output::Dense {
                let bias = &mut target.slice()[tensors.out_bias.clone()][block.clone()];
                for (bias, line) in bias.iter_mut().zip(exponentials.chunks_exact(lanes)) {
                    *bias += factor * dot(isa, &line[..rows], &self.scale[..rows]);
                }
                for &row in targets {
                    let word = batch.targets[row as usize] as usize - start;
                    bias[word] -= factor * self.weight[row as usize];
                }
                let turned = &mut self.block_transposed[..count * projection];
                transpose(isa, gradient, projection, count, projection, turned, count);
                let out = &mut target.slice()[tensors.out.clone()];
                for (line, turned) in out.chunks_exact_mut(vocab).zip(turned.chunks_exact(count)) {
                    add_scaled(isa, &mut line[block.clone()], factor, turned);
                }
                continue;
            }
            for &row in by_input.take(&self.by_input, batch.inputs, block.end) {
                let (row, word) = (row as usize, batch.inputs[row as usize] as usize - start);
                let line = &input_gradient[row * projection..][..projection];
                add_scaled(
                    isa,
                    &mut gradient[word * projection..][..projection],
                    inverse_of(word),
                    line,
                );
            }
            if !unit_norm {
                add_scaled(isa, &mut target.slice()[place], factor, gradient);
                continue;
            }
            for (word, gradient) in gradient.chunks_exact(projection).enumerate() {
                let row = place.start + word * projection..place.start + (word + 1) * projection;
                match target {
                    UpdateTarget::Step(params) => {
                        step_projected(isa, &mut params[row], factor, gradient, inverse[word]);
                    }
                    UpdateTarget::Gradient {
                        params,
                        gradient: out,
                    } => {
                        add_projected(
                            isa,
                            &mut out[row.clone()],
                            factor,
                            gradient,
                            &params[row],
                            inverse[word],
                        );
                    }
                }
            }
        }
        if self.output == Output::Dense {
            let embed = self.dimensions.embed;
            let embedding = &mut target.slice()[tensors.embedding.clone()];
            // E[x_j] += k dx_j
            for (row, &token) in batch.inputs.iter().enumerate() {
                let line = &input_gradient[row * embed..][..embed];
                add_scaled(
                    isa,
                    &mut embedding[token as usize * embed..][..embed],
                    factor,
                    line,
                );
            }
        }
    }

    /// Streams each row's logits and log-normaliser; returns the first row whose normaliser is not finite.
    pub(crate) fn evaluate(
        &mut self,
        params: &[T],
        tensors: &Tensors,
        rows: usize,
        projected: &[T],
        sink: &mut dyn FnMut(usize, &[T], T),
    ) -> Result<(), f64> {
        let Dimensions {
            vocab, projection, ..
        } = self.dimensions;
        let (isa, unit_norm) = (self.isa, self.unit_norm());
        if unit_norm {
            let embedding = &params[tensors.embedding.clone()];
            inverse_norms(isa, embedding, projection, &mut self.inverse_norm);
        }
        for first in (0..rows).step_by(EVALUATION_ROWS) {
            let count = EVALUATION_ROWS.min(rows - first);
            let lanes = count.next_multiple_of(LANES);
            transpose(
                isa,
                &projected[first * projection..],
                projection,
                count,
                projection,
                &mut self.states,
                lanes,
            );
            for start in (0..vocab).step_by(BLOCK) {
                let block = start..vocab.min(start + BLOCK);
                let (words, word_stride, feature_stride, bias) = self.words(params, tensors, &block);
                let logits = &mut self.block_gradient[..block.len() * lanes];
                let extent = Extent {
                    rows: block.len(),
                    cols: count,
                    depth: projection,
                };
                let left = Left::strided(words, word_stride, feature_stride);
                matmul(
                    isa,
                    extent,
                    T::ONE,
                    left,
                    Right::Rows(&self.states, lanes),
                    logits,
                    lanes,
                    false,
                );
                let inverse: &[T] = if unit_norm {
                    &self.inverse_norm[block.clone()]
                } else {
                    &[]
                };
                self.maximum[..lanes].fill(T::LOWEST);
                scale_and_maximum(isa, logits, lanes, inverse, bias, &mut self.maximum[..lanes]);
                transpose(
                    isa,
                    logits,
                    lanes,
                    block.len(),
                    count,
                    &mut self.exponentials[start..],
                    vocab,
                );
            }
            stream_rows(isa, &self.exponentials[..count * vocab], vocab, first, sink)?;
        }
        Ok(())
    }
}

/// Row numbers ordered by their id, masked rows left out.
fn sort_rows(order: &mut Vec<u32>, ids: &[u32]) {
    order.clear();
    order.extend((0..ids.len() as u32).filter(|&row| ids[row as usize] != IGNORE));
    order.sort_unstable_by_key(|&row| (ids[row as usize], row));
}

/// Walks through sorted rows block by block.
struct Cursor(usize);

impl Cursor {
    /// The next rows whose id is below `end`.
    fn take<'a>(&mut self, order: &'a [u32], ids: &[u32], end: usize) -> &'a [u32] {
        let rest = &order[self.0..];
        let count = rest
            .iter()
            .take_while(|&&row| (ids[row as usize] as usize) < end)
            .count();
        self.0 += count;
        &rest[..count]
    }
}
