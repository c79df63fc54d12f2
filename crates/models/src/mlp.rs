//! A multilayer perceptron: dense layers with ReLU between them, softmax cross-entropy on top.

use crate::error::{ModelError, Result, check_count, check_learning_rate};
use crate::initial::Initializer;
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    pack::{pack_panels_transposed, panels_len},
    softmax::{row_exponential_sum, row_maximum},
    vector::add_column_sums,
};
use crate::scalar::Scalar;
use crate::sequence::StepStats;
use std::ops::Range;
use undertone_aggregation::ParamLayout;

/// Dense features and class labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DenseBatch<'a, T = f32> {
    /// Row-major, `[labels.len(), features]`.
    pub features: &'a [T],
    /// One class per row.
    pub labels: &'a [u32],
}

/// One dense layer: sizes, and where weight `[inputs, outputs]` and bias stand.
#[derive(Debug, Clone)]
struct Layer {
    inputs: usize,
    outputs: usize,
    weight: Range<usize>,
    bias: Range<usize>,
}

/// A multilayer perceptron over flat parameters.
///
/// # Example
/// ```
/// use undertone_models::{DenseBatch, Mlp};
/// let model = Mlp::new(&[2, 8, 2])?;
/// let mut params = model.initial_params(1);
/// let mut worker = model.worker::<f32>(4);
/// let batch = DenseBatch { features: &[0., 0., 0., 1., 1., 0., 1., 1.], labels: &[0, 1, 1, 0] };
/// let first = worker.sgd_step(&mut params, &batch, 0.5)?;
/// let second = worker.sgd_step(&mut params, &batch, 0.5)?;
/// assert!(second.mean_loss() < first.mean_loss());
/// # Ok::<(), undertone_models::ModelError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mlp {
    layers: Vec<Layer>,
    layout: ParamLayout,
}

impl Mlp {
    /// A model of the given layer sizes, from features to classes. Every size between is a ReLU layer.
    ///
    /// # Errors
    /// Fewer than two sizes, a zero size, or fewer than two classes.
    pub fn new(sizes: &[usize]) -> Result<Self> {
        if sizes.len() < 2 {
            return Err(ModelError::Dimension {
                name: "layer sizes",
                minimum: 2,
                got: sizes.len(),
            });
        }
        let mut layers = Vec::with_capacity(sizes.len() - 1);
        let mut tensors = Vec::with_capacity(2 * sizes.len());
        let mut end = 0;
        for (number, pair) in sizes.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let minimum = if number + 2 == sizes.len() { 2 } else { 1 };
            for (got, minimum) in [(inputs, 1), (outputs, minimum)] {
                if got < minimum {
                    return Err(ModelError::Dimension {
                        name: "layer size",
                        minimum,
                        got,
                    });
                }
            }
            let weight = end..end + inputs * outputs;
            let bias = weight.end..weight.end + outputs;
            end = bias.end;
            tensors.push((format!("layer{number}.weight"), vec![inputs, outputs]));
            tensors.push((format!("layer{number}.bias"), vec![outputs]));
            layers.push(Layer {
                inputs,
                outputs,
                weight,
                bias,
            });
        }
        Ok(Self {
            layers,
            layout: ParamLayout::with_tensor_groups(tensors)?,
        })
    }

    /// Names and shapes of the flat parameter vector; each tensor is a clip group.
    #[must_use]
    pub fn layout(&self) -> &ParamLayout {
        &self.layout
    }

    /// Number of features per row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.inputs)
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.outputs)
    }

    /// He-uniform weights `sqrt(6 / inputs)` and zero biases; the same bytes on every machine.
    #[must_use]
    pub fn initial_params(&self, seed: u64) -> Vec<f32> {
        let mut params = vec![0.0; self.layout.len()];
        let mut initializer = Initializer::new(seed);
        for layer in &self.layers {
            initializer.uniform(
                &mut params[layer.weight.clone()],
                (6.0 / layer.inputs as f64).sqrt(),
            );
        }
        params
    }

    /// A worker with room for batches of `max_rows` rows; steps allocate nothing.
    #[must_use]
    pub fn worker<T: Scalar>(&self, max_rows: usize) -> MlpWorker<T> {
        let widest = self
            .layers
            .iter()
            .map(|layer| panels_len(layer.outputs, layer.inputs))
            .max();
        let rows = |layer: &Layer| vec![T::ZERO; max_rows * layer.outputs];
        MlpWorker {
            isa: Isa::detect(),
            model: self.clone(),
            max_rows,
            outputs: self.layers.iter().map(rows).collect(),
            gradients: self.layers.iter().map(rows).collect(),
            panels: vec![T::ZERO; widest.unwrap_or(0)],
        }
    }
}

/// Computes steps of an [`Mlp`] for one thread.
#[derive(Debug)]
pub struct MlpWorker<T = f32> {
    isa: Isa,
    model: Mlp,
    max_rows: usize,
    /// Outputs of each layer, after ReLU except for the last.
    outputs: Vec<Vec<T>>,
    /// Gradients of each layer's output before ReLU.
    gradients: Vec<Vec<T>>,
    panels: Vec<T>,
}

