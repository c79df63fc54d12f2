//! Low-rank adapters in the layout of the library `peft`: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Its `lora_A` is our `A` transposed, and its `lora_B` our `B` transposed. Adapters of queries, keys and values together, or of gate
//! and value, become one adapter per matrix there: they share `A`, and each has its columns of `B`.

mod config;
mod read;

pub use read::PeftAdapters;

use super::huggingface::Family;
use crate::error::{ModelError, Result, check_count};
use crate::sequence::SequenceModel;
use crate::tensors::{PYTORCH, describe, file_of, malformed};
use crate::transformer::{BlockMatrix, LoraSpec, Norm, Transformer, gpt2::check_architecture};
use serde_json::json;
use std::ops::Range;
use undertone_aggregation::ParamLayout;

/// Name of the adapters' settings.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// Name of the adapters' tensors.
pub const MODEL_FILE: &str = "adapter_model.safetensors";

/// Prefix of all names: the wrapper of `peft`, and the model that it wraps.
const WRAPPER: &str = "base_model.model.";

/// The blocks of a model, as far as the layouts need them.
struct Blocks<'a> {
    layout: &'a ParamLayout,
    is_gpt2: bool,
    layers: usize,
    queries: usize,
    inner: usize,
}

/// The place of one of their matrices.
struct Place {
    /// Block, and place in [`BlockMatrix::ALL`].
    key: (usize, usize),
    /// Columns of our matrix.
    columns: Range<usize>,
    input: usize,
}

impl<'a> Blocks<'a> {
    /// The blocks of a model without adapters, by its layout.
    fn of(layout: &'a ParamLayout) -> Result<Self> {
        let has = |name: &str| layout.range(name).is_some();
        let is_gpt2 = has("positions");
        // Blocks with the norms of GPT-2 and without its positions are those of no program that `peft` adapts.
        if !has("b0.qkv") || has("b0.norm1_bias") != is_gpt2 {
            return Err(ModelError::NoBlocks);
        }
        let mut blocks = Self {
            layout,
            is_gpt2,
            layers: (0..).take_while(|layer| has(&format!("b{layer}.qkv"))).count(),
            queries: 0,
            inner: 0,
        };
        blocks.queries = blocks.matrix(0, BlockMatrix::O)?.1[0];
        blocks.inner = blocks.matrix(0, BlockMatrix::Down)?.1[0];
        Ok(blocks)
    }

    /// The place and the extents of one of our matrices.
    fn matrix(&self, layer: usize, matrix: BlockMatrix) -> Result<(Range<usize>, [usize; 2])> {
        let name = format!("b{layer}.{}", matrix.name());
        let tensors = self.layout.tensors();
        let tensor = tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .ok_or(ModelError::NoBlocks)?;
        match tensor.shape[..] {
            [input, output] => Ok((tensor.range(), [input, output])),
            _ => Err(ModelError::NoBlocks),
        }
    }

    /// The place of a matrix with a name such as `base_model.model.model.layers.0.self_attn.q_proj`.
    fn place(&self, stem: &str) -> Option<Place> {
        let name = stem.strip_prefix(WRAPPER)?;
        let (model, list) = match self.is_gpt2 {
            true => ("transformer.", "h."),
            false => ("model.", "layers."),
        };
        let name = name.strip_prefix(model).unwrap_or(name).strip_prefix(list)?;
        let (number, name) = name.split_once('.')?;
        let layer: usize = number.parse().ok().filter(|layer| *layer < self.layers)?;
        if layer.to_string() != number {
            return None;
        }
        BlockMatrix::ALL.iter().enumerate().find_map(|(place, &matrix)| {
            let [input, output] = self.matrix(layer, matrix).ok()?.1;
            let parts = parts(self.is_gpt2, self.queries, self.inner, matrix, output);
            let (_, columns) = parts.into_iter().find(|(theirs, _)| *theirs == name)?;
            Some(Place {
                key: (layer, place),
                columns,
                input,
            })
        })
    }
}

