//! Helpers for the tests of several models.

use crate::batch::{IGNORE, PackedBatch, SequenceBatch};
use crate::initial::Initializer;
use crate::kernels::isa::Isa;
use crate::scalar::Scalar;
use crate::sequence::{SequenceModel, SequenceWorker, StateMode};
use undertone_aggregation::ParamLayout;

pub(crate) fn numbers(len: usize, seed: u64, limit: f64) -> Vec<f64> {
    let mut values = vec![0.0f32; len];
    Initializer::new(seed).uniform(&mut values, limit);
    values.into_iter().map(f64::from).collect()
}

/// Sequences of the given lengths over `vocab` ids; every fifth target is masked.
pub(crate) fn batch_of(lengths: &[usize], vocab: usize, seed: u64) -> PackedBatch {
    let id = |value: f64| ((value + 1.0) / 2.0 * vocab as f64) as u32;
    let sequences: Vec<Sequence> = lengths
        .iter()
        .enumerate()
        .map(|(j, &length)| {
            let ids: Vec<u32> = numbers(length + 1, seed + j as u64, 1.0)
                .into_iter()
                .map(id)
                .collect();
            let target = |(t, &id): (usize, &u32)| if (t + j) % 5 == 3 { IGNORE } else { id };
            let targets = ids[1..].iter().enumerate().map(target).collect();
            (ids[..length].to_vec(), targets)
        })
        .collect();
    pack(&sequences)
}

/// Inputs and targets.
pub(crate) type Sequence = (Vec<u32>, Vec<u32>);

pub(crate) fn pack(sequences: &[Sequence]) -> PackedBatch {
    let pairs: Vec<(&[u32], &[u32])> = sequences.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    let mut packed = PackedBatch::default();
    packed.pack(&pairs);
    packed
}

/// The sequences of a batch, in its order.
pub(crate) fn unpack(batch: &SequenceBatch<'_>) -> Vec<Sequence> {
    let mut sequences = vec![Sequence::default(); batch.sequences()];
    let mut row = 0;
    for &active in batch.active {
        for (inputs, targets) in &mut sequences[..active] {
            inputs.push(batch.inputs[row]);
            targets.push(batch.targets[row]);
            row += 1;
        }
    }
    sequences
}

/// The refusal of a step, which changes no bit of the parameters.
pub(crate) fn refused(
    worker: &mut dyn SequenceWorker,
    params: &[f32],
    (active, ids): (&[usize], &[u32]),
    (rate, state): (f32, StateMode),
) -> String {
    let mut stepped = params.to_vec();
    let batch = SequenceBatch {
        active,
        inputs: ids,
        targets: ids,
    };
    let error = worker.sgd_step(&mut stepped, &batch, rate, state).unwrap_err();
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&stepped), bits(params));
    if state == StateMode::Carry {
        let evaluated = worker.evaluate(params, &batch, state, &mut |_, _, _| {});
        assert_eq!(evaluated.unwrap_err(), error);
    }
    error.to_string()
}

/// The logits of every row of a batch.
pub(crate) fn logits<T: Scalar>(
    worker: &mut dyn SequenceWorker<T>,
    params: &[T],
    batch: &SequenceBatch<'_>,
    state: StateMode,
) -> Vec<Vec<T>> {
    let mut rows = Vec::new();
    let mut keep = |_: usize, logits: &[T], _: T| rows.push(logits.to_vec());
    worker.evaluate(params, batch, state, &mut keep).unwrap();
    rows
}

/// Without targets a step changes nothing, and the gradient is zero.
pub(crate) fn check_without_targets(model: &dyn SequenceModel) {
    let mut params = model.initial_params(1);
    let before = params.clone();
    let mut worker = model.worker(2, 6);
    let batch = SequenceBatch {
        active: &[2, 1],
        inputs: &[1, 2, 3],
        targets: &[IGNORE; 3],
    };
    let stats = worker
        .sgd_step(&mut params, &batch, 1.0, StateMode::Zero)
        .unwrap();
    assert_eq!((stats.targets, stats.loss_sum), (0, 0.0));
    assert_eq!(params, before);
    let mut grad = vec![1.0; params.len()];
    worker.gradient(&params, &batch, &mut grad).unwrap();
    assert!(grad.iter().all(|&value| value == 0.0));
}

