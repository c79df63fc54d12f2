//! What the private choice of a run's words cost, beside the training.

use undertone_accounting::{Adjacency, Delta};
use undertone_data::PrivateVocabulary;
use undertone_mechanisms::KeyOrigin;

use crate::error::Result;
use crate::record::GuaranteeRecord;

/// The guarantee of the words, under the relation of the run.
///
/// # Guarantee
/// Words and training together are (epsilon + epsilon', delta + delta')-DP by basic composition: both speak of the same
/// people, under the same relation. Words whose noise came from a known seed have no guarantee: see
/// [`is_known`](Self::is_known).
#[derive(Debug, Clone, PartialEq)]
pub struct VocabularyCost {
    epsilon: f64,
    delta: f64,
    recipe: String,
    key: KeyOrigin,
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
            key: record.key(),
        })
    }

    /// Whether the words cost what [`epsilon`](Self::epsilon) and [`delta`](Self::delta) say: not where their noise came
    /// from a known seed.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.key == KeyOrigin::Entropy
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

    /// What the training costs together with its words; `None` where the words have no guarantee.
    #[must_use]
    pub fn with(&self, training: &GuaranteeRecord) -> Option<GuaranteeRecord> {
        let recipe = format!("{}; vocabulary: {}", training.recipe, self.recipe);
        // PRIVACY: who knows the seed knows for every word whether it passed the threshold.
        self.is_known()
            .then(|| training.composed_with(self.epsilon, self.delta, &recipe))
    }
}
