//! Weights in the layouts that the Hugging Face library `transformers` has for Llama and its relatives: `config.json` and one or several
//! files of tensors `model.layers.0.self_attn.q_proj.weight` and so on.
//!
//! Their matrices are stored `[output, input]`, with queries, keys, values, gate and value of the gate apart. Gemma's norms store
//! their gains less one; here a gain is what rows are multiplied by.
//!
//! ```
//! use undertone_models::{SequenceModel, weights::huggingface::{self, Config}};
//! let config = br#"{"model_type": "llama", "vocab_size": 20, "hidden_size": 8, "intermediate_size": 12,
//!     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}"#;
//! let config = Config::parse(config)?;
//! let model = config.spec().transformer(config.vocab())?.expect("a transformer");
//! let params = model.initial_params(1);
//! let written = huggingface::write(&model, &params, u64::MAX, "what it was trained on")?;
//! assert_eq!(written[0].0, "model.safetensors");
//! let mut reader = huggingface::Reader::new(&config, &model, written[0].1.len() as u64)?;
//! reader.shard(&written[0].1)?;
//! assert_eq!(reader.finish()?, params);
//! # Ok::<(), undertone_models::ModelError>(())
//! ```

mod config;
mod index;
mod pieces;
mod read;
mod write;

pub use config::{Config, Family};
pub use index::Index;
pub use read::Reader;
pub use write::{config_json, write};

pub(crate) use pieces::{Piece, pieces};

use crate::error::Result;
use crate::tensors::malformed;
use safetensors::SafeTensors;

/// The prefix of all names but that of the output matrix in the file of a model with such a matrix.
const PREFIX: &str = "model.";
const EMBEDDING: &str = "embed_tokens.weight";
const OUTPUT: &str = "lm_head.weight";

/// The name of a tensor with its prefix.
fn full_name(plain: &str) -> String {
    match plain {
        OUTPUT => plain.to_owned(),
        _ => format!("{PREFIX}{plain}"),
    }
}

/// Returns `true` if the names in a file are those of Llama and its relatives.
///
/// # Errors
/// An unreadable file.
pub fn is(bytes: &[u8]) -> Result<bool> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
    Ok(header.offset_keys().iter().any(|name| {
        let plain = name.strip_prefix(PREFIX).unwrap_or(name);
        plain == EMBEDDING || plain == "norm.weight" || plain.starts_with("layers.")
    }))
}
