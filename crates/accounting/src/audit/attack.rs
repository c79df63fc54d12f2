//! Attacks on a final model: areas under ROC curves with their errors, and the limits that a guarantee sets.

use super::check_delta;
use super::distributions::{normal_cdf, normal_quantile};
use super::one_run_fdp::mu_of_epsilon;
use crate::error::{ensure, ensure_any};
use crate::{AccountingError, Delta, Epsilon};

/// The area under the ROC curve of an attack, and its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// The probability that a member has the larger score; ties count half.
    pub auc: f64,
    /// The standard error of DeLong, DeLong and Clarke-Pearson (1988); NaN for fewer than two scores on a side.
    pub standard_error: f64,
}

/// The area between the scores of members and of non-members.
///
/// # Errors
/// [`AccountingError::Size`] if one of them is empty; [`AccountingError::OutOfRange`] for a score that is not a number.
pub fn area(members: &[f64], non_members: &[f64]) -> Result<Area, AccountingError> {
    ensure_any("scores of members", members)?;
    ensure_any("scores of non-members", non_members)?;
    for &score in members.iter().chain(non_members) {
        ensure(!score.is_nan(), "score", "a number", score)?;
    }
    let of_members = placements(members, non_members);
    let of_others: Vec<f64> = placements(non_members, members)
        .iter()
        .map(|below| 1.0 - below)
        .collect();
    let auc = of_members.iter().sum::<f64>() / members.len() as f64;
    let part = |placements: &[f64]| {
        let n = placements.len() as f64;
        let square = placements.iter().map(|value| (value - auc).powi(2)).sum::<f64>();
        square / (n - 1.0) / n
    };
    Ok(Area {
        auc,
        standard_error: (part(&of_members) + part(&of_others)).sqrt(),
    })
}

/// The fraction of `others` below each value, with ties as half.
fn placements(values: &[f64], others: &[f64]) -> Vec<f64> {
    let mut sorted = others.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let place = |&value: &f64| {
        let below = sorted.partition_point(|other| *other < value);
        let up_to = sorted.partition_point(|other| *other <= value);
        0.5 * (below + up_to) as f64 / n
    };
    values.iter().map(place).collect()
}

/// The best that attacks on a private model can reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The area under the ROC curve of any attack.
    pub auc: f64,
    /// The true positive rate of any attack at the stated false positive rate.
    pub tpr: f64,
    /// The area, if the trade-off is that of the Gaussian with the same guarantee.
    pub auc_gaussian: f64,
    /// The true positive rate under that Gaussian.
    pub tpr_gaussian: f64,
}

/// The limits of attacks under `(epsilon, delta)`, at the false positive rate `fpr`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a rate outside `(0, 1)`; from the accountant.
pub fn limits(epsilon: Epsilon, delta: Delta, fpr: f64) -> Result<Limits, AccountingError> {
    ensure(fpr > 0.0 && fpr < 1.0, "fpr", "a number in (0, 1)", fpr)?;
    let (growth, kept) = (epsilon.get().exp(), 1.0 - check_delta(delta.get())?);
    let misses = (kept - growth * fpr).max((kept - fpr) / growth).max(0.0);
    let mu = mu_of_epsilon(epsilon, delta)?;
    Ok(Limits {
        auc: 1.0 - kept * kept / (1.0 + growth),
        tpr: 1.0 - misses,
        auc_gaussian: normal_cdf(mu * std::f64::consts::FRAC_1_SQRT_2),
        tpr_gaussian: normal_cdf(normal_quantile(fpr) + mu),
    })
}

/// The user-inference statistic: the mean over a user's texts of `ln p_model - ln p_reference`, per text and per token.
///
/// # Source
/// Kandpal et al., "User Inference Attacks on Large Language Models" (2023).
///
/// # Errors
/// [`AccountingError::Size`] for no text, a text without tokens, or texts of different lengths on the two sides.
pub fn user_inference(model: &[Vec<f64>], reference: &[Vec<f64>]) -> Result<UserScore, AccountingError> {
    let same = |quantity, expected: usize, got: usize| match expected == got && got > 0 {
        true => Ok(()),
        false => Err(AccountingError::Size {
            quantity,
            expected: format!("{expected}, and at least one"),
            got: got as u64,
        }),
    };
    same("texts under the reference", model.len(), reference.len())?;
    let (mut per_text, mut per_token) = (0.0, 0.0);
    for (of_model, of_reference) in model.iter().zip(reference) {
        same(
            "tokens of a text under the reference",
            of_model.len(),
            of_reference.len(),
        )?;
        let difference = of_model.iter().sum::<f64>() - of_reference.iter().sum::<f64>();
        per_text += difference;
        per_token += difference / of_model.len() as f64;
    }
    let texts = model.len() as f64;
    Ok(UserScore {
        mean_over_texts: per_text / texts,
        mean_over_texts_per_token: per_token / texts,
    })
}

/// A user's score, with whole texts and with tokens as units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UserScore {
    /// Mean over texts of the log ratio of a whole text.
    pub mean_over_texts: f64,
    /// Mean over texts of the log ratio per token.
    pub mean_over_texts_per_token: f64,
}
