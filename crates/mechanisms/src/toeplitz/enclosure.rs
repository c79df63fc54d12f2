//! Bounds on the distance of a computed inverse series from the exact one.
//!
//! Where coefficients of an inverse cancel, `f64` loses their digits: of taps near `1e11` a matrix with entries near one
//! keeps five. The matrix that is run is the exact inverse of the taps, so a sensitivity computed from the rounded one
//! could be too small; here is by how much at most.

use crate::error::{MechanismError, Result};

/// Longest series whose bound is a whole convolution.
const CONVOLVED: usize = 4096;

/// Covers the rounding of the bounds themselves: sums of non-negative numbers, with a relative error below `1e-6`.
const ROUNDING: f64 = 1.001;

/// Bounds on `|inverse[i] - exact[i]|`, where `exact` is the inverse of `series`, however `inverse` was computed.
///
/// Let `r = 1 - series * inverse` be the residual, so `inverse = exact * (1 - r)` and `exact - inverse = exact * r`. With
/// `|exact| <= |inverse| + e` the errors `e` are at most
///
/// ```text
/// e_i = (sum_{j = 1..i} (|inverse_{i - j}| + e_{i - j}) |r_j| + |inverse_i| |r_0|) / (1 - |r_0|).
/// ```
///
/// The residual is evaluated in `f64`: `|r_i|` is at most its computed magnitude plus `gamma_m sum |series_l inverse_{i - l}|`
/// for `m` operations, as of every inner product. Long series take the largest `|r_j|` up to `i` for all of them.
///
/// # Errors
/// [`MechanismError::UncertainInverse`] where there is no finite bound.
///
/// # Source
/// Higham, "Accuracy and Stability of Numerical Algorithms" (2002), section 3.1 for `gamma_m`; the rest as derived here.
pub(crate) fn inverse_errors(series: &[f64], inverse: &[f64]) -> Result<Vec<f64>> {
    let residuals: Vec<f64> = (0..inverse.len()).map(|i| residual(series, inverse, i)).collect();
    let mut errors = Vec::with_capacity(inverse.len());
    if inverse.len() <= CONVOLVED {
        for (i, value) in inverse.iter().enumerate() {
            let earlier = inverse[..i].iter().zip(&errors).rev();
            let carried: f64 = earlier
                .zip(&residuals[1..])
                .map(|((value, error), residual): ((&f64, &f64), &f64)| (value.abs() + error) * residual)
                .sum();
            errors.push((carried + value.abs() * residuals[0]) / (1.0 - residuals[0]));
        }
    } else {
        let (mut largest, mut sum) = (0.0f64, 0.0);
        for (value, residual) in inverse.iter().zip(&residuals) {
            // Not a number stays one.
            largest = if *residual <= largest { largest } else { *residual };
            sum += value.abs();
            let error = largest * sum / (1.0 - largest);
            sum += error;
            errors.push(error);
        }
    }
    for (index, (error, residual)) in errors.iter_mut().zip(&residuals).enumerate() {
        *error *= ROUNDING;
        // A residual of one and more bounds nothing: the division above was by nothing, or by less.
        if !(error.is_finite() && *error >= 0.0 && residuals[0] < 0.5 && residual.is_finite()) {
            return Err(MechanismError::UncertainInverse {
                index,
                value: inverse[index],
            });
        }
    }
    Ok(errors)
}

