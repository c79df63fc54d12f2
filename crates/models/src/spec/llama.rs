//! The sizes of Llama and its relatives, as written in a run file.

use super::default_context;
use crate::error::{ModelError, Result};
use crate::transformer::{
    Architecture, BlockMatrix, FeedForward, Gate, LocalRotary, LoraSpec, Positions, RotaryScaling, SoftCaps,
    TransformerSizes,
};
use serde::{Deserialize, Serialize};

/// The decoder-only transformer of Llama and its relatives Mistral, Qwen and Gemma: root mean square norms, rotary positions, a gated
/// feed-forward layer, and queries that share keys and values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LlamaSpec {
    /// Number of blocks.
    pub layers: usize,
    /// Width of embeddings and of the residual stream.
    pub width: usize,
    /// Number of attention heads per block.
    pub heads: usize,
    /// Number of heads of keys and values; it divides `heads`, which it is by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_heads: Option<usize>,
    /// Width of a head; by default `width / heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Width of the feed-forward layer.
    pub inner: usize,
    /// Maximum length of a sequence in tokens.
    #[serde(default = "default_context")]
    pub context: usize,
    /// The base of the angles of rotary positions.
    #[serde(default = "default_rotary_base")]
    pub rotary_base: f64,
    /// The change of these angles for contexts longer than those of the first training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_scaling: Option<RotaryScaling>,
    /// Blocks whose angles have another base, as in Gemma 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rotary: Option<LocalRotary>,
    /// The constant that norms add to the mean square.
    #[serde(default = "default_norm_epsilon")]
    pub norm_epsilon: f64,
    /// The activation of the feed-forward layer's gate.
    #[serde(default)]
    pub gate: Gate,
    /// The matrices whose outputs have a bias: `["qkv"]` in Qwen2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub biases: Vec<BlockMatrix>,
    /// `true` to normalise queries and keys head by head, as in Qwen3.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub head_norms: bool,
    /// `true` to normalise what attention and the feed-forward layer give before it is added, as in Gemma 2 and Gemma 3.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_norms: bool,
    /// Attention scores are divided by the root of this number; by default by that of the width of a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_scalar: Option<usize>,
    /// Bounds of attention scores and of logits, as in Gemma 2.
    #[serde(default, skip_serializing_if = "is_uncapped")]
    pub soft_caps: SoftCaps,
    /// `true` to multiply embeddings by the root of the width, as in Gemma.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scaled_embedding: bool,
    /// `true` if the embedding is also the output matrix.
    #[serde(default)]
    pub tied: bool,
    /// Rows of the embedding, where it has more of them than there are tokens; by default as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<usize>,
    /// `true` to compute activations again in the backward pass: less memory, more work, the same bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recompute: bool,
    /// Low-rank adapters as the only parameters that are trained, on a model that was trained before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSpec>,
}

fn default_rotary_base() -> f64 {
    Architecture::LLAMA.rotary_base
}

fn default_norm_epsilon() -> f64 {
    Architecture::LLAMA.norm_epsilon
}

fn is_uncapped(caps: &SoftCaps) -> bool {
    *caps == SoftCaps::default()
}

impl LlamaSpec {
    /// The sizes over `vocab_len` ids, without adapters.
    pub(super) fn sizes(&self, vocab_len: usize) -> Result<TransformerSizes> {
        let vocab = self.rows.unwrap_or(vocab_len);
        if vocab < vocab_len {
            let (name, minimum, got) = ("rows", vocab_len, vocab);
            return Err(ModelError::Dimension { name, minimum, got });
        }
        Ok(TransformerSizes {
            vocab,
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            context: self.context,
            inner: self.inner,
            positions: Positions::Rotary,
            architecture: Architecture {
                key_heads: self.key_heads,
                head_width: self.head_width,
                norm_epsilon: self.norm_epsilon,
                biases: BlockMatrix::ALL.map(|matrix| self.biases.contains(&matrix)),
                feed_forward: FeedForward::Gated(self.gate),
                rotary_base: self.rotary_base,
                rotary_scaling: self.rotary_scaling,
                local_rotary: self.local_rotary,
                head_norms: self.head_norms,
                output_norms: self.output_norms,
                query_scalar: self.query_scalar,
                soft_caps: self.soft_caps,
                scaled_embedding: self.scaled_embedding,
                tied: self.tied,
                ..Architecture::LLAMA
            },
        })
    }
}
