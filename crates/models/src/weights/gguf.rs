//! GGUF files, version 3, of the programs around `ggml`, such as llama.cpp: settings, tokenizer and tensors in one file.
//!
//! Matrices have one of four types ([`TensorType`]). Gemma's gains stand as they multiply. `llama` turns neighbouring pairs of a head's
//! coordinates where `transformers` turns pairs half a head apart, so the rows of queries and keys change places there.
//!
//! # Source
//! The specification `docs/gguf.md` of the repository `ggml`, and `convert_hf_to_gguf.py` of llama.cpp for names and settings.

mod tensor_type;

pub use tensor_type::TensorType;

use super::huggingface::{Family, Piece, pieces};
use crate::error::{ModelError, Result};
use crate::transformer::{BlockMatrix, LocalRotary, RotaryScaling, SoftCaps, Transformer, TransformerSizes};
use std::collections::BTreeMap;

/// A value in the settings of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number of 32 bits.
    U32(u32),
    /// A number of 32 bits.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of whole numbers.
    Numbers(Vec<i32>),
}

impl Value {
    /// The number of its type in the format.
    fn kind(&self) -> u32 {
        match self {
            Self::U32(_) => 4,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => 8,
            Self::Texts(_) | Self::Numbers(_) => 9,
        }
    }
}

/// Data begins at multiples of this.
const ALIGNMENT: usize = 32;

/// A file that is being written.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn setting(&mut self, key: &str, value: &Value) {
        self.text(key);
        self.u32(value.kind());
        match value {
            Value::U32(value) => self.u32(*value),
            Value::F32(value) => self.0.extend(value.to_le_bytes()),
            Value::Bool(value) => self.0.push(u8::from(*value)),
            Value::Text(text) => self.text(text),
            Value::Texts(texts) => {
                self.u32(8);
                self.u64(texts.len() as u64);
                texts.iter().for_each(|text| self.text(text));
            }
            Value::Numbers(numbers) => {
                self.u32(5);
                self.u64(numbers.len() as u64);
                numbers
                    .iter()
                    .for_each(|number| self.0.extend(number.to_le_bytes()));
            }
        }
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// A tensor with its extents, the fastest last, as elsewhere in this crate.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor in a file whose matrices have the type `kind`.
    fn new(name: String, shape: Vec<usize>, values: &[f32], kind: TensorType) -> Result<Self> {
        let kind = kind.of(&shape);
        let bytes = kind.encode(&name, values)?;
        Ok(Self {
            name,
            shape,
            kind,
            bytes,
        })
    }
}

/// A file, and how many of its tensors have which type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The content.
    pub bytes: Vec<u8>,
    /// Numbers of tensors.
    pub tensors: BTreeMap<TensorType, usize>,
}

/// The content of a file: the model with adapters added to what they adapt, its name and description, and the settings of a tokenizer,
/// whose keys begin with `tokenizer.`. Matrices are rounded to `kind`. The same input gives the same bytes.
///
/// # Errors
/// [`ModelError::NoGguf`] for an architecture that llama.cpp does not compute; [`ModelError::TensorRange`] for a value that the type cannot
/// hold; a parameter count that is not the model's.
pub fn write(
    model: &Transformer,
    params: &[f32],
    (name, description): (&str, &str),
    tokenizer: &[(String, Value)],
    kind: TensorType,
) -> Result<Written> {
    let (model, params) = model.merged(params)?;
    let sizes = model.sizes();
    let architecture = architecture(sizes)?;
    let mut settings = vec![
        (
            "general.architecture".to_owned(),
            Value::Text(architecture.to_owned()),
        ),
        ("general.name".to_owned(), Value::Text(name.to_owned())),
        ("general.file_type".to_owned(), Value::U32(kind.file_number())),
    ];
    if kind == TensorType::Q8_0 {
        // The version of the layout of blocks.
        settings.push(("general.quantization_version".to_owned(), Value::U32(2)));
    }
    settings.extend(sizes_of(sizes, architecture)?);
    settings.extend(tokenizer.iter().cloned());
    settings.push((
        "undertone.description".to_owned(),
        Value::Text(description.to_owned()),
    ));
    let mut tensors = pieces(&model)
        .iter()
        .map(|piece| tensor(piece, sizes, architecture, &params, kind))
        .collect::<Result<Vec<Tensor>>>()?;
    if let Some(scaling @ RotaryScaling::Llama3 { .. }) = sizes.architecture.rotary_scaling {
        let (base, half) = (sizes.architecture.rotary_base, sizes.head_width() / 2);
        let divisor = |pair| scaling.divisor(base, half, pair) as f32;
        let divisors: Vec<f32> = (0..half).map(divisor).collect();
        let name = "rope_freqs.weight".to_owned();
        tensors.push(Tensor::new(name, vec![half], &divisors, kind)?);
    }
    let mut file = Bytes::default();
    file.0.extend(b"GGUF");
    file.u32(3);
    file.u64(tensors.len() as u64);
    file.u64(settings.len() as u64);
    for (key, value) in &settings {
        file.setting(key, value);
    }
    let mut offset = 0;
    for tensor in &tensors {
        file.text(&tensor.name);
        file.u32(tensor.shape.len() as u32);
        tensor
            .shape
            .iter()
            .rev()
            .for_each(|&extent| file.u64(extent as u64));
        file.u32(tensor.kind.number());
        file.u64(offset as u64);
        offset += tensor.bytes.len().next_multiple_of(ALIGNMENT);
    }
    file.align();
    let mut counts = BTreeMap::new();
    file.0.reserve_exact(offset);
    for tensor in tensors {
        file.0.extend(&tensor.bytes);
        file.align();
        *counts.entry(tensor.kind).or_default() += 1;
    }
    Ok(Written {
        bytes: file.0,
        tensors: counts,
    })
}

