//! Running a private mechanism a random number of times and releasing only the best run: hyperparameter
//! tuning that is itself private.
//!
//! # Source
//! Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy" (ICLR 2022).

use serde::{Deserialize, Serialize};

use super::conversion;
use crate::AccountingError;
use crate::discrete::positive;
use crate::error::{ensure, finite_order};
use crate::search::first_true;
use crate::special::{ln_1m_exp, ln_1p_exp, ln_expm1};

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

/// Bounds by Theorem 6, which states `mean e^(mean c) W` for the moment of the selected run. `W` is the moment of one run, and `c` is
/// `order - 1` times the delta of one run at `e^epsilon = order / (order - 1)`.
///
/// DEVIATION: that expression falls to 0 with the mean, but the moment never falls below 1, because nothing is released with probability
/// `e^-mean`. Where `mean e^(mean c) < 1`, the bound here is `1 + mean e^(mean c) (W - 1)`. It is the larger one there and the smaller one
/// elsewhere, where the theorem's is kept so that the paper and other accountants state the same numbers.
///
/// The second bound holds for every mean. Let `G` and `H` be the probabilities that one run is better than `y` under two neighbouring
/// datasets, with densities `p` and `q`, and let `h = order G - (order - 1) H`, which is at least `-c`. The moment of the selected run is
/// `e^-mean + mean int p^order q^(1 - order) e^(-mean h) dy`. By Bernoulli's inequality `p^order q^(1 - order)` is at least
/// `order p - (order - 1) q = -dh/dy`, and `h` falls from 1 to 0 as `y` rises. So
/// `int p^order q^(1 - order) (e^(mean c) - e^(-mean h)) dy >= e^(mean c) - (1 - e^-mean) / mean`, which bounds the integral of the moment.
fn poisson(orders: &[f64], divergences: &[f64], mean: f64) -> Vec<f64> {
    let at = |(&order, &divergence): (&f64, &f64)| {
        let hockey_stick_at = (1.0 / (order - 1.0)).ln_1p();
        let (log_delta, _) = conversion::log_delta(orders, divergences, hockey_stick_at);
        let log_factor = [mean.ln(), (order - 1.0) * mean * log_delta.exp()];
        let log_moment = (order - 1.0) * divergence;
        // PRIVACY: sums and products round to the nearest number, so each sum is raised by the last bits of its terms.
        let raised = |last: f64| {
            let terms = [log_factor[0], log_factor[1], last];
            let bits: f64 = terms.iter().map(|term| term.abs()).sum();
            terms.iter().sum::<f64>() + 4.0 * f64::EPSILON * bits
        };
        let selected = if log_factor[0] + log_factor[1] >= 0.0 {
            raised(log_moment)
        } else if log_moment == 0.0 {
            0.0
        } else {
            ln_1p_exp(raised(ln_expm1(log_moment)))
        };
        selected / (order - 1.0) * (1.0 + 8.0 * f64::EPSILON)
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
        check(Repetitions::Poisson { mean: 10.0 }, 1.980_403_781_702_884_3, 1e-9);
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

    /// The divergence of `p` from `q` at `order`.
    fn divergence(p: &[f64], q: &[f64], order: f64) -> f64 {
        let moment: f64 = p.iter().zip(q).map(|(p, q)| p * (p / q).powf(order - 1.0)).sum();
        moment.ln() / (order - 1.0)
    }

    /// The outcomes of a Poisson number of runs, of which the best one is shown. A run ends in outcome `i` with probability `one_run[i]`,
    /// later outcomes are better, and the last probability is that of no run.
    fn selected_of_poisson(one_run: &[f64], mean: f64) -> Vec<f64> {
        let mut better = 1.0f64;
        let mut selected = Vec::new();
        for chance in one_run {
            better -= chance;
            // No run ends better, and at least one ends here.
            selected.push((-mean * better.max(0.0)).exp() * -(-mean * chance).exp_m1());
        }
        selected.push((-mean).exp());
        selected
    }

    /// Checks the bound of a Poisson number of runs against the divergences of the selection itself. Returns the least ratio of both.
    fn check_poisson(one: &[f64], other: &[f64], mean: f64) -> f64 {
        let orders = [1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0];
        let larger = |p: &[f64], q: &[f64], order| divergence(p, q, order).max(divergence(q, p, order));
        let one_run: Vec<f64> = orders
            .iter()
            .map(|&order| larger(one, other, order).max(0.0))
            .collect();
        let bounds = curve(&orders, &one_run, Repetitions::Poisson { mean }).unwrap();
        let (one, other) = (selected_of_poisson(one, mean), selected_of_poisson(other, mean));
        let mut least = f64::INFINITY;
        for (order, bound) in orders.into_iter().zip(bounds) {
            let exact = larger(&one, &other, order);
            assert!(
                exact <= bound * (1.0 + 1e-9) + 1e-12,
                "order {order}, mean {mean}: {bound} < {exact}"
            );
            least = least.min(bound / exact);
        }
        least
    }

    #[test]
    fn a_poisson_number_of_runs_is_bounded_beside_its_mean_of_one() {
        // A coin of 3 to 1, whose better side is the likely one under one dataset and the unlikely one under the other.
        for mean in [1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.001, 2.0, 30.0] {
            assert!(check_poisson(&[0.25, 0.75], &[0.75, 0.25], mean) >= 1.0);
        }
        // Rare runs cost their mean times one run's moment, so the bound is nearly tight.
        assert!(check_poisson(&[0.25, 0.75], &[0.75, 0.25], 1e-6) < 1.01);
    }

    #[test]
    fn a_poisson_mean_of_at_least_one_costs_what_the_theorem_states() {
        // Randomised response: at the order `1 + 1 / (e^epsilon - 1)` no delta is left.
        let (epsilon, order): (f64, f64) = (0.5, 1.0 + 1.0 / 0.5f64.exp_m1());
        let likely = epsilon.exp() / (1.0 + epsilon.exp());
        let one_run = divergence(&[likely, 1.0 - likely], &[1.0 - likely, likely], order);
        for mean in [1.0, 3.0, 1000.0] {
            // The order 1e9 says that the loss of one run never exceeds epsilon, up to its last digits.
            let found = curve(
                &[order, 1e9],
                &[one_run, epsilon * (1.0 - 1e-9)],
                Repetitions::Poisson { mean },
            )
            .unwrap();
            let stated = one_run + mean.ln() / (order - 1.0);
            assert!(
                found[0] >= stated && found[0] <= stated * (1.0 + 1e-6),
                "{mean}: {found:?} {stated}"
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
        fn the_selection_of_a_poisson_number_of_runs_obeys_its_bound(
            weights in prop::collection::vec((0.01f64..1.0, 0.01f64..1.0), 2..7), log_mean in -7.0f64..4.0,
        ) {
            let normalised = |weights: Vec<f64>| {
                let total: f64 = weights.iter().sum();
                weights.into_iter().map(|weight| weight / total).collect::<Vec<_>>()
            };
            let (one, other) = weights.into_iter().unzip();
            check_poisson(&normalised(one), &normalised(other), log_mean.exp());
        }

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
