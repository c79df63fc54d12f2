//! Planted errors of closing a round; none exists in a build for use.

use sha2::{Digest, Sha256};
use undertone_aggregation::{AggregationError, BoundedSum};
use undertone_mechanisms::fault::planted;

use crate::entropy::RoundEntropy;
use crate::plan::{PrivacyPlan, RoundPlan};
use crate::source::RoundSum;

/// M22: the key of the noise follows from the sum.
pub(super) fn key_of(sum: &mut RoundSum) -> Option<RoundEntropy> {
    match sum {
        RoundSum::Users { sum, .. } if planted("M22") => {
            let bytes: Vec<u8> = steps(sum).iter().flat_map(|step| step.to_le_bytes()).collect();
            Some(RoundEntropy::fresh(Sha256::digest(bytes).into()))
        }
        _ => None,
    }
}

/// M30: the mean of the users' bits without noise.
pub(super) fn exact_bits(sum: &mut RoundSum, plan: &PrivacyPlan) -> Option<f64> {
    match sum {
        RoundSum::Users { bits: Some(bits), .. } if planted("M30") => {
            let bits = steps(bits)[1] as f64 * f64::exp2(-40.0);
            Some(bits / plan.bounded()?.clients()?)
        }
        _ => None,
    }
}

/// M13: the noise of a round grows with its cohort.
pub(super) fn scale_noise(plan: &mut RoundPlan, cohort: usize, of_plan: &PrivacyPlan) {
    if planted("M13") {
        plan.noise_std *= cohort as f64 / of_plan.users_per_round();
    }
}

/// The weight and the values of a sum, in steps.
fn steps(sum: &mut BoundedSum) -> Vec<i64> {
    let mut all = Vec::new();
    // A sum from which an addition failed is refused later.
    let _ = sum.combine(1, |values| {
        all.extend_from_slice(values);
        Ok::<(), AggregationError>(())
    });
    all
}