/// A bound on coefficient `i` of `1 - series * inverse`.
fn residual(series: &[f64], inverse: &[f64], i: usize) -> f64 {
    let first = f64::from(u8::from(i == 0));
    let (mut value, mut magnitude) = (first, first);
    let lags = series.len().min(i + 1);
    for (tap, earlier) in series[..lags].iter().zip(inverse[..=i].iter().rev()) {
        let product = tap * earlier;
        value -= product;
        magnitude += product.abs();
    }
    // gamma_m with m = lags + 2, doubled by taking EPSILON for the unit roundoff: that covers `magnitude` as well.
    let gamma = (lags + 2) as f64 * f64::EPSILON;
    let underflow = lags as f64 * f64::MIN_POSITIVE;
    value.abs() + gamma * magnitude + underflow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toeplitz::{self, exact};

    /// Taps of a matrix with small entries whose inverse grows as `ratio^l`, up to `1e11`: the entries of the matrix are
    /// what is left where numbers of that size cancel.
    fn cancelling(ratio: f64, rounds: usize) -> Vec<f64> {
        let small: Vec<f64> = (0..rounds)
            .map(|i| match i {
                0 => 1.0,
                1 => ratio,
                _ => 0.1 / (i * i) as f64,
            })
            .collect();
        toeplitz::inverse(&small, rounds).unwrap()
    }

    #[test]
    fn errors_are_bounded_where_terms_cancel() {
        let (mut lost, mut tightest) = (0.0f64, 0.0f64);
        for step in 0..60 {
            let taps = cancelling(2.5 + 0.011 * f64::from(step), 25);
            let inverse = toeplitz::inverse(&taps, 25).unwrap();
            let errors = inverse_errors(&taps, &inverse).unwrap();
            for ((exact, computed), bound) in exact::inverse(&taps, 25).iter().zip(&inverse).zip(&errors) {
                let error = exact.minus(*computed).abs();
                assert!(error <= *bound, "{error} beyond {bound}");
                lost = lost.max(error);
                tightest = tightest.max(error / bound);
            }
        }
        // There is something to bound, and the bound is not from another world.
        assert!(lost > 1e-8 && tightest > 1e-3, "{lost} {tightest}");
    }

    #[test]
    fn errors_are_bounded_where_nothing_cancels() {
        let root = toeplitz::inverse(&toeplitz::fhu(300), 300).unwrap();
        for taps in [&[1.0, -0.9][..], &[1.0, -1.8, 0.81], &root[..4], &root] {
            let inverse = toeplitz::inverse(taps, 300).unwrap();
            let errors = inverse_errors(taps, &inverse).unwrap();
            for (i, (exact, computed)) in exact::inverse(taps, 300).iter().zip(&inverse).enumerate() {
                let error = exact.minus(*computed).abs();
                assert!(
                    error <= errors[i] && errors[i] < 1e-12,
                    "{i}: {error} {}",
                    errors[i]
                );
            }
        }
        let exact = inverse_errors(&[1.0, -1.0], &[1.0; 50]).unwrap();
        assert!(exact.iter().all(|error| *error < 1e-13), "{exact:?}");
    }

    #[test]
    fn long_series_have_a_bound() {
        let taps = toeplitz::inverse(&toeplitz::fhu(4), 4).unwrap();
        let inverse = toeplitz::inverse(&taps, CONVOLVED + 900).unwrap();
        let errors = inverse_errors(&taps, &inverse).unwrap();
        let short = inverse_errors(&taps, &inverse[..CONVOLVED]).unwrap();
        for (i, exact) in exact::inverse(&taps, inverse.len()).iter().enumerate() {
            let error = exact.minus(inverse[i]).abs();
            assert!(
                error <= errors[i] && errors[i] < 1e-11,
                "{i}: {error} {}",
                errors[i]
            );
        }
        // The one bound is not below the other.
        assert!(
            short
                .iter()
                .zip(&errors)
                .all(|(short, long)| *short <= 1.1 * long)
        );
    }

    #[test]
    fn what_cannot_be_bounded_is_refused() {
        let check = |series: &[f64], inverse: &[f64], at: usize| match inverse_errors(series, inverse) {
            Err(MechanismError::UncertainInverse { index, .. }) => assert_eq!(index, at),
            other => panic!("{other:?}"),
        };
        check(&[1.0, -1.0], &[3.0, 3.0], 0);
        check(&[1.0, f64::NAN], &[1.0, 1.0], 1);
        check(&[1.0, -1e200], &[1.0, 1e200, f64::INFINITY], 2);
        assert_eq!(inverse_errors(&[2.0], &[]).unwrap(), Vec::<f64>::new());
    }
}
