//! The moments accountant of 2016, as the printed tables of \[DPLM\] were computed.
//!
//! # Source
//! Abadi et al., "Deep Learning with Differential Privacy" (2016), Theorem 2, with the integer moments 1 to
//! 32 of its published implementation.

use crate::rdp::poisson_gaussian::log_moment_integer;
use crate::{NoiseMultiplier, SamplingProbability};

/// The largest moment `lambda` of the recipe; it uses 1 to this.
pub(crate) const MAX_MOMENT: u32 = 32;

/// `ln E[(dP/dQ)^{lambda + 1}]` under `Q` for one Poisson-sampled Gaussian release: the log moment of order
/// `lambda` of the privacy loss. Rounds add.
#[must_use]
pub fn log_moment(
    sampling_probability: SamplingProbability,
    noise_multiplier: NoiseMultiplier,
    moment: u32,
) -> f64 {
    log_moment_integer(sampling_probability.get(), noise_multiplier.get(), moment + 1)
}

/// Minimum over moments of `(ln A - ln delta) / lambda`; `log_moments[i]` is the total for `lambda = i + 1`.
/// Returns epsilon and the best moment.
pub(crate) fn epsilon(log_moments: &[f64], log_delta: f64) -> (f64, u32) {
    minimum(log_moments.iter().zip(1..).map(|(log_moment, lambda)| {
        let epsilon = (log_moment - log_delta) / f64::from(lambda);
        (epsilon, lambda)
    }))
}

/// `ln delta` at `epsilon`: minimum over moments of `ln A - lambda epsilon`.
pub(crate) fn log_delta(log_moments: &[f64], epsilon: f64) -> (f64, u32) {
    minimum(
        log_moments
            .iter()
            .zip(1..)
            .map(|(log_moment, lambda)| (log_moment - f64::from(lambda) * epsilon, lambda)),
    )
}

fn minimum(values: impl Iterator<Item = (f64, u32)>) -> (f64, u32) {
    values.fold(
        (f64::INFINITY, 1),
        |best, next| if next.0 < best.0 { next } else { best },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_moment_equals_the_direct_sum() {
        let (q, z) = (0.01f64, 1.5f64);
        let mut choose = 1.0;
        let mut direct = 0.0;
        for i in 0..=6u32 {
            if i > 0 {
                choose *= f64::from(7 - i) / f64::from(i);
            }
            let n = f64::from(i);
            direct += choose * q.powf(n) * (1.0 - q).powf(6.0 - n) * ((n * n - n) / (2.0 * z * z)).exp();
        }
        let got = log_moment(
            SamplingProbability::new(q).unwrap(),
            NoiseMultiplier::new(z).unwrap(),
            5,
        );
        let want = direct.ln();
        assert!((got - want).abs() <= 1e-11 * want.abs(), "got {got}, want {want}");
    }
}
