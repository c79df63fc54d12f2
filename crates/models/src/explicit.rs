//! Weighted sums of per-sequence gradients, one sequence at a time.

use crate::{
    batch::SequenceBatch,
    error::{ModelError, Result},
    kernels::{isa::Isa, vector::add_scaled},
    scalar::Scalar,
    sequence::{SequenceWeights, SequenceWorker, StepStats},
};

/// The way that works for every model: each sequence's gradient is written out, weighted and added.
#[derive(Debug)]
pub(crate) struct Explicit<T> {
    isa: Isa,
    gradient: Vec<T>,
    active: Vec<usize>,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl<T> Explicit<T> {
    pub(crate) fn new(isa: Isa) -> Self {
        Self {
            isa,
            gradient: Vec::new(),
            active: Vec::new(),
            inputs: Vec::new(),
            targets: Vec::new(),
        }
    }
}

/// So that a worker can lend itself to its own `Explicit`.
impl<T> Default for Explicit<T> {
    fn default() -> Self {
        Self::new(Isa::Portable)
    }
}

impl<T: Scalar> Explicit<T> {
    /// [`SequenceWorker::weighted_gradient`] through `worker.gradient`; the caller has validated batch and slices of
    /// parameters.
    pub(crate) fn weighted_gradient(
        &mut self,
        worker: &mut dyn SequenceWorker<T>,
        params: &[T],
        batch: &SequenceBatch<'_>,
        weights: SequenceWeights<'_, T>,
        sum: &mut [T],
        norms: &mut [T],
    ) -> Result<StepStats> {
        check_weights(batch.sequences(), weights, norms)?;
        self.gradient.resize(params.len(), T::ZERO);
        sum.fill(T::ZERO);
        let mut total = StepStats::default();
        for sequence in 0..batch.sequences() {
            let alone = self.alone(batch, sequence);
            let gradient = &mut self.gradient;
            let alone = SequenceBatch {
                active: &self.active[..alone],
                inputs: &self.inputs,
                targets: &self.targets,
            };
            let stats = match (worker.gradient(params, &alone, gradient), weights) {
                (Err(ModelError::NonFiniteLoss { .. }), SequenceWeights::Clip { .. }) => {
                    norms[sequence] = T::of(f64::INFINITY);
                    continue;
                }
                (result, _) => result?,
            };
            let weight = match weights {
                SequenceWeights::Fixed(weights) => weights[sequence],
                SequenceWeights::Clip { bound } => {
                    let squares: f64 = gradient.iter().map(|value| value.wide() * value.wide()).sum();
                    let (norm, weight) = clip(squares.sqrt(), bound);
                    norms[sequence] = norm;
                    if !norm.wide().is_finite() {
                        continue;
                    }
                    weight
                }
            };
            add_scaled(self.isa, sum, weight, gradient);
            total.loss_sum += stats.loss_sum;
            total.targets += stats.targets;
            total.correct += stats.correct;
        }
        Ok(total)
    }

