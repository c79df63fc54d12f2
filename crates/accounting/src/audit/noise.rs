//! Tests of whitened noise, which must be independent standard normal values.

use super::distributions::{chi_squared_quantile, chi_squared_tails, kolmogorov_tail, normal_cdf};
use crate::AccountingError;
use crate::error::{ensure, ensure_any};

/// A statistic and the probability of one at least as extreme, two-sided where both directions are errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TestResult {
    /// The statistic.
    pub statistic: f64,
    /// The p-value.
    pub p: f64,
}

impl TestResult {
    /// A standard normal statistic, which is that of N3, N4, N6 and N7.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::audit::noise::TestResult;
    /// assert!((TestResult::of_normal(1.96).p - 0.05).abs() < 1e-4);
    /// ```
    #[must_use]
    pub fn of_normal(statistic: f64) -> Self {
        Self {
            statistic,
            p: (2.0 * normal_cdf(-statistic.abs())).min(1.0),
        }
    }

    /// The sum of squares of so many values, which is the statistic of [`variance`].
    #[must_use]
    pub fn of_sum_of_squares(statistic: f64, values: usize) -> Self {
        Self::two_sided(statistic, chi_squared_tails(values as f64, statistic))
    }

    /// The distance of so many values from the standard normal distribution, which is the statistic of [`shape`].
    #[must_use]
    pub fn of_distance(statistic: f64, values: usize) -> Self {
        Self {
            statistic,
            p: kolmogorov_tail(statistic, values),
        }
    }

    /// The largest absolute value of so many, which is the statistic of [`largest`].
    #[must_use]
    pub fn of_largest(statistic: f64, values: usize) -> Self {
        // ln P[max <= x] = n ln(1 - 2 Phi(-x)).
        let log_below = values as f64 * (-2.0 * normal_cdf(-statistic)).ln_1p();
        Self::two_sided(statistic, (log_below.exp(), -log_below.exp_m1()))
    }

    fn two_sided(statistic: f64, (below, above): (f64, f64)) -> Self {
        Self {
            statistic,
            p: (2.0 * below.min(above)).min(1.0),
        }
    }
}

fn check(values: &[f64]) -> Result<(), AccountingError> {
    ensure_any("whitened values", values)?;
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(()),
        Some(&value) => ensure(false, "whitened value", "a finite number", value).map(drop),
    }
}

/// N1, variance: the sum of squares against chi-squared. A relative error `e` of the scale lies `e sqrt(2 n)` sigmas away.
///
/// # Errors
/// [`AccountingError::Size`] without values; [`AccountingError::OutOfRange`] for a value that is not finite.
pub fn variance(values: &[f64]) -> Result<TestResult, AccountingError> {
    check(values)?;
    let statistic = values.iter().map(|value| value * value).sum();
    Ok(TestResult::of_sum_of_squares(statistic, values.len()))
}

/// The smallest error that N1 finds: the part of its standard deviation that noise must lack, so that [`variance`] of so many values has a
/// p-value below `level` with probability `power`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no values, and for a level or a power outside `(0, 1)`.
///
/// # Example
/// ```
/// use undertone_accounting::audit::noise::smallest_error;
/// // 51,200 values, and the level of one of twelve tests at 0.001: 2 % less noise is found with a probability above 98 %.
/// let error = smallest_error(51_200, 0.001 / 12.0, 0.98)?;
/// assert!((error - 0.0186).abs() < 1e-4);
/// # Ok::<(), undertone_accounting::AccountingError>(())
/// ```
pub fn smallest_error(values: usize, level: f64, power: f64) -> Result<f64, AccountingError> {
    let freedom = ensure(values > 0, "values", "at least 1", values as f64)?;
    for (name, probability) in [("level", level), ("power", power)] {
        let holds = probability > 0.0 && probability < 1.0;
        ensure(holds, name, "a number in (0, 1)", probability)?;
    }
    // Noise of `r` times the stated standard deviation has `r^2` times the sum of squares.
    let (found, usual) = (
        chi_squared_quantile(freedom, 0.5 * level),
        chi_squared_quantile(freedom, power),
    );
    Ok(1.0 - (found / usual).sqrt())
}

