//! Parameters under GPT-2's names, which a transformer reads beside its own.

use super::{Architecture, Positions, Transformer, TransformerSizes};
use crate::error::{ModelError, Result};
use crate::sequence::SequenceModel;
use crate::tensors::{append, check, malformed, reserved};
use safetensors::{SafeTensors, tensor::TensorView};
use std::collections::HashSet;

pub(crate) const PREFIX: &str = "transformer.";
pub(crate) const EMBEDDING: &str = "wte.weight";
pub(crate) const POSITIONS: &str = "wpe.weight";
pub(crate) const OUTPUT: &str = "lm_head.weight";

/// GPT-2's name of one of our tensors.
pub(crate) fn their_name(ours: &str) -> String {
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
pub(crate) struct File<'a> {
    pub(crate) tensors: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> File<'a> {
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self> {
        let tensors = SafeTensors::deserialize(bytes).map_err(malformed)?;
        let prefixed = tensors.names().iter().any(|name| name.starts_with(PREFIX));
        Ok(Self {
            tensors,
            prefix: if prefixed { PREFIX } else { "" },
        })
    }

    pub(crate) fn name(&self, plain: &str) -> String {
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
    pub(crate) fn matrix(&self, plain: &str, expected: &str) -> Result<[usize; 2]> {
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

/// Refuses models that GPT-2's layout does not have.
pub(crate) fn check_architecture(sizes: TransformerSizes) -> Result<()> {
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