/// The blocks with a rotary base of their own that llama.cpp knows.
const GEMMA3: LocalRotary = LocalRotary {
    base: 10_000.0,
    every: 6,
};

/// The name of an architecture of llama.cpp that computes what the model does.
fn architecture(sizes: TransformerSizes) -> Result<&'static str> {
    let refuse = |reason: &str| {
        Err(ModelError::NoGguf {
            reason: reason.to_owned(),
        })
    };
    let family = Family::of(sizes)?;
    let ours = sizes.architecture;
    if let Some(RotaryScaling::Yarn { .. }) = ours.rotary_scaling {
        return refuse("llama.cpp has another form of YaRN");
    }
    let gemma = matches!(family, Family::Gemma | Family::Gemma2 | Family::Gemma3);
    if ours.feed_forward == crate::FeedForward::Gated(crate::Gate::Gelu) && !gemma {
        return refuse("a GELU gate goes with a scaled embedding there");
    }
    let is_llama = matches!(family, Family::Llama | Family::Mistral);
    if !is_llama && matches!(ours.rotary_scaling, Some(RotaryScaling::Llama3 { .. })) {
        return refuse("llama.cpp has the scaling \"llama3\" with blocks of Llama alone");
    }
    if family == Family::Qwen2 && sizes.query_width() != sizes.width {
        return refuse("qwen2 has heads that make up the width there");
    }
    match family {
        Family::Llama | Family::Mistral => Ok("llama"),
        Family::Qwen2 => Ok("qwen2"),
        Family::Qwen3 if ours.has_bias(BlockMatrix::Qkv) => refuse("qwen3 has no biases there"),
        Family::Qwen3 => Ok("qwen3"),
        _ if ours.has_bias(BlockMatrix::Qkv) => refuse("gemma has no biases there"),
        _ if !ours.tied => refuse("gemma predicts with its embedding there"),
        Family::Gemma => Ok("gemma"),
        Family::Gemma2
            if !matches!(
                ours.soft_caps,
                SoftCaps {
                    scores: Some(_),
                    logits: Some(_)
                }
            ) =>
        {
            refuse("gemma2 caps scores and logits there")
        }
        Family::Gemma2 => Ok("gemma2"),
        Family::Gemma3 if ours.soft_caps != SoftCaps::default() => refuse("gemma3 has no soft caps there"),
        Family::Gemma3 if ours.local_rotary != Some(GEMMA3) => {
            refuse("all blocks of gemma3 but every sixth have the rotary base 10000 there")
        }
        Family::Gemma3 => Ok("gemma3"),
    }
}