/// Central differences of the mean loss, from the state that `before` leaves at the unshifted parameters.
pub(crate) fn check_differences(model: &dyn SequenceModel, params: &[f64], lengths: &[usize], carried: bool) {
    let before = batch_of(lengths, model.vocab_size(), 50);
    let packed = batch_of(lengths, model.vocab_size(), 90);
    let batch = packed.batch();
    let mut worker = model.check_worker(lengths.len(), batch.rows());
    let mode = if carried {
        StateMode::Carry
    } else {
        StateMode::Zero
    };
    let prepare = |worker: &mut dyn SequenceWorker<f64>| {
        worker.reset_state();
        if carried {
            worker
                .sgd_step(&mut params.to_vec(), &before.batch(), 0.0, StateMode::Zero)
                .unwrap();
        }
    };
    prepare(worker.as_mut());
    let mut stepped = params.to_vec();
    let rate = 0.5;
    let stats = worker.sgd_step(&mut stepped, &batch, rate, mode).unwrap();
    let gradient: Vec<f64> = params.iter().zip(&stepped).map(|(a, b)| (a - b) / rate).collect();
    if !carried {
        let mut written = vec![f64::NAN; params.len()];
        assert_eq!(worker.gradient(params, &batch, &mut written).unwrap(), stats);
        assert_close(
            model.layout(),
            &written,
            &gradient,
            1e-12,
            "step against gradient",
        );
    }
    let mut numeric = vec![0.0; params.len()];
    for index in 0..params.len() {
        let mut loss_at = |shift: f64| {
            prepare(worker.as_mut());
            let mut shifted = params.to_vec();
            shifted[index] += shift;
            worker
                .sgd_step(&mut shifted, &batch, 0.0, mode)
                .unwrap()
                .mean_loss()
        };
        let h = 2e-5;
        numeric[index] = (loss_at(h) - loss_at(-h)) / (2.0 * h);
    }
    assert_close(model.layout(), &numeric, &gradient, 1e-6, "differences");
}

/// One f32 step of `worker(isa, sequences, rows)` on every instruction set against the f64 step.
pub(crate) fn check_precision(
    model: &dyn SequenceModel,
    lengths: &[usize],
    tolerance: f64,
    worker: impl Fn(Isa, usize, usize) -> Box<dyn SequenceWorker>,
) {
    let params = model.initial_params(5);
    let wide: Vec<f64> = params.iter().map(|&value| f64::from(value)).collect();
    let packed = batch_of(lengths, model.vocab_size(), 7);
    let batch = packed.batch();
    let mut exact = vec![0.0; wide.len()];
    let expected = model
        .check_worker(lengths.len(), batch.rows())
        .gradient(&wide, &batch, &mut exact)
        .unwrap();
    for isa in Isa::available() {
        let mut worker = worker(isa, lengths.len(), batch.rows());
        let mut grad = vec![f32::NAN; params.len()];
        let stats = worker.gradient(&params, &batch, &mut grad).unwrap();
        assert_eq!(
            (stats.targets, stats.correct),
            (expected.targets, expected.correct),
            "{isa:?}"
        );
        assert!(
            (stats.loss_sum / expected.loss_sum - 1.0).abs() < 1e-5,
            "{isa:?}: {stats:?} {expected:?}"
        );
        let got: Vec<f64> = grad.iter().map(|&value| f64::from(value)).collect();
        let what = format!("{isa:?} gradient");
        assert_close(model.layout(), &exact, &got, tolerance, &what);
        let step = |worker: &mut dyn SequenceWorker| {
            let mut stepped = params.clone();
            let stepping = worker.sgd_step(&mut stepped, &batch, 0.25, StateMode::Zero);
            stepping.unwrap();
            stepped
        };
        let stepped = step(worker.as_mut());
        for index in 0..params.len() {
            let expected = params[index] - 0.25 * grad[index];
            assert!(
                (stepped[index] - expected).abs() <= 1e-6 * (1.0 + expected.abs()),
                "{isa:?} {index}"
            );
        }
        assert_eq!(
            step(worker.as_mut()),
            stepped,
            "{isa:?}: a step repeats to the bit"
        );
    }
}

/// Compares tensor by tensor, relative to the tensor's largest entry.
pub(crate) fn assert_close(layout: &ParamLayout, expected: &[f64], got: &[f64], tolerance: f64, what: &str) {
    for tensor in layout.tensors() {
        let scale = expected[tensor.range()]
            .iter()
            .fold(1e-300f64, |top, value| top.max(value.abs()));
        for index in tensor.range() {
            let error = (expected[index] - got[index]).abs() / scale;
            let at = index - tensor.offset;
            assert!(
                error <= tolerance,
                "{what}: {}[{at}]: expected {}, got {} (error {error:.1e} of the largest entry)",
                tensor.name,
                expected[index],
                got[index],
            );
        }
    }
}
