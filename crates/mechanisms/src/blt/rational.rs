//! A rational approximation of `1 / sqrt(1 - x)`, the generating function of the best matrix without memory limits.

use std::f64::consts::PI;

use crate::blt::interlace;

/// Widens the step of the quadrature: covers decays nearer to 1 with as many buffers.
const STEP_SCALE: f64 = 1.6;

/// Moves the nodes towards decays near 1.
const SHIFT: f64 = -1.0;

/// Complements of the decays and output scales of the approximation with so many buffers; the first decay is 1.
///
/// The inverse's function `sqrt(1 - x)` is a sum of simple fractions by the sinc quadrature of its integral over decays;
/// its zeros are the decays, its reciprocal's residues the scales.
///
/// # Source
/// Dvijotham et al., "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy" (2024),
/// Proposition 4.5, with step and shift as in common use.
pub(crate) fn square_root(buffers: usize) -> (Vec<f64>, Vec<f64>) {
    let (roots, zeros) = chain(buffers);
    let scale = |i: usize| {
        let others = (0..buffers).filter(|&j| j != i);
        others.fold(zeros[i] - roots[i], |product, j| {
            product * ((zeros[j] - roots[i]) / (roots[j] - roots[i]))
        })
    };
    let scales = (0..buffers).map(scale).collect();
    (roots, scales)
}

/// Complements of the decays of the approximation and of its inverse.
pub(crate) fn chain(buffers: usize) -> (Vec<f64>, Vec<f64>) {
    let left = buffers.div_ceil(2) as f64;
    let step = STEP_SCALE * PI / (2.0 * (left + 1.0)).sqrt();
    let node = |index: usize| step * (index as f64 - left + 1.0 + SHIFT);
    // Inverse decays 1 / (1 + e^2u) descend along the nodes; 1 - decay by its own formula, so that none rounds to 1.
    let decay = |u: f64| 1.0 / (1.0 + (2.0 * u).exp());
    let complement = |u: f64| 1.0 / (1.0 + (-2.0 * u).exp());
    let total: f64 = (0..buffers).map(|i| node(i).exp() * decay(node(i))).sum();
    // Negated, so that they ascend and the roots lie to the right: the decays are nearer to 1 than the inverse decays.
    let poles: Vec<f64> = (0..buffers).rev().map(|i| -complement(node(i))).collect();
    let weight = |i: usize| decay(node(i)).powi(2) * (3.0 * node(i)).exp() / total;
    let weights: Vec<f64> = (0..buffers).rev().map(weight).collect();
    let mut roots: Vec<f64> = interlace::roots(&poles, &weights)
        .into_iter()
        .zip(&poles)
        .map(|(distance, pole)| -(pole + distance))
        .collect();
    roots.reverse();
    // At x = 1 the fractions sum to the constant by construction: the function vanishes there and the first decay is 1.
    roots[0] = 0.0;
    let zeros: Vec<f64> = poles.iter().rev().map(|pole| -pole).collect();
    (roots, zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(theta: &[f64], omega: &[f64]) {
        let (complements, scales) = square_root(theta.len());
        for i in 0..theta.len() {
            assert!((1.0 - complements[i] - theta[i]).abs() < 1e-12, "{complements:?}");
            assert!((scales[i] / omega[i] - 1.0).abs() < 1e-9, "{scales:?}");
        }
    }

    /// Values of jax-privacy 2.0.0, before it limits the decays.
    #[test]
    fn the_square_root_matches_jax_privacy() {
        check(&[1.0], &[0.006518648347083747]);
        check(
            &[1.0, 0.9980524561201205, 0.8775124882261053],
            &[0.009266638194535487, 0.050782831066609774, 0.3320237084721325],
        );
        check(
            &[
                0.9999999999999949,
                0.9998765099216589,
                0.9952706649991299,
                0.855344984652717,
                0.1424701146824857,
                0.004299619350061361,
            ],
            &[
                0.003580289589144079,
                0.013300774394788295,
                0.07858882985070663,
                0.34416480359981005,
                0.057313808828687404,
                0.0003367834140918737,
            ],
        );
    }
}
