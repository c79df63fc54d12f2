//! The statement that an accountant makes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Adjacency, Delta, Epsilon, Recipe, Sampling};

/// The order at which the minimum over moments or Renyi orders was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimalOrder {
    /// The Renyi order (the 2016 recipe's moment plus one).
    pub order: f64,
    /// True if the order is the first or the last of the grid: a wider grid may give a smaller epsilon (the bound holds
    /// anyway).
    pub at_edge: bool,
}

/// An (epsilon, delta) statement with everything needed to read it.
///
/// # Guarantee
/// For every two populations related by `adjacency` and every set `O` of outcomes of everything composed,
/// `Pr[O] <= e^epsilon Pr'[O] + delta`, provided that users were chosen by `sampling` and the noise was as
/// stated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Bound on the privacy loss.
    pub epsilon: Epsilon,
    /// Mass on which the bound may fail.
    pub delta: Delta,
    /// The relation under which the statement holds.
    pub adjacency: Adjacency,
    /// The sampling scheme that the statement relies on.
    pub sampling: Sampling,
    /// The recipe that computed it.
    pub recipe: Recipe,
    /// The order at which the bound was taken; `None` where the recipe has no orders or nothing was composed.
    pub optimal_order: Option<OptimalOrder>,
}

/// Three decimals, rounded up: the printed statement is implied by the computed one.
impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epsilon = self.epsilon.get();
        let rounded = (epsilon * 1e3).ceil() / 1e3;
        let epsilon = if rounded.is_finite() { rounded } else { epsilon };
        let delta = self.delta.get();
        write!(
            f,
            "(eps = {epsilon:.3}, delta = {delta:e}), {}, {}, {}",
            self.adjacency, self.sampling, self.recipe
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_is_printed_rounded_up_and_survives_json() {
        let guarantee = Guarantee {
            epsilon: Epsilon::new(1.2331).unwrap(),
            delta: Delta::new(1e-6).unwrap(),
            adjacency: Adjacency::AddOrRemoveOne,
            sampling: Sampling::Poisson,
            recipe: Recipe::Rdp,
            optimal_order: None,
        };
        assert_eq!(
            guarantee.to_string(),
            "(eps = 1.234, delta = 1e-6), add-or-remove one user, Poisson sampling, RDP upper bound"
        );
        let json = serde_json::to_string(&guarantee).unwrap();
        assert_eq!(serde_json::from_str::<Guarantee>(&json).unwrap(), guarantee);
        assert!(json.contains(r#""adjacency":"add-or-remove-one""#), "{json}");
    }
}
