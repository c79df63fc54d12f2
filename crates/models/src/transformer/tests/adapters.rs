//! Low-rank adapters: gradients, files, merging, and what is refused.

use super::*;
use crate::error::ModelError;
use crate::weights;

fn base(positions: Positions) -> Transformer {
    Transformer::new(TransformerSizes {
        inner: 10,
        ..sizes(11, 2, 8, 2, positions)
    })
    .unwrap()
}

fn lora(rank: usize, alpha: f64, targets: &[BlockMatrix]) -> LoraSpec {
    let targets = targets.to_vec();
    LoraSpec { rank, alpha, targets }
}

const ALL: [BlockMatrix; 4] = [
    BlockMatrix::Qkv,
    BlockMatrix::O,
    BlockMatrix::Up,
    BlockMatrix::Down,
];

/// Adapters on a small base, which [`parameters`] puts `B` away from zero of.
fn adapted(positions: Positions, targets: &[BlockMatrix]) -> Transformer {
    let base = base(positions);
    let params = narrow(&parameters(&base, 21));
    base.with_lora(params, &lora(3, 6.0, targets)).unwrap()
}

#[test]
fn adapters_match_finite_differences_and_the_merged_model() {
    for (positions, targets) in [
        (Positions::Learned, &ALL[..]),
        (Positions::Rotary, &ALL),
        (Positions::Learned, &[BlockMatrix::Down, BlockMatrix::Qkv]),
        (Positions::Rotary, &[BlockMatrix::O]),
    ] {
        let model = adapted(positions, targets);
        check_differences(&model, &[4, 1, 6, 4]);
        check_weighted(&model, &[4, 1, 6, 4], 3);
        check_precision(&model, &[4, 3, 2], 1e-4);
        let params = narrow(&numbers(model.layout.len(), 4, 0.5));
        let (whole, merged) = model.merged(&params).unwrap();
        let packed = batch_of(&[5, 3], 11, 3);
        let logits_of = |model: &Transformer, params: &[f32]| {
            let mut worker = model.worker(2, 8);
            logits(worker.as_mut(), params, &packed.batch(), StateMode::Zero)
        };
        assert_eq!(logits_of(&model, &params), logits_of(&whole, &merged));
        // Before training, adapters change nothing.
        let (_, start) = model.merged(&model.initial_params(5)).unwrap();
        assert_eq!(start, narrow(&parameters(&whole, 21)));
    }
}

/// `W + (alpha / rank) A B` by the sum over the rank, in the order of the definition.
#[test]
fn merging_is_the_formula() {
    let model = adapted(Positions::Learned, &[BlockMatrix::Up]);
    let params = narrow(&numbers(model.layout.len(), 4, 0.5));
    let (whole, merged) = model.merged(&params).unwrap();
    let base = model.frozen();
    let place = &model.tensors.blocks[1].up;
    let a = &params[model.layout.range("b1.up_a").unwrap()];
    let b = &params[model.layout.range("b1.up_b").unwrap()];
    let (input, output, rank) = (8, 10, 3);
    for (row, column) in (0..input).flat_map(|row| (0..output).map(move |column| (row, column))) {
        let product: f64 = (0..rank)
            .map(|inner| f64::from(a[row * rank + inner]) * f64::from(b[inner * output + column]))
            .sum();
        let index = place.start + row * output + column;
        let expected = f64::from(base[index]) + 6.0 / 3.0 * product;
        assert!((f64::from(merged[index]) - expected).abs() < 1e-6);
    }
    // What has no adapter stays as it is.
    let adapted: Vec<_> = whole.tensors.blocks.iter().map(|block| &block.up).collect();
    for index in (0..merged.len()).filter(|index| !adapted.iter().any(|place| place.contains(index))) {
        assert_eq!(merged[index].to_bits(), base[index].to_bits());
    }
}

