//! The word LSTM, written once; the two word models differ in embedding and output head.

mod head;
mod recurrence;
mod worker;

use crate::{
    error::{ModelError, Result},
    initial::Initializer,
    sequence::{SequenceModel, SequenceWorker},
};
use std::ops::Range;
use undertone_aggregation::{Block, ClipGroup, ParamLayout};
use worker::Worker;

/// How hidden states become logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The embedding matrix, without bias; each row divided by its L2 norm when `unit_norm`.
    Tied { unit_norm: bool },
    /// A matrix of its own, `[embed, vocab]`, with a bias.
    Dense,
}

/// Sizes of a word LSTM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dimensions {
    pub(crate) vocab: usize,
    pub(crate) embed: usize,
    pub(crate) hidden: usize,
}

impl Dimensions {
    pub(crate) fn gates(self) -> usize {
        4 * self.hidden
    }
}

/// Where each tensor stands in the flat vector.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(crate) embedding: Range<usize>,
    pub(crate) wx: Range<usize>,
    pub(crate) wh: Range<usize>,
    pub(crate) bias: Range<usize>,
    pub(crate) projection: Range<usize>,
    pub(crate) projection_bias: Range<usize>,
    /// Output matrix and bias; empty for a tied model.
    pub(crate) out: Range<usize>,
    pub(crate) out_bias: Range<usize>,
}

/// An LSTM over words: embedding, one LSTM layer, linear projection back to the embedding width, output.
///
/// Gates stand in the order input, forget, candidate, output. All matrices are row-major and multiply from the
/// right: `x wx + h wh + bias`, `h proj + proj_bias`.
///
/// # Source
/// Tied: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018, section 3. Untied:
/// the StackOverflow next-word model of McMahan, Xu and Zhang (BLT), section 5.
#[derive(Debug, Clone)]
pub struct WordLstm {
    dimensions: Dimensions,
    output: Output,
    tensors: Tensors,
    layout: ParamLayout,
}

impl WordLstm {
    /// The tied model of \[DPLM\]: 11 clip groups, 1,346,432 parameters at vocabulary 10,003, embed 96, hidden 256.
    ///
    /// With `unit_norm`, every embedding row is divided by its L2 norm in the forward pass, for input and output,
    /// and gradients flow through the division.
    ///
    /// # Errors
    /// A dimension of zero.
    pub fn tied(vocab: usize, embed: usize, hidden: usize, unit_norm: bool) -> Result<Self> {
        Self::new(Dimensions { vocab, embed, hidden }, Output::Tied { unit_norm })
    }

    /// The StackOverflow model: 4,050,748 parameters at vocabulary 10,004, embed 96, hidden 670.
    ///
    /// # Errors
    /// A dimension of zero.
    pub fn untied(vocab: usize, embed: usize, hidden: usize) -> Result<Self> {
        Self::new(Dimensions { vocab, embed, hidden }, Output::Dense)
    }

    fn new(dimensions: Dimensions, output: Output) -> Result<Self> {
        let Dimensions { vocab, embed, hidden } = dimensions;
        for (name, got, minimum) in [("vocab", vocab, 2), ("embed", embed, 1), ("hidden", hidden, 1)] {
            if got < minimum || got > u32::MAX as usize / 8 {
                return Err(ModelError::Dimension { name, minimum, got });
            }
        }
        let gates = dimensions.gates();
        let (projection, projection_bias) = match output {
            Output::Tied { .. } => ("proj", "proj_bias"),
            Output::Dense => ("dense", "dense_bias"),
        };
        let mut shapes = vec![
            ("embedding", vec![vocab, embed]),
            ("wx", vec![embed, gates]),
            ("wh", vec![hidden, gates]),
            ("bias", vec![gates]),
            (projection, vec![hidden, embed]),
            (projection_bias, vec![embed]),
        ];
        if output == Output::Dense {
            shapes.push(("out", vec![embed, vocab]));
            shapes.push(("out_bias", vec![vocab]));
        }
        let mut end = 0;
        let mut ranges = Vec::with_capacity(8);
        for (_, shape) in &shapes {
            let start = end;
            end += shape.iter().product::<usize>();
            ranges.push(start..end);
        }
        ranges.resize(8, end..end);
        let mut next = ranges.into_iter();
        let mut take = || next.next().unwrap_or(end..end);
        let tensors = Tensors {
            embedding: take(),
            wx: take(),
            wh: take(),
            bias: take(),
            projection: take(),
            projection_bias: take(),
            out: take(),
            out_bias: take(),
        };
        let groups = clip_groups(dimensions, &tensors, projection, projection_bias);
        let named = shapes
            .into_iter()
            .map(|(name, shape)| (name.to_owned(), shape))
            .collect();
        let layout = ParamLayout::new(named, groups)?;
        Ok(Self {
            dimensions,
            output,
            tensors,
            layout,
        })
    }
}

