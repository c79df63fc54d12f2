//! Special functions in log space.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

/// Streaming `ln sum exp`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSum {
    peak: f64,
    scaled: f64,
}

impl LogSum {
    pub(crate) fn new() -> Self {
        Self {
            peak: f64::NEG_INFINITY,
            scaled: 0.0,
        }
    }

    pub(crate) fn add(&mut self, term: f64) {
        if term == f64::NEG_INFINITY {
        } else if term == f64::INFINITY || self.peak == f64::INFINITY {
            self.peak = f64::INFINITY;
        } else if term <= self.peak {
            self.scaled += (term - self.peak).exp();
        } else {
            self.scaled = self.scaled * (self.peak - term).exp() + 1.0;
            self.peak = term;
        }
    }

    pub(crate) fn get(self) -> f64 {
        if self.peak.is_infinite() {
            self.peak
        } else {
            self.peak + self.scaled.ln()
        }
    }
}

/// `ln(1 + e^x)`.
pub(crate) fn ln_1p_exp(x: f64) -> f64 {
    if x > 0.0 {
        x + (-x).exp().ln_1p()
    } else {
        x.exp().ln_1p()
    }
}

/// `ln(e^x - 1)` for `x >= 0`.
pub(crate) fn ln_expm1(x: f64) -> f64 {
    if x > 1.0 {
        x + (-(-x).exp()).ln_1p()
    } else {
        x.exp_m1().ln()
    }
}

/// `ln(1 - e^x)` for `x <= 0`.
pub(crate) fn ln_1m_exp(x: f64) -> f64 {
    if x > -LN_2 {
        (-x.exp_m1()).ln()
    } else {
        (-x.exp()).ln_1p()
    }
}

/// `ln(e^{x^2} erfc(x))` for `x >= 0`.
pub(crate) fn ln_erfcx(x: f64) -> f64 {
    // From 8 on the asymptotic series reaches full precision; below it the product loses x^2 ulps at most.
    if x < 8.0 {
        return x * x + libm::erfc(x).ln();
    }
    let step = 0.5 / (x * x);
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..32 {
        term *= -step * f64::from(2 * k - 1);
        if term.abs() < 1e-17 {
            break;
        }
        sum += term;
    }
    sum.ln() - x.ln() - 0.5 * PI.ln()
}

/// `ln erfc(x)` for any `x`.
pub(crate) fn ln_erfc(x: f64) -> f64 {
    if x < 0.0 {
        LN_2 + (-0.5 * libm::erfc(-x)).ln_1p()
    } else if x < 5.0 {
        libm::erfc(x).ln()
    } else {
        ln_erfcx(x) - x * x
    }
}

/// `ln Phi(t)`, the log of the standard normal distribution function.
pub(crate) fn ln_normal_cdf(t: f64) -> f64 {
    let x = t * FRAC_1_SQRT_2;
    if x > 0.0 {
        (-0.5 * libm::erfc(x)).ln_1p()
    } else {
        ln_erfc(-x) - LN_2
    }
}

/// `ln(1 - q + q e^loss)`: the loss when the user that makes the difference joins with probability `q` only.
pub(crate) fn sampled_loss(q: f64, loss: f64) -> f64 {
    if q >= 1.0 {
        return loss;
    }
    if loss >= 30.0 {
        return loss + (q + (1.0 - q) * (-loss).exp()).ln();
    }
    let rise = q * loss.exp_m1();
    // Near -1 the sum of two small numbers keeps the digits that `1 + rise` has not.
    if rise > -0.5 {
        rise.ln_1p()
    } else {
        ((1.0 - q) + q * loss.exp()).ln()
    }
}

/// `ln C(n, k)` for whole `n >= k >= 0`.
pub(crate) fn ln_binomial(n: f64, k: f64) -> f64 {
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

/// `ln((1 + t)^a - 1 - a t)` for `log_1p = ln(1 + t)` and `a` outside `[0, 1]`: the curve's height above its
/// tangent.
pub(crate) fn log_power_gap(t: f64, log_1p: f64, a: f64) -> f64 {
    if t.abs() * a.abs().max(1.0) < 0.02 {
        let mut term = 0.5 * a * (a - 1.0) * t * t;
        let mut sum = 0.0;
        for k in 2..20 {
            sum += term;
            term *= (a - f64::from(k)) / f64::from(k + 1) * t;
        }
        return sum.ln();
    }
    let power = a * log_1p;
    if power > 30.0 {
        power + (-(1.0 + a * t) * (-power).exp()).ln_1p()
    } else {
        (power.exp_m1() - a * t).ln()
    }
}

/// `ln` of what a loss adds to `E_Q[(P/Q)^a] - 1` for each unit of `Q`: [`log_power_gap`] at `e^loss - 1`, which is no less than 0.
///
/// PRIVACY: no sum of such parts is 0 by rounding, as a difference of moments would be. The gap grows away from a loss of 0 on both sides, so
/// the loss is taken further from 0 by more than its rounding error.
pub(crate) fn log_gap_of_loss(loss: f64, a: f64) -> f64 {
    const ROUNDING: f64 = 1e-15;
    // Far above the tangent, which overflows.
    const LARGE: f64 = 300.0;
    let loss = loss + ROUNDING.copysign(loss);
    if loss > LARGE {
        a * loss
    } else {
        log_power_gap(loss.exp_m1(), loss, a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values by mpmath at 40 digits.
    #[test]
    fn ln_normal_cdf_equals_values_of_mpmath() {
        let check = |t: f64, want: f64| {
            let got = ln_normal_cdf(t);
            assert!(
                (got - want).abs() <= 2e-14 * want.abs(),
                "t = {t}: {got} != {want}"
            );
        };
        check(-1e4, -50_000_010.129_278_91);
        check(-38.0, -726.557_216_018_820_1);
        check(-10.0, -53.231_285_150_512_47);
        check(-8.0, -35.013_437_159_914_85);
        check(-1.0, -1.841_021_645_009_264);
        check(0.0, -LN_2);
        check(3.0, -0.001_350_809_964_748_193_8);
        check(9.0, -1.128_588_405_953_840_6e-19);
    }

    /// Values by mpmath at 40 digits.
    #[test]
    fn sampled_losses_keep_their_digits_at_both_ends() {
        let check = |q: f64, loss: f64, want: f64| {
            let got = sampled_loss(q, loss);
            assert!((got / want - 1.0).abs() < 4e-16, "{q} {loss}: {got} {want}");
        };
        check(1.0, -36.7, -36.7);
        check(1.0, -500.0, -500.0);
        check(1.0 - 1e-12, -40.0, -27.631_038_989_454_144);
        check(0.3, -1e-9, -2.999_999_998_95e-10);
        check(1e-9, -700.0, -1.000_000_000_500_000_1e-09);
        check(1e-9, 45.0, 24.276_734_163_082_214);
    }

    #[test]
    fn log_sums_match_logarithms_and_keep_infinity() {
        let mut sum = LogSum::new();
        assert_eq!(sum.get(), f64::NEG_INFINITY);
        for term in [f64::NEG_INFINITY, 0.0, 1.0, -700.0, 3.0] {
            sum.add(term);
        }
        let want = (1.0 + 1f64.exp() + 3f64.exp()).ln();
        assert!((sum.get() - want).abs() < 1e-15);
        sum.add(f64::INFINITY);
        sum.add(2.0);
        assert_eq!(sum.get(), f64::INFINITY);
    }
}
