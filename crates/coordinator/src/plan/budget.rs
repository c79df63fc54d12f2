//! Budgets: of the training alone, and of the training with its words.

use super::{Private, VocabularyCost};
use crate::error::{CoordinatorError, Result};

/// A budget that is exceeded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Excess {
    /// Epsilon that would be spent.
    pub(super) epsilon: f64,
    /// The budget.
    pub(super) budget: f64,
    /// Part of epsilon that the private words took.
    pub(super) vocabulary: f64,
    /// Part of epsilon that the initial model took.
    pub(super) initial_model: f64,
}

impl Private {
    /// `true` if there is a budget to check. The budget of a run with `[estimate]` is that of the larger run.
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

    /// The reason for which the cost of an input of the run is not known, where that is so.
    pub(super) fn uncountable(&self) -> Option<&str> {
        let of_words = self.vocabulary.as_ref().filter(|words| !words.is_known());
        of_words
            .map(|_| SEEDED_WORDS)
            .or_else(|| self.start.uncountable())
    }

    /// PRIVACY: a budget for everything cannot be kept where a part of it has no known cost.
    pub(super) fn check_countable(&self) -> Result<()> {
        match (self.max_epsilon, self.uncountable()) {
            (Some(_), Some(why)) => Err(CoordinatorError::left_out(
                "privacy.max_epsilon",
                format!("the epsilon of everything together cannot be computed. {why}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Warning about words whose noise came from a known seed.
pub(super) const SEEDED_WORDS: &str = "The noise of the private vocabulary came from a known seed, so that its words have no \
                                       guarantee. No figure for both together is stated.";
