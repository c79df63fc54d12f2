//! Lower-triangular Toeplitz strategies with columns scaled to norm one over a fixed run.

use super::general::{share_at_least, share_exactly};
use super::separated::largest_sum;
use crate::AccountingError;
use crate::error::{ensure, ensure_any};
use crate::participation::{Participation, Spacing};
use crate::sensitivity::{SquaredSensitivity, sizes};

/// Relative to the first coefficient, entries below it change no sum in double precision, nor do their squares.
const NEGLIGIBLE: f64 = 1e-140;

/// Minimum square of the first coefficient: smaller ones lose digits, and so do the norms of late columns.
const SMALLEST_SQUARE: f64 = f64::MIN_POSITIVE / f64::EPSILON;

/// Maximum error by rounding in the coefficients with which a value is still called exact.
const ROUNDING: f64 = 1e-9;

/// `C = T D^-1`: `T` the lower-triangular Toeplitz matrix of one coefficient per round, `D` the norms of its columns.
///
/// Late columns of `T` are cut short by the end of the run and weigh less than the sensitivity allows; scaled to norm one
/// they make late rounds cheaper at the same sensitivity of one participation.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::normalised::NormalisedToeplitz;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let prefix_sums = NormalisedToeplitz::new(vec![1.0; 4])?;
/// assert!((prefix_sums.squared_sensitivity(4, &Participation::single())?.get() - 1.0).abs() < 1e-15);
/// let twice = Participation::at_least(Gap::new(2)?, 2)?;
/// // Rounds 0 and 2: norms 2 and sqrt 2, inner product 2.
/// let squared = prefix_sums.squared_sensitivity(4, &twice)?.get();
/// assert!((squared - (2.0 + 2.0 * 2.0 / 8f64.sqrt())).abs() < 1e-14);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NormalisedToeplitz {
    coefficients: Vec<f64>,
    /// `[j]`: squared norm of the first `j` coefficients.
    squares: Vec<f64>,
}

impl NormalisedToeplitz {
    /// A matrix from one finite coefficient per round, the diagonal's first, whose square has to keep its digits; the
    /// run has as many rounds.
    ///
    /// # Errors
    /// [`AccountingError::Size`] for no coefficient; [`AccountingError::OutOfRange`] for one that is not finite, a first
    /// one that is 0 or whose square underflows, or squares that overflow.
    pub fn new(coefficients: Vec<f64>) -> Result<Self, AccountingError> {
        ensure_any("coefficients", &coefficients)?;
        let mut sum = 0.0;
        let mut squares = vec![0.0];
        squares.extend(coefficients.iter().map(|coefficient| {
            sum += coefficient * coefficient;
            sum
        }));
        let expected =
            "a finite number, the first one well above 1e-146 in magnitude, squares that do not overflow";
        let holds = sum.is_finite() && squares[1] >= SMALLEST_SQUARE;
        let got = if sum.is_finite() { coefficients[0] } else { sum };
        ensure(holds, "coefficient", expected, got)?;
        Ok(Self {
            coefficients,
            squares,
        })
    }

    /// Norms of the columns of `T`, one per round: the factors of each round's noise.
    #[must_use]
    pub fn column_norms(&self) -> Vec<f64> {
        self.squares[1..]
            .iter()
            .rev()
            .map(|square| square.sqrt())
            .collect()
    }