impl<T: Scalar> MlpWorker<T> {
    /// One step of plain SGD on the mean cross-entropy of the batch.
    ///
    /// # Errors
    /// Empty, malformed or oversized batch, unknown label, wrong parameter count, non-finite learning rate or loss
    /// (the parameters are then unchanged).
    pub fn sgd_step(
        &mut self,
        params: &mut [T],
        batch: &DenseBatch<'_, T>,
        learning_rate: T,
    ) -> Result<StepStats> {
        check_learning_rate(learning_rate.wide())?;
        let stats = self.forward_backward(params, batch)?;
        self.accumulate(params, -learning_rate, batch);
        Ok(stats)
    }

    /// Writes the gradient of the mean cross-entropy to `grad`.
    ///
    /// # Errors
    /// As [`sgd_step`](Self::sgd_step).
    pub fn gradient(&mut self, params: &[T], batch: &DenseBatch<'_, T>, grad: &mut [T]) -> Result<StepStats> {
        check_count("gradient", self.model.layout.len(), grad.len())?;
        let stats = self.forward_backward(params, batch)?;
        grad.fill(T::ZERO);
        self.accumulate(grad, T::ONE, batch);
        Ok(stats)
    }

    /// Loss and accuracy over the batch; [`logits`](Self::logits) then gives the logits.
    ///
    /// # Errors
    /// As [`sgd_step`](Self::sgd_step).
    pub fn evaluate(&mut self, params: &[T], batch: &DenseBatch<'_, T>) -> Result<StepStats> {
        self.validate(params.len(), batch)?;
        self.forward(params, batch);
        self.softmax(batch)
    }

    /// Logits of the last batch that was evaluated, `[rows, classes]`; rows of earlier batches may follow.
    #[must_use]
    pub fn logits(&self) -> &[T] {
        self.outputs.last().map_or(&[], Vec::as_slice)
    }

    fn validate(&self, params: usize, batch: &DenseBatch<'_, T>) -> Result<()> {
        check_count("parameter", self.model.layout.len(), params)?;
        let rows = batch.labels.len();
        if rows == 0 {
            return Err(ModelError::EmptyBatch);
        }
        if rows > self.max_rows {
            return Err(ModelError::BatchTooLarge {
                what: "rows",
                limit: self.max_rows,
                got: rows,
            });
        }
        let expected = rows * self.model.features();
        if batch.features.len() != expected {
            return Err(ModelError::FeatureCount {
                rows,
                expected,
                got: batch.features.len(),
            });
        }
        let classes = self.model.classes();
        for (row, &label) in batch.labels.iter().enumerate() {
            if label as usize >= classes {
                return Err(ModelError::LabelOutOfRange { row, label, classes });
            }
        }
        Ok(())
    }

    fn forward_backward(&mut self, params: &[T], batch: &DenseBatch<'_, T>) -> Result<StepStats> {
        self.validate(params.len(), batch)?;
        self.forward(params, batch);
        let stats = self.softmax(batch)?;
        self.backward(params, batch.labels.len());
        Ok(stats)
    }

    fn forward(&mut self, params: &[T], batch: &DenseBatch<'_, T>) {
        let rows = batch.labels.len();
        let last = self.model.layers.len() - 1;
        for (number, layer) in self.model.layers.iter().enumerate() {
            let (before, rest) = self.outputs.split_at_mut(number);
            let inputs = before.last().map_or(batch.features, Vec::as_slice);
            let outputs = &mut rest[0][..rows * layer.outputs];
            for row in outputs.chunks_exact_mut(layer.outputs) {
                row.copy_from_slice(&params[layer.bias.clone()]);
            }
            let extent = Extent {
                rows,
                cols: layer.outputs,
                depth: layer.inputs,
            };
            let left = Left::strided(inputs, layer.inputs, 1);
            let right = Right::Rows(&params[layer.weight.clone()], layer.outputs);
            matmul(
                self.isa,
                extent,
                T::ONE,
                left,
                right,
                outputs,
                layer.outputs,
                true,
            );
            if number < last {
                for output in outputs {
                    *output = output.larger(T::ZERO);
                }
            }
        }
    }

    /// Writes the gradient of the logits and measures the loss.
    fn softmax(&mut self, batch: &DenseBatch<'_, T>) -> Result<StepStats> {
        let classes = self.model.classes();
        let last = self.model.layers.len() - 1;
        let rows = batch.labels.len();
        let mut stats = StepStats {
            targets: rows,
            ..StepStats::default()
        };
        let logits = self.outputs[last].chunks_exact(classes);
        let gradients = self.gradients[last].chunks_exact_mut(classes);
        for ((logits, gradients), &label) in logits.zip(gradients).zip(batch.labels) {
            let maximum = row_maximum(self.isa, logits);
            let sum = row_exponential_sum(self.isa, logits, maximum);
            let label = label as usize;
            stats.loss_sum += maximum.wide() + sum.wide().ln() - logits[label].wide();
            stats.correct += usize::from(logits[label] >= maximum);
            let fraction = T::of(1.0 / rows as f64);
            for (gradient, &logit) in gradients.iter_mut().zip(logits) {
                *gradient = (logit - maximum).exponential::<false>() / sum * fraction;
            }
            gradients[label] -= fraction;
        }
        stats.finite()
    }

