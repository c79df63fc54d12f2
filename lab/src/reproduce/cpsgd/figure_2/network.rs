//! A small network: dense layers with rectified units between them, softmax cross-entropy on top, one picture at a time.

use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// One dense layer: sizes, and where weight `[inputs, outputs]` and bias stand.
#[derive(Debug, Clone)]
struct Layer {
    inputs: usize,
    outputs: usize,
    weight: Range<usize>,
    bias: Range<usize>,
}

/// The network and the outputs of its layers for the last picture, rectified except for the last layer's.
#[derive(Debug, Clone)]
pub(super) struct Network {
    layers: Vec<Layer>,
    outputs: Vec<Vec<f32>>,
}

impl Network {
    /// Layers of these sizes, from the pixels to the classes.
    pub(super) fn new(sizes: &[usize]) -> Self {
        let mut end = 0;
        let layers = sizes.windows(2).map(|pair| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let weight = end..end + inputs * outputs;
            let bias = weight.end..weight.end + outputs;
            end = bias.end;
            Layer {
                inputs,
                outputs,
                weight,
                bias,
            }
        });
        Self {
            layers: layers.collect(),
            outputs: sizes[1..].iter().map(|&size| vec![0.0; size]).collect(),
        }
    }

    /// Number of parameters.
    pub(super) fn parameters(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.bias.end)
    }

    /// He-uniform weights `sqrt(6 / inputs)` and zero biases, drawn as the product draws those of its models.
    pub(super) fn initial_params(&self, seed: u64) -> Vec<f32> {
        let mut key = *b"undertone initial parameters\0\0\0\0";
        for (byte, seed) in key[24..].iter_mut().zip(seed.to_le_bytes()) {
            *byte ^= seed;
        }
        let mut generator = ChaCha20Rng::from_seed(key);
        let mut params = vec![0.0; self.parameters()];
        for layer in &self.layers {
            let limit = (6.0 / layer.inputs as f64).sqrt();
            for weight in &mut params[layer.weight.clone()] {
                let draw = f64::from(generator.next_u32() >> 8) + 0.5;
                *weight = ((2.0 * draw).mul_add(f64::exp2(-24.0), -1.0) * limit) as f32;
            }
        }
        params
    }

    fn forward(&mut self, params: &[f32], pixels: &[f32]) {
        let last = self.layers.len() - 1;
        for (number, layer) in self.layers.iter().enumerate() {
            let (before, rest) = self.outputs.split_at_mut(number);
            let inputs = before.last().map_or(pixels, Vec::as_slice);
            let outputs = &mut rest[0];
            outputs.copy_from_slice(&params[layer.bias.clone()]);
            for (input, weights) in inputs
                .iter()
                .zip(params[layer.weight.clone()].chunks_exact(layer.outputs))
            {
                for (output, weight) in outputs.iter_mut().zip(weights) {
                    *output += input * weight;
                }
            }
            if number < last {
                outputs.iter_mut().for_each(|output| *output = output.max(0.0));
            }
        }
    }

    /// The class of the largest output.
    pub(super) fn guess(&mut self, params: &[f32], pixels: &[f32]) -> Option<usize> {
        self.forward(params, pixels);
        let outputs = self.outputs.last()?.iter().enumerate();
        outputs.max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class)
    }

    /// Writes the gradient of the cross-entropy of one picture, which is returned.
    pub(super) fn gradient(
        &mut self,
        params: &[f32],
        pixels: &[f32],
        label: usize,
        gradient: &mut [f32],
    ) -> f32 {
        self.forward(params, pixels);
        let logits = &self.outputs[self.layers.len() - 1];
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - largest).exp()).sum();
        let loss = largest + sum.ln() - logits[label];
        let mut above: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp() / sum).collect();
        above[label] -= 1.0;
        for (number, layer) in self.layers.iter().enumerate().rev() {
            gradient[layer.bias.clone()].copy_from_slice(&above);
            let inputs = if number == 0 {
                pixels
            } else {
                &self.outputs[number - 1]
            };
            let rows = gradient[layer.weight.clone()].chunks_exact_mut(layer.outputs);
            for (row, input) in rows.zip(inputs) {
                for (entry, above) in row.iter_mut().zip(&above) {
                    *entry = input * above;
                }
            }
            let weights = params[layer.weight.clone()].chunks_exact(layer.outputs);
            let below = |(weights, input): (&[f32], &f32)| {
                let sum: f32 = weights
                    .iter()
                    .zip(&above)
                    .map(|(weight, above)| weight * above)
                    .sum();
                if *input > 0.0 { sum } else { 0.0 }
            };
            above = weights.zip(inputs).map(below).collect();
        }
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_match_finite_differences() {
        for sizes in [&[3, 4][..], &[5, 7, 3], &[4, 9, 6, 3]] {
            let mut network = Network::new(sizes);
            let params = network.initial_params(3);
            let pixels: Vec<f32> = (0..sizes[0]).map(|i| (1.0 + i as f32).sin()).collect();
            let (mut gradient, mut unused) = (vec![f32::NAN; params.len()], vec![0.0; params.len()]);
            network.gradient(&params, &pixels, 1, &mut gradient);
            let scale = gradient.iter().fold(0.0f32, |top, entry| top.max(entry.abs()));
            for index in 0..params.len() {
                let mut loss_at = |shift: f32| {
                    let mut shifted = params.clone();
                    shifted[index] += shift;
                    network.gradient(&shifted, &pixels, 1, &mut unused)
                };
                let numeric = (loss_at(2e-3) - loss_at(-2e-3)) / 4e-3;
                let error = (numeric - gradient[index]).abs();
                assert!(
                    error < 2e-3 * scale,
                    "{sizes:?} {index}: {numeric} {}",
                    gradient[index]
                );
            }
        }
    }
}
