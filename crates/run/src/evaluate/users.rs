//! The counts of each held-out user under one model, to compare two models on equal people.

use undertone_data::EosTargets;
use undertone_models::SequenceModel;

use super::EvaluationSet;
use super::standard_error::influence;
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
        let hits = |user: &Counts| user.top[0] as f64;
        let targets = |user: &Counts| user.targets as f64;
        match measure {
            Measure::Top1 => influence(&self.users, &self.total, hits, targets),
            Measure::InVocabTop1 => influence(&self.users, &self.total, hits, |user| user.known() as f64),
            Measure::Loss => influence(&self.users, &self.total, |user| user.loss, targets),
        }
    }
}

impl EvaluationSet {
    /// The counts of each user; `which` names users and targets, equal for sets that are equal.
    pub(crate) fn by_user(
        &self,
        model: &dyn SequenceModel,
        parameters: &[f32],
        (which, eos): (String, EosTargets),
        threads: usize,
        observer: &dyn Observer,
    ) -> Result<UserCounts> {
        let total = self.total(model, parameters, eos, false, threads, observer)?;
        Ok(UserCounts {
            which,
            total: total.counts,
            users: total.users,
        })
    }
}
