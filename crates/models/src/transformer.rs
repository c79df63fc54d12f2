//! The decoder-only transformer: pre-norm blocks of causal attention and a GELU feed-forward layer, tied output.

mod adapters;
mod attention;
mod backward;
mod block;
mod clipped;
mod decoder;
mod gram;
mod head;
mod linear;
mod lora;
mod rotary;
mod rows;
mod worker;

use crate::kernels::layer_norm::EPSILON;
use crate::{
    decoder::Decoder,
    error::{ModelError, Result},
    initial::Initializer,
    sequence::{SequenceModel, SequenceWorker},
    sizes::{self, MAX_IDS, MAX_INNER, MAX_LAYERS, MAX_WIDTH},
    weights::{self, gpt2},
};
use adapters::Adapters;
use decoder::TransformerDecoder;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use undertone_aggregation::ParamLayout;
use worker::Worker;

pub use adapters::{LoraSpec, LoraTarget};

/// The encoding of token positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// A vector for every position, added to the embedding.
    #[default]
    Learned,
    /// Queries and keys turned by angles that grow with the position (Su et al., "RoFormer", 2021, section 3.2.2): the
    /// pair `(i, i + head width / 2)` at position `t` by `t / 10000^(2 i / head width)`.
    Rotary,
}

/// Sizes of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransformerSizes {
    /// Number of token ids.
    pub vocab: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width of embeddings and of the residual stream.
    pub width: usize,
    /// Number of attention heads per block; it divides the width.
    pub heads: usize,
    /// Maximum length of a sequence in tokens.
    pub context: usize,
    /// Width of the feed-forward layer.
    pub inner: usize,
    /// The encoding of positions.
    pub positions: Positions,
}

impl TransformerSizes {
    /// Number of parameters without adapters.
    fn parameters(self) -> u128 {
        let [vocab, layers, width, context, inner] =
            [self.vocab, self.layers, self.width, self.context, self.inner].map(|size| size as u128);
        let positions = match self.positions {
            Positions::Learned => context * width,
            Positions::Rotary => 0,
        };
        let block = 4 * width * width + 2 * width * inner + 9 * width + inner;
        vocab * width + positions + layers * block + 2 * width
    }

    fn head_width(self) -> usize {
        self.width / self.heads
    }

    fn check(self) -> Result<()> {
        let inner = match self.inner {
            0 => "feed_forward",
            _ => "width * feed_forward",
        };
        for (name, got, minimum, maximum) in [
            ("vocab", self.vocab, 2, MAX_IDS),
            ("layers", self.layers, 1, MAX_LAYERS),
            ("width", self.width, 1, MAX_WIDTH),
            ("heads", self.heads, 1, MAX_WIDTH),
            ("context", self.context, 1, MAX_IDS),
            (inner, self.inner, 1, MAX_INNER),
        ] {
            sizes::check(name, got, minimum, maximum)?;
        }
        sizes::check_total(self.parameters())?;
        let (width, heads) = (self.width, self.heads);
        if !width.is_multiple_of(heads) {
            return Err(ModelError::HeadWidth { width, heads });
        }
        if self.positions == Positions::Rotary && !self.head_width().is_multiple_of(2) {
            return Err(ModelError::RotaryWidth { width, heads });
        }
        Ok(())
    }
}

/// Where the tensors of one block stand in the flat vector.
#[derive(Debug, Clone)]
pub(crate) struct BlockTensors {
    norm1: Range<usize>,
    norm1_bias: Range<usize>,
    qkv: Range<usize>,
    qkv_bias: Range<usize>,
    o: Range<usize>,
    o_bias: Range<usize>,
    norm2: Range<usize>,
    norm2_bias: Range<usize>,
    up: Range<usize>,
    up_bias: Range<usize>,
    down: Range<usize>,
    down_bias: Range<usize>,
}

/// Where each tensor stands in the flat vector.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    embedding: Range<usize>,
    /// Empty for rotary positions.
    positions: Range<usize>,
    blocks: Vec<BlockTensors>,
    final_norm: Range<usize>,
    final_norm_bias: Range<usize>,
}

/// A decoder-only transformer over flat parameters.
///
/// `x = embedding[token] + positions[t]`; every block adds `attention(norm1(x)) o + o_bias` and then
/// `gelu(norm2(x) up + up_bias) down + down_bias`; logits are `final_norm(x) embedding^T`. Matrices are row-major and
/// multiply from the right; `qkv` is `[width, 3 width]` with queries, keys and values side by side, heads side by side
/// within each. Layer norms have gain, bias and epsilon 1e-5; GELU is the tanh form; attention scores are divided by the
/// root of the head width. One clip group per tensor.
///
/// It has no state between batches: [`StateMode::Carry`](crate::StateMode::Carry) is an error.
///
/// # Source
/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2).
#[derive(Debug, Clone)]
pub struct Transformer {
    sizes: TransformerSizes,
    recompute: bool,
    /// Tensors of the whole model, adapted or not.
    tensors: Tensors,
    /// Layout of the trained parameters.
    layout: ParamLayout,
    adapters: Option<Arc<Adapters>>,
}

impl Transformer {
    /// The constant that layer norms add to the variance.
    pub const NORM_EPSILON: f64 = EPSILON;