/// One group per tensor, except that each gate's columns of `wx` and `wh` form one group and its bias another.
fn clip_groups(
    dimensions: Dimensions,
    tensors: &Tensors,
    projection: &'static str,
    projection_bias: &'static str,
) -> Vec<ClipGroup> {
    let Dimensions { embed, hidden, .. } = dimensions;
    let gates = dimensions.gates();
    let whole = |name: &str, range: &Range<usize>| ClipGroup {
        name: name.to_owned(),
        blocks: vec![Block::contiguous(range.clone())],
    };
    let mut groups = vec![whole("embedding", &tensors.embedding)];
    let names = ["input", "forget", "candidate", "output"];
    for (gate, name) in names.into_iter().enumerate() {
        let columns = |range: &Range<usize>, rows| Block {
            offset: range.start + gate * hidden,
            rows,
            row_stride: gates,
            cols: hidden,
        };
        let blocks = vec![columns(&tensors.wx, embed), columns(&tensors.wh, hidden)];
        groups.push(ClipGroup {
            name: format!("{name}_gate"),
            blocks,
        });
    }
    for (gate, name) in names.into_iter().enumerate() {
        let start = tensors.bias.start + gate * hidden;
        groups.push(whole(&format!("{name}_gate_bias"), &(start..start + hidden)));
    }
    groups.push(whole(projection, &tensors.projection));
    groups.push(whole(projection_bias, &tensors.projection_bias));
    if !tensors.out.is_empty() {
        groups.push(whole("out", &tensors.out));
        groups.push(whole("out_bias", &tensors.out_bias));
    }
    groups
}

impl SequenceModel for WordLstm {
    fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    fn vocab_size(&self) -> usize {
        self.dimensions.vocab
    }

    /// With unit norm, rows are divided by their norm: the forward pass does so anyway, and without it rows would only
    /// ever grow (a gradient through the division is orthogonal to its row), which shrinks every later step.
    fn constrain(&self, params: &mut [f32]) {
        if self.output != (Output::Tied { unit_norm: true }) {
            return;
        }
        for row in params[self.tensors.embedding.clone()].chunks_exact_mut(self.dimensions.embed) {
            let norm = row
                .iter()
                .map(|&value| f64::from(value).powi(2))
                .sum::<f64>()
                .sqrt();
            if norm > 0.0 && norm.is_finite() {
                row.iter_mut()
                    .for_each(|value| *value = (f64::from(*value) / norm) as f32);
            }
        }
    }

    /// Uniform draws: embedding `sqrt(3 / embed)` with unit norm (expected norm 1) and 0.05 without; recurrent
    /// matrix `1 / sqrt(hidden)`; the other matrices Glorot, each gate counted as a matrix of its own; biases zero,
    /// the forget gate's one.
    fn initial_params(&self, seed: u64) -> Vec<f32> {
        let Dimensions { embed, hidden, .. } = self.dimensions;
        let mut params = vec![0.0; self.layout.len()];
        let mut initializer = Initializer::new(seed);
        let unit_norm = self.output == Output::Tied { unit_norm: true };
        let embedding_limit = if unit_norm {
            (3.0 / embed as f64).sqrt()
        } else {
            0.05
        };
        let glorot = |fan_in: usize, fan_out: usize| (6.0 / (fan_in + fan_out) as f64).sqrt();
        initializer.uniform(&mut params[self.tensors.embedding.clone()], embedding_limit);
        initializer.uniform(&mut params[self.tensors.wx.clone()], glorot(embed, hidden));
        initializer.uniform(&mut params[self.tensors.wh.clone()], 1.0 / (hidden as f64).sqrt());
        initializer.uniform(
            &mut params[self.tensors.projection.clone()],
            glorot(hidden, embed),
        );
        initializer.uniform(
            &mut params[self.tensors.out.clone()],
            glorot(embed, self.dimensions.vocab),
        );
        let bias = &mut params[self.tensors.bias.clone()];
        bias[hidden..2 * hidden].fill(1.0);
        params
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        Box::new(Worker::<f32>::new(self, max_sequences, max_rows))
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        Box::new(Worker::<f64>::new(self, max_sequences, max_rows))
    }
}

#[cfg(test)]
mod tests;
