//! The recurrent word models, written once: they differ in the cell, in what goes back into its gates, and in embedding
//! and output head.

mod head;
mod recurrence;
mod worker;

use crate::{
    decoder::{Decoder, Recurrent},
    error::{ModelError, Result},
    initial::Initializer,
    sequence::{SequenceModel, SequenceWorker},
    sizes::{self, MAX_IDS, MAX_WIDTH},
};
use std::ops::Range;
use undertone_aggregation::{Block, ClipGroup, ParamLayout};
use worker::Worker;

/// The layer that turns hidden states into logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The embedding matrix, without bias; each row divided by its L2 norm when `unit_norm`.
    Tied { unit_norm: bool },
    /// A matrix of its own, `[embed, vocab]`, with a bias.
    Dense,
}

/// The recurrent cell, and with it what goes back into the gates at the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Four gates; the hidden state goes back.
    Lstm,
    /// Coupled input and forget gate, `i = 1 - f`: three gates. The projected state goes back (recurrent projection).
    Cifg,
}

impl Cell {
    /// Names of the gates in the order of their columns.
    fn gate_names(self) -> &'static [&'static str] {
        match self {
            Self::Lstm => &["input", "forget", "candidate", "output"],
            Self::Cifg => &["forget", "candidate", "output"],
        }
    }

    /// The one of the two states that goes back into the gates.
    pub(crate) fn fed_back<'a, T>(self, hidden: &'a [T], projected: &'a [T]) -> &'a [T] {
        match self {
            Self::Lstm => hidden,
            Self::Cifg => projected,
        }
    }

    /// The mutable form of [`fed_back`](Self::fed_back).
    pub(crate) fn fed_back_mut<'a, T>(self, hidden: &'a mut [T], projected: &'a mut [T]) -> &'a mut [T] {
        match self {
            Self::Lstm => hidden,
            Self::Cifg => projected,
        }
    }
}

/// Sizes of a recurrent word model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dimensions {
    pub(crate) vocab: usize,
    pub(crate) embed: usize,
    pub(crate) hidden: usize,
    /// Width of the projected state, which the output layer reads; the embedding's in tied models.
    pub(crate) projection: usize,
    pub(crate) cell: Cell,
}

impl Dimensions {
    fn lstm(vocab: usize, embed: usize, hidden: usize) -> Self {
        Self {
            vocab,
            embed,
            hidden,
            projection: embed,
            cell: Cell::Lstm,
        }
    }

    /// Width of all gates together.
    pub(crate) fn gates(self) -> usize {
        self.cell.gate_names().len() * self.hidden
    }

    /// Width of the state that goes back into the gates.
    pub(crate) fn fed_back(self) -> usize {
        match self.cell {
            Cell::Lstm => self.hidden,
            Cell::Cifg => self.projection,
        }
    }

    /// Refuses sizes that are zero or too large to index, under the names that run files use.
    fn check(self) -> Result<()> {
        let names = match self.cell {
            Cell::Lstm => ["vocab", "embed", "hidden", "embed"],
            Cell::Cifg => ["vocab", "embedding", "cells", "projection"],
        };
        let sizes = [
            (self.vocab, 2, MAX_IDS),
            (self.embed, 1, MAX_WIDTH),
            (self.hidden, 1, MAX_WIDTH),
            (self.projection, 1, MAX_WIDTH),
        ];
        for (name, (got, minimum, maximum)) in names.into_iter().zip(sizes) {
            sizes::check(name, got, minimum, maximum)?;
        }
        Ok(())
    }
}

/// Place of each tensor in the flat vector.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(crate) embedding: Range<usize>,
    pub(crate) wx: Range<usize>,
    pub(crate) wh: Range<usize>,
    pub(crate) bias: Range<usize>,
    pub(crate) projection: Range<usize>,
    /// Empty for a recurrent projection.
    pub(crate) projection_bias: Range<usize>,
    /// Output matrix and bias; empty for a tied model.
    pub(crate) out: Range<usize>,
    pub(crate) out_bias: Range<usize>,
}

