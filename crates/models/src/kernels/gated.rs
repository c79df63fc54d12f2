//! Gated activations: `gate(g) u` for rows that hold `g` and `u` side by side.

use super::gelu::{CUBIC, SLOPE};
use super::isa::kernel;
use crate::scalar::Scalar;

/// `gate(x) / x` and the derivative of `gate(x)`.
trait Activation {
    fn parts<T: Scalar, const FUSED: bool>(x: T) -> (T, T);
}

/// `x sigma(x)`.
struct Silu;

impl Activation for Silu {
    #[inline(always)]
    fn parts<T: Scalar, const FUSED: bool>(x: T) -> (T, T) {
        let gate = x.logistic::<FUSED>();
        (gate, (gate * (T::ONE - gate)).multiply_add::<FUSED>(x, gate))
    }
}

/// The tanh form of the GELU, as in [`gelu`](super::gelu::gelu).
struct Gelu;

impl Activation for Gelu {
    #[inline(always)]
    fn parts<T: Scalar, const FUSED: bool>(x: T) -> (T, T) {
        let (slope, cubic) = (T::of(SLOPE), T::of(SLOPE * CUBIC));
        let three = T::of(3.0 * SLOPE * CUBIC);
        let square = x * x;
        let gate = (x * cubic.multiply_add::<FUSED>(square, slope)).logistic::<FUSED>();
        let steep = x * three.multiply_add::<FUSED>(square, slope);
        (gate, (gate * (T::ONE - gate)).multiply_add::<FUSED>(steep, gate))
    }
}

kernel! {
    /// `output = silu(g) u`; rows of `input` hold `g` and `u`, each `inner` wide.
    pub(crate) fn silu_gated<FUSED>(input: &[T], inner: usize, output: &mut [T]) {
        forward::<Silu, T, FUSED>(input, inner, output);
    }
}

kernel! {
    /// `output = gelu(g) u`; rows of `input` hold `g` and `u`, each `inner` wide.
    pub(crate) fn gelu_gated<FUSED>(input: &[T], inner: usize, output: &mut [T]) {
        forward::<Gelu, T, FUSED>(input, inner, output);
    }
}

kernel! {
    /// Backward of [`silu_gated`]: from `output_gradient` to the gradient of the input in `gradient`, and the output itself in
    /// `output`.
    pub(crate) fn silu_gated_backward<FUSED>(
        input: &[T],
        inner: usize,
        output_gradient: &[T],
        gradient: &mut [T],
        output: &mut [T],
    ) {
        backward::<Silu, T, FUSED>(input, inner, output_gradient, gradient, output);
    }
}

kernel! {
    /// Backward of [`gelu_gated`], as [`silu_gated_backward`].
    pub(crate) fn gelu_gated_backward<FUSED>(
        input: &[T],
        inner: usize,
        output_gradient: &[T],
        gradient: &mut [T],
        output: &mut [T],
    ) {
        backward::<Gelu, T, FUSED>(input, inner, output_gradient, gradient, output);
    }
}

#[inline(always)]
fn forward<A: Activation, T: Scalar, const FUSED: bool>(input: &[T], inner: usize, output: &mut [T]) {
    let lines = input.chunks_exact(2 * inner).zip(output.chunks_exact_mut(inner));
    for (line, output) in lines {
        let (gates, values) = line.split_at(inner);
        for ((&g, &u), y) in gates.iter().zip(values).zip(output) {
            *y = g * A::parts::<T, FUSED>(g).0 * u;
        }
    }
}

#[inline(always)]
fn backward<A: Activation, T: Scalar, const FUSED: bool>(
    input: &[T],
    inner: usize,
    output_gradient: &[T],
    gradient: &mut [T],
    output: &mut [T],
) {
    let lines = input
        .chunks_exact(2 * inner)
        .zip(gradient.chunks_exact_mut(2 * inner));
    let outputs = output_gradient
        .chunks_exact(inner)
        .zip(output.chunks_exact_mut(inner));
    for ((line, gradient), (of_output, output)) in lines.zip(outputs) {
        let (gates, values) = line.split_at(inner);
        let (of_gates, of_values) = gradient.split_at_mut(inner);
        let of_values = &mut of_values[..inner];
        for i in 0..inner {
            let (part, slope) = A::parts::<T, FUSED>(gates[i]);
            let gate = gates[i] * part;
            output[i] = gate * values[i];
            of_gates[i] = of_output[i] * values[i] * slope;
            of_values[i] = of_output[i] * gate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    type Forward = fn(Isa, &[f64], usize, &mut [f64]);
    type Backward = fn(Isa, &[f64], usize, &[f64], &mut [f64], &mut [f64]);

    fn check(forward: Forward, backward: Backward, exact: impl Fn(f64) -> f64) {
        let (inner, rows) = (19, 3);
        let input: Vec<f64> = (0..2 * inner * rows)
            .map(|i| 4.0 * (i as f64 * 1.3).sin())
            .collect();
        let chosen: Vec<f64> = (0..inner * rows).map(|i| (i as f64 * 0.7).cos()).collect();
        for isa in Isa::available() {
            let mut output = vec![0.0; inner * rows];
            forward(isa, &input, inner, &mut output);
            let (mut gradient, mut again) = (vec![0.0; input.len()], vec![0.0; output.len()]);
            backward(isa, &input, inner, &chosen, &mut gradient, &mut again);
            assert_eq!(again, output);
            for (place, &value) in output.iter().enumerate() {
                let line = place / inner * 2 * inner + place % inner;
                let (g, u) = (input[line], input[line + inner]);
                assert!((value - exact(g) * u).abs() < 1e-13);
                let slope = (exact(g + 1e-5) - exact(g - 1e-5)) / 2e-5;
                assert!((gradient[line] - chosen[place] * u * slope).abs() < 1e-8);
                assert!((gradient[line + inner] - chosen[place] * exact(g)).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn values_and_derivatives_are_those_of_the_formulas() {
        check(silu_gated, silu_gated_backward, |x| x / (1.0 + (-x).exp()));
        check(gelu_gated, gelu_gated_backward, |x| {
            x / 2.0 * (1.0 + (SLOPE / 2.0 * (x + CUBIC * x.powi(3))).tanh())
        });
    }
}
