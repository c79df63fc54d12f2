//! \[Gboard\]: Xu et al., "Federated Learning of Gboard Language Models with Differential Privacy" (2023).

pub(crate) mod algorithm_2;
pub(crate) mod figure_4;
pub(crate) mod table_1;
pub(crate) mod table_2;
pub(crate) mod text;

use undertone_accounting::participation::{Participation, RoundsBetween};
use undertone_accounting::sensitivity::{production, tree};
use undertone_accounting::{Delta, NoiseMultiplier, Rho, zcdp};

use crate::reproduce::ReproduceError;

/// The recipe of all numbers of this paper.
const RECIPE: &str = "one binary tree without restarts, exact over all participation sets (MinS rounds strictly between), \
                      noise multiplier 7; epsilon from the printed rho by the exact Gaussian; zero-out, no sampling";

/// Delta of every epsilon of this paper.
const DELTA: f64 = 1e-10;

/// rho of a tree over `rounds` rounds.
pub(crate) fn tree_rho(rounds: u64, min_sep: u64, max_participation: u64) -> Result<f64, ReproduceError> {
    let schema = Participation::at_least(RoundsBetween::new(min_sep).gap(), max_participation)?;
    let squared = tree::squared_sensitivity(rounds, &schema)?.squared_sensitivity;
    Ok(squared
        .rho(NoiseMultiplier::new(production::TREE_NOISE_MULTIPLIER)?)?
        .get())
}

/// Epsilon of composed Gaussians.
pub(crate) fn epsilon(rho: f64, delta: f64) -> Result<f64, ReproduceError> {
    Ok(zcdp::epsilon_of_gaussians(Rho::new(rho)?, Delta::new(delta)?)?.get())
}
