//! Weights in the layout of GPT-2 as the Hugging Face hub holds it: `wte.weight`, `wpe.weight`, `h.N.ln_1.weight`,
//! `h.N.attn.c_attn.weight` and so on, with or without the prefix `transformer.`.
//!
//! Its matrices are stored `[input, output]`, as ours are, so that only names change. Masks (`attn.bias`,
//! `attn.masked_bias`) are passed over, and so is an output matrix `lm_head.weight` that equals the embedding.
//!
//! ```
//! use undertone_models::{ModelSpec, Positions, SequenceModel, Transformer, TransformerSizes, weights::gpt2};
//! let sizes = TransformerSizes {
//!     vocab: 20, layers: 2, width: 64, heads: 1, context: 16, inner: 256, positions: Positions::Learned,
//! };
//! let model = Transformer::new(sizes)?;
//! let bytes = gpt2::write(&model, &model.initial_params(1))?;
//! let (spec, vocab) = gpt2::spec(&bytes)?;
//! assert_eq!(vocab, 20);
//! assert_eq!(spec.build(vocab)?.read_params(&bytes)?, model.initial_params(1));
//! # Ok::<(), undertone_models::ModelError>(())
//! ```

use super::append;
use crate::{
    error::{ModelError, Result},
    sequence::SequenceModel,
    spec::ModelSpec,
    transformer::{Positions, Transformer},
};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use std::collections::HashMap;

const PREFIX: &str = "transformer.";
const EMBEDDING: &str = "wte.weight";
const POSITIONS: &str = "wpe.weight";
const OUTPUT: &str = "lm_head.weight";
/// Width of an attention head in every published size.
const HEAD_WIDTH: usize = 64;

fn malformed(error: impl std::fmt::Display) -> ModelError {
    ModelError::MalformedWeights {
        reason: error.to_string(),
    }
}

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

/// Whether the names in a file are GPT-2's.
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
    let layer_of = |name: &str| {
        name.strip_prefix(file.prefix)?
            .strip_prefix("h.")?
            .split_once('.')?
            .0
            .parse()
            .ok()
    };
    let names = file.tensors.names();
    let last: Option<usize> = names.into_iter().filter_map(layer_of).max();
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
        layers: last.map_or(0, |last| last + 1),
        width,
        heads: width / HEAD_WIDTH,
        context,
        positions: Positions::Learned,
        feed_forward: inner / width,
        recompute: false,
    };
    Ok((spec, vocab))
}

/// Parameters of `model`, converted from F16 and BF16 where the file holds those.
///
/// A model whose context is shorter than the file's takes its first positions.
///
/// # Errors
/// An unreadable file; a tensor that is missing, unknown, of another shape or type, or not finite, by its name in the file; an
/// output matrix that is not the embedding; a model with rotary positions.
pub fn read(model: &Transformer, bytes: &[u8]) -> Result<Vec<f32>> {
    if model.sizes().positions == Positions::Rotary {
        return Err(ModelError::LearnedPositions);
    }
    let file = File::open(bytes)?;
    let layout = model.layout();
    let mut params = Vec::with_capacity(layout.len());
    for ours in layout.tensors() {
        let theirs = their_name(&ours.name);
        let tensor = file.tensor(&theirs, &ours.shape)?;
        let name = file.name(&theirs);
        if let (POSITIONS, &[length, width], &[wanted, ours]) =
            (theirs.as_str(), tensor.shape(), &ours.shape[..])
            && length >= wanted
            && width == ours
        {
            let start = params.len();
            append(&mut params, &name, &tensor, &[length, width], true)?;
            params.truncate(start + wanted * width);
        } else {
            append(&mut params, &name, &tensor, &ours.shape, true)?;
        }
    }
    let known = |plain: &str| {
        let mask = plain.ends_with(".attn.bias") || plain.ends_with(".attn.masked_bias");
        let ours = layout
            .tensors()
            .iter()
            .any(|ours| their_name(&ours.name) == plain);
        mask || ours || plain == POSITIONS
    };
    for (name, tensor) in file.tensors.tensors() {
        if name == OUTPUT {
            let embedding = layout.tensors().first().map_or(&[][..], |ours| &ours.shape);
            let mut output = Vec::new();
            append(&mut output, &name, &tensor, embedding, true)?;
            if output != params[..output.len()] {
                let tied = file.name(EMBEDDING);
                return Err(ModelError::UntiedOutput { name, tied });
            }
        } else if !known(name.strip_prefix(file.prefix).unwrap_or(&name)) {
            return Err(ModelError::UnknownTensor {
                got: tensor.shape().to_vec(),
                name,
            });
        }
    }
    Ok(params)
}

