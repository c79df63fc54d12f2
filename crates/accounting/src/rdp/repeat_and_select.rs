//! Running a private mechanism a random number of times and releasing only the best run: hyperparameter
//! tuning that is itself private.
//!
//! # Source
//! Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy" (ICLR 2022).

use serde::{Deserialize, Serialize};

use super::{conversion, finite_order};
use crate::AccountingError;
use crate::discrete::positive;
use crate::error::ensure;
use crate::search::first_true;
use crate::special::{LogSum, ln_1m_exp, ln_expm1};

/// The distribution of the number of runs. The number of runs must not be revealed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Repetitions {
    /// A Poisson number; where it is 0, something that depends on no data is released.
    Poisson {
        /// Expected number of runs, > 0.
        mean: f64,
    },
    /// A negative binomial number conditioned on being at least 1.
    TruncatedNegativeBinomial {
        /// `eta` > -1; 1 is the geometric distribution, 0 the logarithmic one.
        shape: f64,
        /// Expected number of runs, >= 1.
        mean: f64,
    },
}

/// Divergences of the selected run at `orders` (all > 1) from those of one run, `divergences`.
///
/// # Guarantee
/// An upper bound under the relation of `divergences`, provided that the runs are independent, that each of
/// them obeys `divergences`, and that only the best one is released. Total bounds over a finer grid of orders
/// are never larger: every order serves all others.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a mean or a shape outside its domain, an order that is not a finite
/// number > 1, a divergence that is negative or NaN, or lists of different length.
///
/// # Source
/// Theorem 2 for the truncated negative binomial, Theorem 6 for the Poisson distribution.
///
/// # Example
/// ```
/// use undertone_accounting::rdp::{self, repeat_and_select::{self, Repetitions}};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let orders = rdp::default_orders();
/// let one_run: Vec<f64> = orders.iter().map(|order| order / 50.0).collect(); // Gaussian, z = 5
/// let runs = Repetitions::TruncatedNegativeBinomial { shape: 1.0, mean: 10.0 };
/// let selected = repeat_and_select::curve(&orders, &one_run, runs)?;
/// let (epsilon, _) = rdp::conversion::epsilon(&orders, &selected, 1e-6f64.ln());
/// assert_eq!(format!("{epsilon:.4}"), "1.8136"); // one run: 0.90
/// # Ok(())
/// # }
/// ```
pub fn curve(
    orders: &[f64],
    divergences: &[f64],
    repetitions: Repetitions,
) -> Result<Vec<f64>, AccountingError> {
    let count = divergences.len();
    let holds = orders.len() == count;
    ensure(holds, "divergences", "as many as orders", count as f64)?;
    for (&order, &divergence) in orders.iter().zip(divergences) {
        finite_order(order)?;
        ensure(divergence >= 0.0, "divergence", "a number >= 0", divergence)?;
    }
    let mut selected = match repetitions {
        Repetitions::Poisson { mean } => poisson(orders, divergences, positive("mean", mean)?),
        Repetitions::TruncatedNegativeBinomial { shape, mean } => {
            truncated_negative_binomial(orders, divergences, shape, mean)?
        }
    };
    // Divergences rise with the order, so each order is bounded by all above it.
    let mut by_order: Vec<usize> = (0..orders.len()).collect();
    by_order.sort_by(|&a, &b| orders[b].total_cmp(&orders[a]));
    let mut lowest = f64::INFINITY;
    for index in by_order {
        lowest = lowest.min(selected[index]);
        selected[index] = lowest;
    }
    Ok(selected)
}

/// DEVIATION: the theorem bounds `mean e^{..}`; the probability `e^-mean` of no run at all is added here, which
/// matters for small means (there the theorem's expression alone becomes negative).
fn poisson(orders: &[f64], divergences: &[f64], mean: f64) -> Vec<f64> {
    let at = |(&order, &divergence): (&f64, &f64)| {
        let hockey_stick_at = (1.0 / (order - 1.0)).ln_1p();
        let (log_delta, _) = conversion::log_delta(orders, divergences, hockey_stick_at);
        let mut moment = LogSum::new();
        moment.add(-mean);
        moment.add(mean.ln() + (order - 1.0) * (divergence + mean * log_delta.exp()));
        // PRIVACY: sums and products round to the nearest number, so the bound is raised by their last bits.
        (moment.get() / (order - 1.0) * (1.0 + 4.0 * f64::EPSILON)).max(0.0)
    };
    orders.iter().zip(divergences).map(at).collect()
}

fn truncated_negative_binomial(
    orders: &[f64],
    divergences: &[f64],
    shape: f64,
    mean: f64,
) -> Result<Vec<f64>, AccountingError> {
    let holds = shape.is_finite() && shape > -1.0;
    ensure(holds, "shape", "a finite number > -1", shape)?;
    let holds = mean.is_finite() && mean >= 1.0;
    ensure(holds, "mean", "a finite number >= 1", mean)?;
    if mean == 1.0 {
        return Ok(divergences.to_vec()); // exactly one run
    }
    let log_inverse_gamma = log_inverse_gamma(shape, mean);
    let shared = orders
        .iter()
        .zip(divergences)
        .map(|(order, divergence)| (1.0 - 1.0 / order) * divergence + log_inverse_gamma / order)
        .fold(f64::INFINITY, f64::min);
    let at = |(order, divergence)| divergence + mean.ln() / (order - 1.0) + (1.0 + shape) * shared;
    Ok(orders.iter().zip(divergences).map(at).collect())
}

