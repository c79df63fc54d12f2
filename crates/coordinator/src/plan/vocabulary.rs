//! The cost of the private choice of a run's words, beside the training.

use undertone_accounting::Guarantee;
use undertone_mechanisms::KeyOrigin;

use crate::record::GuaranteeRecord;

/// The guarantee of the words, under the relation of the run.
///
/// # Guarantee
/// Words and training together are (epsilon + epsilon', delta + delta')-DP by basic composition, because both guarantees hold
/// for the same users under the same relation. Words whose noise came from a known seed have no guarantee.
#[derive(Debug, Clone, PartialEq)]
pub struct VocabularyCost {
    epsilon: f64,
    delta: f64,
    recipe: String,
    key: KeyOrigin,
}

impl VocabularyCost {
    /// The cost of words with this guarantee, whose noise came from a key of this origin.
    #[must_use]
    pub fn new(chosen: &Guarantee, key: KeyOrigin) -> Self {
        Self {
            epsilon: chosen.epsilon.get(),
            delta: chosen.delta.get(),
            recipe: chosen.recipe.to_string(),
            key,
        }
    }

    /// `true` if the words cost what [`epsilon`](Self::epsilon) and [`delta`](Self::delta) say. It is `false` if their noise came
    /// from a known seed.
    #[must_use]
    pub(crate) fn is_known(&self) -> bool {
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

    /// The guarantee of the training together with its words; `None` where the words have no guarantee.
    #[must_use]
    pub fn with(&self, training: &GuaranteeRecord) -> Option<GuaranteeRecord> {
        let recipe = format!("{}; vocabulary: {}", training.recipe, self.recipe);
        // PRIVACY: who knows the seed knows for every word whether it passed the threshold.
        self.is_known()
            .then(|| training.composed_with(self.epsilon, self.delta, &recipe))
    }
}
