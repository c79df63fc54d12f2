use super::worker::Worker;
use super::*;
use crate::batch::{IGNORE, PackedBatch, SequenceBatch};
use crate::sequence::StateMode;
use crate::testing::{self, batch_of, numbers};

fn small_models() -> Vec<WordLstm> {
    vec![
        WordLstm::tied(13, 5, 6, true).unwrap(),
        WordLstm::tied(13, 5, 6, false).unwrap(),
        WordLstm::untied(13, 5, 6).unwrap(),
        // More than one vocabulary block and more lanes than one panel.
        WordLstm::tied(250, 3, 4, true).unwrap(),
        WordLstm::untied(250, 3, 4).unwrap(),
        WordLstm::cifg(13, 5, 6, 5, true).unwrap(),
        WordLstm::cifg(13, 5, 6, 3, false).unwrap(),
        // A projection wider than both the embedding and the cells.
        WordLstm::cifg(250, 3, 4, 7, false).unwrap(),
    ]
}

fn check_differences(model: &WordLstm, lengths: &[usize], carried: bool) {
    let params = numbers(model.layout.len(), 11, 0.8);
    testing::check_differences(model, &params, lengths, carried);
}

#[test]
#[ignore = "slow"]
fn gradients_match_finite_differences() {
    for model in small_models() {
        let long: Vec<usize> = if model.dimensions.vocab > 100 {
            vec![17; 3]
        } else {
            vec![4, 1, 6, 4]
        };
        check_differences(&model, &long, false);
        check_differences(&model, &long, true);
        check_differences(&model, &[1], false);
    }
}

fn check_precision(model: &WordLstm, lengths: &[usize], tolerance: f64) {
    testing::check_precision(model, lengths, tolerance, |isa, sequences, rows| {
        Box::new(Worker::<f32>::with_isa(isa, model, sequences, rows))
    });
}

#[test]
#[ignore = "slow"]
fn single_precision_is_close_at_full_size() {
    check_precision(
        &WordLstm::tied(10_003, 96, 256, true).unwrap(),
        &[7, 5, 5, 2],
        1e-4,
    );
    check_precision(&WordLstm::untied(10_004, 96, 670).unwrap(), &[7, 5, 5, 2], 1e-4);
    check_precision(
        &WordLstm::cifg(10_003, 96, 670, 96, false).unwrap(),
        &[7, 5, 5, 2],
        1e-4,
    );
    for model in small_models() {
        check_precision(&model, &[9, 8, 8, 5, 5, 4, 3, 3, 2, 1, 1], 1e-4);
    }
}

/// Logits that rise over later vocabulary blocks force every lane to be rescaled.
#[test]
fn rising_maxima_leave_loss_and_gradient_exact() {
    let model = WordLstm::untied(1000, 3, 4).unwrap();
    let mut params = numbers(model.layout.len(), 2, 0.5);
    for (word, bias) in params[model.tensors.out_bias.clone()].iter_mut().enumerate() {
        *bias += word as f64 * 0.2;
    }
    let packed = batch_of(&[5, 3, 3], 1000, 4);
    let batch = packed.batch();
    let mut worker = model.check_worker(3, batch.rows());
    let mut grad = vec![0.0; params.len()];
    let stats = worker.gradient(&params, &batch, &mut grad).unwrap();
    let mut probabilities = vec![0.0; 1000];
    let mut loss = 0.0;
    let fraction = 1.0 / stats.targets as f64;
    let mut sink = |row: usize, logits: &[f64], log_normalizer: f64| {
        let target = batch.targets[row];
        if target != IGNORE {
            loss -= logits[target as usize] - log_normalizer;
            for (probability, logit) in probabilities.iter_mut().zip(logits) {
                *probability += fraction * (logit - log_normalizer).exp();
            }
            probabilities[target as usize] -= fraction;
        }
    };
    worker
        .evaluate(&params, &batch, StateMode::Zero, &mut sink)
        .unwrap();
    assert!((loss / stats.loss_sum - 1.0).abs() < 1e-12);
    for (word, expected) in probabilities.iter().enumerate() {
        let got = grad[model.tensors.out_bias.start + word];
        assert!((got - expected).abs() < 1e-14, "{word}: {got} {expected}");
    }
}

