//! The workload: the matrix that the server applies to the rounds' sums, and that the noise has to suit.

use serde::{Deserialize, Serialize};

use crate::error::{MechanismError, Result, ensure, setting};

/// A lower-triangular workload `A`, rounds x rounds: iterates of the server optimizer as sums of the rounds' updates.
///
/// `A = tri diag(learning_rates) Toep(momentum^i)`: a velocity gathers the updates, the learning rate of the round
/// scales it, the iterates sum it up.
///
/// # Source
/// \[BLT\] section 2 (prefix sums); Denisov et al., "Improved Differential Privacy for SGD via Optimal Private Linear
/// Operators on Adaptive Streams" (2022), section 4 (momentum and learning rates).
///
/// # Example
/// ```
/// use undertone_mechanisms::Workload;
///
/// let mut iterates = vec![1.0, 0.0, 0.0];
/// Workload::momentum(0.5)?.apply(&mut iterates)?;
/// assert_eq!(iterates, [1.0, 1.5, 1.75]);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Workload {
    /// Momentum in `[0, 1)`.
    momentum: f64,
    /// One rate per round; `None` is 1 in every round.
    learning_rates: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    momentum: f64,
    learning_rates: Option<Vec<f64>>,
}

impl TryFrom<Unchecked> for Workload {
    type Error = MechanismError;

    fn try_from(value: Unchecked) -> Result<Self> {
        let workload = Self::momentum(value.momentum)?;
        match value.learning_rates {
            Some(rates) => workload.with_learning_rates(rates),
            None => Ok(workload),
        }
    }
}

impl Workload {
    /// Prefix sums: plain SGD with a constant learning rate, the workload of \[BLT\].
    #[must_use]
    pub fn prefix_sum() -> Self {
        Self {
            momentum: 0.0,
            learning_rates: None,
        }
    }

    /// SGD with heavy-ball momentum.
    ///
    /// # Errors
    /// A momentum outside `[0, 1)`.
    pub fn momentum(momentum: f64) -> Result<Self> {
        Ok(Self {
            momentum: ensure((0.0..1.0).contains(&momentum), "momentum", "in [0, 1)", momentum)?,
            learning_rates: None,
        })
    }

    /// The workload with a learning rate for each round.
    ///
    /// # Errors
    /// No rates, or one that is not finite or is negative.
    pub fn with_learning_rates(self, learning_rates: Vec<f64>) -> Result<Self> {
        for &rate in &learning_rates {
            let holds = rate.is_finite() && rate >= 0.0;
            ensure(holds, "learning rate", "a finite number >= 0", rate)?;
        }
        let holds = !learning_rates.is_empty();
        ensure(holds, "number of learning rates", "at least 1", 0.0)?;
        Ok(Self {
            learning_rates: Some(learning_rates),
            ..self
        })
    }

    /// Returns true if this is the plain prefix sum.
    #[must_use]
    pub(crate) fn is_prefix_sum(&self) -> bool {
        self.momentum == 0.0 && self.learning_rates.is_none()
    }

    /// The momentum.
    pub(crate) fn decay(&self) -> f64 {
        self.momentum
    }

    /// The first column if the matrix is Toeplitz: `1 + beta + ... + beta^i`; `None` with learning rates.
    #[must_use]
    pub fn coefficients(&self, rounds: usize) -> Option<Vec<f64>> {
        if self.learning_rates.is_some() {
            return None;
        }
        let mut power = 1.0;
        let mut sum = 0.0;
        Some(
            std::iter::repeat_with(|| {
                sum += power;
                power *= self.momentum;
                sum
            })
            .take(rounds)
            .collect(),
        )
    }

