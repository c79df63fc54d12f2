use super::*;
use crate::batch::{IGNORE, PackedBatch};
use crate::explicit::Explicit;
use crate::kernels::isa::Isa;
use crate::sequence::{SequenceWeights, StateMode, StepStats};
use crate::testing::{self, assert_close, batch_of, logits, numbers, pack, unpack};
use std::ops::Range;

fn sizes(vocab: usize, layers: usize, width: usize, heads: usize, positions: Positions) -> TransformerSizes {
    TransformerSizes {
        vocab,
        layers,
        width,
        heads,
        context: 40,
        inner: 4 * width,
        positions,
        architecture: Architecture::GPT2,
    }
}

fn model(vocab: usize, layers: usize, width: usize, heads: usize, positions: Positions) -> Transformer {
    Transformer::new(sizes(vocab, layers, width, heads, positions)).unwrap()
}

fn small_models() -> Vec<Transformer> {
    vec![
        model(11, 2, 6, 2, Positions::Learned),
        model(11, 1, 8, 2, Positions::Rotary),
        // More than one vocabulary block.
        model(300, 1, 4, 1, Positions::Learned),
        Transformer::new(TransformerSizes {
            inner: 5,
            ..sizes(7, 2, 6, 3, Positions::Rotary)
        })
        .unwrap(),
    ]
}

/// Parameters with every tensor of a size that matters.
fn parameters(model: &Transformer, seed: u64) -> Vec<f64> {
    let mut params = numbers(model.layout.len(), seed, 0.6);
    if model.adapters.is_some() {
        return params;
    }
    for block in &model.tensors.blocks {
        for gain in [&block.norm1, &block.norm2, &block.query_norm, &block.key_norm] {
            params[gain.clone()].iter_mut().for_each(|value| *value += 1.0);
        }
    }
    params[model.tensors.final_norm.clone()]
        .iter_mut()
        .for_each(|value| *value += 1.0);
    params
}

fn check_differences(model: &Transformer, lengths: &[usize]) {
    testing::check_differences(model, &parameters(model, 11), lengths, false);
}

#[test]
#[ignore = "slow"]
fn gradients_match_finite_differences() {
    for model in small_models() {
        check_differences(&model, &[4, 1, 6, 4]);
        check_differences(&model, &[1]);
    }
    // More queries than one block of attention, more rows than one run.
    check_differences(&model(7, 1, 4, 2, Positions::Learned), &[36, 35, 33, 34, 2]);
}

fn check_precision(model: &Transformer, lengths: &[usize], tolerance: f64) {
    testing::check_precision(model, lengths, tolerance, |isa, sequences, rows| {
        Box::new(Worker::<f32>::with_isa(isa, model, sequences, rows))
    });
}

#[test]
#[ignore = "slow"]
fn single_precision_is_close() {
    check_precision(
        &model(1000, 3, 64, 4, Positions::Learned),
        &[40, 33, 40, 17, 5, 1],
        1e-4,
    );
    check_precision(
        &model(1000, 2, 64, 2, Positions::Rotary),
        &[40, 40, 40, 40, 40, 40, 40, 12],
        1e-4,
    );
}