/// Writes parameters as F32 under GPT-2's names, without prefix, adapters added to what they adapt; the same parameters give
/// the same bytes.
///
/// # Errors
/// A parameter count that is not the model's, rotary positions.
pub fn write(model: &Transformer, params: &[f32]) -> Result<Vec<u8>> {
    let (model, params) = model.merged(params)?;
    let layout = model.layout();
    if model.sizes().positions == Positions::Rotary {
        return Err(ModelError::LearnedPositions);
    }
    let bytes: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut tensors = Vec::with_capacity(layout.tensors().len());
    for ours in layout.tensors() {
        let data = &bytes[ours.range().start * 4..ours.range().end * 4];
        let view = TensorView::new(Dtype::F32, ours.shape.clone(), data).map_err(malformed)?;
        tensors.push((their_name(&ours.name), view));
    }
    // Their reader wants to be told that tensors are laid out as PyTorch has them.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(tensors, Some(metadata)).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformer::TransformerSizes;

    fn model(context: usize, positions: Positions) -> Transformer {
        Transformer::new(TransformerSizes {
            vocab: 9,
            layers: 2,
            width: 64,
            heads: 1,
            context,
            inner: 128,
            positions,
        })
        .unwrap()
    }

    /// A tensor of a file: name, type, shape, bytes.
    type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

    /// The tensors that [`write`] makes, to be changed before they are stored.
    fn stored(prefix: &str) -> (Vec<f32>, Vec<Stored>) {
        let model = model(6, Positions::Learned);
        let params = model.initial_params(3);
        let bytes = write(&model, &params).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(name, tensor)| {
            let shape = tensor.shape().to_vec();
            (
                format!("{prefix}{name}"),
                tensor.dtype(),
                shape,
                tensor.data().to_vec(),
            )
        });
        (params, tensors.collect())
    }

    fn bytes_of(tensors: &[Stored]) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        serialize(views, None).unwrap()
    }

    /// What reading says of a file that `change` has touched.
    fn check(change: impl Fn(&mut Vec<Stored>), message: &str) {
        let (_, mut tensors) = stored(PREFIX);
        change(&mut tensors);
        let error = model(6, Positions::Learned)
            .read_params(&bytes_of(&tensors))
            .unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    fn named<'a>(tensors: &'a mut [Stored], name: &str) -> &'a mut Stored {
        let own = tensors
            .iter_mut()
            .find(|tensor| tensor.0 == format!("{PREFIX}{name}"));
        own.unwrap()
    }

    #[test]
    fn round_trip() {
        for prefix in ["", PREFIX] {
            let (params, mut tensors) = stored(prefix);
            assert_eq!(tensors.len(), 2 + 2 * 12 + 2);
            let mask = (
                format!("{prefix}h.0.attn.bias"),
                Dtype::U8,
                vec![1, 1, 2, 2],
                vec![0; 4],
            );
            let dead = (
                format!("{prefix}h.1.attn.masked_bias"),
                Dtype::F32,
                vec![],
                vec![0; 4],
            );
            let wte = format!("{prefix}{EMBEDDING}");
            let (_, dtype, shape, data) = tensors.iter().find(|tensor| tensor.0 == wte).unwrap().clone();
            tensors.extend([mask, dead, (OUTPUT.to_owned(), dtype, shape, data)]);
            let bytes = bytes_of(&tensors);
            assert!(is(&bytes).unwrap());
            let (spec, vocab) = spec(&bytes).unwrap();
            let expected = ModelSpec::Transformer {
                layers: 2,
                width: 64,
                heads: 1,
                context: 6,
                positions: Positions::Learned,
                feed_forward: 2,
                recompute: false,
            };
            assert_eq!((&spec, vocab), (&expected, 9));
            assert_eq!(spec.build(vocab).unwrap().read_params(&bytes).unwrap(), params);
            // The first positions alone.
            let short = model(4, Positions::Learned).read_params(&bytes).unwrap();
            assert_eq!(short[..13 * 64], params[..13 * 64]);
            assert_eq!(short[13 * 64..], params[15 * 64..]);
        }
    }

    #[test]
    fn half_widths_are_converted() {
        let (params, mut tensors) = stored("");
        for (_, dtype, _, data) in &mut tensors {
            *dtype = Dtype::BF16;
            *data = data
                .as_chunks::<4>()
                .0
                .iter()
                .flat_map(|b| [b[2], b[3]])
                .collect();
        }
        let read = model(6, Positions::Learned)
            .read_params(&bytes_of(&tensors))
            .unwrap();
        let cut = |value: &f32| f32::from_bits(value.to_bits() & 0xffff_0000);
        assert_eq!(read, params.iter().map(cut).collect::<Vec<f32>>());
        for (_, dtype, _, data) in &mut tensors {
            *dtype = Dtype::F16;
            *data = [0x00, 0x38].repeat(data.len() / 2);
        }
        let read = model(6, Positions::Learned)
            .read_params(&bytes_of(&tensors))
            .unwrap();
        assert!(read.iter().all(|&value| value == 0.5));
    }

    #[test]
    fn errors_name_the_tensor() {
        check(
            |tensors| tensors.retain(|tensor| !tensor.0.ends_with("h.1.mlp.c_fc.bias")),
            "weights file lacks tensor `transformer.h.1.mlp.c_fc.bias` of shape [128]",
        );
        check(
            |tensors| named(tensors, "h.0.attn.c_attn.weight").2.reverse(),
            "tensor `transformer.h.0.attn.c_attn.weight`: expected shape [64, 192], got [192, 64]",
        );
        check(
            |tensors| named(tensors, "wpe.weight").2 = vec![3, 128],
            "tensor `transformer.wpe.weight`: expected shape [6, 64], got [3, 128]",
        );
        check(
            |tensors| {
                let tensor = named(tensors, "ln_f.weight");
                (tensor.1, tensor.2) = (Dtype::F64, vec![32]);
            },
            "tensor `transformer.ln_f.weight`: expected shape [64], got [32]",
        );
        check(
            |tensors| named(tensors, "ln_f.weight").1 = Dtype::I32,
            "tensor `transformer.ln_f.weight`: expected type F32, F16 or BF16, got I32",
        );
        check(
            |tensors| named(tensors, "h.0.ln_1.bias").3[..4].copy_from_slice(&f32::NAN.to_le_bytes()),
            "tensor `transformer.h.0.ln_1.bias`: value NaN at index 0 is not finite",
        );
        check(
            |tensors| {
                tensors.push((
                    "transformer.h.2.ln_1.bias".into(),
                    Dtype::F32,
                    vec![1],
                    vec![0; 4],
                ));
            },
            "weights file holds unknown tensor `transformer.h.2.ln_1.bias` of shape [1]",
        );
        check(
            |tensors| tensors.push((OUTPUT.into(), Dtype::F32, vec![9, 64], vec![0; 9 * 64 * 4])),
            "tensor `lm_head.weight` differs from `transformer.wte.weight`, which the model predicts with",
        );
        let error = spec(&bytes_of(&stored(PREFIX).1[..0])).unwrap_err();
        assert!(
            error.to_string().starts_with("weights file lacks tensor"),
            "{error}"
        );
        let error = write(&model(6, Positions::Rotary), &[]).unwrap_err();
        assert!(matches!(error, ModelError::ParameterCount { .. }));
        let rotary = model(6, Positions::Rotary);
        let error = rotary.read_params(&bytes_of(&stored(PREFIX).1)).unwrap_err();
        assert_eq!(error, ModelError::LearnedPositions);
        assert_eq!(
            write(&rotary, &rotary.initial_params(1)).unwrap_err(),
            ModelError::LearnedPositions
        );
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let sized = |width: usize, inner: usize| {
            let zeros = |name: &str, shape: &[usize]| -> Stored {
                let len = shape.iter().product::<usize>();
                (name.to_owned(), Dtype::F32, shape.to_vec(), vec![0; 4 * len])
            };
            let tensors = [
                zeros(EMBEDDING, &[9, width]),
                zeros(POSITIONS, &[2, width]),
                zeros("h.0.mlp.c_fc.weight", &[width, inner]),
            ];
            spec(&bytes_of(&tensors)).unwrap_err().to_string()
        };
        assert_eq!(
            sized(65, 130),
            "tensor `wte.weight` of shape [9, 65]: expected a width that is a multiple of 64, the width of a head"
        );
        assert_eq!(
            sized(64, 100),
            "tensor `h.0.mlp.c_fc.weight` of shape [64, 100]: expected a multiple of the width 64 as second extent"
        );
    }
}
