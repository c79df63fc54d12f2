//! The first column of a Toeplitz matrix or of its inverse, checked.

use serde::{Deserialize, Serialize};

use crate::error::{MechanismError, Result, setting};

/// Finite numbers, at least one of them, the first positive. Serialises as their list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub(super) struct Coefficients(Vec<f64>);

impl Coefficients {
    /// Refuses what is no first column of a strategy or of its inverse.
    pub(super) fn new(coefficients: Vec<f64>) -> Result<Self> {
        let wrong = |name, expected, got| Err(setting(name, expected, got));
        if let Some(&got) = coefficients.iter().find(|entry| !entry.is_finite()) {
            return wrong("coefficient", "a finite number", got);
        }
        match coefficients.first() {
            None => wrong("number of coefficients", "at least 1", 0.0),
            Some(&got) if got <= 0.0 => wrong("first coefficient", "positive", got),
            Some(_) => Ok(Self(coefficients)),
        }
    }

    /// The first so many; at least one.
    pub(super) fn first(mut self, rounds: usize) -> Self {
        self.0.truncate(rounds.max(1));
        self
    }
}

impl std::ops::Deref for Coefficients {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.0
    }
}

impl TryFrom<Vec<f64>> for Coefficients {
    type Error = MechanismError;

    fn try_from(coefficients: Vec<f64>) -> Result<Self> {
        Self::new(coefficients)
    }
}

impl From<Coefficients> for Vec<f64> {
    fn from(coefficients: Coefficients) -> Self {
        coefficients.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_first_column_is_refused() {
        let check = |coefficients: &[f64], message: &str| {
            let error = Coefficients::new(coefficients.to_vec()).unwrap_err().to_string();
            assert!(error.contains(message), "{error} instead of {message}");
        };
        check(&[], "number of coefficients must be at least 1");
        check(&[0.0, 1.0], "first coefficient must be positive, got 0");
        check(&[1.0, f64::NAN], "coefficient must be a finite number, got NaN");
        let kept = Coefficients::new(vec![1.0, -0.5, 0.1]).unwrap();
        let json = serde_json::to_string(&kept).unwrap();
        assert_eq!(json, "[1.0,-0.5,0.1]");
        assert_eq!(serde_json::from_str::<Coefficients>(&json).unwrap(), kept);
        assert!(serde_json::from_str::<Coefficients>("[-1.0]").is_err());
        assert_eq!(*kept.first(2), [1.0, -0.5]);
    }
}
