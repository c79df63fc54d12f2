//! Low-rank adapters in the layout of the library `peft`: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Its `lora_A` is our `A` transposed, and its `lora_B` our `B` transposed. Adapters of queries, keys and values together, or of gate
//! and value, become one adapter per matrix there: they share `A`, and each has its columns of `B`.

use super::huggingface::Family;
use super::{PYTORCH, file_of, malformed};
use crate::error::{Result, check_count};
use crate::sequence::SequenceModel;
use crate::transformer::{BlockMatrix, LoraSpec, Norm, Transformer};
use serde_json::json;
use std::ops::Range;

/// Name of the adapters' settings.
pub const CONFIG_FILE: &str = "adapter_config.json";
/// Name of the adapters' tensors.
pub const MODEL_FILE: &str = "adapter_model.safetensors";

/// Their matrices that one of ours holds, with the columns of each.
fn parts(model: &Transformer, matrix: BlockMatrix) -> Vec<(&'static str, Range<usize>)> {
    let sizes = model.sizes();
    let [_, output] = sizes.extents(matrix);
    if sizes.architecture.norm == Norm::Layer {
        let name = match matrix {
            BlockMatrix::Qkv => "attn.c_attn",
            BlockMatrix::O => "attn.c_proj",
            BlockMatrix::Up => "mlp.c_fc",
            BlockMatrix::Down => "mlp.c_proj",
        };
        return vec![(name, 0..output)];
    }
    let (queries, keys, inner) = (sizes.query_width(), sizes.key_width(), sizes.inner);
    match matrix {
        BlockMatrix::Qkv => vec![
            ("self_attn.q_proj", 0..queries),
            ("self_attn.k_proj", queries..queries + keys),
            ("self_attn.v_proj", queries + keys..output),
        ],
        BlockMatrix::O => vec![("self_attn.o_proj", 0..output)],
        BlockMatrix::Up => vec![("mlp.gate_proj", 0..inner), ("mlp.up_proj", inner..output)],
        BlockMatrix::Down => vec![("mlp.down_proj", 0..output)],
    }
}

/// Settings and tensors of the adapters of a model, whose specification is `lora`: the contents of [`CONFIG_FILE`] and [`MODEL_FILE`].
/// Two calls with the same parameters write the same bytes.
///
/// # Errors
/// A parameter count that is not the model's, a model without adapters, an architecture that no layout of `transformers` has.
pub fn write(model: &Transformer, params: &[f32], lora: &LoraSpec) -> Result<(Vec<u8>, Vec<u8>)> {
    check_count("parameter", model.layout().len(), params.len())?;
    let gpt2 = model.sizes().architecture.norm == Norm::Layer;
    let prefix = match gpt2 {
        true => {
            super::gpt2::check_architecture(model.sizes())?;
            "base_model.model.transformer.h"
        }
        false => {
            Family::of(model.sizes())?;
            "base_model.model.model.layers"
        }
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
            for (theirs, columns) in parts(model, matrix) {
                let full = |half: &str| format!("{prefix}.{layer}.{theirs}.lora_{half}.weight");
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
        .flat_map(|&matrix| parts(model, matrix).into_iter().map(|(name, _)| name))
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
    Ok((config, file_of(views, PYTORCH)?))
}