    /// Learning rate of every round.
    ///
    /// # Errors
    /// More rounds than there are learning rates.
    pub(crate) fn rates(&self, rounds: usize) -> Result<impl DoubleEndedIterator<Item = f64> + '_> {
        let rates = self.learning_rates.as_deref();
        match rates {
            Some(rates) if rates.len() < rounds => {
                let expected = "at least the number of rounds";
                Err(setting("number of learning rates", expected, rates.len() as f64))
            }
            _ => Ok((0..rounds).map(move |t| rates.map_or(1.0, |rates| rates[t]))),
        }
    }

    /// Computes `x <- A x` in linear time; `x` holds one number per round.
    ///
    /// # Errors
    /// More rounds than there are learning rates.
    pub fn apply(&self, x: &mut [f64]) -> Result<()> {
        let (mut velocity, mut sum) = (0.0, 0.0);
        let rounds = x.len();
        for (value, rate) in x.iter_mut().zip(self.rates(rounds)?) {
            velocity = self.momentum * velocity + *value;
            sum += rate * velocity;
            *value = sum;
        }
        Ok(())
    }

    /// `x <- A^T x`, in linear time.
    ///
    /// # Errors
    /// More rounds than there are learning rates.
    pub(crate) fn apply_transposed(&self, x: &mut [f64]) -> Result<()> {
        let (mut velocity, mut sum) = (0.0, 0.0);
        let rounds = x.len();
        for (value, rate) in x.iter_mut().rev().zip(self.rates(rounds)?.rev()) {
            sum += *value;
            velocity = self.momentum * velocity + rate * sum;
            *value = velocity;
        }
        Ok(())
    }

    /// Row `t` of the matrix, `t + 1` numbers.
    ///
    /// # Errors
    /// More rounds than there are learning rates.
    pub fn row(&self, t: usize) -> Result<Vec<f64>> {
        let mut row = vec![0.0; t + 1];
        row[t] = 1.0;
        self.apply_transposed(&mut row)?;
        Ok(row)
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self::prefix_sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix by its definition, as a product of three.
    fn product(momentum: f64, rates: &[f64]) -> Vec<Vec<f64>> {
        let n = rates.len();
        let entry = |t: usize, i: usize| {
            (i..=t)
                .map(|s| rates[s] * momentum.powi((s - i) as i32))
                .sum::<f64>()
        };
        (0..n)
            .map(|t| (0..n).map(|i| if i > t { 0.0 } else { entry(t, i) }).collect())
            .collect()
    }

    fn check(workload: &Workload, momentum: f64, rates: &[f64]) {
        let matrix = product(momentum, rates);
        let n = rates.len();
        let x: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let (mut forward, mut backward) = (x.clone(), x.clone());
        workload.apply(&mut forward).unwrap();
        workload.apply_transposed(&mut backward).unwrap();
        for t in 0..n {
            let dot = |f: &dyn Fn(usize) -> f64| (0..n).map(|i| f(i) * x[i]).sum::<f64>();
            assert!((forward[t] - dot(&|i| matrix[t][i])).abs() < 1e-12);
            assert!((backward[t] - dot(&|i| matrix[i][t])).abs() < 1e-12);
            let row = workload.row(t).unwrap();
            assert!(row.iter().zip(&matrix[t]).all(|(a, b)| (a - b).abs() < 1e-12));
            if let Some(coefficients) = workload.coefficients(n) {
                assert!((coefficients[t] - matrix[t][0]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn a_workload_agrees_with_its_definition() {
        let rates = [1.0, 0.5, 2.0, 0.0, 0.25, 1.5];
        check(&Workload::prefix_sum(), 0.0, &[1.0; 6]);
        check(&Workload::momentum(0.9).unwrap(), 0.9, &[1.0; 6]);
        let scheduled = Workload::momentum(0.7)
            .unwrap()
            .with_learning_rates(rates.to_vec());
        check(&scheduled.unwrap(), 0.7, &rates);
    }

    #[test]
    fn what_is_no_workload_is_refused() {
        for momentum in [-0.1, 1.0, f64::NAN] {
            assert!(Workload::momentum(momentum).is_err(), "{momentum}");
        }
        for rates in [vec![], vec![1.0, f64::NAN], vec![-1.0]] {
            assert!(Workload::prefix_sum().with_learning_rates(rates).is_err());
        }
        let short = Workload::prefix_sum().with_learning_rates(vec![1.0]).unwrap();
        assert!(short.apply(&mut [0.0; 2]).is_err() && short.row(1).is_err() && short.row(0).is_ok());
        assert!(serde_json::from_str::<Workload>(r#"{"momentum": 2.0}"#).is_err());
    }
}
