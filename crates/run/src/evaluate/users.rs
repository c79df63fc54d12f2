//! The counts of each held-out user under one model, to compare two models on equal people.

use serde::Serialize;
use undertone_data::EosTargets;
use undertone_models::SequenceModel;
use undertone_run_directory::metrics::Metrics;

use super::EvaluationSet;
use super::standard_error::{influence, standard_error};
use super::tally::Counts;
use crate::error::Result;
use crate::observer::Observer;

/// A figure of an evaluation that is a ratio of sums over users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Top-1 accuracy over all targets.
    Top1,
    /// Top-1 accuracy over the targets inside the vocabulary.
    InVocabTop1,
    /// Mean loss.
    Loss,
}

/// A count of a user.
type Part = fn(&Counts) -> f64;

impl Measure {
    /// The two counts whose ratio the figure is.
    fn parts(self) -> (Part, Part) {
        let (hits, targets): (Part, Part) = (|user| user.top[0] as f64, |user| user.targets as f64);
        match self {
            Self::Top1 => (hits, targets),
            Self::InVocabTop1 => (hits, |user| user.known() as f64),
            Self::Loss => (|user| user.loss, targets),
        }
    }
}

/// The counts of each held-out user under one model, in the order of evaluations.
///
/// PRIVACY: they are exact statistics of single people. They stay in memory, and no file holds them.
///
/// # Example
/// ```no_run
/// use undertone_run::evaluate::{Measure, standard_error};
/// use undertone_run::{Silent, evaluate_users};
///
/// let run = |folder: &str| evaluate_users(folder.as_ref(), None, 2, &Silent);
/// let (one, other) = (run("runs/one")?, run("runs/other")?);
/// assert!(one.same_users(&other));
/// let (one, other) = (one.influence(Measure::Top1), other.influence(Measure::Top1));
/// let paired: Vec<f64> = one.iter().zip(&other).map(|(one, other)| one - other).collect();
/// println!("standard error of the difference: {:?}", standard_error(&paired));
/// # Ok::<(), undertone_run::RunError>(())
/// ```
#[derive(Clone)]
pub struct UserCounts {
    /// Names the users and their targets.
    which: String,
    total: Counts,
    users: Vec<Counts>,
}

impl std::fmt::Debug for UserCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCounts")
            .field("which", &self.which)
            .finish_non_exhaustive()
    }
}

/// The difference of a figure of two models, paired over equal users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The figure of the first model less that of the second.
    pub difference: f64,
    /// Standard error of the difference over the users; `None` with one user.
    pub standard_error: Option<f64>,
}

impl UserCounts {
    /// Number of users with a target.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.iter().filter(|user| user.targets > 0).count()
    }

    /// Number of targets of all users.
    #[must_use]
    pub fn targets(&self) -> u64 {
        self.total.targets
    }

    /// `true` if both are of the same targets of the same users, so that the users can be paired.
    #[must_use]
    pub fn same_users(&self, other: &Self) -> bool {
        self.which == other.which
    }

    /// The influence of each user with a target on a figure, in the order of evaluations. Its [`standard_error`](super::standard_error) is
    /// that of the figure, and a difference of two influences is the influence on the difference.
    #[must_use]
    pub fn influence(&self, measure: Measure) -> Vec<f64> {
        let (part, whole) = measure.parts();
        influence(&self.users, &self.total, part, whole)
    }

    /// The difference of a figure to that of another model, paired over users; `None` where the users are others.
    #[must_use]
    pub fn difference(&self, other: &Self, measure: Measure) -> Option<Difference> {
        if !self.same_users(other) {
            return None;
        }
        let (ours, theirs) = (self.influence(measure), other.influence(measure));
        let paired: Vec<f64> = ours.iter().zip(&theirs).map(|(our, their)| our - their).collect();
        let (part, whole) = measure.parts();
        let figure = |counts: &Self| part(&counts.total) / whole(&counts.total);
        Some(Difference {
            difference: figure(self) - figure(other),
            standard_error: standard_error(&paired),
        })
    }
}

impl EvaluationSet {
    /// The measures, and the counts of each user; `which` names users and targets, equal for sets that are equal.
    pub(crate) fn by_user(
        &self,
        model: &dyn SequenceModel,
        parameters: &[f32],
        (which, eos): (String, EosTargets),
        head_words: bool,
        threads: usize,
        observer: &dyn Observer,
    ) -> Result<(Metrics, UserCounts)> {
        let total = self.total(model, parameters, eos, head_words, threads, observer)?;
        let metrics = total.metrics();
        let (total, users) = (total.counts, total.users);
        Ok((metrics, UserCounts { which, total, users }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(which: &str, users: &[(u64, u64, f64)]) -> UserCounts {
        let of = |&(targets, hits, loss): &(u64, u64, f64)| Counts {
            targets,
            top: [hits; 3],
            loss,
            ..Counts::default()
        };
        let users: Vec<Counts> = users.iter().map(of).collect();
        let mut total = Counts::default();
        users.iter().for_each(|user| total.add(user));
        let which = which.to_owned();
        UserCounts { which, total, users }
    }

    /// Three users with 2, 3 and 5 targets. One model has 1, 2 and 4 of them right, the other one 0, 2 and 2: 0.7 and 0.4. The influences
    /// on 0.7 are -0.04, -0.01 and 0.05, those on 0.4 are -0.08, 0.08 and 0. Their differences 0.04, -0.09 and 0.05 have the sum of squares
    /// 0.0122, and `sqrt(3 / 2 * 0.0122)` is the standard error.
    #[test]
    fn a_paired_difference_is_that_of_a_computation_by_hand() {
        let one = counts("set", &[(2, 1, 4.0), (3, 2, 6.0), (5, 4, 15.0)]);
        let other = counts("set", &[(2, 0, 5.0), (3, 2, 6.0), (5, 2, 19.0)]);
        let accuracy = one.difference(&other, Measure::Top1).unwrap();
        assert!((accuracy.difference - 0.3).abs() < 1e-15);
        assert!((accuracy.standard_error.unwrap() - 0.0183_f64.sqrt()).abs() < 1e-15);
        // Mean losses 2.5 and 3.0; influences -0.1, -0.15, 0.25 and -0.1, -0.3, 0.4; differences 0, 0.15 and -0.15.
        let loss = one.difference(&other, Measure::Loss).unwrap();
        assert!((loss.difference + 0.5).abs() < 1e-15);
        assert!((loss.standard_error.unwrap() - 0.0675_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn users_of_other_targets_are_never_paired_and_one_user_alone_has_no_error() {
        let one = counts("set", &[(2, 1, 4.0)]);
        assert!(
            one.difference(&counts("other", &[(2, 1, 4.0)]), Measure::Top1)
                .is_none()
        );
        let alone = one.difference(&one, Measure::Top1).unwrap();
        assert_eq!((alone.difference, alone.standard_error), (0.0, None));
    }
}
