//! Rotary angles for contexts longer than those of the first training.

use crate::error::{ModelError, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A change of the frequencies of rotary positions. The formulas are those of `modeling_rope_utils.py` of the Hugging Face library
/// `transformers`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Positions divided by a factor (Chen et al., "Extending context window of large language models via positional
    /// interpolation", 2023).
    Linear {
        /// The factor, at least 1.
        factor: f64,
    },
    /// Frequencies of long waves divided by a factor, those of short waves kept, and those between interpolated, as in Llama 3.1.
    Llama3 {
        /// The factor, at least 1.
        factor: f64,
        /// Waves longer than `original_context / low_frequency` are divided.
        low_frequency: f64,
        /// Waves shorter than `original_context / high_frequency` are kept; above `low_frequency`.
        high_frequency: f64,
        /// Context of the first training in tokens.
        original_context: usize,
    },
    /// Pairs that turn seldom within the original context are divided by a factor, with a linear ramp, and queries and keys grow
    /// (Peng et al., "YaRN", 2023).
    Yarn {
        /// The factor, at least 1.
        factor: f64,
        /// Turns within the original context above which a pair is kept.
        #[serde(default = "default_beta_fast")]
        beta_fast: f64,
        /// Turns within the original context below which a pair is divided.
        #[serde(default = "default_beta_slow")]
        beta_slow: f64,
        /// Context of the first training in tokens.
        original_context: usize,
        /// The factor of queries and of keys, such as `0.1 ln(factor) + 1`.
        attention_factor: f64,
        /// `true` to round the ends of the ramp to whole pairs.
        #[serde(default = "default_truncate")]
        truncate: bool,
    },
}

fn default_beta_fast() -> f64 {
    32.0
}

fn default_beta_slow() -> f64 {
    1.0
}

fn default_truncate() -> bool {
    true
}

impl RotaryScaling {
    /// The factor of queries and of keys after they are turned.
    pub(super) fn attention_factor(self) -> f64 {
        match self {
            Self::Yarn { attention_factor, .. } => attention_factor,
            Self::Linear { .. } | Self::Llama3 { .. } => 1.0,
        }
    }

    /// The divisor of the angle of a pair of coordinates, where half the width of a head is `half`.
    #[must_use]
    pub(crate) fn divisor(self, base: f64, half: usize, pair: usize) -> f64 {
        let frequency = base.powf(-(pair as f64) / half as f64);
        match self {
            Self::Linear { factor } => factor,
            Self::Llama3 {
                factor,
                low_frequency,
                high_frequency,
                original_context,
            } => {
                let original = original_context as f64;
                let wave = 2.0 * PI / frequency;
                if wave > original / low_frequency {
                    factor
                } else if wave < original / high_frequency {
                    1.0
                } else {
                    let smooth = (original / wave - low_frequency) / (high_frequency - low_frequency);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            }
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_context,
                truncate,
                ..
            } => {
                let width = 2.0 * half as f64;
                // The pair that turns this often within the original context.
                let place = |turns: f64| {
                    width * (original_context as f64 / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
                };
                let (mut low, mut high) = (place(beta_fast), place(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(width - 1.0));
                if low == high {
                    high += 0.001;
                }
                let kept = 1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        }
    }

    pub(super) fn check(self) -> Result<()> {
        let refuse = |key, expected, got: f64| {
            Err(ModelError::Setting {
                key,
                expected,
                got: got.to_string(),
            })
        };
        let (Self::Linear { factor } | Self::Llama3 { factor, .. } | Self::Yarn { factor, .. }) = self;
        if !(factor >= 1.0 && factor.is_finite()) {
            return refuse("rotary_scaling.factor", "a finite number of at least 1", factor);
        }
        let positive = |value: f64| value > 0.0 && value.is_finite();
        match self {
            Self::Linear { .. } => {}
            Self::Llama3 {
                low_frequency,
                high_frequency,
                original_context,
                ..
            } => {
                if !positive(low_frequency) {
                    return refuse(
                        "rotary_scaling.low_frequency",
                        "a finite number above 0",
                        low_frequency,
                    );
                }
                if !(high_frequency > low_frequency && high_frequency.is_finite()) {
                    let expected = "a finite number above `low_frequency`";
                    return refuse("rotary_scaling.high_frequency", expected, high_frequency);
                }
                if original_context == 0 {
                    return refuse("rotary_scaling.original_context", "at least 1", 0.0);
                }
            }
            Self::Yarn {
                beta_fast,
                beta_slow,
                original_context,
                attention_factor,
                ..
            } => {
                for (key, value) in [
                    ("rotary_scaling.beta_fast", beta_fast),
                    ("rotary_scaling.beta_slow", beta_slow),
                    ("rotary_scaling.attention_factor", attention_factor),
                ] {
                    if !(1e-6..=1e6).contains(&value) {
                        return refuse(key, "a number between 1e-6 and 1e6", value);
                    }
                }
                if beta_fast < beta_slow {
                    return refuse("rotary_scaling.beta_fast", "at least `beta_slow`", beta_fast);
                }
                if original_context == 0 {
                    return refuse("rotary_scaling.original_context", "at least 1", 0.0);
                }
            }
        }
        Ok(())
    }
}
