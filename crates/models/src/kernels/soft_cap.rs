//! The soft cap `c tanh(x / c)`, which keeps scores and logits within `(-c, c)`.

use super::isa::kernel;

kernel! {
    /// Replaces each value `x` by `cap tanh(scale x / cap)`.
    pub(crate) fn soft_cap<FUSED>(values: &mut [T], scale: T, cap: T) {
        let inner = scale / cap;
        for value in values {
            *value = cap * (*value * inner).hyperbolic_tangent::<FUSED>();
        }
    }
}

kernel! {
    /// Does what [`soft_cap`] does, and writes the derivative by `x`, which is `scale (1 - tanh(scale x / cap)^2)`.
    pub(crate) fn soft_cap_with_slopes<FUSED>(values: &mut [T], slopes: &mut [T], scale: T, cap: T) {
        let inner = scale / cap;
        for (value, slope) in values.iter_mut().zip(slopes) {
            let part = (*value * inner).hyperbolic_tangent::<FUSED>();
            *value = cap * part;
            *slope = scale * (T::ONE - part * part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;

    #[test]
    fn values_and_slopes_are_those_of_the_formula() {
        let (scale, cap) = (0.3, 5.0);
        let inputs: Vec<f64> = (-100..=100).map(|i| f64::from(i) * 1.3).collect();
        let narrow: Vec<f32> = inputs.iter().map(|&x| x as f32).collect();
        let exact = |x: f64| cap * (scale * x / cap).tanh();
        for isa in Isa::available() {
            let (mut values, mut slopes) = (inputs.clone(), vec![0.0; inputs.len()]);
            soft_cap_with_slopes(isa, &mut values, &mut slopes, scale, cap);
            let mut alone = inputs.clone();
            soft_cap(isa, &mut alone, scale, cap);
            assert_eq!(alone, values);
            let mut singles = narrow.clone();
            soft_cap(isa, &mut singles, scale as f32, cap as f32);
            for (index, &x) in inputs.iter().enumerate() {
                assert!((values[index] - exact(x)).abs() < 1e-14, "{x}");
                let slope = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
                assert!((slopes[index] - slope).abs() < 1e-9, "{x}");
                assert!((f64::from(singles[index]) - exact(x)).abs() < 3e-6, "{x}");
            }
        }
    }
}