#[test]
fn carried_batches_equal_one_long_batch() {
    for model in small_models() {
        let params = model.initial_params(9);
        let vocab = model.dimensions.vocab;
        let ids: Vec<u32> = numbers(19, 6, 1.0)
            .iter()
            .map(|v| ((v + 1.0) / 2.0 * vocab as f64) as u32)
            .collect();
        let long = |from: usize, to: usize| {
            let mut packed = PackedBatch::default();
            packed.pack(&[
                (&ids[from..to], &ids[from + 1..=to]),
                (&ids[from + 1..to], &ids[from + 2..=to]),
            ]);
            packed
        };
        let mut worker = model.worker(2, 40);
        let mut logits_of =
            |batch: &SequenceBatch<'_>, mode| testing::logits(worker.as_mut(), &params, batch, mode);
        let one = |from: usize, to: usize| {
            let mut packed = PackedBatch::default();
            packed.pack(&[(&ids[from..to], &ids[from + 1..=to])]);
            packed
        };
        let whole = logits_of(&one(0, 18).batch(), StateMode::Zero);
        let mut parts = logits_of(&one(0, 7).batch(), StateMode::Zero);
        parts.extend(logits_of(&one(7, 18).batch(), StateMode::Carry));
        assert_eq!(whole.len(), parts.len());
        for (whole, parts) in whole.iter().zip(&parts) {
            for (a, b) in whole.iter().zip(parts) {
                assert!((a - b).abs() < 1e-5);
            }
        }
        // The shorter of two sequences keeps the state it ended with.
        let ragged = long(0, 5);
        logits_of(&ragged.batch(), StateMode::Zero);
        let next = logits_of(&long(5, 6).batch(), StateMode::Carry);
        assert_eq!(next.len(), 1);
    }
}

#[test]
fn failed_steps_change_nothing() {
    let model = WordLstm::untied(10, 3, 4).unwrap();
    let params = model.initial_params(1);
    let mut worker = model.worker(2, 6);
    let mut refused = |params: &[f32], active: &[usize], ids: &[u32], rate: f32| {
        testing::refused(worker.as_mut(), params, (active, ids), (rate, StateMode::Zero))
    };
    assert_eq!(
        refused(&params, &[1], &[10], 0.1),
        "token id 10 at row 0 is not below the vocabulary size 10"
    );
    assert_eq!(
        refused(&params, &[2; 4], &[1; 8], 0.1),
        "the batch has 8 rows, above the max of the worker, 6"
    );
    assert_eq!(
        refused(&params, &[3], &[1; 3], 0.1),
        "the batch has 3 sequences, above the max of the worker, 2"
    );
    assert_eq!(
        refused(&params, &[1], &[1], f32::INFINITY),
        "the learning rate must be finite, got inf"
    );
    assert_eq!(
        refused(&params[1..], &[1], &[1], 0.1),
        "the model has 213 parameters, but the parameter slice has 212 values"
    );
    let mut broken = params.clone();
    broken[model.tensors.bias.start] = f32::NAN;
    assert_eq!(
        refused(&broken, &[1], &[1], 0.1),
        "the loss over 1 targets is NaN, which is not finite; the parameters were not changed"
    );
}

#[test]
fn batches_without_target_only_move_the_state() {
    testing::check_without_targets(&WordLstm::tied(10, 3, 4, true).unwrap());
}

#[test]
fn initial_parameters_are_fixed_bytes() {
    let model = WordLstm::tied(10_003, 96, 256, true).unwrap();
    let params = model.initial_params(7);
    assert_eq!(params, model.initial_params(7));
    assert_ne!(params, model.initial_params(8));
    // A checksum that any change of the draws would change.
    let sum = params
        .iter()
        .fold(0u64, |sum, value| sum.rotate_left(5) ^ u64::from(value.to_bits()));
    assert_eq!(sum, INITIAL_CHECKSUM);
    let bias = &params[model.tensors.bias.clone()];
    assert!(bias[256..512].iter().all(|&value| value == 1.0));
    assert!(bias[..256].iter().chain(&bias[512..]).all(|&value| value == 0.0));
}

const INITIAL_CHECKSUM: u64 = 10_860_531_966_616_846_900;
