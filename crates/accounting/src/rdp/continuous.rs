//! The conversion from Renyi divergences to epsilon, minimised over continuous orders.
//!
//! For wide noise the best order lies far above any fixed grid, for very narrow noise next to 1; every
//! order gives a valid bound, so a search that stops early costs tightness only.

use super::{conversion, default_orders};

/// Orders beyond this are not tried.
const HIGHEST: f64 = 1e15;
/// Excesses over 1 below this are not tried.
const CLOSEST: f64 = 1e-9;
/// Shrinkings of the bracket by the golden section: to 10^-9 of its width.
const STEPS: u32 = 44;

/// Smallest epsilon at `delta = e^log_delta` and the order it was found at, for the total Renyi divergence
/// `curve(order)`.
///
/// `curve` is called at orders of the default grid and, only while they improve the result, at orders outside
/// it and between its points; it may return `+inf` (or NaN) where it has no bound. Returns `+inf` if it has
/// none anywhere.
///
/// # Guarantee
/// Never above the minimum over [`default_orders`]. Where `curve` bounds the divergence, the result bounds
/// epsilon.
///
/// # Source
/// The conversion of [`conversion::epsilon`].
///
/// # Example
/// ```
/// use undertone_accounting::rdp::{continuous, conversion, default_orders};
/// let curve = |order: f64| 0.5 * order / (1e4 * 1e4); // Gaussian, z = 10^4
/// let (epsilon, order) = continuous::epsilon(curve, 1e-9f64.ln());
/// let orders = default_orders();
/// let on_grid: Vec<f64> = orders.iter().map(|&order| curve(order)).collect();
/// assert!(order > 1e4 && epsilon < 0.05 * conversion::epsilon(&orders, &on_grid, 1e-9f64.ln()).0);
/// ```
#[must_use]
pub fn epsilon(curve: impl Fn(f64) -> f64, log_delta: f64) -> (f64, f64) {
    let at = |order: f64| {
        let divergence = curve(order);
        // PRIVACY: no bound is an infinite one.
        let divergence = if divergence.is_nan() {
            f64::INFINITY
        } else {
            divergence
        };
        conversion::epsilon(&[order], &[divergence], log_delta).0
    };
    let mut points: Vec<(f64, f64)> = default_orders()
        .into_iter()
        .map(|order| (order, at(order)))
        .collect();
    let mut best = lowest(&points);
    // Outwards in ratios of two while the end of the grid is where the minimum is.
    while best == points.len() - 1 && points[best].0 < HIGHEST && points[best].1 > 0.0 {
        let order = 2.0 * points[best].0;
        points.push((order, at(order)));
        best = lowest(&points);
    }
    while best == 0 && points[0].0 - 1.0 > CLOSEST && points[0].1 > 0.0 {
        let order = 1.0 + 0.5 * (points[0].0 - 1.0);
        points.insert(0, (order, at(order)));
        best = lowest(&points);
    }
    let (order, value) = points[best];
    if !(value > 0.0 && value.is_finite()) {
        return (value, order);
    }
    let low = points[best.saturating_sub(1)].0;
    let high = points[(best + 1).min(points.len() - 1)].0;
    let refined = golden_section((low - 1.0).ln(), (high - 1.0).ln(), |excess| {
        let order = 1.0 + excess.exp();
        (at(order), order)
    });
    if refined.0 < value {
        refined
    } else {
        (value, order)
    }
}

/// Index of the smallest value; the first one of equals.
fn lowest(points: &[(f64, f64)]) -> usize {
    let mut best = 0;
    for (index, point) in points.iter().enumerate() {
        if point.1 < points[best].1 {
            best = index;
        }
    }
    best
}

fn golden_section(mut low: f64, mut high: f64, f: impl Fn(f64) -> (f64, f64)) -> (f64, f64) {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut f_left, mut f_right) = (f(left), f(right));
    for _ in 0..STEPS {
        if f_left.0 <= f_right.0 {
            high = right;
            (right, f_right) = (left, f_left);
            left = high - GOLDEN * (high - low);
            f_left = f(left);
        } else {
            low = left;
            (left, f_left) = (right, f_right);
            right = low + GOLDEN * (high - low);
            f_right = f(right);
        }
    }
    if f_left.0 <= f_right.0 { f_left } else { f_right }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, NoiseMultiplier, Rho, SamplingProbability, rdp, zcdp};
    use proptest::prelude::*;

    #[test]
    fn odd_curves_give_the_best_epsilon_they_allow() {
        assert_eq!(epsilon(|_| f64::INFINITY, -10.0).0, f64::INFINITY);
        assert_eq!(epsilon(|_| f64::NAN, -10.0).0, f64::INFINITY);
        assert_eq!(epsilon(|_| 0.0, -10.0).0, 0.0);
        // A pure epsilon bound: the limit of high orders, a little below it thanks to delta.
        let (got, order) = epsilon(|_| 3.0, -20.0);
        assert!((2.999_999..3.0).contains(&got) && order > 1e8, "{got} {order}");
        // Bounds at even integers only: the grid has some.
        let (got, _) = epsilon(|a| if a % 2.0 == 0.0 { 0.1 * a } else { f64::NAN }, -20.0);
        assert!(got.is_finite());
        // A curve that explodes above order 1.05, below the default grid.
        let (got, order) = epsilon(|a| if a < 1.05 { 0.1 } else { f64::INFINITY }, -20.0);
        assert!(got.is_finite() && order < 1.05, "{got} {order}");
    }

    #[test]
    fn sampled_gaussian_beats_its_grid() {
        let (q, z) = (
            SamplingProbability::new(1e-3).unwrap(),
            NoiseMultiplier::new(60.0).unwrap(),
        );
        let curve = |order| 10.0 * rdp::poisson_gaussian::rdp(q, z, order);
        let orders = default_orders();
        let on_grid: Vec<f64> = orders.iter().map(|&order| curve(order)).collect();
        let (grid, _) = conversion::epsilon(&orders, &on_grid, -20.0);
        let (got, order) = epsilon(curve, -20.0);
        assert!(order > 1024.0 && got < grid, "{got} {grid} at {order}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn gaussians_match_zcdp(log_rho in -30.0f64..6.0, log10_delta in -30.0f64..-1.0) {
            let (rho, delta) = (log_rho.exp(), 10f64.powf(log10_delta));
            let (got, _) = epsilon(|order| rho * order, delta.ln());
            let want = zcdp::epsilon(Rho::new(rho).unwrap(), Delta::new(delta).unwrap()).unwrap().get();
            // Where the total variation distance is below delta, this conversion knows it is 0.
            prop_assert!(got <= want * (1.0 + 1e-9) + 1e-12, "{got} {want}");
            prop_assert!(got >= want * (1.0 - 1e-7) - 1e-12 || got == 0.0, "{got} {want}");
        }
    }
}
