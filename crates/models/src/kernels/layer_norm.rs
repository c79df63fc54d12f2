//! Layer normalisation of rows.

use super::isa::kernel;
use crate::scalar::Scalar;

/// The constant that GPT-2 adds to the variance.
pub(crate) const EPSILON: f64 = 1e-5;

const LANES: usize = 16;

/// Sum of `term(i)` over the indices of a row, in a fixed order of 16 lanes.
#[inline(always)]
pub(super) fn lane_sum<T: Scalar>(len: usize, term: impl Fn(usize) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let whole = len - len % LANES;
    for start in (0..whole).step_by(LANES) {
        for j in 0..LANES {
            lanes[j] += term(start + j);
        }
    }
    for j in 0..len - whole {
        lanes[j] += term(whole + j);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for j in 0..width {
            lanes[j] += lanes[j + width];
        }
        width /= 2;
    }
    lanes[0]
}

kernel! {
    /// `output = gain (row - mean) / deviation + bias` for every row of the width of `gain`; `stats` keeps each row's
    /// mean and one over its deviation, the root of the variance plus `epsilon`.
    pub(crate) fn normalise<FUSED>(
        rows: &[T],
        gain: &[T],
        bias: &[T],
        epsilon: f64,
        output: &mut [T],
        stats: &mut [[T; 2]],
    ) {
        let width = gain.len();
        let fraction = T::of(1.0 / width as f64);
        let bias = &bias[..width];
        let lines = rows.chunks_exact(width).zip(output.chunks_exact_mut(width));
        for ((row, output), stats) in lines.zip(stats) {
            let mean = lane_sum(width, |i| row[i]) * fraction;
            let variance = lane_sum(width, |i| (row[i] - mean) * (row[i] - mean)) * fraction;
            let inverse = T::ONE / (variance + T::of(epsilon)).square_root();
            *stats = [mean, inverse];
            for i in 0..width {
                output[i] = ((row[i] - mean) * inverse).multiply_add::<FUSED>(gain[i], bias[i]);
            }
        }
    }
}

kernel! {
    /// Backward of [`normalise`]: `gradient` is that of the output, `rows` and `stats` are the input's. Adds the gradient of
    /// the input to `target` and those of gain and bias, summed over the rows, to theirs.
    pub(crate) fn normalise_backward<FUSED>(
        gradient: &[T],
        rows: &[T],
        stats: &[[T; 2]],
        gain: &[T],
        target: &mut [T],
        gain_gradient: &mut [T],
        bias_gradient: &mut [T],
    ) {
        let width = gain.len();
        let fraction = T::of(1.0 / width as f64);
        let (gain_gradient, bias_gradient) = (&mut gain_gradient[..width], &mut bias_gradient[..width]);
        let lines = gradient.chunks_exact(width).zip(rows.chunks_exact(width));
        for ((output, row), (target, stats)) in lines.zip(target.chunks_exact_mut(width).zip(stats)) {
            let &[mean, inverse] = stats;
            let centred = |i: usize| (row[i] - mean) * inverse;
            let level = lane_sum(width, |i| output[i] * gain[i]) * fraction;
            let along = lane_sum(width, |i| output[i] * gain[i] * centred(i)) * fraction;
            for i in 0..width {
                let unit = (row[i] - mean) * inverse;
                let across =
                    (-along).multiply_add::<FUSED>(unit, output[i].multiply_add::<FUSED>(gain[i], -level));
                target[i] = inverse.multiply_add::<FUSED>(across, target[i]);
                gain_gradient[i] = output[i].multiply_add::<FUSED>(unit, gain_gradient[i]);
                bias_gradient[i] += output[i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    /// `sum_i c_i output_i` of one row and its derivatives by differences.
    #[test]
    fn backward_is_the_derivative() {
        let width = 21;
        let number = |i: usize, k: f64| (i as f64 * k).sin();
        let row: Vec<f64> = (0..width).map(|i| number(i, 1.7) + 0.3).collect();
        let gain: Vec<f64> = (0..width).map(|i| 1.0 + number(i, 0.9)).collect();
        let bias: Vec<f64> = (0..width).map(|i| number(i, 2.3)).collect();
        let chosen: Vec<f64> = (0..width).map(|i| number(i, 3.1)).collect();
        for isa in Isa::available() {
            let mut stats = [[0.0; 2]];
            let mut output = vec![0.0; width];
            let mut value = |row: &[f64], gain: &[f64], bias: &[f64], stats: &mut [[f64; 2]]| {
                normalise(isa, row, gain, bias, EPSILON, &mut output, stats);
                output.iter().zip(&chosen).map(|(y, c)| y * c).sum::<f64>()
            };
            value(&row, &gain, &bias, &mut stats);
            let mut got = [vec![0.0; width], vec![0.0; width], vec![0.0; width]];
            let [target, of_gain, of_bias] = &mut got;
            normalise_backward(isa, &chosen, &row, &stats, &gain, target, of_gain, of_bias);
            for which in 0..3 {
                for i in 0..width {
                    let mut at = |shift: f64| {
                        let mut moved = [row.clone(), gain.clone(), bias.clone()];
                        moved[which][i] += shift;
                        value(&moved[0], &moved[1], &moved[2], &mut [[0.0; 2]])
                    };
                    let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((got[which][i] - expected).abs() < 1e-8, "{which} {i}");
                }
            }
        }
    }
}
