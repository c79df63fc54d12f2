//! \[cpSGD\]: Agarwal, Suresh, Yu, Kumar, McMahan, "cpSGD: Communication-efficient and differentially-private
//! distributed SGD" (NeurIPS 2018).

pub(crate) mod figure_1;
pub(crate) mod figure_2;
pub(crate) mod theorem_1;

use undertone_accounting::Delta;
use undertone_accounting::binomial::exact::ShiftedBinomial;

use crate::reproduce::ReproduceError;

/// Variance of the Gaussian mechanism that Lemma 1 asks for, per coordinate.
fn lemma_1_variance(l2: f64, epsilon: f64, delta: f64) -> f64 {
    2.0 * (1.25 / delta).ln() * (l2 / epsilon).powi(2)
}

/// The fewest fair trials whose exact epsilon in one dimension is at most `epsilon`: epsilon falls as trials are added.
fn exact_trials(shift: u64, epsilon: f64, delta: Delta) -> Result<u64, ReproduceError> {
    let holds = |trials: u64| -> Result<bool, ReproduceError> {
        let mechanism = ShiftedBinomial::new(trials, 0.5, shift)?;
        // Where outcomes of only one neighbour weigh more than delta there is no epsilon at all.
        Ok(mechanism
            .epsilon(delta)
            .is_ok_and(|reached| reached.get() <= epsilon))
    };
    let (mut low, mut high) = (0, 1);
    while !holds(high)? {
        (low, high) = (high, 2 * high);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}