#[test]
fn files_hold_base_and_adapters() {
    let model = adapted(Positions::Learned, &ALL[..2]);
    let params = narrow(&numbers(model.layout.len(), 4, 0.5));
    let bytes = model.write_params(&params, "what it is").unwrap();
    assert_eq!(
        weights::description(&bytes).unwrap().as_deref(),
        Some("what it is")
    );
    assert_eq!(model.read_params(&bytes).unwrap(), params);
    let (again, read) = base(Positions::Learned)
        .load_lora(&lora(3, 6.0, &ALL[..2]), &bytes)
        .unwrap();
    assert_eq!((again.frozen(), read), (model.frozen(), Some(params.clone())));
    // The base alone gives no adapters, and neither does a file in GPT-2's layout.
    let plain = base(Positions::Learned);
    let own = plain.write_params(model.frozen(), "a test").unwrap();
    let theirs = weights::gpt2::write(&plain, model.frozen(), "a test").unwrap();
    for file in [own, theirs] {
        let (fresh, read) = base(Positions::Learned)
            .load_lora(&lora(2, 1.0, &ALL), &file)
            .unwrap();
        assert_eq!((fresh.frozen(), read), (model.frozen(), None));
    }
    // Merged, it is a model without adapters.
    let merged = plain
        .read_params(&model.write_merged(&params, "a test").unwrap())
        .unwrap();
    assert_eq!(merged, model.merged(&params).unwrap().1);

    let message = |lora: &LoraSpec| {
        let error = base(Positions::Learned).load_lora(lora, &bytes).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        message(&lora(2, 6.0, &ALL[..2])),
        "tensor `b0.qkv_a`: expected shape [8, 2], got [8, 3]"
    );
    assert_eq!(
        message(&lora(3, 6.0, &ALL)),
        "the weights file lacks tensor `b0.up_a` of shape [8, 3]"
    );
    assert_eq!(
        message(&lora(3, 6.0, &ALL[1..2])),
        "the weights file holds the unknown tensor `b0.qkv_a` of shape [8, 3]"
    );
    // Adapters of another base are another model's.
    let other = base(Positions::Learned);
    let zeros = vec![0.0; other.layout.len()];
    let other = other.with_lora(zeros, &lora(3, 6.0, &ALL[..2])).unwrap();
    assert_eq!(other.read_params(&bytes).unwrap_err(), ModelError::OtherBase);
}

#[test]
fn unfit_adapters_are_refused() {
    let model = || base(Positions::Learned);
    let params = model().initial_params(1);
    let message = |params: &[f32], lora: &LoraSpec| {
        let error = model().with_lora(params.to_vec(), lora).unwrap_err();
        error.to_string()
    };
    let len = params.len();
    assert_eq!(
        message(&params[1..], &lora(2, 4.0, &ALL)),
        format!(
            "the model has {len} parameters, but the base slice has {} values",
            len - 1
        )
    );
    for (lora, expected) in [
        (
            lora(0, 4.0, &ALL),
            "`lora.rank`: expected from 1 to 8, the smaller side of `qkv`, got 0",
        ),
        (
            lora(9, 4.0, &[BlockMatrix::Down]),
            "`lora.rank`: expected from 1 to 8, the smaller side of `down`, got 9",
        ),
        (
            lora(2, f64::NAN, &ALL),
            "`lora.alpha`: expected a finite number above 0, got NaN",
        ),
        (
            lora(2, 0.0, &ALL),
            "`lora.alpha`: expected a finite number above 0, got 0",
        ),
        (
            lora(2, 4.0, &[]),
            "`lora.targets`: expected different ones of `qkv`, `o`, `up`, `down`, at least one, got []",
        ),
        (
            lora(2, 4.0, &[BlockMatrix::O, BlockMatrix::O]),
            "`lora.targets`: expected different ones of `qkv`, `o`, `up`, `down`, at least one, got [\"o\", \"o\"]",
        ),
    ] {
        assert_eq!(message(&params, &lora), expected);
    }
    let once = model().with_lora(params.clone(), &lora(2, 4.0, &ALL)).unwrap();
    assert_eq!(
        once.with_lora(params, &lora(2, 4.0, &ALL))
            .unwrap_err()
            .to_string(),
        "the model already has adapters of rank 2"
    );
}
