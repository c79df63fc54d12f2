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

use super::{PYTORCH, append, check, describe, malformed, reserved, serialized};
use crate::{
    error::{ModelError, Result},
    sequence::SequenceModel,
    spec::ModelSpec,
    transformer::{Architecture, Positions, Transformer, TransformerSizes},
};
use safetensors::{SafeTensors, tensor::TensorView};
use std::collections::HashSet;

pub use config::Gpt2Config;

const PREFIX: &str = "transformer.";
const EMBEDDING: &str = "wte.weight";
const POSITIONS: &str = "wpe.weight";
const OUTPUT: &str = "lm_head.weight";
/// Width of an attention head in every published size.
const HEAD_WIDTH: usize = 64;

/// GPT-2's name of one of our tensors.
fn their_name(ours: &str) -> String {
    let (layer, name) = match ours.strip_prefix('b').and_then(|rest| rest.split_once('.')) {
        Some((layer, name)) => (format!("h.{layer}."), name),
        None => (String::new(), ours),
    };
    let (name, kind) = match name.strip_suffix("_bias") {
        Some(name) => (name, "bias"),
        None => (name, "weight"),
    };
    let theirs = match name {
        "embedding" => "wte",
        "positions" => "wpe",
        "norm1" => "ln_1",
        "qkv" => "attn.c_attn",
        "o" => "attn.c_proj",
        "norm2" => "ln_2",
        "up" => "mlp.c_fc",
        "down" => "mlp.c_proj",
        "final_norm" => "ln_f",
        other => other,
    };
    format!("{layer}{theirs}.{kind}")
}

/// A file and what its names begin with.
struct File<'a> {
    tensors: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).map_err(malformed)?;
        let prefixed = tensors.names().iter().any(|name| name.starts_with(PREFIX));
        Ok(Self {
            tensors,
            prefix: if prefixed { PREFIX } else { "" },
        })
    }

    fn name(&self, plain: &str) -> String {
        format!("{}{plain}", self.prefix)
    }

    fn tensor(&self, plain: &str, expected: &[usize]) -> Result<TensorView<'_>> {
        let name = self.name(plain);
        self.tensors.tensor(&name).map_err(|_| ModelError::MissingTensor {
            name,
            expected: expected.to_vec(),
        })
    }

    /// The two extents of a matrix, which `expected` names.
    fn matrix(&self, plain: &str, expected: &str) -> Result<[usize; 2]> {
        let (name, expected) = (self.name(plain), expected.to_owned());
        let Ok(tensor) = self.tensors.tensor(&name) else {
            return Err(ModelError::MissingSizes { name, expected });
        };
        <[usize; 2]>::try_from(tensor.shape()).map_err(|_| ModelError::TensorSizes {
            name,
            expected,
            got: tensor.shape().to_vec(),
        })
    }
}

/// Returns `true` if the names in a file are GPT-2's.
///
/// # Errors
/// An unreadable file.
pub fn is(bytes: &[u8]) -> Result<bool> {
    let file = File::open(bytes)?;
    let known = |name: &str| name == EMBEDDING || name == POSITIONS || name.starts_with("h.");
    let names = file.tensors.names();
    Ok(names
        .into_iter()
        .any(|name| known(name.strip_prefix(PREFIX).unwrap_or(name))))
}

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

/// Refuses models that GPT-2's layout does not have.
pub(super) fn check_architecture(sizes: TransformerSizes) -> Result<()> {
    match sizes.positions == Positions::Learned && sizes.architecture == Architecture::GPT2 {
        true => Ok(()),
        false => Err(ModelError::LearnedPositions),
    }
}

/// Parameters of `model`, converted from F16 and BF16 where the file holds those.
///
/// A model whose context is shorter than the file's takes its first positions.
///
/// # Errors
/// An unreadable file; a tensor that is missing, unknown, of another shape or type, or not finite, by its name in the file; an
/// output matrix that is not the embedding; a model with rotary positions.
pub(crate) fn read(model: &Transformer, bytes: &[u8]) -> Result<Vec<f32>> {
    check_architecture(model.sizes())?;
    let file = File::open(bytes)?;
    let layout = model.layout();
    // All shapes are compared first: the file is then about as large as the memory that is asked for.
    let mut found = Vec::with_capacity(file.tensors.len());
    for ours in layout.tensors() {
        let theirs = their_name(&ours.name);
        let tensor = file.tensor(&theirs, &ours.shape)?;
        let name = file.name(&theirs);
        let longer = match (theirs.as_str(), tensor.shape(), &ours.shape[..]) {
            (POSITIONS, &[length, width], &[wanted, ours]) => length >= wanted && width == ours,
            _ => false,
        };
        if !longer {
            check(&name, &tensor, &ours.shape)?;
        }
        found.push((name, tensor, ours.len()));
    }
    let mut params = reserved(layout)?;
    for (name, tensor, length) in &found {
        let start = params.len();
        append(&mut params, name, tensor, true)?;
        params.truncate(start + length);
    }
    let ours: HashSet<&str> = found.iter().map(|(name, ..)| &name[..]).collect();
    let known = |name: &str| {
        let plain = name.strip_prefix(file.prefix).unwrap_or(name);
        let mask = plain.ends_with(".attn.bias") || plain.ends_with(".attn.masked_bias");
        mask || ours.contains(&file.name(plain)[..]) || plain == POSITIONS
    };
    for (name, tensor) in file.tensors.tensors() {
        if name == OUTPUT {
            let embedding = layout.tensors().first().map_or(&[][..], |ours| &ours.shape);
            let mut output = Vec::new();
            check(&name, &tensor, embedding)?;
            append(&mut output, &name, &tensor, true)?;
            if output != params[..output.len()] {
                let tied = file.name(EMBEDDING);
                return Err(ModelError::UntiedOutput { name, tied });
            }
        } else if !known(&name) {
            return Err(ModelError::UnknownTensor {
                got: tensor.shape().to_vec(),
                name,
            });
        }
    }
    Ok(params)
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
