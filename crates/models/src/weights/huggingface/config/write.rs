//! The `config.json` of a model of this crate, with the keys that every version of the library reads.

use super::Family;
use crate::transformer::{BlockMatrix, FeedForward, Gate, RotaryScaling, TransformerSizes};
use serde_json::{Value, json};

pub(super) fn config(sizes: TransformerSizes, family: Family, bos: u32, eos: u32) -> Value {
    let architecture = sizes.architecture;
    let act = match architecture.feed_forward {
        FeedForward::Gated(Gate::Silu) => "silu",
        _ => "gelu_pytorch_tanh",
    };
    // Versions of the library before 5 take the ratio of this key and the original context for YaRN's factor.
    let longest = match architecture.rotary_scaling {
        Some(RotaryScaling::Yarn {
            factor,
            original_context,
            ..
        }) => (factor * original_context as f64).round() as usize,
        _ => sizes.context,
    };
    let mut config = json!({
        "architectures": [family.architecture()],
        "model_type": family.name(),
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.key_heads(),
        "head_dim": sizes.head_width(),
        "max_position_embeddings": longest,
        "rms_norm_eps": architecture.norm_epsilon,
        "rope_theta": architecture.rotary_base,
        "rope_scaling": architecture.rotary_scaling.map(scaling),
        "tie_word_embeddings": architecture.tied,
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": "float32",
    });
    config[family.activation()] = act.into();
    let has = |matrix| Value::from(architecture.has_bias(matrix));
    match family {
        Family::Llama => {
            config["attention_bias"] = has(BlockMatrix::O);
            config["mlp_bias"] = has(BlockMatrix::Down);
        }
        Family::Mistral => config["sliding_window"] = Value::Null,
        Family::Qwen2 => config["use_sliding_window"] = false.into(),
        Family::Qwen3 => {
            config["attention_bias"] = has(BlockMatrix::O);
            config["use_sliding_window"] = false.into();
        }
        Family::Gemma => config["attention_bias"] = has(BlockMatrix::O),
        Family::Gemma3 => {
            let local = architecture.local_rotary;
            let types = (0..sizes.layers).map(|layer| match local.is_some_and(|local| local.covers(layer)) {
                true => "sliding_attention",
                false => "full_attention",
            });
            config["attention_bias"] = has(BlockMatrix::O);
            config["layer_types"] = types.collect();
            config["rope_local_base_freq"] =
                local.map_or(architecture.rotary_base, |local| local.base).into();
            config["sliding_window"] = sizes.context.into();
        }
        Family::Gemma2 => {
            config["attention_bias"] = has(BlockMatrix::O);
            config["sliding_window"] = sizes.context.into();
        }
    }
    if let Family::Gemma2 | Family::Gemma3 = family {
        config["query_pre_attn_scalar"] = sizes.query_scalar().into();
        config["attn_logit_softcapping"] = architecture.soft_caps.scores.into();
        config["final_logit_softcapping"] = architecture.soft_caps.logits.into();
    }
    config
}

fn scaling(scaling: RotaryScaling) -> Value {
    match scaling {
        RotaryScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RotaryScaling::Llama3 {
            factor,
            low_frequency,
            high_frequency,
            original_context,
        } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_frequency,
            "high_freq_factor": high_frequency,
            "original_max_position_embeddings": original_context,
        }),
        RotaryScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_context,
            attention_factor,
            truncate,
        } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "original_max_position_embeddings": original_context,
            "attention_factor": attention_factor,
            "truncate": truncate,
        }),
    }
}
