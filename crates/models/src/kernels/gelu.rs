//! The Gaussian error linear unit in its tanh form, `x sigma(2 sqrt(2 / pi) (x + 0.044715 x^3))`: the same as
//! `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))` with one exponential.

use super::isa::kernel;

/// `2 sqrt(2 / pi)`.
pub(super) const SLOPE: f64 = 1.595_769_121_605_730_7;
pub(super) const CUBIC: f64 = 0.044_715;

kernel! {
    /// `output = gelu(input)`.
    pub(crate) fn gelu<FUSED>(input: &[T], output: &mut [T]) {
        let (slope, cubic) = (T::of(SLOPE), T::of(SLOPE * CUBIC));
        for (&x, y) in input.iter().zip(output) {
            let inner = x * cubic.multiply_add::<FUSED>(x * x, slope);
            *y = x * inner.logistic::<FUSED>();
        }
    }
}

kernel! {
    /// Replaces inputs by `gelu(input)` and multiplies `gradient` by the derivative.
    pub(crate) fn gelu_backward<FUSED>(input: &mut [T], gradient: &mut [T]) {
        let (slope, cubic) = (T::of(SLOPE), T::of(SLOPE * CUBIC));
        let three = T::of(3.0 * SLOPE * CUBIC);
        for (x, g) in input.iter_mut().zip(gradient) {
            let square = *x * *x;
            let inner = *x * cubic.multiply_add::<FUSED>(square, slope);
            let gate = inner.logistic::<FUSED>();
            let steep = *x * three.multiply_add::<FUSED>(square, slope);
            let derivative = (gate * (T::ONE - gate)).multiply_add::<FUSED>(steep, gate);
            *x *= gate;
            *g *= derivative;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    #[test]
    fn values_and_derivatives_are_those_of_the_tanh_form() {
        let exact = |x: f64| x / 2.0 * (1.0 + (SLOPE / 2.0 * (x + CUBIC * x.powi(3))).tanh());
        let inputs: Vec<f64> = (-400..=400).map(|i| f64::from(i) / 50.0).collect();
        for isa in Isa::available() {
            let mut values = vec![0.0; inputs.len()];
            gelu(isa, &inputs, &mut values);
            let (mut again, mut derivatives) = (inputs.clone(), vec![2.0; inputs.len()]);
            gelu_backward(isa, &mut again, &mut derivatives);
            assert_eq!(again, values);
            let narrow: Vec<f32> = inputs.iter().map(|&x| x as f32).collect();
            let mut singles = vec![0.0f32; inputs.len()];
            gelu(isa, &narrow, &mut singles);
            for (index, &x) in inputs.iter().enumerate() {
                assert!((values[index] - exact(x)).abs() < 1e-14, "{x}");
                let slope = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
                assert!((derivatives[index] - 2.0 * slope).abs() < 1e-8, "{x}");
                assert!((f64::from(singles[index]) - exact(x)).abs() < 2e-6, "{x}");
            }
        }
    }
}