fn sizes_of(sizes: TransformerSizes, architecture: &str) -> Result<Vec<(String, Value)>> {
    let ours = sizes.architecture;
    let number = |key: &'static str, size: usize| {
        u32::try_from(size)
            .map(|size| (key, Value::U32(size)))
            .map_err(|_| ModelError::DimensionTooLarge {
                name: key,
                maximum: u32::MAX as usize,
                got: size,
            })
    };
    let mut settings = vec![
        number("context_length", sizes.context)?,
        number("embedding_length", sizes.width)?,
        number("block_count", sizes.layers)?,
        number("feed_forward_length", sizes.inner)?,
        number("vocab_size", sizes.vocab)?,
        number("attention.head_count", sizes.heads)?,
        number("attention.head_count_kv", sizes.key_heads())?,
        number("attention.key_length", sizes.head_width())?,
        number("attention.value_length", sizes.head_width())?,
        number("rope.dimension_count", sizes.head_width())?,
        ("rope.freq_base", Value::F32(ours.rotary_base as f32)),
        (
            "attention.layer_norm_rms_epsilon",
            Value::F32(ours.norm_epsilon as f32),
        ),
    ];
    if ours.local_rotary.is_some() || architecture == "gemma2" {
        settings.push(number("attention.sliding_window", sizes.context)?);
    }
    for (key, cap) in [
        ("attn_logit_softcapping", ours.soft_caps.scores),
        ("final_logit_softcapping", ours.soft_caps.logits),
    ] {
        settings.extend(cap.map(|cap| (key, Value::F32(cap as f32))));
    }
    if let Some(RotaryScaling::Linear { factor }) = ours.rotary_scaling {
        settings.push(("rope.scaling.type", Value::Text("linear".to_owned())));
        settings.push(("rope.scaling.factor", Value::F32(factor as f32)));
    }
    let full = settings.into_iter();
    Ok(full
        .map(|(key, value)| (format!("{architecture}.{key}"), value))
        .collect())
}

fn tensor(
    piece: &Piece,
    sizes: TransformerSizes,
    architecture: &str,
    params: &[f32],
    kind: TensorType,
) -> Result<Tensor> {
    let mut values = piece.gather(params, 0.0);
    let scale = query_scale(piece, sizes, architecture);
    if scale != 1.0 {
        values
            .iter_mut()
            .for_each(|value| *value = (f64::from(*value) * scale) as f32);
    }
    let heads = match () {
        () if architecture != "llama" => None,
        () if piece.name.contains(".q_proj.") => Some(sizes.heads),
        () if piece.name.contains(".k_proj.") => Some(sizes.key_heads()),
        () => None,
    };
    if let Some(heads) = heads {
        let width = values.len() / (heads * sizes.head_width());
        values = neighbouring(&values, heads, sizes.head_width(), width);
    }
    Tensor::new(
        name(&piece.name, architecture),
        piece.shape.clone(),
        &values,
        kind,
    )
}

/// The factor of the queries that makes scores ours: the file has no key for the number whose root divides them. Where queries are
/// normalised, it is a factor of the gains.
fn query_scale(piece: &Piece, sizes: TransformerSizes, architecture: &str) -> f64 {
    // The largest models of each kind have a number of their own there.
    let theirs = match (architecture, sizes.layers) {
        ("gemma2", 46) | ("gemma3", 62) => sizes.width / sizes.heads,
        _ => sizes.head_width(),
    };
    let queries = match sizes.architecture.head_norms {
        true => piece.name.contains(".q_norm."),
        false => piece.name.contains(".q_proj."),
    };
    match queries {
        true => (theirs as f64 / sizes.query_scalar() as f64).sqrt(),
        false => 1.0,
    }
}

/// Rows of heads with the two rows of a pair beside each other: row `2 i` is row `i`, and row `2 i + 1` is row `i + half`.
fn neighbouring(values: &[f32], heads: usize, head_width: usize, width: usize) -> Vec<f32> {
    let half = head_width / 2;
    let mut moved = Vec::with_capacity(values.len());
    for head in 0..heads {
        for row in 0..head_width {
            let from = head * head_width + row / 2 + row % 2 * half;
            moved.extend_from_slice(&values[from * width..][..width]);
        }
    }
    moved
}

/// Their name of a tensor of `transformers`.
fn name(theirs: &str, architecture: &str) -> String {
    let (block, rest) = match theirs
        .strip_prefix("layers.")
        .and_then(|rest| rest.split_once('.'))
    {
        Some((layer, rest)) => (format!("blk.{layer}."), rest),
        None => (String::new(), theirs),
    };
    let (stem, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let stem = match stem {
        "embed_tokens" => "token_embd",
        "norm" => "output_norm",
        "lm_head" => "output",
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" if ["gemma2", "gemma3"].contains(&architecture) => "post_attention_norm",
        "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    };
    format!("{block}{stem}.{kind}")
}
