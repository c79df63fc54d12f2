use super::*;
use crate::transformer::gpt2::{OUTPUT, PREFIX};
use crate::transformer::{Architecture, TransformerSizes};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

fn model(context: usize, positions: Positions) -> Transformer {
    Transformer::new(TransformerSizes {
        vocab: 9,
        layers: 2,
        width: 64,
        heads: 1,
        context,
        inner: 128,
        positions,
        architecture: Architecture::GPT2,
    })
    .unwrap()
}

/// A tensor of a file: name, type, shape, bytes.
type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

/// The tensors that [`write`] makes, to be changed before they are stored.
fn stored(prefix: &str) -> (Vec<f32>, Vec<Stored>) {
    let model = model(6, Positions::Learned);
    let params = model.initial_params(3);
    let bytes = write(&model, &params, "a test").unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.tensors().into_iter().map(|(name, tensor)| {
        let (shape, data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        (format!("{prefix}{name}"), tensor.dtype(), shape, data)
    });
    (params, tensors.collect())
}

fn bytes_of(tensors: &[Stored]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    serialize(views, None).unwrap()
}

/// Checks the error of reading a file after `change`.
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
fn a_file_gives_back_its_spec_and_parameters() {
    for prefix in ["", PREFIX] {
        let (params, mut tensors) = stored(prefix);
        assert_eq!(tensors.len(), 2 + 2 * 12 + 2);
        let zeros = |name: &str, dtype, shape| (format!("{prefix}{name}"), dtype, shape, vec![0; 4]);
        let mask = zeros("h.0.attn.bias", Dtype::U8, vec![1, 1, 2, 2]);
        let dead = zeros("h.1.attn.masked_bias", Dtype::F32, vec![]);
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
            lora: None,
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
        "the weights file lacks tensor `transformer.h.1.mlp.c_fc.bias` of shape [128]",
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
            let name = "transformer.h.2.ln_1.bias".to_owned();
            tensors.push((name, Dtype::F32, vec![1], vec![0; 4]));
        },
        "the weights file holds the unknown tensor `transformer.h.2.ln_1.bias` of shape [1]",
    );
    check(
        |tensors| tensors.push((OUTPUT.into(), Dtype::F32, vec![9, 64], vec![0; 9 * 64 * 4])),
        "tensor `lm_head.weight` differs from `transformer.wte.weight`, but the model uses `transformer.wte.weight` for its predictions",
    );
    let error = spec(&bytes_of(&stored(PREFIX).1[..0])).unwrap_err();
    assert!(
        error.to_string().starts_with("the weights file lacks tensor"),
        "{error}"
    );
    let error = write(&model(6, Positions::Rotary), &[], "").unwrap_err();
    assert!(matches!(error, ModelError::ParameterCount { .. }));
    let rotary = model(6, Positions::Rotary);
    let error = rotary.read_params(&bytes_of(&stored(PREFIX).1)).unwrap_err();
    assert_eq!(error, ModelError::LearnedPositions);
    assert_eq!(
        write(&rotary, &rotary.initial_params(1), "").unwrap_err(),
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
