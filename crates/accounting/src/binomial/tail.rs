//! Tails of the binomial distribution as sums of its masses.

use super::Binomial;

/// `Pr[Bin(trials, p) >= min]`.
pub(crate) fn upper_tail(trials: u64, p: f64, min: u64) -> f64 {
    if min > trials {
        return 0.0;
    }
    if p == 1.0 || min == 0 {
        return 1.0;
    }
    if p <= 0.0 {
        return 0.0;
    }
    let binomial = Binomial::new(trials, p);
    // From the nearer side of the mode, masses fall geometrically.
    if min > binomial.mode() {
        let ratio = |k: u64| 1.0 / binomial.ratio_below(k + 1);
        (falling_sum(min..trials, ratio) * binomial.log_mass(min).exp()).min(1.0)
    } else {
        let below = falling_sum((1..min).rev(), |k| binomial.ratio_below(k));
        (1.0 - below * binomial.log_mass(min - 1).exp()).clamp(0.0, 1.0)
    }
}

/// `1 + r(k0) + r(k0) r(k1) + ...`, while it matters.
fn falling_sum(range: impl Iterator<Item = u64>, ratio: impl Fn(u64) -> f64) -> f64 {
    let (mut sum, mut mass) = (1.0, 1.0);
    for k in range {
        mass *= ratio(k);
        sum += mass;
        if mass <= 1e-18 * sum {
            break;
        }
    }
    sum
}
