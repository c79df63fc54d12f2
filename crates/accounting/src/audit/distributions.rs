//! Distribution functions of the estimators, each accurate in its tails.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The standard normal distribution function.
pub(super) fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The standard normal density.
pub(super) fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// The standard normal quantile of `p` in `[0, 1]`; infinite at both ends.
///
/// # Source
/// Abramowitz and Stegun, formula 26.2.23, refined by three steps of Halley's method.
pub(super) fn normal_quantile(p: f64) -> f64 {
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let t = (-2.0 * p.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = numerator / denominator - t;
    for _ in 0..3 {
        let error = (normal_cdf(x) - p) / normal_density(x);
        let step = error / (1.0 + 0.5 * x * error);
        if !step.is_finite() {
            break;
        }
        x -= step;
    }
    x
}

/// The masses of a binomial distribution with `trials` trials and log odds `log_odds`, from 0 to `trials`.
///
/// The recursion starts at the mode and is normalised at the end, so no logarithm of a factorial loses digits.
pub(super) fn binomial_masses(trials: u64, log_odds: f64) -> Vec<f64> {
    let n = trials as f64;
    let odds = log_odds.exp();
    let mode = if odds.is_finite() {
        ((n + 1.0) * odds / (1.0 + odds)).min(n) as usize
    } else {
        trials as usize
    };
    let mut masses = vec![0.0; trials as usize + 1];
    masses[mode] = 1.0;
    for k in mode..trials as usize {
        masses[k + 1] = masses[k] * ((n - k as f64) / (k as f64 + 1.0)) * odds;
    }
    for k in (1..=mode).rev() {
        masses[k - 1] = masses[k] * (k as f64 / (n - k as f64 + 1.0)) / odds;
    }
    let total: f64 = masses.iter().sum();
    for mass in &mut masses {
        *mass /= total;
    }
    masses
}

/// Sums from the smallest masses of a tail on, so that small tails keep their digits.
pub(super) fn tail(masses: &[f64], at_least: usize) -> f64 {
    masses[at_least.min(masses.len())..].iter().rev().sum()
}

/// Both tails of a chi-squared variable with `freedom` degrees of freedom at `x`: below and above.
pub(super) fn chi_squared_tails(freedom: f64, x: f64) -> (f64, f64) {
    if x <= 0.0 {
        return (0.0, 1.0);
    }
    let (a, x) = (0.5 * freedom, 0.5 * x);
    let factor = (a * x.ln() - x - libm::lgamma(a)).exp();
    // Both expansions converge after a few times sqrt(a) terms.
    let terms = 200 + (40.0 * a.sqrt()) as usize;
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for k in 1..terms {
            term *= x / (a + k as f64);
            sum += term;
            if term < sum * 1e-17 {
                break;
            }
        }
        let below = (factor * sum).min(1.0);
        return (below, 1.0 - below);
    }
    // Lentz's method on the continued fraction of the upper incomplete gamma function.
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / tiny;
    let mut d = 1.0 / b;
    let mut h = d;
    for k in 1..terms {
        let k = k as f64;
        let an = k * (a - k);
        b += 2.0;
        d = 1.0 / nonzero(an * d + b, tiny);
        c = nonzero(b + an / c, tiny);
        let change = d * c;
        h *= change;
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    let above = (factor * h).min(1.0);
    (1.0 - above, above)
}

/// The value that a chi-squared variable with `freedom` degrees of freedom is below with probability `p` in (0, 1).
pub(super) fn chi_squared_quantile(freedom: f64, p: f64) -> f64 {
    let below = |x: f64| chi_squared_tails(freedom, x).0;
    let (mut low, mut high) = (0.0, freedom);
    while below(high) < p {
        (low, high) = (high, 2.0 * high);
    }
    while high - low > 1e-13 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        match below(middle) < p {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

fn nonzero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// The probability of a Kolmogorov-Smirnov distance of `distance` or more over `count` independent values.
///
/// # Source
/// Kolmogorov's series, with Stephens' correction for finite samples (1970); the error is below 1 % of a p-value of 0.2 or less
/// from 20 values on.
pub(super) fn kolmogorov_tail(distance: f64, count: usize) -> f64 {
    let root = (count as f64).sqrt();
    let scaled = (root + 0.12 + 0.11 / root) * distance;
    if scaled < 0.2 {
        return 1.0;
    }
    let mut sum = 0.0;
    for k in 1..=100 {
        let k = f64::from(k);
        let term = (-2.0 * k * k * scaled * scaled).exp();
        sum += if k % 2.0 == 1.0 { term } else { -term };
        if term < 1e-18 {
            break;
        }
    }
    (2.0 * sum).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_inverts_the_distribution() {
        for p in [1e-300, 1e-100, 1e-20, 1e-6, 0.01, 0.3, 0.5, 0.9, 1.0 - 1e-9] {
            let x = normal_quantile(p);
            let back = normal_cdf(x);
            assert!(
                (back - p).abs() <= 4e-15 * p * (1.0 + x * x),
                "{p}: {x} gives {back}"
            );
        }
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
    }

    #[test]
    fn masses_agree_with_pascals_triangle() {
        for (trials, odds) in [(1u64, 1.0f64), (7, 3.0), (30, 0.2), (40, 1e6)] {
            let masses = binomial_masses(trials, odds.ln());
            let mut expected = vec![1.0f64];
            for _ in 0..trials {
                let (p, q) = (odds / (1.0 + odds), 1.0 / (1.0 + odds));
                let mut next = vec![0.0; expected.len() + 1];
                for (k, mass) in expected.iter().enumerate() {
                    next[k] += q * mass;
                    next[k + 1] += p * mass;
                }
                expected = next;
            }
            for (got, want) in masses.iter().zip(&expected) {
                assert!((got - want).abs() <= 1e-12 * want + 1e-300, "{got} {want}");
            }
        }
    }

    /// Two degrees of freedom have an exponential tail, and one that of the normal distribution; many are nearly normal.
    #[test]
    fn chi_squared_tails_match_closed_forms() {
        for x in [1e-3, 0.5, 2.0, 9.0, 60.0] {
            let (_, above) = chi_squared_tails(2.0, x);
            assert!((above / (-0.5 * x).exp() - 1.0).abs() < 1e-12, "{x}: {above}");
            let (_, above) = chi_squared_tails(1.0, x);
            let want = 2.0 * normal_cdf(-x.sqrt());
            assert!((above - want).abs() < 1e-12 * (1.0 + want / want.max(1e-30)) * want.max(1e-3));
        }
        // Wilson and Hilferty's approximation is good to about 2e-4 of a tail here.
        let n = 51_200.0f64;
        for sigmas in [-5.0, -2.0, 0.0, 2.0, 5.0f64] {
            let spread = 2.0 / (9.0 * n);
            let x = n * (1.0 - spread + sigmas * spread.sqrt()).powi(3);
            let (below, above) = chi_squared_tails(n, x);
            let (got, want) = match sigmas < 0.0 {
                true => (below, normal_cdf(sigmas)),
                false => (above, normal_cdf(-sigmas)),
            };
            assert!((got / want - 1.0).abs() < 1e-3, "{sigmas}: {got} {want}");
        }
    }

    /// Two degrees of freedom have the quantile of an exponential variable; the other points stand in every table.
    #[test]
    fn chi_squared_quantiles() {
        for p in [1e-6, 0.005, 0.5, 0.98] {
            let (got, want) = (chi_squared_quantile(2.0, p), -2.0 * (-p).ln_1p());
            assert!((got / want - 1.0).abs() < 1e-9, "{p}: {got} {want}");
        }
        for (freedom, p, want) in [
            (10.0, 0.05, 3.940_3),
            (100.0, 0.005, 67.327_6),
            (100.0, 0.975, 129.561_2),
        ] {
            let got = chi_squared_quantile(freedom, p);
            assert!((got / want - 1.0).abs() < 1e-5, "{freedom} {p}: {got} {want}");
        }
    }

    /// The asymptotic points of the Kolmogorov distribution in every table.
    #[test]
    fn the_kolmogorov_tail_has_its_tabulated_points() {
        let count = 1_000_000_000_000;
        for (scaled, tail) in [(1.224, 0.1), (1.358_1, 0.05), (1.627_6, 0.01), (1.949_5, 0.001)] {
            let got = kolmogorov_tail(scaled / 1e6, count);
            assert!((got / tail - 1.0).abs() < 5e-3, "{scaled}: {got}");
        }
    }
}