    fn backward(&mut self, params: &[T], rows: usize) {
        for number in (1..self.model.layers.len()).rev() {
            let layer = &self.model.layers[number];
            let weight = &params[layer.weight.clone()];
            let Extent { rows, cols, depth } = Extent {
                rows,
                cols: layer.inputs,
                depth: layer.outputs,
            };
            pack_panels_transposed(self.isa, weight, depth, depth, cols, &mut self.panels);
            let (below, above) = self.gradients.split_at_mut(number);
            let gradient = &mut below[number - 1][..rows * cols];
            let left = Left::strided(&above[0], depth, 1);
            let extent = Extent { rows, cols, depth };
            matmul(
                self.isa,
                extent,
                T::ONE,
                left,
                Right::Panels(&self.panels),
                gradient,
                cols,
                false,
            );
            for (gradient, &output) in gradient.iter_mut().zip(&self.outputs[number - 1]) {
                if output <= T::ZERO {
                    *gradient = T::ZERO;
                }
            }
        }
    }

    fn accumulate(&self, target: &mut [T], factor: T, batch: &DenseBatch<'_, T>) {
        let rows = batch.labels.len();
        for (number, layer) in self.model.layers.iter().enumerate() {
            let inputs = if number == 0 {
                batch.features
            } else {
                &self.outputs[number - 1]
            };
            let gradient = &self.gradients[number][..rows * layer.outputs];
            let extent = Extent {
                rows: layer.inputs,
                cols: layer.outputs,
                depth: rows,
            };
            let left = Left::strided(inputs, 1, layer.inputs);
            let weight = &mut target[layer.weight.clone()];
            let right = Right::Rows(gradient, layer.outputs);
            matmul(self.isa, extent, factor, left, right, weight, layer.outputs, true);
            add_column_sums(self.isa, &mut target[layer.bias.clone()], factor, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    fn check(sizes: &[usize], rows: usize) {
        let model = Mlp::new(sizes).unwrap();
        let params = numbers(model.layout().len(), 3, 1.0);
        let features = numbers(rows * model.features(), 4, 1.0);
        let labels: Vec<u32> = (0..rows as u32).map(|row| row % model.classes() as u32).collect();
        let batch = DenseBatch {
            features: &features,
            labels: &labels,
        };
        let mut worker = model.worker::<f64>(rows);
        let mut grad = vec![f64::NAN; params.len()];
        let stats = worker.gradient(&params, &batch, &mut grad).unwrap();
        let scale = grad.iter().fold(0.0f64, |top, g| top.max(g.abs()));
        for index in 0..params.len() {
            let mut loss_at = |shift: f64| {
                let mut shifted = params.clone();
                shifted[index] += shift;
                worker.evaluate(&shifted, &batch).unwrap().mean_loss()
            };
            let h = 1e-5;
            let numeric = (loss_at(h) - loss_at(-h)) / (2.0 * h);
            assert!(
                (numeric - grad[index]).abs() <= 1e-6 * scale,
                "{index}: {numeric} {}",
                grad[index]
            );
        }
        let mut stepped = params.clone();
        assert_eq!(worker.sgd_step(&mut stepped, &batch, 0.25).unwrap(), stats);
        for index in 0..params.len() {
            assert!((stepped[index] - (params[index] - 0.25 * grad[index])).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        check(&[3, 4], 1);
        check(&[5, 7, 3], 4);
        check(&[4, 9, 6, 3], 11);
    }

    #[test]
    fn bad_input_is_a_typed_error() {
        let message = |sizes: &[usize]| Mlp::new(sizes).unwrap_err().to_string();
        assert_eq!(message(&[3]), "`layer sizes` must be at least 2, got 1");
        assert_eq!(message(&[3, 0, 2]), "`layer size` must be at least 1, got 0");
        assert_eq!(message(&[3, 1]), "`layer size` must be at least 2, got 1");
        let model = Mlp::new(&[2, 3]).unwrap();
        let mut params = model.initial_params(0);
        let mut worker = model.worker(2);
        let mut step = |features: &[f32], labels: &[u32], rate| {
            let batch = DenseBatch { features, labels };
            worker
                .sgd_step(&mut params, &batch, rate)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(step(&[], &[], 0.1), "the batch is empty: expected at least 1 row");
        assert_eq!(
            step(&[0.0; 6], &[0; 3], 0.1),
            "the batch has 3 rows, above the max of the worker, 2"
        );
        assert_eq!(
            step(&[0.0; 3], &[0; 2], 0.1),
            "a batch of 2 labels needs 4 feature values, got 3"
        );
        assert_eq!(
            step(&[0.0; 2], &[3], 0.1),
            "label 3 at row 0 is not below the number of classes 3"
        );
        assert_eq!(
            step(&[0.0; 2], &[2], f32::NAN),
            "the learning rate must be finite, got NaN"
        );
        assert!(step(&[f32::INFINITY, 0.0], &[2], 0.1).contains("parameters were not changed"));
    }
}
