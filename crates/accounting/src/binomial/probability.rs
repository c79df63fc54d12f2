use std::f64::consts::PI;

/// The binomial distribution in log space, accurate however many trials there are.
///
/// # Source
/// Loader, "Fast and Accurate Computation of Binomial Probabilities" (2000): a saddle-point form in which
/// nothing larger than the result is ever subtracted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binomial {
    trials: u64,
    p: f64,
    /// `1 - p`, kept beside `p` so that neither end loses digits when failures become successes.
    failure: f64,
}

impl Binomial {
    /// `trials >= 1`, `p` in `(0, 1)`.
    pub(crate) fn new(trials: u64, p: f64) -> Self {
        Self {
            trials,
            p,
            failure: 1.0 - p,
        }
    }

    pub(crate) fn trials(&self) -> u64 {
        self.trials
    }

    pub(crate) fn mode(&self) -> u64 {
        ((self.trials as f64 * self.p) as u64).min(self.trials)
    }

    /// `ln P(X = x)` for `x <= trials`.
    pub(crate) fn log_mass(&self, x: u64) -> f64 {
        let (n, k, rest) = (self.trials as f64, x as f64, (self.trials - x) as f64);
        if x == 0 {
            return n * ln_of_share(self.failure, self.p);
        }
        if x == self.trials {
            return n * ln_of_share(self.p, self.failure);
        }
        // x - N p, from the smaller of the two probabilities: the other one may be rounded.
        let excess = if self.p < 0.5 {
            self.p.mul_add(-n, k)
        } else {
            -self.failure.mul_add(-n, rest)
        };
        stirling_error(self.trials)
            - stirling_error(x)
            - stirling_error(self.trials - x)
            - deviance(k, n * self.p, excess)
            - deviance(rest, n * self.failure, -excess)
            - 0.5 * (2.0 * PI * k * (rest / n)).ln()
    }

    /// Upper bound of `ln P(X <= x)`; at most 0.
    pub(crate) fn log_lower_tail(&self, x: u64) -> f64 {
        // Below the mode the masses fall at least as fast as by the first ratio.
        let falling = self.ratio_below(x);
        if x >= self.trials || falling >= 1.0 {
            return 0.0;
        }
        (self.log_mass(x) - (-falling).ln_1p()).min(0.0)
    }

    /// `P(X = x - 1) / P(X = x)`.
    pub(crate) fn ratio_below(&self, x: u64) -> f64 {
        (x as f64 / self.p) * (self.failure / ((self.trials - x) as f64 + 1.0))
    }