/// Their matrices that one of ours holds, with the columns of each.
fn parts(
    is_gpt2: bool,
    queries: usize,
    inner: usize,
    matrix: BlockMatrix,
    output: usize,
) -> Vec<(&'static str, Range<usize>)> {
    if is_gpt2 {
        let name = match matrix {
            BlockMatrix::Qkv => "attn.c_attn",
            BlockMatrix::O => "attn.c_proj",
            BlockMatrix::Up => "mlp.c_fc",
            BlockMatrix::Down => "mlp.c_proj",
        };
        return vec![(name, 0..output)];
    }
    match matrix {
        BlockMatrix::Qkv => {
            let keys = queries + (output - queries) / 2;
            vec![
                ("self_attn.q_proj", 0..queries),
                ("self_attn.k_proj", queries..keys),
                ("self_attn.v_proj", keys..output),
            ]
        }
        BlockMatrix::O => vec![("self_attn.o_proj", 0..output)],
        BlockMatrix::Up => vec![("mlp.gate_proj", 0..inner), ("mlp.up_proj", inner..output)],
        BlockMatrix::Down => vec![("mlp.down_proj", 0..output)],
    }
}

/// Settings and tensors of the adapters of a model, whose specification is `lora`: the contents of [`CONFIG_FILE`] and [`MODEL_FILE`].
/// The header of the tensors has the description. Two calls with the same input write the same bytes.
///
/// # Errors
/// A parameter count that is not the model's, a model without adapters, an architecture that no layout of `transformers` has.
pub fn write(
    model: &Transformer,
    params: &[f32],
    lora: &LoraSpec,
    description: &str,
) -> Result<(Vec<u8>, Vec<u8>)> {
    check_count("parameter", model.layout().len(), params.len())?;
    let sizes = model.sizes();
    let gpt2 = sizes.architecture.norm == Norm::Layer;
    let list = match gpt2 {
        true => {
            check_architecture(sizes)?;
            "transformer.h"
        }
        false => {
            Family::of(sizes)?;
            "model.layers"
        }
    };
    let parts = |matrix| {
        let [_, output] = sizes.extents(matrix);
        parts(gpt2, sizes.query_width(), sizes.inner, matrix, output)
    };
    let rank = lora.rank;
    let mut tensors = Vec::new();
    let mut push = |name: String, shape: [usize; 2], value: &dyn Fn(usize, usize) -> f32| {
        let places = (0..shape[0]).flat_map(|row| (0..shape[1]).map(move |column| (row, column)));
        let bytes: Vec<u8> = places
            .flat_map(|(row, column)| value(row, column).to_le_bytes())
            .collect();
        tensors.push((name, shape.to_vec(), bytes));
    };
    for layer in 0..model.sizes().layers {
        for &matrix in &lora.targets {
            let name = |end: &str| format!("b{layer}.{}_{end}", matrix.name());
            let [input, output] = model.sizes().extents(matrix);
            let slice = |name: String| match model.layout().range(&name) {
                Some(range) => Ok(&params[range]),
                None => Err(crate::ModelError::MissingTensor {
                    name,
                    expected: vec![input, output],
                }),
            };
            let (a, b) = (slice(name("a"))?, slice(name("b"))?);
            for (theirs, columns) in parts(matrix) {
                let full = |half: &str| format!("{WRAPPER}{list}.{layer}.{theirs}.lora_{half}.weight");
                push(full("A"), [rank, input], &|row, column| a[column * rank + row]);
                push(full("B"), [columns.len(), rank], &|row, column| {
                    b[column * output + columns.start + row]
                });
            }
        }
    }
    let targets: Vec<&str> = lora
        .targets
        .iter()
        .flat_map(|&matrix| parts(matrix).into_iter().map(|(name, _)| name))
        .collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": null,
        "r": rank,
        "lora_alpha": lora.alpha,
        "target_modules": targets,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": gpt2,
        "inference_mode": true,
        "init_lora_weights": true,
        "use_rslora": false,
        "use_dora": false,
    });
    let mut config = serde_json::to_vec_pretty(&config).map_err(malformed)?;
    config.push(b'\n');
    let views = tensors.iter();
    let views = views.map(|(name, shape, bytes)| (name.clone(), &shape[..], &bytes[..]));
    Ok((config, describe(file_of(views, PYTORCH)?, description)?))
}
