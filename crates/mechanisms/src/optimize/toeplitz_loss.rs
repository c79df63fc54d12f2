//! Loss of Toeplitz strategies as a differentiable function of their series.

use super::problem::Problem;
use crate::error::Result;
use crate::loss::Objective;

/// The power mean of the iterates' variances that stands for their maximum, where that is not the last one.
const SHARPNESS: f64 = 24.0;

/// Logarithms of squared sensitivity and squared error, with gradients.
pub(super) struct ToeplitzLoss<'a> {
    problem: &'a Problem,
    gap: usize,
    max_par: usize,
    /// Learning rates; empty if all are 1.
    rates: Vec<f64>,
}

impl<'a> ToeplitzLoss<'a> {
    pub(super) fn new(problem: &'a Problem) -> Result<Self> {
        let schema = problem
            .participation
            .effective(problem.rounds as u64)?
            .participation;
        let rates: Vec<f64> = problem.workload.rates(problem.rounds)?.collect();
        let constant = problem.workload.coefficients(1).is_some();
        Ok(Self {
            problem,
            gap: usize::try_from(schema.gap().get()).map_or(problem.rounds, |gap| gap.min(problem.rounds)),
            max_par: usize::try_from(schema.max_participation()).unwrap_or(usize::MAX),
            rates: if constant { Vec::new() } else { rates },
        })
    }

    /// Logarithm of the sensitivity of the matrix with first column `c`, zeros after its end: exact as
    /// [`squared_sensitivity`](undertone_accounting::sensitivity::toeplitz::Toeplitz::squared_sensitivity) is,
    /// otherwise the bound by the largest magnitude from each coefficient on. Writes the gradient.
    pub(super) fn log_sensitivity(&self, c: &[f64], gradient: &mut [f64]) -> f64 {
        let rounds = self.problem.rounds;
        let starts = || (0..rounds).step_by(self.gap).take(self.max_par);
        gradient.fill(0.0);
        let mut squared = 0.0;
        if self.max_par == 1 || c.len() <= self.gap {
            for start in starts() {
                for (entry, coefficient) in gradient.iter_mut().zip(c).take(rounds - start) {
                    squared += coefficient * coefficient;
                    *entry += 2.0 * coefficient;
                }
            }
        } else {
            // The majorant and where each of its entries comes from.
            let mut majorant = vec![(0.0, 0); c.len()];
            let mut largest = (0.0, c.len() - 1);
            for (i, entry) in majorant.iter_mut().enumerate().rev() {
                if c[i].abs() >= largest.0 {
                    largest = (c[i].abs(), i);
                }
                *entry = largest;
            }
            let mut sum = vec![0.0; rounds];
            for start in starts() {
                for (entry, (coefficient, _)) in sum[start..].iter_mut().zip(&majorant) {
                    *entry += coefficient;
                }
            }
            squared = sum.iter().map(|entry| entry * entry).sum();
            for start in starts() {
                for (entry, &(_, origin)) in sum[start..].iter().zip(&majorant) {
                    gradient[origin] += 2.0 * entry * c[origin].signum();
                }
            }
        }
        gradient.iter_mut().for_each(|entry| *entry /= squared);
        squared.ln()
    }

    /// Logarithm of the error of the matrix whose inverse has the first column `inverse`, zeros after its end. Writes
    /// the gradient.
    pub(super) fn log_error(&self, inverse: &[f64], gradient: &mut [f64]) -> f64 {
        let rounds = self.problem.rounds;
        if !self.rates.is_empty() {
            return self.log_error_of_rows(inverse, gradient);
        }
        let mut column = inverse.to_vec();
        column.resize(rounds, 0.0);
        let workload = &self.problem.workload;
        // Without learning rates these cannot fail: any number of rounds will do.
        let _ = workload.apply(&mut column);
        let mut squared = 0.0;
        for (i, entry) in column.iter_mut().enumerate() {
            let weight = match self.problem.objective {
                // Row norms grow: the last is the largest.
                Objective::MaxLoss => 1.0,
                Objective::RmsLoss => (rounds - i) as f64 / rounds as f64,
            };
            squared += weight * *entry * *entry;
            *entry *= 2.0 * weight;
        }
        let _ = workload.apply_transposed(&mut column);
        for (entry, value) in gradient.iter_mut().zip(&column) {
            *entry = value / squared;
        }
        squared.ln()
    }

