//! The `config.json` that stands beside weights in GPT-2's layout.

use crate::error::{ModelError, Result};
use crate::transformer::{Transformer, gpt2::check_architecture};
use serde::{Deserialize, Serialize};

/// Their name of the GELU's tanh form.
const ACTIVATION: &str = "gelu_new";

/// The settings that GPT-2's published readers take beside the tensors. Keys that are missing have their readers' defaults.
///
/// # Source
/// `GPT2Config` of the Hugging Face library `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpt2Config {
    /// The class that reads the file.
    pub architectures: Vec<String>,
    /// Their family name.
    pub model_type: String,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Longest sequence in tokens.
    pub n_positions: usize,
    /// Width.
    pub n_embd: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Attention heads of a block.
    pub n_head: usize,
    /// Width of the feed-forward layer; four widths where it is missing.
    pub n_inner: Option<usize>,
    /// Name of the variant of GELU.
    pub activation_function: String,
    /// Added to the variance in layer norms.
    pub layer_norm_epsilon: f64,
    /// `true` if attention scores are divided by the root of the head width.
    pub scale_attn_weights: bool,
    /// `true` if attention scores are also divided by the number of the block.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// `true` if the embedding is also the output matrix.
    pub tie_word_embeddings: bool,
    /// Dropout after a block's products.
    pub resid_pdrop: f64,
    /// Dropout after the embedding.
    pub embd_pdrop: f64,
    /// Dropout of attention.
    pub attn_pdrop: f64,
    /// Id that starts a text.
    pub bos_token_id: Option<u32>,
    /// Id that ends a text.
    pub eos_token_id: Option<u32>,
}

impl Default for Gpt2Config {
    fn default() -> Self {
        Self {
            architectures: vec!["GPT2LMHeadModel".to_owned()],
            model_type: "gpt2".to_owned(),
            vocab_size: 50_257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: ACTIVATION.to_owned(),
            layer_norm_epsilon: 1e-5,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            tie_word_embeddings: true,
            resid_pdrop: 0.1,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            bos_token_id: Some(50_256),
            eos_token_id: Some(50_256),
        }
    }
}

impl Gpt2Config {
    /// The settings of a model of this crate, which was trained without dropout.
    ///
    /// # Errors
    /// Rotary positions, which GPT-2 does not have.
    pub fn new(model: &Transformer, bos: u32, eos: u32) -> Result<Self> {
        let sizes = model.sizes();
        check_architecture(sizes)?;
        Ok(Self {
            vocab_size: sizes.vocab,
            n_positions: sizes.context,
            n_embd: sizes.width,
            n_layer: sizes.layers,
            n_head: sizes.heads,
            n_inner: Some(sizes.inner),
            layer_norm_epsilon: Transformer::NORM_EPSILON,
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            bos_token_id: Some(bos),
            eos_token_id: Some(eos),
            ..Self::default()
        })
    }

    /// Checks that a model of this crate with this many heads computes what the file's model does, as far as no tensor's shape shows it.
    ///
    /// # Errors
    /// The first key that says otherwise.
    pub fn check(&self, heads: usize) -> Result<()> {
        let texts = |expected: &str, got: &str| (expected.to_owned(), got.to_owned());
        let epsilon = Transformer::NORM_EPSILON;
        let pairs = [
            ("n_head", texts(&heads.to_string(), &self.n_head.to_string())),
            (
                "activation_function",
                texts(ACTIVATION, &self.activation_function),
            ),
            (
                "layer_norm_epsilon",
                texts(&epsilon.to_string(), &self.layer_norm_epsilon.to_string()),
            ),
            (
                "scale_attn_weights",
                texts("true", &self.scale_attn_weights.to_string()),
            ),
            (
                "scale_attn_by_inverse_layer_idx",
                texts("false", &self.scale_attn_by_inverse_layer_idx.to_string()),
            ),
        ];
        for (key, (expected, got)) in pairs {
            if expected != got {
                return Err(ModelError::Gpt2Config { key, expected, got });
            }
        }
        Ok(())
    }
}
