//! Lower-triangular Toeplitz matrices as power series: the first column is the series, products of matrices are products
//! of series, all modulo `x^rounds`.

use realfft::RealFftPlanner;

use crate::error::{MechanismError, Result, setting};

pub(crate) mod enclosure;
#[cfg(test)]
pub(crate) mod exact;

/// Multiplications up to which a series is divided term by term: exact to the last bits, and fast enough.
const DIRECT: usize = 1 << 24;

/// Multiplications up to which a product is the schoolbook's.
const SHORT: usize = 1 << 18;

/// Coefficients of `1 / sqrt(1 - x)`, `binom(2 i, i) / 4^i`: the square root of the prefix sum, optimal for MaxLoss
/// among the Toeplitz matrices at one participation up to a constant (FHU).
///
/// # Source
/// Fichtenberger, Henzinger, Upadhyay, "Constant matters" (2022); \[BLT\] section 2.
#[must_use]
pub fn fhu(rounds: usize) -> Vec<f64> {
    let mut coefficient = 1.0;
    let step = |i: usize| {
        let current = coefficient;
        coefficient *= (2 * i + 1) as f64 / (2 * i + 2) as f64;
        current
    };
    (0..rounds).map(step).collect()
}

/// The first `rounds` coefficients of the product.
#[must_use]
pub fn product(x: &[f64], y: &[f64], rounds: usize) -> Vec<f64> {
    let (x, y) = (&x[..x.len().min(rounds)], &y[..y.len().min(rounds)]);
    let (short, long) = if x.len() < y.len() { (x, y) } else { (y, x) };
    let mut result = vec![0.0; rounds];
    if short.is_empty() {
        return result;
    }
    if short.len() * long.len() <= SHORT {
        for (shift, factor) in short.iter().enumerate() {
            for (entry, value) in result[shift..].iter_mut().zip(long) {
                *entry += factor * value;
            }
        }
        return result;
    }
    let sum = Spectrum::new(long.len() + short.len()).product(long, short);
    let common = rounds.min(sum.len());
    result[..common].copy_from_slice(&sum[..common]);
    result
}

/// `sum_i gradient_(i + lag) x_i` for every lag below `lags`: the adjoint of [`product`] with `x`.
#[must_use]
pub(crate) fn correlation(gradient: &[f64], x: &[f64], lags: usize) -> Vec<f64> {
    let reversed: Vec<f64> = gradient.iter().rev().copied().collect();
    let all = product(&reversed, x, gradient.len());
    let mut result: Vec<f64> = all.into_iter().rev().take(lags).collect();
    result.resize(lags, 0.0);
    result
}

/// The first `rounds` coefficients of `1 / series`.
///
/// # Errors
/// A series that is empty, does not begin with a number other than 0, or whose inverse overflows.
pub fn inverse(series: &[f64], rounds: usize) -> Result<Vec<f64>> {
    let lead = leading(series)?;
    let series = &series[..series.len().min(rounds)];
    let mut result = Vec::with_capacity(rounds);
    let direct = if series.len().saturating_mul(rounds) <= DIRECT {
        rounds
    } else {
        rounds.min(4096)
    };
    for i in 0..direct {
        let reach = i.min(series.len().saturating_sub(1));
        let past = result[i - reach..].iter().rev();
        let sum: f64 = series[1..=reach].iter().zip(past).map(|(c, x)| c * x).sum();
        result.push((f64::from(u8::from(i == 0)) - sum) / lead);
    }
    // Newton: y <- y (2 - c y) doubles the correct coefficients.
    while result.len() < rounds {
        let next = rounds.min(2 * result.len());
        let mut rest = product(series, &result, next);
        rest.iter_mut().for_each(|entry| *entry = -*entry);
        rest[0] += 2.0;
        result = product(&result, &rest, next);
    }
    finite(result)
}

/// The first `rounds` coefficients of the square root of a series with a positive first coefficient.
///
/// # Errors
/// A series that is empty or does not begin with a positive number, or whose root overflows.
///
/// # Source
/// Kalinin and Lampert (2024): the square root of a Toeplitz workload as a strategy.
pub fn square_root(series: &[f64], rounds: usize) -> Result<Vec<f64>> {
    let lead = leading(series)?;
    if lead < 0.0 {
        return Err(no_lead(lead));
    }
    let root = lead.sqrt();
    let mut result: Vec<f64> = Vec::with_capacity(rounds);
    for i in 0..rounds.min(4096) {
        let value = if i == 0 {
            root
        } else {
            let inner = result.get(1..i).unwrap_or(&[]);
            let twice: f64 = inner.iter().zip(inner.iter().rev()).map(|(x, y)| x * y).sum();
            (series.get(i).copied().unwrap_or(0.0) - twice) / (2.0 * root)
        };
        result.push(value);
    }
    // Newton: y <- (y + c / y) / 2 doubles the correct coefficients.
    while result.len() < rounds {
        let next = rounds.min(2 * result.len());
        let quotient = product(series, &inverse(&result, next)?, next);
        result.resize(next, 0.0);
        for (entry, other) in result.iter_mut().zip(quotient) {
            *entry = 0.5 * (*entry + other);
        }
    }
    finite(result)
}

/// Norms of the columns of the Toeplitz matrix over `rounds` rounds, each cut at the last row.
#[must_use]
pub(crate) fn column_norms(coefficients: &[f64], rounds: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut norms: Vec<f64> = (0..rounds)
        .map(|i| {
            let coefficient = coefficients.get(i).copied().unwrap_or(0.0);
            sum += coefficient * coefficient;
            sum.sqrt()
        })
        .collect();
    norms.reverse();
    norms
}