    /// Logarithm of the error with learning rates: `A C^-1` is not Toeplitz, every column counts.
    fn log_error_of_rows(&self, inverse: &[f64], gradient: &mut [f64]) -> f64 {
        let rounds = self.problem.rounds;
        let power = match self.problem.objective {
            Objective::MaxLoss => SHARPNESS,
            Objective::RmsLoss => 1.0,
        };
        let mut padded = inverse.to_vec();
        padded.resize(rounds, 0.0);
        let mut column = vec![0.0; rounds];
        let mut variances = vec![0.0; rounds];
        for start in 0..rounds {
            let column = &mut column[start..];
            self.forward(&padded, start, column);
            for (variance, entry) in variances[start..].iter_mut().zip(column) {
                *variance += *entry * *entry;
            }
        }
        // Relative to the largest, so that powers stay in range.
        let largest = variances.iter().copied().fold(0.0, f64::max);
        let powers = variances.iter().map(|variance| (variance / largest).powf(power));
        let sum: f64 = powers.sum();
        for variance in &mut variances {
            *variance = (*variance / largest).powf(power - 1.0) / (largest * sum);
        }
        gradient.fill(0.0);
        for start in 0..rounds {
            let column = &mut column[start..];
            self.forward(&padded, start, column);
            for (entry, weight) in column.iter_mut().zip(&variances[start..]) {
                *entry *= 2.0 * weight;
            }
            let (mut velocity, mut total) = (0.0, 0.0);
            for (entry, rate) in column.iter_mut().zip(&self.rates[start..]).rev() {
                total += *entry;
                velocity = self.problem.workload.decay() * velocity + rate * total;
                *entry = velocity;
            }
            for (entry, value) in gradient.iter_mut().zip(column) {
                *entry += *value;
            }
        }
        largest.ln() + (sum / rounds as f64).ln() / power
    }

    /// Column `start` of `A C^-1`, from its first entry down.
    fn forward(&self, inverse: &[f64], start: usize, column: &mut [f64]) {
        let (mut velocity, mut iterate) = (0.0, 0.0);
        for ((entry, value), rate) in column.iter_mut().zip(inverse).zip(&self.rates[start..]) {
            velocity = self.problem.workload.decay() * velocity + value;
            iterate += rate * velocity;
            *entry = iterate;
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::strategy::Strategy;
    use crate::strategy::banded_toeplitz::BandedToeplitz;
    use crate::testing::at_least;
    use crate::toeplitz;
    use crate::workload::Workload;

    fn differences(function: impl Fn(&[f64], &mut [f64]) -> f64, x: &[f64]) {
        let mut gradient = vec![0.0; x.len()];
        function(x, &mut gradient);
        let mut unused = gradient.clone();
        for i in 0..x.len() {
            let mut at = |shift: f64| {
                let mut x = x.to_vec();
                x[i] += shift;
                function(&x, &mut unused)
            };
            let want = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((gradient[i] - want).abs() < 1e-7, "{i}: {} {want}", gradient[i]);
        }
    }

    fn check(objective: Objective, workload: Workload, gap: u64, max_par: u64, sharp: bool) {
        let participation = at_least(gap, max_par);
        let problem = Problem::new(13, participation)
            .with_objective(objective)
            .with_workload(workload);
        let loss = ToeplitzLoss::new(&problem).unwrap();
        let falling = [1.0, 0.5, 0.3, 0.2, 0.1];
        for c in [falling, [1.0, -0.5, 0.7, 0.2, 0.3]] {
            differences(|c, g| loss.log_sensitivity(c, g), &c);
            differences(|c, g| loss.log_error(c, g), &c);
            let mut unused = [0.0; 13];
            let inverse = toeplitz::inverse(&c, 13).unwrap();
            let squared = loss.log_sensitivity(&c, &mut unused[..5]) + loss.log_error(&inverse, &mut unused);
            let strategy = Strategy::BandedToeplitz(BandedToeplitz::new(c.to_vec()).unwrap());
            let want = problem.losses(&strategy).unwrap().get(objective);
            let got = (0.5 * squared).exp();
            let above = if sharp { 1.0 + 1e-12 } else { 1.15 };
            assert!(got <= want * (1.0 + 1e-12) && got * above >= want, "{got} {want}");
        }
    }

    #[test]
    fn values_match_the_losses_and_gradients_finite_differences() {
        let rates: Vec<f64> = (0..13).map(|t| 1.0 / f64::from(t + 1)).collect();
        let scheduled = Workload::momentum(0.7)
            .unwrap()
            .with_learning_rates(rates)
            .unwrap();
        for objective in [Objective::MaxLoss, Objective::RmsLoss] {
            for (gap, max_par) in [(13, 1), (5, 3), (2, 4), (1, 13)] {
                check(objective, Workload::prefix_sum(), gap, max_par, true);
                check(objective, Workload::momentum(0.9).unwrap(), gap, max_par, true);
                check(
                    objective,
                    scheduled.clone(),
                    gap,
                    max_par,
                    objective == Objective::RmsLoss,
                );
            }
        }
    }
}
