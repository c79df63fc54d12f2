//! Budgets: of the training alone, and of the training with its words.

use super::{Private, VocabularyCost};

/// A budget that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Excess {
    /// What there would be.
    pub(super) epsilon: f64,
    /// What there may be.
    pub(super) budget: f64,
    /// How much of it the words took.
    pub(super) vocabulary: f64,
}

impl Private {
    /// Whether there is anything to check. The budget of a run with `[estimate]` speaks of the run it stands for.
    pub(super) fn has_budget(&self) -> bool {
        self.estimate.is_none() && (self.target.is_some() || self.most.is_some())
    }

    /// The budget that training of this epsilon would exceed.
    pub(super) fn excess(&self, epsilon: f64) -> Option<Excess> {
        if !self.has_budget() {
            return None;
        }
        let vocabulary = self.vocabulary.as_ref().map_or(0.0, VocabularyCost::epsilon);
        [(0.0, self.target), (vocabulary, self.most)]
            .into_iter()
            .find_map(|(vocabulary, budget)| {
                let (epsilon, budget) = (epsilon + vocabulary, budget?);
                // PRIVACY: written so that a NaN is an excess.
                let within = epsilon <= budget;
                (!within).then_some(Excess {
                    epsilon,
                    budget,
                    vocabulary,
                })
            })
    }
}