/// N2, shape: the Kolmogorov-Smirnov distance from the standard normal distribution. The p-value is asymptotic.
///
/// # Errors
/// The errors of [`variance`].
pub fn shape(values: &[f64]) -> Result<TestResult, AccountingError> {
    check(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let mut statistic = 0.0f64;
    for (index, &value) in sorted.iter().enumerate() {
        let (index, at) = (index as f64, normal_cdf(value));
        statistic = statistic.max(at - index / n).max((index + 1.0) / n - at);
    }
    Ok(TestResult::of_distance(statistic, sorted.len()))
}

/// N2, tail: the largest absolute value. A law with cut tails has it too small, and one with outliers too large.
///
/// # Errors
/// The errors of [`variance`].
pub fn largest(values: &[f64]) -> Result<TestResult, AccountingError> {
    check(values)?;
    let statistic = values.iter().fold(0.0f64, |top, value| top.max(value.abs()));
    Ok(TestResult::of_largest(statistic, values.len()))
}

/// Min number of pairs from which [`correlation`] follows the normal law well enough for a report.
///
/// With pairs of neighbours in one long chain, a p-value of 0.001 / 12 then has a probability of 1.16 times as much. With 100 pairs it would be
/// 2.8 times, because a product of two normal values has heavy tails.
pub const MIN_PAIRS: usize = 1000;

/// N3 and N4, correlation of pairs: `sum a b / sqrt(pairs)`, nearly standard normal for [`MIN_PAIRS`] and more.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no pair, and for a sum of products that is not finite.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> Result<TestResult, AccountingError> {
    let (mut sum, mut count) = (0.0, 0u64);
    for (a, b) in pairs {
        sum += a * b;
        count += 1;
    }
    ensure(count > 0, "pairs", "at least one", 0.0)?;
    ensure(f64::is_finite(sum), "sum of products", "a finite number", sum)?;
    Ok(TestResult::of_normal(sum / (count as f64).sqrt()))
}

/// N3 for one series: the correlation between values `lag` apart.
///
/// # Errors
/// The errors of [`correlation`].
pub fn lag(values: &[f64], lag: usize) -> Result<TestResult, AccountingError> {
    let later = values.iter().skip(lag);
    correlation(values.iter().copied().zip(later.copied()))
}

/// N6, mean: `sum y / sqrt(n)`.
///
/// # Errors
/// The errors of [`variance`].
pub fn mean(values: &[f64]) -> Result<TestResult, AccountingError> {
    check(values)?;
    Ok(TestResult::of_normal(
        values.iter().sum::<f64>() / (values.len() as f64).sqrt(),
    ))
}

/// N7, cohort: the slope of the log mean square of each round on the size of its cohort, in standard errors.
///
/// Each round has `c = columns` values, so its log mean square has a variance of nearly `2 / c + 2 / c^2`, from 10 columns on. The result is `None`
/// where all cohorts have one size, and with fewer than three rounds.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a mean square that is not a positive number.
pub fn cohort(
    mean_squares: &[f64],
    sizes: &[f64],
    columns: usize,
) -> Result<Option<TestResult>, AccountingError> {
    let n = mean_squares.len().min(sizes.len());
    if n < 3 {
        return Ok(None);
    }
    for &square in mean_squares {
        ensure(
            square > 0.0 && square.is_finite(),
            "mean square",
            "a number > 0",
            square,
        )?;
    }
    let middle = sizes[..n].iter().sum::<f64>() / n as f64;
    let spread: f64 = sizes[..n].iter().map(|size| (size - middle).powi(2)).sum();
    if spread == 0.0 {
        return Ok(None);
    }
    let logs: Vec<f64> = mean_squares[..n].iter().map(|square| square.ln()).collect();
    let center = logs.iter().sum::<f64>() / n as f64;
    let product = |(log, size): (&f64, &f64)| (log - center) * (size - middle);
    let slope = logs.iter().zip(sizes).map(product).sum::<f64>() / spread;
    let columns = columns as f64;
    let error = ((2.0 / columns + 2.0 / (columns * columns)) / spread).sqrt();
    Ok(Some(TestResult::of_normal(slope / error)))
}

/// Holm's correction: the adjusted p-value of every test, in the order given.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, &index) in order.iter().enumerate() {
        largest = largest.max((p[index] * (p.len() - rank) as f64).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}