/// `L = ln(1 / gamma)`, rounded up, from `mean = shape (1 / gamma - 1) / (1 - gamma^shape)`.
fn log_inverse_gamma(shape: f64, mean: f64) -> f64 {
    if shape == 1.0 {
        return mean.ln();
    }
    let log_mean = |l: f64| {
        let y = shape * l;
        let log_denominator = if y.abs() < 1e-12 {
            l.ln()
        } else if y > 0.0 {
            ln_1m_exp(-y) - shape.ln()
        } else {
            ln_expm1(-y) - (-shape).ln()
        };
        ln_expm1(l) - log_denominator
    };
    let target = mean.ln();
    let mut high = 1.0;
    while log_mean(high) < target {
        high *= 2.0;
    }
    first_true(0.0, high, 1e-15, |l| l > 0.0 && log_mean(l) >= target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdp::default_orders;
    use proptest::prelude::*;

    fn gaussian(noise_multiplier: f64) -> (Vec<f64>, Vec<f64>) {
        let orders = default_orders();
        let divergences = orders
            .iter()
            .map(|a| 0.5 * a / noise_multiplier.powi(2))
            .collect();
        (orders, divergences)
    }

    fn epsilon(noise_multiplier: f64, repetitions: Repetitions, delta: f64) -> f64 {
        let (orders, divergences) = gaussian(noise_multiplier);
        let selected = curve(&orders, &divergences, repetitions).unwrap();
        conversion::epsilon(&orders, &selected, delta.ln()).0
    }

    fn negative_binomial(shape: f64, mean: f64) -> Repetitions {
        Repetitions::TruncatedNegativeBinomial { shape, mean }
    }

    /// dp-accounting 0.6.0: `RepeatAndSelectDpEvent(GaussianDpEvent(5), 10, shape)`.
    #[test]
    fn epsilons_match_the_reference() {
        let check = |repetitions, want: f64, relative: f64| {
            let got = epsilon(5.0, repetitions, 1e-6);
            assert!(
                (got - want).abs() <= relative * want,
                "{repetitions:?}: {got} != {want}"
            );
        };
        check(negative_binomial(1.0, 10.0), 1.813_568_988_372_425, 1e-9);
        check(negative_binomial(0.0, 10.0), 1.513_252_361_173_529_6, 1e-8);
        check(negative_binomial(0.5, 10.0), 1.671_752_841_690_731, 1e-8);
        check(negative_binomial(3.0, 10.0), 2.280_616_602_872_76, 1e-8);
        check(Repetitions::Poisson { mean: 10.0 }, 1.980_403_781_702_884_3, 1e-8);
    }

    /// `E[K]` from the distribution itself: weights `gamma`-powers times rising factorials.
    #[test]
    fn the_mean_is_met() {
        for (shape, mean) in [
            (-0.5, 3.0),
            (0.0, 7.0),
            (1e-13, 7.0),
            (0.5, 1.1),
            (1.0, 20.0),
            (2.5, 12.0),
        ] {
            let keep = 1.0 - (-log_inverse_gamma(shape, mean)).exp();
            // P(K = k) is proportional to (1 - gamma)^k prod_{l<k} (l + shape) / (l + 1).
            let (mut weight, mut total, mut first) = (keep, 0.0, 0.0);
            for k in 1..200_000 {
                let k = f64::from(k);
                total += weight;
                first += k * weight;
                weight *= keep * (k + shape) / (k + 1.0);
            }
            assert!(
                (first / total - mean).abs() < 1e-9 * mean,
                "{shape}: {}",
                first / total
            );
        }
    }

    #[test]
    fn extreme_repetitions_keep_epsilon_within_its_limits() {
        let (orders, divergences) = gaussian(5.0);
        let once = curve(&orders, &divergences, negative_binomial(0.3, 1.0)).unwrap();
        assert_eq!(once, divergences);
        // A run that hardly ever happens says hardly anything, but never less than nothing.
        let rare = epsilon(5.0, Repetitions::Poisson { mean: 1e-3 }, 1e-6);
        assert!(rare >= 0.0 && rare < epsilon(5.0, Repetitions::Poisson { mean: 1.0 }, 1e-6));
        // Means far beyond what gamma can hold as f64.
        assert!(epsilon(5.0, negative_binomial(-0.99, 1e9), 1e-6).is_finite());
    }

    #[test]
    fn means_shapes_and_divergences_out_of_range_are_refused() {
        let (orders, divergences) = gaussian(5.0);
        for mean in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(curve(&orders, &divergences, Repetitions::Poisson { mean }).is_err());
            assert!(curve(&orders, &divergences, negative_binomial(1.0, mean)).is_err());
        }
        for shape in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(curve(&orders, &divergences, negative_binomial(shape, 2.0)).is_err());
        }
        let runs = negative_binomial(1.0, 2.0);
        assert!(curve(&orders, &divergences[1..], runs).is_err());
        assert!(curve(&[1.0], &[0.1], runs).is_err());
        assert!(curve(&[2.0], &[f64::NAN], runs).is_err());
        assert!(curve(&[2.0], &[-0.1], runs).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn epsilon_rises_with_the_mean_and_falls_with_noise(
            z in 0.5f64..20.0, shape in -0.9f64..3.0, mean in 1.0f64..500.0, factor in 1.01f64..2.0,
        ) {
            let negative = |z, mean| epsilon(z, negative_binomial(shape, mean), 1e-6);
            prop_assert!(negative(z, mean * factor) >= negative(z, mean));
            prop_assert!(negative(z * factor, mean) <= negative(z, mean));
            let poisson = |z, mean| epsilon(z, Repetitions::Poisson { mean }, 1e-6);
            prop_assert!(poisson(z, mean * factor) >= poisson(z, mean));
            prop_assert!(poisson(z * factor, mean) <= poisson(z, mean));
        }
    }
}