    /// The exact squared sensitivity of the first `rounds` rounds, where it is known.
    ///
    /// | condition | worst set |
    /// |---|---|
    /// | one participation | the largest column |
    /// | no coefficient from the gap on | columns that never meet: any set, by a linear programme |
    /// | the whole run, coefficients positive, nowhere growing, log-convex | as early as possible: `0, b, 2 b, ...` |
    /// | any other | the early set, if it attains the bound |
    ///
    /// # Guarantee
    /// Exact under the zero-out relation, for both kinds of spacing, up to rounding (1e-9, mostly 1e-12).
    ///
    /// The third line: let `X` be the inner products of the unit columns, `Q_m = sum_{t<m} c_t^2`, and
    /// `S_m(h) = sum_{t<m} c_t c_{t+h}`, so that `X(i, i + h) = S_m(h) / sqrt(Q_m Q_{m+h})` with `m = n - i - h`.
    /// (1) `X(i, j)` does not grow with `j > i`: with `N = n - i`, one row less takes at least `c_{m-1} c_{N-1}` from
    /// `S`, while `S_{m-1} <= Q_{m-1} c_{N-1} / c_{m-2}` by log-convexity, so `Q` loses less than half as much.
    /// (2) `X(i, i + h)` does not grow with `i`: `S_m(h) / Q_m` is a mean of the growing ratios `c_{t+h} / c_t`, and
    /// `Q_m / Q_{m+h}` grows with `m`. A set `i_0 < i_1 < ..` spaced by at least `b` has `i_l >= l b` and
    /// `i_l - i_m >= (l - m) b`, so `X(i_m, i_l) <= X(i_m, i_m + (l - m) b) <= X(m b, l b)`: no set exceeds the early one.
    ///
    /// # Errors
    /// [`AccountingError::NoExactSensitivity`] where no line applies;
    /// [`NormalisedToeplitz::squared_sensitivity_bound`] still answers. [`AccountingError::OutOfRange`] for no rounds or
    /// more than the matrix has.
    ///
    /// # Source
    /// Own; the counterpart for columns of norm one of \[BLT\] Theorem 3.1.
    pub fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        self.certified(rounds, participation)?
            .map_err(|(position, found)| AccountingError::NoExactSensitivity {
                expected: "positive coefficients that never grow, are log-convex and cover the run, or no wider than the \
                           gap",
                position,
                found,
            })
    }

    /// An upper bound on the squared sensitivity of the first `rounds` rounds, for any coefficients; the exact value where
    /// [`NormalisedToeplitz::squared_sensitivity`] has it. Otherwise time is quadratic in the rounds.
    ///
    /// # Guarantee
    /// Never below the true value: as
    /// [`LowerTriangular::squared_sensitivity_bound`](super::general::LowerTriangular::squared_sensitivity_bound).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no rounds or more than the matrix has.
    pub fn squared_sensitivity_bound(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        self.certified(rounds, participation)?
            .or_else(|_| SquaredSensitivity::new(self.bound(rounds, participation)?))
    }

    /// The exact value, or the place where the last condition fails.
    fn certified(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<Result<SquaredSensitivity, (usize, f64)>, AccountingError> {
        let total = self.coefficients.len();
        let expected = "no more than the matrix has coefficients";
        ensure(rounds <= total, "rounds", expected, rounds as f64)?;
        let schema = participation.effective(rounds as u64)?.participation;
        let (gap, max_par) = sizes(&schema, rounds);
        let mut after_gap = self.coefficients[..rounds].iter().skip(gap);
        if max_par == 1 || after_gap.all(|&coefficient| coefficient == 0.0) {
            let norms: Vec<f64> = (0..rounds)
                .map(|j| self.squares[rounds - j] / self.squares[total - j])
                .collect();
            let most = schema.max_participation();
            let sum = largest_sum(&norms, schema.spacing(), schema.gap(), most);
            return SquaredSensitivity::new(sum).map(Ok);
        }
        let early = self.early_squared_norm(rounds, gap, max_par);
        let breach = match self.log_convex() {
            Ok(defect) => {
                if rounds == total && defect <= ROUNDING {
                    return SquaredSensitivity::new(early * defect.exp()).map(Ok);
                }
                (rounds, defect)
            }
            Err(breach) => breach,
        };
        let bound = self.bound(rounds, participation)?;
        if bound <= early * (1.0 + 1e-12) {
            return SquaredSensitivity::new(bound).map(Ok);
        }
        Ok(Err(breach))
    }

    /// Checks that the coefficients are positive, never grow and are log-convex. Returns the maximum that ratios which
    /// rounding makes fall can add to the logarithm of the early set's squared norm, or else the first offender.
    ///
    /// With ratios `c_{t+1} / c_t` that fall by at most a factor `1 + eta` below any earlier one, each step of (1) above
    /// has a factor 2 to spare against `(1 + eta)^n`; the steps of (2) lose a factor `exp(delta c_m^2 / Q_m)` each,
    /// `delta = (1 + eta)^n - 1`, which makes `exp(delta log2(Q_n / Q_1))` in all.
    fn log_convex(&self) -> Result<f64, (usize, f64)> {
        let (mut largest, mut fall) = (0.0f64, 1.0f64);
        for (t, pair) in self.coefficients.windows(2).enumerate() {
            // Positive, not growing; also refuses a first coefficient below 0.
            if !(pair[1] > 0.0 && pair[1] <= pair[0]) {
                return Err((t + 1, pair[1]));
            }
            let ratio = pair[1] / pair[0];
            largest = largest.max(ratio);
            fall = fall.max(largest / ratio);
            // A tail this small may be replaced by a geometric one: no inner product notices. It ends the ratios'
            // meaning, too, once numbers become subnormal.
            let negligible = NEGLIGIBLE * self.coefficients[0];
            if pair[1] < negligible {
                // PRIVACY: it has to stay this small to the end, whatever its signs.
                let tail = self.coefficients.iter().enumerate().skip(t + 2);
                match tail.map(|(i, c)| (i, *c)).find(|(_, c)| c.abs() >= negligible) {
                    Some(offender) => return Err(offender),
                    None => break,
                }
            }
            if fall > 1.0 + 0.5 / self.coefficients.len() as f64 {
                return Err((t + 1, pair[1]));
            }
        }
        let rounds = self.coefficients.len();
        let delta = (rounds as f64 * (fall - 1.0).ln_1p()).exp_m1();
        Ok(delta * (self.squares[rounds] / self.squares[1]).log2())
    }

    /// Squared norm of the sum of the unit columns `0, b, 2 b, ...` over the first `rounds` rounds.
    fn early_squared_norm(&self, rounds: usize, gap: usize, max_par: usize) -> f64 {
        let total = self.coefficients.len();
        let mut sum = vec![0.0; rounds];
        for first in (0..rounds).step_by(gap).take(max_par) {
            let scale = self.squares[total - first].sqrt().recip();
            for (entry, coefficient) in sum[first..].iter_mut().zip(&self.coefficients) {
                *entry += scale * coefficient;
            }
        }
        sum.iter().map(|entry| entry * entry).sum()
    }

    /// Algorithm 4 of Choquette-Choo et al. (2023) with the inner set made to hold its row.
    fn bound(&self, rounds: usize, participation: &Participation) -> Result<f64, AccountingError> {
        let schema = participation.effective(rounds as u64)?.participation;
        let (gap, max_par) = sizes(&schema, rounds);
        let (c, total) = (&self.coefficients[..rounds], self.coefficients.len());
        let norms = self.column_norms();
        // Inner products of column i of T with column i + h, and with column i - h: each is that of the row after plus
        // one product.
        let (mut right, mut left) = (vec![0.0; rounds], vec![0.0; rounds]);
        let mut row = vec![0.0; rounds];
        let mut shares = vec![0.0; rounds];
        for i in (0..rounds).rev() {
            let last = rounds - 1 - i;
            for (sum, coefficient) in right.iter_mut().zip(c[..=last].iter().rev()) {
                *sum += coefficient * c[last];
            }
            for (sum, coefficient) in left.iter_mut().zip(&c[last..]) {
                *sum += coefficient * c[last];
            }
            for h in 0..=last {
                row[i + h] = f64::abs(right[h] / (norms[i] * norms[i + h]));
            }
            for h in 1..=i {
                row[i - h] = f64::abs(left[h] / (norms[i] * norms[i - h]));
            }
            shares[i] = match schema.spacing() {
                Spacing::AtLeast => share_at_least(&row, i, gap, max_par),
                Spacing::Exactly => share_exactly(&row, i, gap, max_par),
            };
        }
        let rows = largest_sum(
            &shares,
            schema.spacing(),
            schema.gap(),
            schema.max_participation(),
        );
        // A run that stops early releases some rows of the whole one.
        Ok(match self.log_convex() {
            Ok(defect) => {
                let whole = self.early_squared_norm(total, gap, max_par);
                rows.min(whole * defect.exp())
            }
            Err(_) => rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sensitivity::exhaustive::{self, at_least};
    use crate::sensitivity::general::LowerTriangular;
    use crate::sensitivity::toeplitz::Toeplitz;

    /// The matrix itself, its first `rounds` rounds.
    fn entries(coefficients: &[f64], rounds: usize) -> Vec<f64> {
        let norm = |j: usize| {
            let column = &coefficients[..coefficients.len() - j];
            column.iter().map(|c| c * c).sum::<f64>().sqrt()
        };
        let entry = |i: usize, j: usize| i.checked_sub(j).map_or(0.0, |lag| coefficients[lag] / norm(j));
        (0..rounds * rounds)
            .map(|index| entry(index / rounds, index % rounds))
            .collect()
    }

    /// The largest `|| C u ||^2` over sets, all moves in one direction.
    fn maximum(coefficients: &[f64], rounds: usize, schema: &Participation) -> f64 {
        let entries = entries(coefficients, rounds);
        exhaustive::maximum(rounds, schema, |set| {
            let row = |i: usize| set.iter().map(|&j| entries[i * rounds + j]).sum::<f64>();
            (0..rounds).map(|i| row(i) * row(i)).sum()
        })
    }

    fn buffered(theta: &[f64], omega: &[f64], rounds: usize) -> Vec<f64> {
        Toeplitz::buffered(theta, omega, rounds)
            .unwrap()
            .coefficients()
            .to_vec()
    }

    /// Upper and lower bounds that an independent implementation found equal, at n = 2052, k = 6, gap 342.
    #[test]
    fn sensitivities_match_an_independent_implementation() {
        let check = |theta: &[f64], omega: &[f64], want: f64| {
            let strategy = NormalisedToeplitz::new(buffered(theta, omega, 2052)).unwrap();
            let got = strategy.squared_sensitivity(2052, &at_least(342, 6)).unwrap();
            assert!((got.sensitivity() / want - 1.0).abs() < 1e-11, "{got} {want}");
            // And by Algorithm 4, which needs no theorem.
            let rows = strategy.bound(2052, &at_least(342, 6)).unwrap();
            assert!(
                rows >= got.get() * (1.0 - 1e-11) && rows.sqrt() < want * (1.0 + 1e-9),
                "{rows} {want}"
            );
        };
        check(
            &[0.9937254056561524, 0.7889499650960767],
            &[0.141086426173556, 0.32590300080917545],
            2.5988306931214353,
        );
        check(
            &[
                0.9995832266511483,
                0.9933818002038179,
                0.944423206512904,
                0.618335798377082,
            ],
            &[
                0.027582817831887454,
                0.057286518047736566,
                0.15061733014518985,
                0.25810706600532224,
            ],
            3.365210626836693,
        );
    }

    #[test]
    fn a_tail_that_underflows_leaves_the_bound_tight() {
        let coefficients = buffered(&[0.1], &[0.05], 600);
        assert_eq!(coefficients[599], 0.0);
        let strategy = NormalisedToeplitz::new(coefficients).unwrap();
        let schema = at_least(1, 600);
        let got = strategy.squared_sensitivity(600, &schema).unwrap();
        let rows = strategy.squared_sensitivity_bound(600, &schema).unwrap();
        assert!(got.get() >= 600.0 && got == rows, "{got}");
    }

    #[test]
    fn coefficients_outside_the_condition_have_no_exact_sensitivity() {
        for bad in [
            vec![],
            vec![1.0, f64::NAN],
            vec![0.0, 1.0],
            vec![1e200],
            vec![3e-162],
        ] {
            assert!(NormalisedToeplitz::new(bad).is_err());
        }
        let strategy = NormalisedToeplitz::new(vec![1.0, 0.2, 0.9, 0.1, 0.05, 0.6]).unwrap();
        let error = strategy
            .squared_sensitivity(6, &at_least(1, 2))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("log-convex") && error.contains("_bound"),
            "{error}"
        );
        assert!(strategy.squared_sensitivity(7, &at_least(1, 2)).is_err());
        assert!(strategy.squared_sensitivity(0, &at_least(1, 2)).is_err());
        assert!(strategy.squared_sensitivity_bound(6, &at_least(1, 2)).is_ok());
        // A coefficient that vanishes in double precision does not end the series.
        for tail in [-0.9, 0.9] {
            let returning = NormalisedToeplitz::new(vec![1.0, 1e-145, tail, 0.0]).unwrap();
            assert!(returning.squared_sensitivity(4, &at_least(2, 3)).is_err() || tail > 0.0);
            let bound = returning
                .squared_sensitivity_bound(4, &at_least(2, 2))
                .unwrap()
                .get();
            assert!(bound >= 2.0 + 1.8 / 1.81f64.sqrt() - 1e-12, "{bound}");
        }
        // Zeros after the band are no log-convex tail.
        let banded = NormalisedToeplitz::new(vec![1.0, 0.9, 0.8, 0.0, 0.0, 0.0, 0.0]).unwrap();
        assert!(banded.squared_sensitivity(7, &at_least(2, 3)).is_err());
        let apart = banded.squared_sensitivity(7, &at_least(3, 2)).unwrap().get();
        assert!((apart - 2.0).abs() < 1e-15);
    }

    #[test]
    fn the_run_may_be_one_round() {
        let strategy = NormalisedToeplitz::new(vec![-3.0]).unwrap();
        assert_eq!(
            strategy.squared_sensitivity(1, &at_least(1, 5)).unwrap().get(),
            1.0
        );
        assert_eq!(strategy.column_norms(), [3.0]);
    }

    /// Positive, never growing, log-convex: mixtures of exponentials with a share that ends at once.
    fn mixture() -> impl Strategy<Value = Vec<f64>> {
        (
            1usize..=14,
            prop::collection::vec((0.0..=1.0f64, 0.001..1.0f64), 1..4),
            0.0..1.0f64,
        )
            .prop_map(|(rounds, parts, head)| {
                let value = |t: usize| -> f64 {
                    parts
                        .iter()
                        .map(|(decay, share)| share * decay.powi(t as i32))
                        .sum()
                };
                (0..rounds)
                    .map(|t| value(t) + if t == 0 { head } else { 0.0 })
                    .collect()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn early_is_worst(coefficients in mixture(), schema in exhaustive::schema(6, 6)) {
            let rounds = coefficients.len();
            let strategy = NormalisedToeplitz::new(coefficients.clone()).unwrap();
            let want = maximum(&coefficients, rounds, &schema);
            let got = strategy.squared_sensitivity(rounds, &schema).unwrap().get();
            prop_assert!((got / want - 1.0).abs() <= 1e-9, "{} {}", got, want);
            let bound = strategy.bound(rounds, &schema).unwrap();
            prop_assert!(bound >= want * (1.0 - 1e-12), "{} {}", bound, want);
        }

        #[test]
        fn bounds_hold_over_all_sets(
            coefficients in prop::collection::vec(prop_oneof![1 => Just(0.0), 4 => -0.3..1.0f64], 1..=11),
            stop in 0usize..4,
            schema in exhaustive::schema(5, 4),
        ) {
            let mut coefficients = coefficients;
            coefficients[0] = 1.0;
            let rounds = coefficients.len().saturating_sub(stop).max(1);
            let strategy = NormalisedToeplitz::new(coefficients.clone()).unwrap();
            let bound = strategy.squared_sensitivity_bound(rounds, &schema).unwrap().get();
            let rows = LowerTriangular::new(rounds, &entries(&coefficients, rounds)).unwrap();
            // The general matrix minds the signs of the moves, too.
            let general = rows.squared_sensitivity_bound(&schema).unwrap().get();
            prop_assert!(bound <= general * (1.0 + 1e-9), "{} {}", bound, general);
            let want = maximum(&coefficients, rounds, &schema);
            prop_assert!(bound >= want * (1.0 - 1e-12), "{} {}", bound, want);
            if let Ok(exact) = strategy.squared_sensitivity(rounds, &schema) {
                prop_assert!(exact.get() >= want * (1.0 - 1e-12) && exact.get() == bound);
            }
        }

        #[test]
        fn a_run_that_stops_early_stays_below_its_bound(
            coefficients in mixture(), stop in 1usize..5, schema in exhaustive::schema(4, 4),
        ) {
            let rounds = coefficients.len().saturating_sub(stop).max(1);
            let strategy = NormalisedToeplitz::new(coefficients.clone()).unwrap();
            let bound = strategy.squared_sensitivity_bound(rounds, &schema).unwrap().get();
            let want = maximum(&coefficients, rounds, &schema);
            prop_assert!(bound >= want * (1.0 - 1e-12), "{} {}", bound, want);
        }
    }
}
