//! Weights in the layout of GPT-2 as the Hugging Face hub holds it: `wte.weight`, `wpe.weight`, `h.N.ln_1.weight`,
//! `h.N.attn.c_attn.weight` and so on, with or without the prefix `transformer.`.
//!
//! Its matrices are stored `[input, output]`, as ours are, so that only names change. Masks (`attn.bias`,
//! `attn.masked_bias`) are passed over, and so is an output matrix `lm_head.weight` that equals the embedding.
//!
//! ```
//! use undertone_models::{Architecture, ModelSpec, Positions, SequenceModel, Transformer, TransformerSizes, weights::gpt2};
//! let sizes = TransformerSizes {
//!     vocab: 20, layers: 2, width: 64, heads: 1, context: 16, inner: 256, positions: Positions::Learned,
//!     architecture: Architecture::GPT2,
//! };
//! let model = Transformer::new(sizes)?;
//! let bytes = gpt2::write(&model, &model.initial_params(1), "what it was trained on")?;
//! let (spec, vocab) = gpt2::spec(&bytes)?;
//! assert_eq!(vocab, 20);
//! assert_eq!(spec.build(vocab)?.read_params(&bytes)?, model.initial_params(1));
//! # Ok::<(), undertone_models::ModelError>(())
//! ```

mod config;

use crate::{
    error::{ModelError, Result},
    sequence::SequenceModel,
    spec::ModelSpec,
    tensors::{PYTORCH, describe, serialized},
    transformer::{
        Positions, Transformer,
        gpt2::{EMBEDDING, File, POSITIONS, check_architecture, their_name},
    },
};

pub use crate::transformer::gpt2::is;
pub use config::Gpt2Config;

/// Width of an attention head in every published size.
const HEAD_WIDTH: usize = 64;

/// The model that a file is of, by the shapes of its tensors, and its vocabulary size. The number of heads stands in no
/// shape: heads are taken to be 64 wide, as in every published size.
///
/// # Errors
/// An unreadable file, a missing tensor, shapes that do not fit together.
pub fn spec(bytes: &[u8]) -> Result<(ModelSpec, usize)> {
    let file = File::open(bytes)?;
    let [vocab, width] = file.matrix(EMBEDDING, "[vocabulary, width]")?;
    let [context, _] = file.matrix(POSITIONS, "[context, width]")?;
    let [_, inner] = file.matrix("h.0.mlp.c_fc.weight", "[width, feed-forward width]")?;
    // Counted from the first on, so that a name with a number of many digits asks for no such number of layers; `read` refuses it.
    let has_layer = |layer: &usize| {
        let name = file.name(&format!("h.{layer}.ln_1.weight"));
        file.tensors.tensor(&name).is_ok()
    };
    let layers = (0..).take_while(has_layer).count();
    let unusable = |plain: &str, expected: String, got: [usize; 2]| ModelError::TensorSizes {
        name: file.name(plain),
        expected,
        got: got.to_vec(),
    };
    if width == 0 || !width.is_multiple_of(HEAD_WIDTH) {
        let expected = format!("a width that is a multiple of {HEAD_WIDTH}, the width of a head");
        return Err(unusable(EMBEDDING, expected, [vocab, width]));
    }
    if !inner.is_multiple_of(width) {
        let expected = format!("a multiple of the width {width} as second extent");
        return Err(unusable("h.0.mlp.c_fc.weight", expected, [width, inner]));
    }
    let spec = ModelSpec::Transformer {
        layers,
        width,
        heads: width / HEAD_WIDTH,
        context,
        positions: Positions::Learned,
        feed_forward: inner / width,
        recompute: false,
        lora: None,
    };
    Ok((spec, vocab))
}

/// Writes parameters as F32 under GPT-2's names, without prefix, adapters added to what they adapt, with a description in the header; the
/// same input gives the same bytes.
///
/// # Errors
/// A parameter count that is not the model's, rotary positions.
pub fn write(model: &Transformer, params: &[f32], description: &str) -> Result<Vec<u8>> {
    let (model, params) = model.merged(params)?;
    check_architecture(model.sizes())?;
    describe(
        serialized(model.layout(), &params, their_name, PYTORCH)?,
        description,
    )
}

#[cfg(test)]
mod tests;
