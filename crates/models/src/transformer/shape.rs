//! Sizes of a transformer.

use super::architecture::{Architecture, FeedForward, LocalRotary, Norm};
use super::matrices::BlockMatrix;
use super::rotary::Rotary;
use super::scaling::RotaryScaling;
use crate::error::{ModelError, Result};
use crate::sizes::{self, MAX_IDS, MAX_INNER, MAX_LAYERS, MAX_TURNS, MAX_WIDTH};
use serde::{Deserialize, Serialize};

/// The encoding of token positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// A vector for every position, added to the embedding.
    #[default]
    Learned,
    /// Queries and keys turned by angles that grow with the position (Su et al., "RoFormer", 2021, section 3.2.2): the
    /// pair `(i, i + head width / 2)` at position `t` by `t / base^(2 i / head width)`, where the base is the architecture's.
    Rotary,
}

/// Sizes of a transformer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransformerSizes {
    /// Number of token ids.
    pub vocab: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width of embeddings and of the residual stream.
    pub width: usize,
    /// Number of attention heads per block; it divides the width, unless the architecture gives heads a width of their own.
    pub heads: usize,
    /// Maximum length of a sequence in tokens.
    pub context: usize,
    /// Width of the feed-forward layer.
    pub inner: usize,
    /// The encoding of positions.
    pub positions: Positions,
    /// The computation of the blocks.
    pub architecture: Architecture,
}

impl TransformerSizes {
    /// The settings that stand in no tensor's shape, by their keys in run files.
    pub(crate) fn settings(self) -> Vec<(&'static str, String)> {
        let ours = self.architecture;
        let scaling = ours.rotary_scaling.map(|scaling| serde_json::to_string(&scaling));
        let cap = |cap: Option<f64>| cap.map_or("nothing".to_owned(), |cap| cap.to_string());
        let gate = match ours.feed_forward {
            FeedForward::Gelu => "nothing".to_owned(),
            FeedForward::Gated(gate) => format!("{gate:?}").to_lowercase(),
        };
        vec![
            ("heads", self.heads.to_string()),
            ("key_heads", self.key_heads().to_string()),
            ("head_width", self.head_width().to_string()),
            ("rotary_base", ours.rotary_base.to_string()),
            (
                "rotary_scaling",
                scaling
                    .and_then(std::result::Result::ok)
                    .unwrap_or("nothing".to_owned()),
            ),
            (
                "local_rotary",
                ours.local_rotary.map_or("nothing".to_owned(), |local| {
                    format!("base {} but for every block {}", local.base, local.every)
                }),
            ),
            ("query_scalar", self.query_scalar().to_string()),
            ("soft_caps.scores", cap(ours.soft_caps.scores)),
            ("soft_caps.logits", cap(ours.soft_caps.logits)),
            ("norm_epsilon", ours.norm_epsilon.to_string()),
            ("gate", gate),
            ("scaled_embedding", ours.scaled_embedding.to_string()),
        ]
    }

    /// Number of parameters without adapters.
    pub(super) fn parameters(self) -> u128 {
        let [vocab, layers, width, context] =
            [self.vocab, self.layers, self.width, self.context].map(|size| size as u128);
        let positions = match self.positions {
            Positions::Learned => context * width,
            Positions::Rotary => 0,
        };
        let tables = if self.architecture.tied { 1 } else { 2 };
        let norm = match self.architecture.norm {
            Norm::Layer => 2 * width,
            Norm::Rms => width,
        };
        let heads = if self.architecture.head_norms {
            2 * self.head_width() as u128
        } else {
            0
        };
        let matrices = BlockMatrix::ALL.map(|matrix| {
            let [input, output] = self.extents(matrix).map(|size| size as u128);
            input * output
                + if self.architecture.has_bias(matrix) {
                    output
                } else {
                    0
                }
        });
        let after = if self.architecture.output_norms {
            2 * width
        } else {
            0
        };
        let block = matrices.iter().sum::<u128>() + 2 * norm + heads + after;
        tables * vocab * width + positions + layers * block + norm
    }

    /// Width of a head.
    #[must_use]
    pub fn head_width(self) -> usize {
        self.architecture
            .head_width
            .unwrap_or(self.width / self.heads.max(1))
    }

    /// Heads of keys and values.
    #[must_use]
    pub fn key_heads(self) -> usize {
        self.architecture.key_heads.unwrap_or(self.heads)
    }

    /// The number whose root divides attention scores.
    #[must_use]
    pub fn query_scalar(self) -> usize {
        self.architecture.query_scalar.unwrap_or(self.head_width())
    }

    /// The factor of attention scores, before any cap.
    pub(super) fn score_scale(self) -> f64 {
        1.0 / (self.query_scalar() as f64).sqrt()
    }

    /// Heads of queries and of keys that have a norm.
    pub(super) fn normed_heads(self) -> usize {
        match self.architecture.head_norms {
            true => self.heads + self.key_heads(),
            false => 0,
        }
    }

    /// Width of the queries of all heads, which is also that of the output of attention.
    #[must_use]
    pub fn query_width(self) -> usize {
        self.heads * self.head_width()
    }

    /// Width of the keys of all heads.
    #[must_use]
    pub fn key_width(self) -> usize {
        self.key_heads() * self.head_width()
    }

    /// Width of queries, keys and values side by side.
    #[must_use]
    pub fn qkv_width(self) -> usize {
        self.query_width() + 2 * self.key_width()
    }

