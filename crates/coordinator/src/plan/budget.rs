//! Budgets: of the training alone, and of the training with its words.

use super::{Private, VocabularyCost};
use crate::error::{CoordinatorError, Result};

/// A budget that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Excess {
    /// What there would be.
    pub(super) epsilon: f64,
    /// What there may be.
    pub(super) budget: f64,
    /// How much of it the words took.
    pub(super) vocabulary: f64,
    /// How much of it the model took that the run started from.
    pub(super) initial_model: f64,
}

impl Private {
    /// Whether there is anything to check. The budget of a run with `[estimate]` speaks of the run it stands for.
    pub(super) fn has_budget(&self) -> bool {
        self.estimate.is_none() && (self.target.is_some() || self.max_epsilon.is_some())
    }

    /// The budget that training of this epsilon would exceed.
    pub(super) fn excess(&self, epsilon: f64) -> Option<Excess> {
        if !self.has_budget() {
            return None;
        }
        let words = self.vocabulary.as_ref().map_or(0.0, VocabularyCost::epsilon);
        [
            (0.0, 0.0, self.target),
            (words, self.start.epsilon(), self.max_epsilon),
        ]
        .into_iter()
        .find_map(|(vocabulary, initial_model, budget)| {
            let (epsilon, budget) = (epsilon + vocabulary + initial_model, budget?);
            // PRIVACY: written so that a NaN is an excess.
            let within = epsilon <= budget;
            (!within).then_some(Excess {
                epsilon,
                budget,
                vocabulary,
                initial_model,
            })
        })
    }

    /// Why the cost of something that the run uses is not known, where that is so.
    pub(super) fn uncountable(&self) -> Option<&str> {
        let of_words = self.vocabulary.as_ref().filter(|words| !words.is_known());
        of_words
            .map(|_| SEEDED_WORDS)
            .or_else(|| self.start.uncountable())
    }

    /// PRIVACY: a budget for everything cannot be kept where a part of it has no known cost.
    pub(super) fn check_countable(&self) -> Result<()> {
        match (self.max_epsilon, self.uncountable()) {
            (Some(max), Some(why)) => Err(CoordinatorError::value(
                "privacy.max_epsilon",
                format!("no budget for everything together, because it cannot be computed. {why}"),
                max,
            )),
            _ => Ok(()),
        }
    }
}

/// What a run says of words whose noise came from a known seed.
pub(super) const SEEDED_WORDS: &str = "The noise of the private vocabulary came from a known seed, so that its words have no \
                                       guarantee. No figure for both together is stated.";