fn leading(series: &[f64]) -> Result<f64> {
    let lead = series.first().copied().unwrap_or(0.0);
    if lead != 0.0 && lead.is_finite() {
        Ok(lead)
    } else {
        Err(no_lead(lead))
    }
}

fn no_lead(got: f64) -> MechanismError {
    let expected = "finite, not 0, and positive for a square root";
    setting("first coefficient", expected, got)
}

fn finite(series: Vec<f64>) -> Result<Vec<f64>> {
    match series.iter().find(|entry| !entry.is_finite()) {
        None => Ok(series),
        Some(&got) => Err(setting("coefficient", "a finite number", got)),
    }
}

/// Products by real Fourier transforms of one length.
struct Spectrum {
    length: usize,
    planner: RealFftPlanner<f64>,
}

impl Spectrum {
    fn new(at_least: usize) -> Self {
        Self {
            length: at_least.next_power_of_two().max(2),
            planner: RealFftPlanner::new(),
        }
    }

    /// The full product, padded with zeros (up to rounding).
    fn product(&mut self, x: &[f64], y: &[f64]) -> Vec<f64> {
        let forward = self.planner.plan_fft_forward(self.length);
        let transform = |values: &[f64]| {
            let mut input = values.to_vec();
            input.resize(self.length, 0.0);
            let mut output = forward.make_output_vec();
            // The lengths are the plan's own, the only thing that it can refuse.
            let _ = forward.process(&mut input, &mut output);
            output
        };
        let (mut spectrum, other) = (transform(x), transform(y));
        for (value, factor) in spectrum.iter_mut().zip(other) {
            *value *= factor;
        }
        let inverse = self.planner.plan_fft_inverse(self.length);
        let mut result = inverse.make_output_vec();
        let _ = inverse.process(&mut spectrum, &mut result);
        let scale = 1.0 / self.length as f64;
        result.iter_mut().for_each(|entry| *entry *= scale);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: &[f64], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        for (i, (x, y)) in got.iter().zip(want).enumerate() {
            assert!((x - y).abs() <= tolerance, "{i}: {x} {y}");
        }
    }

    #[test]
    fn square_root_of_the_prefix_sum() {
        for rounds in [0, 1, 2, 5, 300] {
            close(
                &square_root(&vec![1.0; rounds.max(1)], rounds).unwrap(),
                &fhu(rounds),
                1e-14,
            );
        }
        // Beyond the schoolbook method: Newton with Fourier transforms.
        let rounds = 20_000;
        let root = square_root(&vec![1.0; rounds], rounds).unwrap();
        close(&root, &fhu(rounds), 1e-11);
        let back = inverse(&root, rounds).unwrap();
        let mut one = product(&back, &root, rounds);
        one[0] -= 1.0;
        close(&one, &vec![0.0; rounds], 1e-12);
    }

    /// The expected numbers come from power series in numpy: momentum 0.9, weight decay 0.999.
    #[test]
    fn roots_and_inverses_match_power_series_in_numpy() {
        let workload = [1.0, 1.899, 2.707_101, 3.433_393_899];
        let root = square_root(&workload, 4).unwrap();
        close(
            &root,
            &[1.0, 0.9495, 0.902_775_375, 0.859_511_730_937_500_1],
            1e-14,
        );
        let want = [
            1.0,
            -0.9495,
            -0.001_225_125_000_000_049,
            -0.001_163_256_187_500_017,
        ];
        close(&inverse(&root, 4).unwrap(), &want, 1e-14);
    }

    #[test]
    fn products_match_the_definition_and_correlation_is_adjoint() {
        let x: Vec<f64> = (0..5000).map(|i| (f64::from(i) * 0.3).sin()).collect();
        let y: Vec<f64> = (0..5000).map(|i| (f64::from(i) * 0.7).cos()).collect();
        let mut want = vec![0.0; 6000];
        for (i, a) in x.iter().enumerate() {
            for (entry, b) in want[i..].iter_mut().zip(&y) {
                *entry += a * b;
            }
        }
        close(&product(&x, &y, 6000), &want, 1e-9);
        close(&product(&x, &y[..3], 4), &product(&y[..3], &x, 4), 0.0);
        close(&product(&[], &y, 2), &[0.0; 2], 0.0);
        // <g, x y> = <correlation(g, x), y>.
        let (g, y) = (&x[100..400], &y[..50]);
        let left: f64 = g.iter().zip(product(&x, y, 300)).map(|(a, b)| a * b).sum();
        let right: f64 = correlation(g, &x, 50).iter().zip(y).map(|(a, b)| a * b).sum();
        assert!((left - right).abs() < 1e-9, "{left} {right}");
    }

    #[test]
    fn column_norms_equal_those_by_hand() {
        close(&column_norms(&[3.0, 4.0], 3), &[5.0, 5.0, 3.0], 1e-15);
        close(&column_norms(&[1.0; 4], 2), &[2.0f64.sqrt(), 1.0], 1e-15);
    }

    #[test]
    fn series_without_an_inverse_or_a_root_are_refused() {
        for bad in [&[][..], &[0.0, 1.0], &[f64::NAN]] {
            assert!(inverse(bad, 3).is_err() && square_root(bad, 3).is_err());
        }
        assert!(square_root(&[-1.0], 3).is_err() && inverse(&[-1.0], 3).is_ok());
        assert!(inverse(&[1.0, 1e200], 3).is_err());
    }
}
