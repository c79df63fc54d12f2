//! The computation of a transformer's blocks: GPT-2's choices and those of Llama and its relatives.

use super::matrices::BlockMatrix;
use super::scaling::RotaryScaling;
use crate::kernels::layer_norm::EPSILON;
use serde::{Deserialize, Serialize};

/// The normalisation before attention, before the feed-forward layer and before the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// Layer norm: rows minus their mean, over their deviation, with gain and bias.
    Layer,
    /// Rows over the root of their mean square, with a gain (Zhang and Sennrich, "Root mean square layer normalization", 2019).
    Rms,
}

/// The activation of a gated feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// `x sigma(x)`, as in Llama, Mistral and Qwen.
    #[default]
    Silu,
    /// GELU in its tanh form, as in Gemma.
    Gelu,
}

/// The layer between `up` and `down`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedForward {
    /// `gelu(x up) down`, GELU in its tanh form.
    Gelu,
    /// `(gate(x g) * (x u)) down`, where `up` holds `g` and `u` side by side (Shazeer, "GLU variants improve transformer",
    /// 2020).
    Gated(Gate),
}

/// The blocks whose rotary positions have a base of their own and no scaling: all but every `every`-th.
///
/// Gemma 3 trains these blocks to attend to a window of neighbours. A context within that window has no other use of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LocalRotary {
    /// The base of their angles.
    pub base: f64,
    /// The blocks `every`, `2 every` and so on, counted from 1, have the base and the scaling of the model.
    pub every: usize,
}

impl LocalRotary {
    /// Returns `true` if the block at this place, counted from 0, has a base of its own.
    #[must_use]
    pub fn covers(self, layer: usize) -> bool {
        !(layer + 1).is_multiple_of(self.every)
    }
}

/// Soft caps: each value `x` becomes `cap tanh(x / cap)`, as in Gemma 2.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SoftCaps {
    /// The cap of attention scores, after their division by the root of the head's width; `None` for no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<f64>,
    /// The cap of logits; `None` for no cap. Both caps are from 1e-6 to 1e6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logits: Option<f64>,
}

/// The computation of a transformer's blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Architecture {
    /// Number of heads of keys and values, which divides the number of heads: queries of `heads / key_heads` neighbouring heads
    /// share keys and values (Ainslie et al., "GQA", 2023). `None` for as many as heads.
    pub key_heads: Option<usize>,
    /// Width of a head; `None` for the width of the model over the number of heads.
    pub head_width: Option<usize>,
    /// The normalisation.
    pub norm: Norm,
    /// The constant that norms add to the variance or to the mean square.
    pub norm_epsilon: f64,
    /// `true` for matrices whose outputs have a bias, in the order of [`BlockMatrix::ALL`].
    pub biases: [bool; 4],
    /// The feed-forward layer.
    pub feed_forward: FeedForward,
    /// The base of rotary positions' angles: pair `i` at position `t` turns by `t / base^(2 i / head width)`.
    pub rotary_base: f64,
    /// The change of these angles for contexts longer than those of the first training.
    pub rotary_scaling: Option<RotaryScaling>,
    /// Blocks whose angles have another base, as in Gemma 3.
    pub local_rotary: Option<LocalRotary>,
    /// `true` to normalise queries and keys head by head, by their root mean square and one gain each per block, before they are
    /// turned, as in Qwen3.
    pub head_norms: bool,
    /// `true` to normalise what attention and the feed-forward layer give, by its root mean square and a gain each, before it is added
    /// to the residual stream, as in Gemma 2 and Gemma 3.
    pub output_norms: bool,
    /// Attention scores are divided by the root of this number; `None` for the width of a head.
    pub query_scalar: Option<usize>,
    /// Bounds of attention scores and of logits, as in Gemma 2.
    pub soft_caps: SoftCaps,
    /// `true` to multiply embeddings by the root of the width, as in Gemma.
    pub scaled_embedding: bool,
    /// `true` if the embedding is also the output matrix.
    pub tied: bool,
}

impl Architecture {
    /// GPT-2's blocks.
    pub const GPT2: Self = Self {
        key_heads: None,
        head_width: None,
        norm: Norm::Layer,
        norm_epsilon: EPSILON,
        biases: [true; 4],
        feed_forward: FeedForward::Gelu,
        rotary_base: 10_000.0,
        rotary_scaling: None,
        local_rotary: None,
        head_norms: false,
        output_norms: false,
        query_scalar: None,
        soft_caps: SoftCaps {
            scores: None,
            logits: None,
        },
        scaled_embedding: false,
        tied: true,
    };

    /// Llama's blocks, without grouped queries and with an output matrix of its own.
    pub const LLAMA: Self = Self {
        norm: Norm::Rms,
        norm_epsilon: 1e-6,
        biases: [false; 4],
        feed_forward: FeedForward::Gated(Gate::Silu),
        tied: false,
        ..Self::GPT2
    };

    /// `true` if outputs of this matrix have a bias.
    #[must_use]
    pub(crate) fn has_bias(&self, matrix: BlockMatrix) -> bool {
        self.biases[matrix as usize]
    }
}