    /// Copies one sequence out of a time-major batch; returns its length.
    fn alone(&mut self, batch: &SequenceBatch<'_>, sequence: usize) -> usize {
        let length = batch.length(sequence);
        self.active.resize(self.active.len().max(length), 1);
        self.inputs.clear();
        self.targets.clear();
        let mut row = sequence;
        for &active in &batch.active[..length] {
            self.inputs.push(batch.inputs[row]);
            self.targets.push(batch.targets[row]);
            row += active;
        }
        length
    }
}

/// The norm as it is reported and the factor `min(1, bound / norm)`, zero where the norm is not finite.
pub(crate) fn clip<T: Scalar>(norm: f64, bound: T) -> (T, T) {
    if !T::of(norm).wide().is_finite() {
        return (T::of(f64::INFINITY), T::ZERO);
    }
    (T::of(norm), T::of((bound.wide() / norm).min(1.0)))
}

/// Refuses weights that do not fit the batch.
pub(crate) fn check_weights<T: Scalar>(
    sequences: usize,
    weights: SequenceWeights<'_, T>,
    norms: &[T],
) -> Result<()> {
    let missing = |what, got| {
        Err(ModelError::SequenceCount {
            what,
            expected: sequences,
            got,
        })
    };
    match weights {
        SequenceWeights::Fixed(weights) if weights.len() < sequences => missing("weights", weights.len()),
        SequenceWeights::Fixed(weights) => {
            let bad = weights[..sequences]
                .iter()
                .position(|weight| !weight.wide().is_finite());
            bad.map_or(Ok(()), |sequence| {
                Err(ModelError::SequenceWeight {
                    sequence,
                    got: weights[sequence].wide(),
                })
            })
        }
        SequenceWeights::Clip { .. } if norms.len() < sequences => missing("norms", norms.len()),
        SequenceWeights::Clip { bound } if bound > T::ZERO => Ok(()),
        SequenceWeights::Clip { bound } => Err(ModelError::ClipBound { got: bound.wide() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Sequence, pack};
    use crate::{IGNORE, PackedBatch, SequenceModel, WordLstm};

    fn sequences() -> Vec<Sequence> {
        vec![
            (vec![1, 5], vec![5, 2]),
            (vec![1, 7, 3, 4], vec![7, IGNORE, 4, 2]),
            (vec![6, 6, 6], vec![IGNORE; 3]),
            (vec![1, 5, 8], vec![5, 8, 2]),
        ]
    }

    fn model() -> (WordLstm, Vec<f64>) {
        let model = WordLstm::tied(9, 3, 4, false).unwrap();
        let params = model.initial_params(3).into_iter().map(f64::from).collect();
        (model, params)
    }

    /// Gradients of the sequences of a packed batch, by themselves.
    fn separately(model: &WordLstm, params: &[f64], packed: &PackedBatch) -> Vec<Vec<f64>> {
        let all = sequences();
        let mut worker = model.check_worker(1, 10);
        let mut gradient = |&index: &usize| {
            let mut gradient = vec![0.0; params.len()];
            let one = pack(&all[index..=index]);
            worker.gradient(params, &one.batch(), &mut gradient).unwrap();
            gradient
        };
        packed.order().iter().map(&mut gradient).collect()
    }

    fn check(weights: SequenceWeights<'_, f64>) {
        let (model, params) = model();
        let packed = pack(&sequences());
        let gradients = separately(&model, &params, &packed);
        let mut worker = model.check_worker(4, 12);
        let (mut sum, mut norms) = (vec![f64::NAN; params.len()], vec![-1.0; 5]);
        let stats = worker
            .weighted_gradient(&params, &packed.batch(), weights, &mut sum, &mut norms)
            .unwrap();
        let mut plain = vec![0.0; params.len()];
        let expected = worker.gradient(&params, &packed.batch(), &mut plain).unwrap();
        assert_eq!(
            (stats.targets, stats.correct),
            (expected.targets, expected.correct)
        );
        assert!((stats.loss_sum - expected.loss_sum).abs() < 1e-12);
        let norm = |gradient: &Vec<f64>| gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let weight = |j: usize| match weights {
            SequenceWeights::Fixed(weights) => weights[j],
            SequenceWeights::Clip { bound } => (bound / norm(&gradients[j])).min(1.0),
        };
        for (index, &got) in sum.iter().enumerate() {
            let expected: f64 = (0..4).map(|j| weight(j) * gradients[j][index]).sum();
            assert!((got - expected).abs() < 1e-14, "{index}: {got} {expected}");
        }
        assert_eq!(norms[4], -1.0);
        for (j, gradient) in gradients.iter().enumerate() {
            let expected = match weights {
                SequenceWeights::Fixed(_) => -1.0,
                SequenceWeights::Clip { .. } => norm(gradient),
            };
            assert!((norms[j] - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn sums_are_those_of_the_definition() {
        check(SequenceWeights::Fixed(&[0.5, -2.0, 0.0, 1.0]));
        check(SequenceWeights::Clip { bound: 0.3 });
        check(SequenceWeights::Clip { bound: f64::INFINITY });
    }

    /// One sequence meets a broken embedding, the other does not: only its term is lost. (Gates saturate at infinity, so
    /// that the loss is finite and the gradient is not.)
    #[test]
    fn a_gradient_that_is_not_finite_counts_as_zero() {
        let model = WordLstm::untied(9, 3, 4).unwrap();
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&[1, 6], &[5, 2]), (&[1, 7], &[7, 2])]);
        let mut worker = model.worker(2, 4);
        for broken in [f32::NAN, f32::INFINITY] {
            let mut params = model.initial_params(3);
            params[6 * 3] = broken;
            let (mut sum, mut norms) = (vec![0.0; params.len()], [0.0; 2]);
            let clipped = SequenceWeights::Clip { bound: 1e3 };
            let stats = worker
                .weighted_gradient(&params, &batch, clipped, &mut sum, &mut norms)
                .unwrap();
            assert_eq!(stats.targets, 2);
            assert!(stats.loss_sum.is_finite());
            assert_eq!(norms[0], f32::INFINITY);
            assert!(norms[1] > 0.0 && sum.iter().all(|value| value.is_finite()));
            let fixed = SequenceWeights::Fixed(&[1.0, 1.0]);
            let result = worker.weighted_gradient(&params, &batch, fixed, &mut sum, &mut norms);
            let refused = matches!(result, Err(ModelError::NonFiniteLoss { .. }));
            assert_eq!(refused, broken.is_nan(), "{result:?}");
        }
    }

    #[test]
    fn bad_weights_are_typed_errors() {
        let message = |weights, norms: &[f64]| check_weights(2, weights, norms).unwrap_err().to_string();
        assert_eq!(
            message(SequenceWeights::Fixed(&[1.0]), &[]),
            "the batch has 2 sequences, but the slice of weights has 1 values"
        );
        assert_eq!(
            message(SequenceWeights::Fixed(&[1.0, f64::NAN]), &[]),
            "the weight of sequence 1 must be finite, got NaN"
        );
        assert_eq!(
            message(SequenceWeights::Clip { bound: 1.0 }, &[0.0]),
            "the batch has 2 sequences, but the slice of norms has 1 values"
        );
        for bound in [0.0, -1.0, f64::NAN] {
            assert_eq!(
                message(SequenceWeights::Clip { bound }, &[0.0; 2]),
                format!("the clipping bound must be positive, got {bound}")
            );
        }
    }
}