    /// Largest `x` with at most `e^log_tail` of mass below it.
    pub(crate) fn lowest_kept(&self, log_tail: f64) -> u64 {
        let (mut low, mut high) = (0, self.mode());
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.log_lower_tail(middle - 1) <= log_tail {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// The number of failures.
    pub(crate) fn mirrored(&self) -> Self {
        Self {
            trials: self.trials,
            p: self.failure,
            failure: self.p,
        }
    }

    /// `ln P(X = x) - ln P(X = x - shift)`; falls as `x` rises. `+inf` where only the first is possible.
    pub(crate) fn loss(&self, x: u64, shift: u64) -> f64 {
        // From here on the difference of two logarithms is as accurate as the sum of so many.
        const LONG: u64 = 64;
        if x < shift {
            return f64::INFINITY;
        }
        if x > self.trials {
            return f64::NEG_INFINITY;
        }
        if shift > LONG {
            return self.log_mass(x) - self.log_mass(x - shift);
        }
        let (mean, rest) = (self.trials as f64 * self.p + self.p, self.failure);
        (0..shift)
            .map(|step| {
                // ln of (N - k + 1) p / (k (1 - p)): next to 0 where k is next to the mean.
                let k = (x - step) as f64;
                let excess = (mean - k) / (k * rest);
                if excess > -0.5 {
                    excess.ln_1p()
                } else {
                    ((self.trials as f64 - k + 1.0) / k).ln() + (self.p / rest).ln()
                }
            })
            .sum()
    }
}

/// `ln share`, where `share + rest = 1`.
fn ln_of_share(share: f64, rest: f64) -> f64 {
    if share > 0.5 { (-rest).ln_1p() } else { share.ln() }
}

/// `ln n! - ((n + 1/2) ln n - n + ln(2 pi) / 2)`, `n >= 1`.
fn stirling_error(n: u64) -> f64 {
    let x = n as f64;
    if n <= 16 {
        let factorial: f64 = (1..=n).map(|k| k as f64).product();
        return factorial.ln() - ((x + 0.5) * x.ln() - x + 0.5 * (2.0 * PI).ln());
    }
    let square = x * x;
    let series = |inner: f64, coefficient: f64| coefficient - inner / square;
    [1.0 / 1188.0, 1.0 / 1680.0, 1.0 / 1260.0, 1.0 / 360.0, 1.0 / 12.0]
        .into_iter()
        .fold(691.0 / 360_360.0, series)
        / x
}

/// `x ln(x / m) + m - x` from an accurate `x - m`, without cancellation where `x` is next to `m`.
fn deviance(x: f64, m: f64, difference: f64) -> f64 {
    let sum = x + m;
    if difference.abs() >= 0.1 * sum {
        return x * (x / m).ln() - difference;
    }
    // ln(x / m) = 2 artanh(v); the first term of the series and m - x add up to (x - m) v.
    let v = difference / sum;
    let (mut power, mut total) = (2.0 * x * v, difference * v);
    for odd in (3..60).step_by(2) {
        power *= v * v;
        let next = total + power / f64::from(odd);
        if next == total {
            break;
        }
        total = next;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values by mpmath at 40 digits.
    #[test]
    fn log_masses_equal_values_of_mpmath() {
        let check = |trials, p, x, want: f64| {
            let got = Binomial::new(trials, p).log_mass(x);
            assert!(
                (got - want).abs() <= 3e-15 * want.abs(),
                "{trials} {p} {x}: {got} != {want}"
            );
        };
        check(10, 0.5, 3, -2.143_980_062_817_407);
        check(100, 0.25, 20, -3.009_818_209_423_986);
        check(100_000_000, 0.5, 50_000_000, -9.436_131_727_120_91);
        check(100_000_000, 0.5, 50_100_000, -209.436_263_060_663_59);
        check(100_000_000, 0.3, 30_012_345, -12.977_336_438_043_98);
        check(1_000_000_000_000, 0.25, 249_997_000_000, -37.897_520_874_791_475);
        check(1000, 1e-3, 0, -1.000_500_333_583_533_5);
        check(1000, 1e-3, 7, -9.539_703_839_885_064);
        check(1000, 1e-3, 1000, -6_907.755_278_982_137);
    }

    #[test]
    fn tails_are_upper_bounds() {
        for (trials, p) in [(1, 0.5), (2, 0.9), (30, 0.5), (400, 0.03), (1000, 0.7)] {
            let binomial = Binomial::new(trials, p);
            let mut below = 0.0;
            for x in 0..=trials {
                below += binomial.log_mass(x).exp();
                let bound = binomial.log_lower_tail(x).exp();
                assert!(
                    bound >= below * (1.0 - 1e-12),
                    "{trials} {p} {x}: {bound} < {below}"
                );
            }
            assert!((below - 1.0).abs() < 1e-13);
            let kept = binomial.lowest_kept(1e-9f64.ln());
            let cut: f64 = (0..kept).map(|x| binomial.log_mass(x).exp()).sum();
            assert!(cut <= 1e-9);
        }
    }

    #[test]
    fn losses_are_differences_of_log_masses() {
        for (trials, p, shift) in [(50, 0.5, 1), (1000, 0.2, 30), (1000, 0.2, 64), (1000, 0.8, 65)] {
            let binomial = Binomial::new(trials, p);
            for x in shift..=trials {
                let difference = binomial.log_mass(x) - binomial.log_mass(x - shift);
                let got = binomial.loss(x, shift);
                assert!((got - difference).abs() <= 1e-11, "{x}: {got} {difference}");
            }
            assert_eq!(binomial.loss(shift - 1, shift), f64::INFINITY);
        }
    }
}
