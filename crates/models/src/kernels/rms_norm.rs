//! Normalisation of rows by their root mean square.

use super::isa::kernel;
use super::layer_norm::lane_sum;

kernel! {
    /// `output = gain row / root` for every row of the width of `gain`, with the root of the mean square plus `epsilon`;
    /// `stats` keeps one over each row's root, behind a zero where [`normalise`](super::layer_norm::normalise) has the mean.
    pub(crate) fn normalise_by_root<FUSED>(
        rows: &[T],
        gain: &[T],
        epsilon: f64,
        output: &mut [T],
        stats: &mut [[T; 2]],
    ) {
        let width = gain.len();
        let fraction = T::of(1.0 / width as f64);
        let lines = rows.chunks_exact(width).zip(output.chunks_exact_mut(width));
        for ((row, output), stats) in lines.zip(stats) {
            let square = lane_sum(width, |i| row[i] * row[i]) * fraction;
            let inverse = T::ONE / (square + T::of(epsilon)).square_root();
            *stats = [T::ZERO, inverse];
            for i in 0..width {
                output[i] = row[i] * inverse * gain[i];
            }
        }
    }
}

kernel! {
    /// Backward of [`normalise_by_root`]: `gradient` is that of the output, `rows` and `stats` are the input's. Adds the gradient
    /// of the input to `target` and that of the gain, summed over the rows, to its own.
    pub(crate) fn normalise_by_root_backward<FUSED>(
        gradient: &[T],
        rows: &[T],
        stats: &[[T; 2]],
        gain: &[T],
        target: &mut [T],
        gain_gradient: &mut [T],
    ) {
        let width = gain.len();
        let fraction = T::of(1.0 / width as f64);
        let gain_gradient = &mut gain_gradient[..width];
        let lines = gradient.chunks_exact(width).zip(rows.chunks_exact(width));
        for ((output, row), (target, stats)) in lines.zip(target.chunks_exact_mut(width).zip(stats)) {
            let inverse = stats[1];
            let along = lane_sum(width, |i| output[i] * gain[i] * (row[i] * inverse)) * fraction;
            for i in 0..width {
                let unit = row[i] * inverse;
                let across = (-along).multiply_add::<FUSED>(unit, output[i] * gain[i]);
                target[i] = inverse.multiply_add::<FUSED>(across, target[i]);
                gain_gradient[i] = output[i].multiply_add::<FUSED>(unit, gain_gradient[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    /// `sum_i c_i output_i` of two rows and its derivatives by differences.
    #[test]
    fn backward_is_the_derivative() {
        let (width, rows) = (21, 2);
        let number = |i: usize, k: f64| (i as f64 * k).sin();
        let input: Vec<f64> = (0..rows * width).map(|i| number(i, 1.7) + 0.3).collect();
        let gain: Vec<f64> = (0..width).map(|i| 1.0 + number(i, 0.9)).collect();
        let chosen: Vec<f64> = (0..rows * width).map(|i| number(i, 3.1)).collect();
        for isa in Isa::available() {
            let value = |input: &[f64], gain: &[f64]| {
                let (mut output, mut stats) = (vec![0.0; rows * width], vec![[0.0; 2]; rows]);
                normalise_by_root(isa, input, gain, 0.01, &mut output, &mut stats);
                let sum = output.iter().zip(&chosen).map(|(y, c)| y * c).sum::<f64>();
                (sum, output, stats)
            };
            let (_, output, stats) = value(&input, &gain);
            let square: f64 = input[..width].iter().map(|x| x * x).sum::<f64>() / width as f64;
            for i in 0..width {
                let expected = gain[i] * input[i] / (square + 0.01).sqrt();
                assert!((output[i] - expected).abs() < 1e-14);
            }
            let (mut target, mut of_gain) = (vec![0.0; rows * width], vec![0.0; width]);
            normalise_by_root_backward(isa, &chosen, &input, &stats, &gain, &mut target, &mut of_gain);
            for i in 0..rows * width {
                let at = |shift: f64| {
                    let mut moved = input.clone();
                    moved[i] += shift;
                    value(&moved, &gain).0
                };
                assert!((target[i] - (at(1e-5) - at(-1e-5)) / 2e-5).abs() < 1e-8, "{i}");
            }
            for i in 0..width {
                let at = |shift: f64| {
                    let mut moved = gain.clone();
                    moved[i] += shift;
                    value(&input, &moved).0
                };
                assert!((of_gain[i] - (at(1e-5) - at(-1e-5)) / 2e-5).abs() < 1e-8, "{i}");
            }
        }
    }
}