/// Weighted sums and norms by the explicit way: one sequence at a time.
fn explicit(
    model: &Transformer,
    params: &[f64],
    packed: &PackedBatch,
    weights: SequenceWeights<'_, f64>,
) -> (Vec<f64>, Vec<f64>) {
    let batch = packed.batch();
    let (mut sum, mut norms) = (vec![0.0; params.len()], vec![0.0; batch.sequences()]);
    let mut worker = model.check_worker(1, 40);
    Explicit::default()
        .weighted_gradient(worker.as_mut(), params, &batch, weights, &mut sum, &mut norms)
        .unwrap();
    (sum, norms)
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn check_weighted(model: &Transformer, lengths: &[usize], seed: u64) {
    let params: Vec<f64> = narrow(&parameters(model, seed))
        .into_iter()
        .map(f64::from)
        .collect();
    let mut packed = batch_of(lengths, model.sizes.vocab, seed + 1);
    // One sequence without any target, where there are several.
    if lengths.len() > 2 {
        let mut sequences = unpack(&packed.batch());
        sequences[1].1.fill(IGNORE);
        packed = pack(&sequences);
    }
    let batch = packed.batch();
    let count = batch.sequences();
    let bound = 0.7;
    let (expected, expected_norms) = explicit(model, &params, &packed, SequenceWeights::Clip { bound });
    let mut plain = vec![0.0; params.len()];
    let mut worker = model.check_worker(count, batch.rows());
    let stats = worker.gradient(&params, &batch, &mut plain).unwrap();
    let close = |a: &StepStats, b: &StepStats, tolerance: f64| {
        assert_eq!(a.targets, b.targets);
        assert!((a.loss_sum - b.loss_sum).abs() <= tolerance * b.loss_sum);
    };
    for recompute in [false, true] {
        let model = model.clone().recomputing(recompute);
        let mut worker = model.check_worker(count, batch.rows());
        let (mut sum, mut norms) = (vec![f64::NAN; params.len()], vec![-1.0; count]);
        let weights = SequenceWeights::Clip { bound };
        for _ in 0..2 {
            let got = worker
                .weighted_gradient(&params, &batch, weights, &mut sum, &mut norms)
                .unwrap();
            close(&got, &stats, 1e-12);
            assert_close(&model.layout, &expected, &sum, 1e-10, "clipped sum");
            for (got, expected) in norms.iter().zip(&expected_norms) {
                assert!((got - expected).abs() <= 1e-10 * expected, "{got} {expected}");
            }
        }
        let fixed: Vec<f64> = (0..count).map(|j| 0.5 - j as f64).collect();
        let weights = SequenceWeights::Fixed(&fixed);
        let (by_hand, _) = explicit(&model, &params, &packed, weights);
        worker
            .weighted_gradient(&params, &batch, weights, &mut sum, &mut norms)
            .unwrap();
        assert_close(&model.layout, &by_hand, &sum, 1e-10, "weighted sum");

        let single = narrow(&params);
        for isa in Isa::available() {
            let mut worker = Worker::<f32>::with_isa(isa, &model, count, batch.rows());
            let (mut sum, mut norms) = (vec![0.0f32; params.len()], vec![-1.0f32; count]);
            let weights = SequenceWeights::Clip { bound: bound as f32 };
            let got = worker
                .weighted_gradient(&single, &batch, weights, &mut sum, &mut norms)
                .unwrap();
            close(&got, &stats, 1e-5);
            for (&got, expected) in norms.iter().zip(&expected_norms) {
                let error = (f64::from(got) - expected).abs();
                assert!(error <= 1e-5 * expected, "{isa:?}: {got} {expected}");
            }
            let wide: Vec<f64> = sum.iter().map(|&value| f64::from(value)).collect();
            assert_close(&model.layout, &expected, &wide, 1e-4, "clipped sum in f32");
        }
    }
}

/// Ghost norms against written-out gradients: tied tokens, masks, every length, both kinds of positions, matrices on either
/// side of the choice between Gram matrices and products.
#[test]
#[ignore = "slow"]
fn clipped_sums_equal_the_explicit_way() {
    for model in small_models() {
        check_weighted(&model, &[4, 1, 6, 4], 3);
        check_weighted(&model, &[1], 4);
    }
    check_weighted(&model(40, 2, 48, 4, Positions::Learned), &[40, 33, 20, 7, 1], 5);
    check_weighted(&model(300, 2, 64, 2, Positions::Rotary), &[40; 9], 6);
}

#[test]
fn every_tensor_learns_from_its_first_batch() {
    let llama = Architecture::LLAMA;
    let architectures = [
        Architecture::GPT2,
        llama,
        Architecture {
            head_norms: true,
            output_norms: true,
            ..llama
        },
        Architecture {
            tied: true,
            scaled_embedding: true,
            biases: [true; 4],
            ..llama
        },
    ];
    for architecture in architectures {
        let positions = match architecture == Architecture::GPT2 {
            true => Positions::Learned,
            false => Positions::Rotary,
        };
        let sizes = sizes(11, 2, 8, 2, positions);
        let model = Transformer::new(TransformerSizes {
            architecture,
            ..sizes
        })
        .unwrap();
        let params = model.initial_params(4);
        let gains = model.tensors.blocks.iter().flat_map(|block| {
            let of_heads = [&block.query_norm, &block.key_norm];
            let of_outputs = [&block.o_norm, &block.down_norm];
            [&block.norm1, &block.norm2]
                .into_iter()
                .chain(of_heads)
                .chain(of_outputs)
        });
        for gains in gains.chain([&model.tensors.final_norm]) {
            assert!(params[gains.clone()].iter().all(|&gain| gain == 1.0));
        }
        let packed = batch_of(&[9, 7, 4], 11, 2);
        let mut gradient = vec![0.0; params.len()];
        model
            .worker(3, 40)
            .gradient(&params, &packed.batch(), &mut gradient)
            .unwrap();
        for tensor in model.layout.tensors() {
            let learns = gradient[tensor.range()].iter().any(|&value| value != 0.0);
            assert!(learns, "{} of {architecture:?}", tensor.name);
        }
    }
}

#[test]
fn recomputation_changes_no_bit() {
    let kept = model(60, 3, 24, 3, Positions::Learned);
    let params = kept.initial_params(2);
    let packed = batch_of(&[40, 38, 20, 5], 60, 8);
    let gradient = |model: &Transformer| {
        let mut gradient = vec![0.0; params.len()];
        let mut worker = model.worker(4, 110);
        worker.gradient(&params, &packed.batch(), &mut gradient).unwrap();
        let mut stepped = params.clone();
        worker
            .sgd_step(&mut stepped, &packed.batch(), 0.3, StateMode::Zero)
            .unwrap();
        (gradient, stepped)
    };
    assert_eq!(gradient(&kept), gradient(&kept.clone().recomputing(true)));
}

#[test]
fn evaluation_keeps_the_order_of_the_batch() {
    for model in small_models() {
        let params = model.initial_params(9);
        let packed = batch_of(&[5, 9, 2, 9], model.sizes.vocab, 3);
        let batch = packed.batch();
        let mut worker = model.worker(4, 25);
        let mut got = Vec::new();
        let mut loss = 0.0;
        worker
            .evaluate(
                &params,
                &batch,
                StateMode::Zero,
                &mut |row, logits, normaliser| {
                    assert_eq!(row, got.len());
                    got.push(logits.to_vec());
                    if batch.targets[row] != IGNORE {
                        loss -= f64::from(logits[batch.targets[row] as usize] - normaliser);
                    }
                },
            )
            .unwrap();
        assert_eq!(got.len(), batch.rows());
        let stats = worker
            .gradient(&params, &batch, &mut vec![0.0; params.len()])
            .unwrap();
        assert!((loss / stats.loss_sum - 1.0).abs() < 1e-5);
        // The second sequence of the batch alone, row by row; a later token changes nothing before it.
        let mut row = 1;
        let mut inputs = Vec::new();
        for &active in batch.active.iter().take_while(|&&active| active > 1) {
            inputs.push(batch.inputs[row]);
            let mut one = PackedBatch::default();
            let alone = one.pack(&[(&inputs, &inputs)]);
            let rows = logits(worker.as_mut(), &params, &alone, StateMode::Zero);
            for (a, b) in rows[rows.len() - 1].iter().zip(&got[row]) {
                assert!((a - b).abs() < 1e-5);
            }
            row += active;
        }
    }
}

#[test]
fn bad_input_is_a_typed_error_and_changes_nothing() {
    let model = Transformer::new(TransformerSizes {
        context: 3,
        ..sizes(10, 1, 4, 2, Positions::Learned)
    })
    .unwrap();
    let params = model.initial_params(1);
    let mut worker = model.worker(2, 8);
    let mut refused = |params: &[f32], active: &[usize], ids: &[u32], state: StateMode| {
        testing::refused(worker.as_mut(), params, (active, ids), (0.1, state))
    };
    assert_eq!(
        refused(&params, &[1; 4], &[1; 4], StateMode::Zero),
        "sequence 0 of the batch has 4 tokens, above the max `context` = 3"
    );
    assert_eq!(
        refused(&params, &[1], &[1], StateMode::Carry),
        "a transformer carries no state between batches: expected the zero state"
    );
    assert_eq!(
        refused(&params, &[1], &[10], StateMode::Zero),
        "token id 10 at row 0 is not below the vocabulary size 10"
    );
    assert_eq!(
        refused(&params, &[3], &[1; 3], StateMode::Zero),
        "the batch has 3 sequences, above the max of the worker, 2"
    );
    let mut broken = params.clone();
    broken[model.tensors.final_norm.start] = f32::NAN;
    assert_eq!(
        refused(&broken, &[1], &[1], StateMode::Zero),
        "the loss over 1 targets is NaN, which is not finite; the parameters were not changed"
    );
}

/// One sequence meets a broken position, the shorter ones do not: only its term is lost.
#[test]
fn a_gradient_that_is_not_finite_counts_as_zero() {
    for recompute in [false, true] {
        let model = model(10, 2, 8, 2, Positions::Learned).recomputing(recompute);
        let mut params = model.initial_params(1);
        params[model.tensors.positions.start + 3 * 8] = f32::INFINITY;
        let packed = batch_of(&[4, 3, 2], 10, 1);
        let mut worker = model.worker(3, 9);
        let (mut sum, mut norms) = (vec![0.0; params.len()], [0.0; 3]);
        let clipped = SequenceWeights::Clip { bound: 1e3 };
        let stats = worker
            .weighted_gradient(&params, &packed.batch(), clipped, &mut sum, &mut norms)
            .unwrap();
        assert_eq!(norms[0], f32::INFINITY);
        assert!(norms[1].is_finite() && norms[1] > 0.0 && norms[2] > 0.0);
        let alone = pack(&unpack(&packed.batch())[1..]);
        let (mut expected, mut expected_norms) = (vec![0.0; params.len()], [0.0; 2]);
        let same = worker
            .weighted_gradient(
                &params,
                &alone.batch(),
                clipped,
                &mut expected,
                &mut expected_norms,
            )
            .unwrap();
        assert_eq!(same, stats);
        assert_eq!((sum, &norms[1..]), (expected, &expected_norms[..]));
        // Nothing is left where everything is broken: by the losses, or by norms beyond f32 of finite losses.
        for gain in [f32::NAN, 1e25] {
            let mut params = model.initial_params(1);
            params[model.tensors.final_norm.start] = gain;
            let mut sum = vec![1.0; params.len()];
            let stats = worker
                .weighted_gradient(&params, &packed.batch(), clipped, &mut sum, &mut norms)
                .unwrap();
            assert_eq!(stats, StepStats::default());
            assert!(norms.iter().all(|norm| *norm == f32::INFINITY) && sum.iter().all(|&value| value == 0.0));
        }
    }
}

#[test]
fn batches_without_target_change_nothing() {
    testing::check_without_targets(&model(10, 1, 4, 2, Positions::Learned));
}

#[test]
fn initial_parameters_are_fixed_bytes() {
    let model = model(100, 2, 16, 2, Positions::Learned);
    let params = model.initial_params(7);
    assert_eq!(params, model.initial_params(7));
    assert_ne!(params, model.initial_params(8));
    assert!(
        params[model.tensors.blocks[1].norm2.clone()]
            .iter()
            .all(|&gain| gain == 1.0)
    );
    assert!(
        params[model.tensors.blocks[1].up_bias.clone()]
            .iter()
            .all(|&bias| bias == 0.0)
    );
    let spread = |range: &Range<usize>| {
        let values = &params[range.clone()];
        (values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    // Standard deviations of 1024 and 1600 draws are within 10 %: the error of the estimate is below 2 %.
    assert!((spread(&model.tensors.blocks[0].up) / 0.02 - 1.0).abs() < 0.1);
    assert!((spread(&model.tensors.blocks[0].down) / 0.01 - 1.0).abs() < 0.1);
    assert!((spread(&model.tensors.embedding) / 0.02 - 1.0).abs() < 0.1);
}

mod adapters;
mod decoding;
mod llama;