/// An LSTM over words: embedding, one LSTM layer, linear projection to the width of the output vectors, output.
///
/// Gates stand in the order input, forget, candidate, output; in the CIFG, whose input gate is one minus the forget
/// gate, in the order forget, candidate, output. All matrices are row-major and multiply from the right:
/// `x wx + h wh + bias`, `h proj + proj_bias`; in the CIFG, where the projection is recurrent, `r = h wp` and
/// `x wx + r wh + bias`.
///
/// # Source
/// Tied: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018, section 3. Untied:
/// the StackOverflow next-word model of McMahan, Xu and Zhang (BLT), section 5. CIFG: Xu et al., "Federated Learning of
/// Gboard Language Models with Differential Privacy", section 1.
#[derive(Debug, Clone)]
pub struct WordLstm {
    pub(crate) dimensions: Dimensions,
    pub(crate) output: Output,
    pub(crate) tensors: Tensors,
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
        Self::new(Dimensions::lstm(vocab, embed, hidden), Output::Tied { unit_norm })
    }

    /// The StackOverflow model: 4,050,748 parameters at vocabulary 10,004, embed 96, hidden 670.
    ///
    /// # Errors
    /// A dimension of zero.
    pub fn untied(vocab: usize, embed: usize, hidden: usize) -> Result<Self> {
        Self::new(Dimensions::lstm(vocab, embed, hidden), Output::Dense)
    }

    /// The CIFG-LSTM of \[Gboard\], with a recurrent projection: 2,382,829 parameters at vocabulary 10,003, embedding
    /// 96, 670 cells and projection 96, untied; 1,412,538 tied.
    ///
    /// # Errors
    /// A dimension of zero; a tied model whose projection is not as wide as its embedding.
    pub fn cifg(vocab: usize, embedding: usize, cells: usize, projection: usize, tied: bool) -> Result<Self> {
        if tied && projection != embedding {
            return Err(ModelError::TiedWidths {
                embedding,
                projection,
            });
        }
        let output = if tied {
            Output::Tied { unit_norm: false }
        } else {
            Output::Dense
        };
        let dimensions = Dimensions {
            projection,
            cell: Cell::Cifg,
            ..Dimensions::lstm(vocab, embedding, cells)
        };
        Self::new(dimensions, output)
    }

    fn new(dimensions: Dimensions, output: Output) -> Result<Self> {
        dimensions.check()?;
        let Dimensions {
            vocab,
            embed,
            hidden,
            projection,
            cell,
        } = dimensions;
        let (gates, fed_back) = (dimensions.gates(), dimensions.fed_back());
        let (projection_name, projection_bias) = match (cell, output) {
            (Cell::Cifg, _) => ("wp", None),
            (Cell::Lstm, Output::Tied { .. }) => ("proj", Some("proj_bias")),
            (Cell::Lstm, Output::Dense) => ("dense", Some("dense_bias")),
        };
        let mut tensors = Vec::with_capacity(8);
        let mut end = 0;
        let mut place = |name: &str, shape: &[usize]| {
            let start = end;
            end += shape.iter().product::<usize>();
            tensors.push((name.to_owned(), shape.to_vec()));
            start..end
        };
        let places = Tensors {
            embedding: place("embedding", &[vocab, embed]),
            wx: place("wx", &[embed, gates]),
            wh: place("wh", &[fed_back, gates]),
            bias: place("bias", &[gates]),
            projection: place(projection_name, &[hidden, projection]),
            projection_bias: projection_bias.map_or(0..0, |name| place(name, &[projection])),
            out: match output {
                Output::Tied { .. } => 0..0,
                Output::Dense => place("out", &[projection, vocab]),
            },
            out_bias: match output {
                Output::Tied { .. } => 0..0,
                Output::Dense => place("out_bias", &[vocab]),
            },
        };
        sizes::check_total(end as u128)?;
        let groups = clip_groups(dimensions, &places, &tensors);
        let layout = ParamLayout::new(tensors, groups)?;
        Ok(Self {
            dimensions,
            output,
            tensors: places,
            layout,
        })
    }
}

/// One group per tensor, except that each gate's columns of `wx` and `wh` form one group and its bias another.
fn clip_groups(dimensions: Dimensions, places: &Tensors, tensors: &[(String, Vec<usize>)]) -> Vec<ClipGroup> {
    let Dimensions {
        embed, hidden, cell, ..
    } = dimensions;
    let gates = dimensions.gates();
    let whole = |name: &str, range: &Range<usize>| ClipGroup {
        name: name.to_owned(),
        blocks: vec![Block::contiguous(range.clone())],
    };
    let mut groups = vec![whole("embedding", &places.embedding)];
    for (gate, name) in cell.gate_names().iter().enumerate() {
        let columns = |range: &Range<usize>, rows| Block {
            offset: range.start + gate * hidden,
            rows,
            row_stride: gates,
            cols: hidden,
        };
        let blocks = vec![
            columns(&places.wx, embed),
            columns(&places.wh, dimensions.fed_back()),
        ];
        groups.push(ClipGroup {
            name: format!("{name}_gate"),
            blocks,
        });
    }
    for (gate, name) in cell.gate_names().iter().enumerate() {
        let start = places.bias.start + gate * hidden;
        groups.push(whole(&format!("{name}_gate_bias"), &(start..start + hidden)));
    }
    // What stands behind the gates: projection, output, and their biases.
    let mut start = places.bias.end;
    for (name, shape) in tensors.iter().skip(4) {
        let end = start + shape.iter().product::<usize>();
        groups.push(whole(name, &(start..end)));
        start = end;
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
    /// matrix one over the root of the width of the state that it multiplies; the other matrices Glorot, each gate counted
    /// as a matrix of its own; biases zero, the forget gate's one.
    fn initial_params(&self, seed: u64) -> Vec<f32> {
        let Dimensions {
            vocab,
            embed,
            hidden,
            projection,
            cell,
        } = self.dimensions;
        let mut params = vec![0.0; self.layout.len()];
        let mut initializer = Initializer::new(seed);
        let unit_norm = self.output == Output::Tied { unit_norm: true };
        let embedding_limit = if unit_norm {
            (3.0 / embed as f64).sqrt()
        } else {
            0.05
        };
        let recurrent_limit = 1.0 / (self.dimensions.fed_back() as f64).sqrt();
        let glorot = |fan_in: usize, fan_out: usize| (6.0 / (fan_in + fan_out) as f64).sqrt();
        let places = &self.tensors;
        for (place, limit) in [
            (&places.embedding, embedding_limit),
            (&places.wx, glorot(embed, hidden)),
            (&places.wh, recurrent_limit),
            (&places.projection, glorot(hidden, projection)),
            (&places.out, glorot(projection, vocab)),
        ] {
            initializer.uniform(&mut params[place.clone()], limit);
        }
        let names = cell.gate_names().iter();
        for (bias, name) in params[places.bias.clone()].chunks_exact_mut(hidden).zip(names) {
            if *name == "forget" {
                bias.fill(1.0);
            }
        }
        params
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        Box::new(Worker::<f32>::new(self, max_sequences, max_rows))
    }

    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(Recurrent::new(self, params, sequences)?))
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        Box::new(Worker::<f64>::new(self, max_sequences, max_rows))
    }
}

#[cfg(test)]
mod tests;