    /// Cosine and sine of each position and pair of a rotary model, times the factor that scaling gives queries and keys. Pair `i` of a
    /// head has the columns `i` and `i` plus half of the head's width. A model with learned positions has none.
    #[must_use]
    pub fn turns(self, positions: usize) -> Vec<[f32; 2]> {
        Rotary::of(self, positions).map_or_else(Vec::new, Rotary::into_turns)
    }

    /// Width of the output of `up`.
    #[must_use]
    pub fn up_width(self) -> usize {
        match self.architecture.feed_forward {
            FeedForward::Gelu => self.inner,
            FeedForward::Gated(_) => 2 * self.inner,
        }
    }

    /// Inputs and outputs of a matrix.
    #[must_use]
    pub fn extents(self, matrix: BlockMatrix) -> [usize; 2] {
        match matrix {
            BlockMatrix::Qkv => [self.width, self.qkv_width()],
            BlockMatrix::O => [self.query_width(), self.width],
            BlockMatrix::Up => [self.width, self.up_width()],
            BlockMatrix::Down => [self.inner, self.width],
        }
    }

    /// The largest number of inputs or outputs of a matrix.
    pub(super) fn widest(self) -> usize {
        let extents = BlockMatrix::ALL.map(|matrix| self.extents(matrix));
        extents.into_iter().flatten().fold(0, usize::max)
    }

    /// The factor of embeddings as they are read.
    #[must_use]
    pub fn embedding_scale(self) -> f64 {
        match self.architecture.scaled_embedding {
            true => (self.width as f64).sqrt(),
            false => 1.0,
        }
    }

    pub(super) fn check(self) -> Result<()> {
        let gated = matches!(self.architecture.feed_forward, FeedForward::Gated(_));
        let inner = match self.inner {
            _ if gated => "inner",
            0 => "feed_forward",
            _ => "width * feed_forward",
        };
        for (name, got, minimum, maximum) in [
            ("vocab", self.vocab, 2, MAX_IDS),
            ("layers", self.layers, 1, MAX_LAYERS),
            ("width", self.width, 1, MAX_WIDTH),
            ("heads", self.heads, 1, MAX_WIDTH),
            ("key_heads", self.key_heads(), 1, MAX_WIDTH),
            (
                "head_width",
                self.architecture.head_width.unwrap_or(1),
                1,
                MAX_WIDTH,
            ),
            (
                "query_scalar",
                self.architecture.query_scalar.unwrap_or(1),
                1,
                MAX_INNER,
            ),
            ("context", self.context, 1, MAX_IDS),
            (inner, self.inner, 1, MAX_INNER),
        ] {
            sizes::check(name, got, minimum, maximum)?;
        }
        let (width, heads) = (self.width, self.heads);
        if self.architecture.head_width.is_none() && !width.is_multiple_of(heads) {
            return Err(ModelError::HeadWidth { width, heads });
        }
        sizes::check("heads * head_width", self.query_width(), 1, MAX_INNER)?;
        sizes::check_total(self.parameters())?;
        if !heads.is_multiple_of(self.key_heads()) {
            let key_heads = self.key_heads();
            return Err(ModelError::KeyHeads { heads, key_heads });
        }
        self.check_architecture()
    }

    fn check_architecture(self) -> Result<()> {
        let Architecture {
            head_width,
            norm_epsilon,
            rotary_base,
            rotary_scaling,
            local_rotary,
            soft_caps,
            ..
        } = self.architecture;
        if !(norm_epsilon > 0.0 && norm_epsilon < 1.0) {
            return Err(ModelError::NormEpsilon { got: norm_epsilon });
        }
        for (key, value) in [
            ("soft_caps.scores", soft_caps.scores),
            ("soft_caps.logits", soft_caps.logits),
        ] {
            // Single precision holds these and their inverses.
            if let Some(got) = value.filter(|value| !(1e-6..=1e6).contains(value)) {
                return Err(ModelError::Setting {
                    key,
                    expected: "a number from 1e-6 to 1e6",
                    got: got.to_string(),
                });
            }
        }
        if self.positions == Positions::Learned {
            return Ok(());
        }
        if !self.head_width().is_multiple_of(2) {
            let (width, heads) = (self.width, self.heads);
            return Err(match head_width {
                None => ModelError::RotaryWidth { width, heads },
                Some(got) => ModelError::Setting {
                    key: "head_width",
                    expected: "an even number",
                    got: got.to_string(),
                },
            });
        }
        // The turns of every position are kept.
        let turns = self.context.saturating_mul(self.head_width());
        sizes::check("context * head_width", turns, 1, MAX_TURNS)?;
        for (key, base) in [
            ("rotary_base", Some(rotary_base)),
            ("local_rotary.base", local_rotary.map(|local| local.base)),
        ] {
            if let Some(got) = base.filter(|base| !(*base > 1.0 && base.is_finite())) {
                return Err(ModelError::Setting {
                    key,
                    expected: "a finite number above 1",
                    got: got.to_string(),
                });
            }
        }
        if let Some(LocalRotary { every: 0, .. }) = local_rotary {
            return Err(ModelError::Setting {
                key: "local_rotary.every",
                expected: "a whole number above 0",
                got: "0".to_owned(),
            });
        }
        rotary_scaling.map_or(Ok(()), RotaryScaling::check)
    }
}
