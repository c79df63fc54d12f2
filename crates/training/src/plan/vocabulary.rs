//! What the private choice of a run's words cost, beside the training.

use undertone_accounting::{Adjacency, Delta};
use undertone_data::PrivateVocabulary;

use crate::error::Result;
use crate::record::GuaranteeRecord;

/// The guarantee of the words, under the relation of the run.
///
/// # Guarantee
/// Words and training together are (epsilon + epsilon', delta + delta')-DP by basic composition: both speak of the same
/// people, under the same relation.
#[derive(Debug, Clone, PartialEq)]
pub struct VocabularyCost {
    epsilon: f64,
    delta: f64,
    recipe: String,
}

impl VocabularyCost {
    /// From the record beside the words; `delta` is the run's.
    ///
    /// # Errors
    /// From the accountant, where the cost is not known under this relation.
    pub(super) fn new(record: &PrivateVocabulary, adjacency: Adjacency, delta: Delta) -> Result<Self> {
        // The threshold has a delta of its own, which may be more than the run's.
        let delta = delta.get().max(2.0 * record.threshold_delta().get());
        let chosen = record.guarantee(adjacency, Delta::new(delta)?)?;
        Ok(Self {
            epsilon: chosen.epsilon.get(),
            delta: chosen.delta.get(),
            recipe: chosen.recipe.to_string(),
        })
    }

    /// Epsilon of the words alone.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Delta of the words alone.
    #[must_use]
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// What the training costs together with its words.
    #[must_use]
    pub fn with(&self, training: &GuaranteeRecord) -> GuaranteeRecord {
        GuaranteeRecord {
            epsilon: training.epsilon + self.epsilon,
            delta: training.delta + self.delta,
            recipe: format!(
                "{}; vocabulary: {}; basic composition",
                training.recipe, self.recipe
            ),
            points: Vec::new(),
            ..training.clone()
        }
    }
}