    /// A model of the given sizes.
    ///
    /// # Errors
    /// A size of zero, heads that do not divide the width, an odd head width with rotary positions.
    pub fn new(sizes: TransformerSizes) -> Result<Self> {
        sizes.check()?;
        let TransformerSizes {
            vocab,
            width,
            context,
            inner,
            ..
        } = sizes;
        let mut named = Vec::with_capacity(12 * sizes.layers + 4);
        let mut end = 0;
        let mut place = |name: String, shape: &[usize]| {
            let start = end;
            end += shape.iter().product::<usize>();
            named.push((name, shape.to_vec()));
            start..end
        };
        let embedding = place("embedding".to_owned(), &[vocab, width]);
        let positions = match sizes.positions {
            Positions::Learned => place("positions".to_owned(), &[context, width]),
            Positions::Rotary => 0..0,
        };
        let blocks = (0..sizes.layers)
            .map(|layer| {
                let mut place = |name: &str, shape: &[usize]| place(format!("b{layer}.{name}"), shape);
                BlockTensors {
                    norm1: place("norm1", &[width]),
                    norm1_bias: place("norm1_bias", &[width]),
                    qkv: place("qkv", &[width, 3 * width]),
                    qkv_bias: place("qkv_bias", &[3 * width]),
                    o: place("o", &[width, width]),
                    o_bias: place("o_bias", &[width]),
                    norm2: place("norm2", &[width]),
                    norm2_bias: place("norm2_bias", &[width]),
                    up: place("up", &[width, inner]),
                    up_bias: place("up_bias", &[inner]),
                    down: place("down", &[inner, width]),
                    down_bias: place("down_bias", &[width]),
                }
            })
            .collect();
        let tensors = Tensors {
            embedding,
            positions,
            blocks,
            final_norm: place("final_norm".to_owned(), &[width]),
            final_norm_bias: place("final_norm_bias".to_owned(), &[width]),
        };
        debug_assert_eq!(sizes.parameters(), end as u128);
        Ok(Self {
            sizes,
            recompute: false,
            tensors,
            layout: ParamLayout::with_tensor_groups(named)?,
            adapters: None,
        })
    }

    /// Makes workers keep only the input of every block and compute the rest of its forward pass again in the backward pass. This
    /// costs about a third more work, changes no bit, and needs memory for one block instead of all.
    #[must_use]
    pub fn recomputing(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> TransformerSizes {
        self.sizes
    }
}

impl SequenceModel for Transformer {
    fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    fn vocab_size(&self) -> usize {
        self.sizes.vocab
    }

    /// Uniform draws of standard deviation 0.02 for matrices and embedding, 0.01 for positions; `o` and `down`, whose outputs
    /// add up in the residual stream, divided by the root of twice the number of blocks, as in GPT-2. Gains one, biases zero.
    /// Adapters: `A` uniform up to one over the root of its inputs, `B` zero, so that the base is where training starts.
    fn initial_params(&self, seed: u64) -> Vec<f32> {
        let limit = |deviation: f64| deviation * 3f64.sqrt();
        let residual = limit(0.02) / (2.0 * self.sizes.layers as f64).sqrt();
        let mut params = vec![0.0; self.layout.len()];
        let mut initializer = Initializer::new(seed);
        let tensors = &self.tensors;
        if let Some(adapters) = &self.adapters {
            adapters.initialise(&mut initializer, &mut params, self.sizes, tensors);
            return params;
        }
        initializer.uniform(&mut params[tensors.embedding.clone()], limit(0.02));
        initializer.uniform(&mut params[tensors.positions.clone()], limit(0.01));
        for block in &tensors.blocks {
            initializer.uniform(&mut params[block.qkv.clone()], limit(0.02));
            initializer.uniform(&mut params[block.o.clone()], residual);
            initializer.uniform(&mut params[block.up.clone()], limit(0.02));
            initializer.uniform(&mut params[block.down.clone()], residual);
            params[block.norm1.clone()].fill(1.0);
            params[block.norm2.clone()].fill(1.0);
        }
        params[tensors.final_norm.clone()].fill(1.0);
        params
    }

    /// The base that adapters are added to.
    fn frozen(&self) -> &[f32] {
        self.adapters.as_ref().map_or(&[], |adapters| &adapters.base)
    }

    /// Reads a file of this crate, or one in GPT-2's layout (see [`gpt2`]). A model with adapters reads files of such models
    /// whose other tensors are its own.
    fn read_params(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        match &self.adapters {
            Some(adapters) => self.read_adapted(adapters, bytes),
            None if gpt2::is(bytes)? => gpt2::read(self, bytes),
            None => weights::from_safetensors(&self.layout, bytes),
        }
    }

    fn write_params(&self, params: &[f32], description: Option<&str>) -> Result<Vec<u8>> {
        match &self.adapters {
            Some(adapters) => self.write_adapted(adapters, params, description),
            None => weights::to_safetensors(&self.layout, params, description),
        }
    }

    fn write_merged(&self, params: &[f32], description: Option<&str>) -> Result<Vec<u8>> {
        let (model, params) = self.merged(params)?;
        weights::to_safetensors(&model.layout, &params, description)
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        Box::new(Worker::<f32>::new(self, max_sequences, max_rows))
    }

    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>> {
        let (model, params) = self.merged(params)?;
        Ok(Box::new(TransformerDecoder::new(&model, &params, sequences)))
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        Box::new(Worker::<f64>::new(self, max_sequences, max_rows))
    }
}

#[cfg(test)]
mod tests;
