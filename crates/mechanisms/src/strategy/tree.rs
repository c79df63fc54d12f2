//! Binary tree aggregation, online: the cost of a deployed TreeAgg.

use serde::{Deserialize, Serialize};
use undertone_accounting::AccountingError;
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::restart;

use super::identity::positive;
use crate::error::Result;
use crate::iterates::Iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::workload::Workload;

/// The binary tree with Honaker's estimates from below, for any number of rounds, with or without restarts.
///
/// Every complete node of the tree holds the sum of its rounds with noise of its own. The estimate of a node weighs its
/// own noise against those of the estimates of its two children by their variances; a prefix sum adds up the estimates of
/// the complete nodes it splits into. All of it is known when the round ends, in `log2(rounds)` vectors.
///
/// # Guarantee
/// The sensitivity is exact, also across the borders of restarted trees, up to tens of thousands of participations; a
/// proved bound beyond.
///
/// # Source
/// Honaker, "Efficient Use of Differentially Private Binary Trees" (2015), estimation from below; Kairouz et al.,
/// "Practical and Private (Deep) Learning without Sampling or Shuffling" (2021), appendices B and D; \[Gboard\] section
/// 2.4 (restarts).
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::{Strategy, Tree, Workload};
///
/// let strategy = Strategy::Tree(Tree::new());
/// let schema = Participation::at_least(Gap::new(342)?, 6)?;
/// let errors = strategy.errors(2052, &Workload::prefix_sum())?;
/// let losses = errors.losses(strategy.squared_sensitivity(2052, &schema)?.squared);
/// assert!((losses.max_loss - 27.272).abs() < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Tree {
    restarts: Option<Restarts>,
}

/// When new trees begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Restarts {
    /// Rounds of the first tree.
    first: u64,
    /// Rounds of every later one.
    period: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    restarts: Option<Restarts>,
}

impl TryFrom<Unchecked> for Tree {
    type Error = AccountingError;

    fn try_from(value: Unchecked) -> Result<Self, AccountingError> {
        match value.restarts {
            Some(Restarts { first, period }) => {
                restart::tree_rounds(1, first, period)?;
                Ok(Self {
                    restarts: value.restarts,
                })
            }
            None => Ok(Self::new()),
        }
    }
}

impl Tree {
    /// One tree over the whole run.
    #[must_use]
    pub fn new() -> Self {
        Self { restarts: None }
    }

    /// A new tree after `first` rounds and then every `period` rounds.
    ///
    /// # Errors
    /// A zero.
    pub fn with_restarts(first: u64, period: u64) -> Result<Self> {
        let unchecked = Unchecked {
            restarts: Some(Restarts { first, period }),
        };
        Ok(Self::try_from(unchecked)?)
    }

    /// Rounds of each of the trees of a run.
    ///
    /// # Errors
    /// No rounds, or more than 2^20 trees.
    pub fn tree_rounds(&self, rounds: usize) -> Result<Vec<u64>> {
        positive(rounds)?;
        Ok(match self.restarts {
            None => vec![rounds as u64],
            Some(Restarts { first, period }) => restart::tree_rounds(rounds as u64, first, period)?,
        })
    }

    pub(super) fn name(&self) -> String {
        match self.restarts {
            None => "TreeAgg".to_owned(),
            Some(Restarts { first, period }) => format!("TreeAgg(restarts {first}+{period})"),
        }
    }

    pub(super) fn kept_vectors(&self, rounds: usize) -> usize {
        let longest = match self.restarts {
            None => rounds as u64,
            Some(Restarts { first, period }) => first.max(period).min(rounds as u64),
        };
        longest.checked_ilog2().map_or(0, |height| height as usize + 1)
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let trees = self.tree_rounds(rounds)?;
        let exact = restart::squared_sensitivity(&trees, participation);
        CertifiedSensitivity::known(exact.map(|exact| exact.squared_sensitivity), || {
            restart::squared_sensitivity_bound(&trees, participation)
        })
    }

    /// Estimates of disjoint nodes are independent, those of a node and its parent are not: their covariances with the
    /// iterates are followed through the run.
    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        let trees = self.tree_rounds(rounds)?;
        let mut rates = workload.rates(rounds)?;
        let longest = trees.iter().copied().max().unwrap_or(1);
        let heights = longest.ilog2() as usize + 1;
        // Slots: estimates by height, the estimate on its way up, noise of the last prefix sum and of the sum before.
        let (rising, prefix, before) = (heights, heights + 1, heights + 2);
        let mut iterates = Iterates::new(heights + 3, workload);
        let mut variances = Vec::with_capacity(rounds);
        for length in trees {
            let mut base = vec![(before, 1.0)];
            for (u, rate) in (0..length).zip(rates.by_ref()) {
                let moments = &mut iterates.moments;
                moments.assign(rising, &[], 1.0);
                let mut variance = 1.0;
                let complete = u.trailing_ones() as usize;
                for height in 0..complete {
                    // Two children of this variance against one own noise of variance 1.
                    let children = 1.0 / (1.0 + 2.0 * variance);
                    moments.assign(rising, &[(height, children), (rising, children)], 1.0 - children);
                    variance = 2.0 * variance * children;
                }
                moments.assign(complete, &[(rising, 1.0)], 0.0);
                base.truncate(1);
                base.extend((0..heights).filter(|h| (u + 1) >> h & 1 == 1).map(|h| (h, 1.0)));
                moments.assign(rising, &base, 0.0);
                variances.push(iterates.step(&[(rising, 1.0), (prefix, -1.0)], rate));
                iterates.moments.assign(prefix, &[(rising, 1.0)], 0.0);
            }
            iterates.moments.assign(before, &[(prefix, 1.0)], 0.0);
        }
        Ok(variances)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let mut start = 0;
        let trees = self.tree_rounds(rounds)?;
        let ends = trees.iter().map(|length| {
            start += *length as usize;
            start
        });
        Ok(Recurrence::Tree {
            restarts: ends.take(trees.len() - 1).collect(),
        })
    }
}
