//! The decoder-only transformer: pre-norm blocks of causal attention and a feed-forward layer, of GPT-2's or of Llama's architecture.

mod adapters;
mod architecture;
mod attention;
mod backward;
mod block;
mod clipped;
mod decoder;
mod feed_forward;
pub(crate) mod gpt2;
mod gram;
mod head;
mod heads;
mod linear;
mod lora;
mod matrices;
mod norm;
mod rotary;
mod rows;
mod scaling;
mod shape;
mod tensors;
mod worker;

use crate::kernels::layer_norm::EPSILON;
use crate::{
    decoder::{Decoder, DecoderOptions},
    error::Result,
    initial::Initializer,
    sequence::{SequenceModel, SequenceWorker},
    sizes::{self, MAX_KEYS},
    tensors::{from_safetensors, to_safetensors},
};
use adapters::Adapters;
use decoder::TransformerDecoder;
use std::sync::Arc;
use tensors::{BlockTensors, Tensors};
use undertone_aggregation::ParamLayout;
use worker::Worker;

pub use adapters::LoraSpec;
pub use architecture::{Architecture, FeedForward, Gate, LocalRotary, Norm, SoftCaps};
pub use matrices::BlockMatrix;
pub use scaling::RotaryScaling;
pub use shape::{Positions, TransformerSizes};

/// A decoder-only transformer over flat parameters.
///
/// `x = embedding[token] + positions[t]`; every block adds `attention(norm1(x)) o + o_bias` and then
/// `feed_forward(norm2(x)) down + down_bias`; logits are `final_norm(x) output^T`. Matrices are row-major and
/// multiply from the right; `qkv` is `[width, (heads + 2 key_heads) head_width]` with queries, keys and values side by side, heads
/// side by side within each. Attention scores are divided by the root of the head width. One clip group per tensor.
///
/// [`Architecture`] says which norms and which feed-forward layer there are, whether queries and keys and what a block adds are
/// normalised, and whether the output matrix is the embedding; [`TransformerSizes`] says which positions. In GPT-2's, `feed_forward(x)` is
/// `gelu(x up + up_bias)` with the tanh form, and layer norms have gain, bias and epsilon 1e-5.
///
/// It has no state between batches: [`StateMode::Carry`](crate::StateMode::Carry) is an error.
///
/// # Source
/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2); Touvron et al., "LLaMA: Open and Efficient
/// Foundation Language Models", 2023.
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
    pub(crate) const NORM_EPSILON: f64 = EPSILON;

    /// A model of the given sizes.
    ///
    /// # Errors
    /// A size of zero, heads that do not divide the width, an odd head width with rotary positions.
    pub fn new(sizes: TransformerSizes) -> Result<Self> {
        sizes.check()?;
        let (named, tensors) = Tensors::of(sizes);
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
            let of_rows = [&block.norm1, &block.norm2, &block.o_norm, &block.down_norm];
            for gains in of_rows.into_iter().chain([&block.query_norm, &block.key_norm]) {
                params[gains.clone()].fill(1.0);
            }
        }
        params[tensors.final_norm.clone()].fill(1.0);
        if tensors.output != tensors.embedding {
            initializer.uniform(&mut params[tensors.output.clone()], limit(0.02));
        }
        params
    }

    /// The base that adapters are added to.
    fn frozen(&self) -> &[f32] {
        self.adapters.as_ref().map_or(&[], |adapters| &adapters.base)
    }

    /// Reads a file of this crate, or one in GPT-2's layout (see [`gpt2`](crate::weights::gpt2)). A model with adapters reads files of such models
    /// whose other tensors are its own.
    fn read_params(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        match &self.adapters {
            Some(adapters) => self.read_adapted(adapters, bytes),
            None if gpt2::is(bytes)? => gpt2::read(self, bytes),
            None => from_safetensors(&self.layout, bytes),
        }
    }

    fn write_params(&self, params: &[f32], description: &str) -> Result<Vec<u8>> {
        match &self.adapters {
            Some(adapters) => self.write_adapted(adapters, params, description),
            None => to_safetensors(&self.layout, params, description),
        }
    }

    fn write_merged(&self, params: &[f32], description: &str) -> Result<Vec<u8>> {
        let (model, params) = self.merged(params)?;
        to_safetensors(&model.layout, &params, description)
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        Box::new(Worker::<f32>::new(self, max_sequences, max_rows))
    }

    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>> {
        self.decoder_with(params, &DecoderOptions::plain(sequences))
    }

    fn decoder_with(&self, params: &[f32], options: &DecoderOptions) -> Result<Box<dyn Decoder>> {
        let (model, params) = self.merged(params)?;
        let sequences = options.sequences;
        let keys = [self.sizes.layers, self.sizes.key_width(), self.sizes.context];
        let keys = keys.into_iter().fold(sequences, usize::saturating_mul);
        sizes::check(
            "sequences * layers * key_heads * head_width * context",
            keys,
            0,
            MAX_KEYS,
        )?;
        Ok(Box::new(TransformerDecoder::new(&model, &params, options)))
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        Box::new(Worker::<f64>::new(self, max_sequences, max_rows))
    }
}

#[cfg(test)]
mod tests;
