//! The mean gradient of a batch, computed in parts on all cores.

use std::sync::Arc;

use undertone_aggregation::{Bound, BoundedSum, Clipping, Estimator, NonFinite, ParamLayout};
use undertone_mechanisms::{NoisedAverage, NonPrivate};
use undertone_models::{SequenceModel, SequenceWorker, StepStats};

use crate::error::Result;
use crate::work_items::work_items;
use undertone_local::batch;

/// Number of examples per part. It is fixed, so that the parts of a batch, and with them the bits of its gradient, do not
/// depend on the number of threads.
const PART: usize = 32;

/// The memory of one core.
pub(super) struct PartWorker {
    worker: Box<dyn SequenceWorker>,
    gradient: Vec<f32>,
}

impl PartWorker {
    /// A worker for examples of at most `longest` tokens.
    pub(super) fn new(model: &dyn SequenceModel, longest: usize) -> Self {
        Self {
            worker: model.worker(PART, PART * longest),
            gradient: vec![0.0; model.layout().len()],
        }
    }
}

/// The negative gradient of the mean loss over all targets of the examples, each from `bos`, and the loss.
///
/// Parts are weighted by their targets and summed in fixed point, for the same bits at any number of workers. The computation
/// is that of a federated round with [`NonPrivate`] in the place of a mechanism: nothing is bounded, no noise is added, and
/// there is no guarantee.
///
/// # Errors
/// From the model, such as a loss that is not finite, and from the sum.
pub(super) fn descent(
    step: u64,
    layout: &Arc<ParamLayout>,
    parameters: &[f32],
    examples: &[&[u32]],
    bos: u32,
    workers: &mut [PartWorker],
) -> Result<(NoisedAverage, StepStats)> {
    let parts = batch::sentences(examples, PART, bos);
    let targets: usize = parts.iter().map(|part| part.batch().targets_count()).sum();
    // The text is public, so nothing bounds a gradient.
    let sum = BoundedSum::new(Bound::new(Arc::clone(layout), Clipping::None, NonFinite::Refuse));
    let stats = work_items(workers, parts.len(), |worker, place| {
        let PartWorker { worker, gradient } = worker;
        let stats = worker.gradient(parameters, &parts[place].batch(), gradient)?;
        gradient.iter_mut().for_each(|value| *value = -*value);
        sum.add(gradient, stats.targets as f64 / targets as f64)?;
        Ok(stats)
    })?;
    let average = Estimator::Exact.apply(sum.into_raw()?)?;
    let mut total = StepStats::default();
    // In the order of the parts, so that the loss has the same bits too.
    for part in stats {
        total.loss_sum += part.loss_sum;
        total.targets += part.targets;
        total.correct += part.correct;
    }
    Ok((NonPrivate.privatize(step, average)?, total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_models::{ModelSpec, PackedBatch};

    /// Ragged examples over 40 ids, more than two parts of them.
    fn examples() -> Vec<Vec<u32>> {
        let id = |example: u32, place: u32| 3 + (7 * example + 13 * place * place) % 37;
        (0..70)
            .map(|example| (0..1 + example % 6).map(|place| id(example, place)).collect())
            .collect()
    }

    #[test]
    fn parts_make_the_gradient_of_the_whole_batch_at_any_number_of_workers() {
        let spec = ModelSpec::Cifg {
            cells: 6,
            embedding: 4,
            projection: 4,
            tied: false,
        };
        let model = spec.build(40).unwrap();
        let parameters = model.initial_params(1);
        let layout = Arc::new(model.layout().clone());
        let examples = examples();
        let examples: Vec<&[u32]> = examples.iter().map(Vec::as_slice).collect();
        let with = |threads: usize| {
            let mut workers: Vec<_> = (0..threads).map(|_| PartWorker::new(model.as_ref(), 6)).collect();
            let (average, stats) = descent(0, &layout, &parameters, &examples, 1, &mut workers).unwrap();
            (average.values().to_vec(), stats)
        };
        let (values, stats) = with(1);
        for threads in [2, 3] {
            let again = with(threads);
            assert!(
                values
                    .iter()
                    .zip(&again.0)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
            assert_eq!(again.1, stats);
        }
        // The whole batch at once, in one worker.
        let whole: Vec<PackedBatch> = batch::sentences(&examples, examples.len(), 1);
        let whole = whole[0].batch();
        let mut gradient = vec![0.0; parameters.len()];
        let expected = model
            .worker(70, whole.rows())
            .gradient(&parameters, &whole, &mut gradient)
            .unwrap();
        assert_eq!(stats.targets, expected.targets);
        assert!((stats.loss_sum / expected.loss_sum - 1.0).abs() < 1e-5);
        let largest = gradient.iter().fold(0.0f32, |top, value| top.max(value.abs()));
        for (value, expected) in values.iter().zip(&gradient) {
            assert!((value + expected).abs() < 1e-5 * largest, "{value} {expected}");
        }
    }
}
