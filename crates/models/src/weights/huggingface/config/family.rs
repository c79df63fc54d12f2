//! The layouts of the library `transformers`.

use crate::error::{ModelError, Result};
use crate::transformer::{FeedForward, Gate, Norm, Positions, SoftCaps, TransformerSizes};

/// A layout of the library `transformers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM`.
    Mistral,
    /// `Qwen2ForCausalLM`.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
    /// `GemmaForCausalLM`, the first version.
    Gemma,
    /// `Gemma2ForCausalLM`.
    Gemma2,
    /// `Gemma3ForCausalLM`, which reads text alone.
    Gemma3,
}

impl Family {
    pub(super) const ALL: [Self; 7] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma,
        Self::Gemma2,
        Self::Gemma3,
    ];

    /// Value of `model_type` for the layout.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma => "gemma",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3_text",
        }
    }

    pub(super) fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Gemma => "GemmaForCausalLM",
            Self::Gemma2 => "Gemma2ForCausalLM",
            Self::Gemma3 => "Gemma3ForCausalLM",
        }
    }

    /// The key of the gate's activation.
    pub(super) fn activation(self) -> &'static str {
        match self {
            Self::Gemma2 | Self::Gemma3 => "hidden_activation",
            _ => "hidden_act",
        }
    }

    /// Added to the stored gains of norms: Gemma stores them less one.
    pub(in crate::weights::huggingface) fn gain_shift(self) -> f32 {
        match self {
            Self::Gemma | Self::Gemma2 | Self::Gemma3 => 1.0,
            _ => 0.0,
        }
    }

    /// The layout that holds a model of these sizes.
    ///
    /// # Errors
    /// [`ModelError::NoLayout`] for an architecture that none of them has.
    pub fn of(sizes: TransformerSizes) -> Result<Self> {
        let architecture = sizes.architecture;
        let none = |reason: &str| {
            Err(ModelError::NoLayout {
                reason: reason.to_owned(),
            })
        };
        let FeedForward::Gated(gate) = architecture.feed_forward else {
            return none("its feed-forward layer has no gate");
        };
        if architecture.norm != Norm::Rms || sizes.positions != Positions::Rotary {
            return none("they need root mean square norms and rotary positions");
        }
        let [qkv, o, up, down] = architecture.biases;
        let attention = qkv == o && !up && !down;
        let scores =
            sizes.query_scalar() != sizes.head_width() || architecture.soft_caps != SoftCaps::default();
        if architecture.scaled_embedding {
            let local = architecture.local_rotary.is_some();
            let norms = [architecture.head_norms, architecture.output_norms];
            return match (gate, norms, attention) {
                (Gate::Gelu, [false, false], true) if !local && !scores => Ok(Self::Gemma),
                (Gate::Gelu, [false, true], true) if !local => Ok(Self::Gemma2),
                (Gate::Gelu, [true, true], true) => Ok(Self::Gemma3),
                _ => none(
                    "a scaled embedding goes with a GELU gate, with biases of `qkv` and `o` or none, and with norms of heads and of outputs \
                     (Gemma 3), or of outputs alone and without a local rotary base (Gemma 2), or without all these and soft caps (Gemma)",
                ),
            };
        }
        if architecture.output_norms || architecture.local_rotary.is_some() || scores {
            return none(
                "norms of outputs, soft caps and a query scalar (Gemma 2), and a local rotary base (Gemma 3) go with a scaled embedding",
            );
        }
        if architecture.head_norms {
            return match attention {
                true => Ok(Self::Qwen3),
                false => none("head norms (Qwen3) go with biases of `qkv` and `o` or none"),
            };
        }
        let divided = sizes.width.is_multiple_of(sizes.heads);
        match (qkv, o, up, down) {
            (true, false, false, false) => Ok(Self::Qwen2),
            (qkv, o, up, down) if qkv == o && up == down && divided => Ok(Self::Llama),
            (false, false, false, false) => Ok(Self::Mistral),
            (qkv, o, up, down) if qkv == o && up == down => {
                none("heads that do not divide the width go without biases of `o`, `up` and `down`")
            }
            _ => none("biases are of `qkv`, of `qkv` and `o`, of `up` and `down`, or of all four"),
        }
    }
}
