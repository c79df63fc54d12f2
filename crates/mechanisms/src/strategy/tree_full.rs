//! Binary tree aggregation with the full decoder: the best linear estimates from all nodes, in logarithmic memory.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::{SquaredSensitivity, restart};

use super::identity::positive;
use crate::error::{Result, setting};
use crate::iterates::Iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::workload::Workload;

/// The nodes that a [`TreeFull`] measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeLayout {
    /// All dyadic intervals that lie wholly inside the run: complete trees of falling size, side by side.
    CompleteNodes,
    /// Trees of so many leaves (a power of two), one after another; where the run ends before the last tree, its nodes
    /// hold the sums of the rounds that they have.
    Trees {
        /// Rounds of one tree.
        leaves: usize,
    },
}

/// The binary tree decoded by the pseudo-inverse of its matrix.
///
/// The tree with matrix `C` has the same releases as the lower-triangular `L` with `L^T L = C^T C` (reverse Cholesky),
/// so it streams. Left of the diagonal a row of `L` is constant on each of the binary blocks that the earlier rounds
/// split into (rounds of one block have the same nodes in common with the current one): the stream keeps one sum a
/// block, `log2(leaves)` vectors, not all earlier noise.
///
/// # Guarantee
/// The sensitivity is that of the tree whose nodes are measured: exact for complete nodes, up to tens of thousands of
/// participations; for [`TreeLayout::Trees`] that of the finished last tree, marked exact where a set of the run's rounds
/// attains it. A run that stops early is covered by the bound of the whole run.
///
/// # Source
/// Honaker (2015), estimation from above and below; Denisov et al. (2022) (pseudo-inverse decoder); \[BLT\] Table 3.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::{Strategy, TreeFull, TreeLayout, Workload};
///
/// // [BLT] Table 3, whose two columns of losses are swapped in print.
/// let strategy = Strategy::TreeFull(TreeFull::new(2052, TreeLayout::Trees { leaves: 2048 })?);
/// let schema = Participation::at_least(Gap::new(342)?, 6)?;
/// let errors = strategy.errors(2052, &Workload::prefix_sum())?;
/// let losses = errors.losses(strategy.squared_sensitivity(2052, &schema)?.squared);
/// assert_eq!(format!("{:.2} {:.2}", losses.max_loss, losses.rms_loss), "14.98 12.47");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct TreeFull {
    pub(super) rounds: usize,
    layout: TreeLayout,
}

read_by!(new(rounds, layout) of TreeFull { rounds: usize, layout: TreeLayout });

/// The matrix `L` as far as it is not repetition.
struct Factor {
    leaves: usize,
    diagonal: Vec<f64>,
    /// Entries of each row in the binary blocks before it, the highest block first.
    blocks: Vec<Vec<f64>>,
}

impl TreeFull {
    /// The tree of a run of `rounds` rounds.
    ///
    /// # Errors
    /// No rounds, or a number of leaves that is not a power of two.
    pub fn new(rounds: usize, layout: TreeLayout) -> Result<Self> {
        positive(rounds)?;
        if let TreeLayout::Trees { leaves } = layout
            && !leaves.is_power_of_two()
        {
            return Err(setting("leaves of a tree", "a power of two", leaves as f64));
        }
        Ok(Self { rounds, layout })
    }

    /// The nodes that are measured.
    #[must_use]
    pub fn layout(&self) -> TreeLayout {
        self.layout
    }

    fn leaves(&self) -> usize {
        match self.layout {
            // A power of two that reaches beyond the run, or beyond what memory could hold of it.
            TreeLayout::CompleteNodes => self.rounds.checked_next_power_of_two().unwrap_or(self.rounds),
            TreeLayout::Trees { leaves } => leaves,
        }
    }

    /// Returns true if the node of this height over this round is measured.
    fn measured(&self, round: usize, height: u32) -> bool {
        match self.layout {
            TreeLayout::CompleteNodes => round >> height < self.rounds >> height,
            TreeLayout::Trees { .. } => true,
        }
    }

    /// Reverse Cholesky by going backwards through the rounds: for independent node values `u` with covariance 1 where
    /// measured, round `t` sees `v_t`, the sum over its path, and `L[s][t] = cov(v_t, e_s)` for the innovation `e_s` of
    /// `v_s` after all later rounds. The state is the covariance of the path.
    fn factor(&self) -> Factor {
        let leaves = self.leaves();
        let heights = leaves.trailing_zeros() as usize + 1;
        let mut factor = Factor {
            leaves,
            diagonal: vec![0.0; self.rounds],
            blocks: vec![Vec::new(); self.rounds],
        };
        let mut covariance = vec![0.0; heights * heights];
        let mut gain = vec![0.0; heights];
        for t in (0..self.rounds).rev() {
            let u = t % leaves;
            let last = t + 1 == self.rounds || u + 1 == leaves;
            // Nodes that round t + 1 did not lie under are new.
            let new = if last {
                heights
            } else {
                (u + 1).trailing_zeros() as usize + 1
            };
            for height in 0..new.min(heights) {
                for other in 0..heights {
                    covariance[height * heights + other] = 0.0;
                    covariance[other * heights + height] = 0.0;
                }
                let measured = self.measured(t, height as u32);
                covariance[height * heights + height] = f64::from(u8::from(measured));
            }
            for (entry, row) in gain.iter_mut().zip(covariance.chunks_exact(heights)) {
                *entry = row.iter().sum();
            }
            let deviation = gain.iter().sum::<f64>().sqrt();
            gain.iter_mut().for_each(|entry| *entry /= deviation);
            for (row, x) in covariance.chunks_exact_mut(heights).zip(&gain) {
                row.iter_mut().zip(&gain).for_each(|(entry, y)| *entry -= x * y);
            }
            factor.diagonal[t] = deviation;
            let above = |height: usize| gain[height + 1..].iter().sum();
            let set = (0..heights - 1).rev().filter(|height| u >> height & 1 == 1);
            factor.blocks[t] = set.map(above).collect();
        }
        factor
    }

    pub(super) fn name(&self) -> String {
        match self.layout {
            TreeLayout::CompleteNodes => "TreeAgg-Full".to_owned(),
            TreeLayout::Trees { leaves } => format!("TreeAgg-Full({leaves})"),
        }
    }

    pub(super) fn kept_vectors(&self, rounds: usize) -> usize {
        // Blocks of at most `rounds - 1` earlier rounds.
        let longest = rounds.min(self.rounds).min(self.leaves()).saturating_sub(1);
        longest.checked_ilog2().map_or(0, |height| height as usize + 1)
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let all = self.rounds as u64;
        let trees = match self.layout {
            TreeLayout::CompleteNodes => vec![all],
            // The rounds beyond the run that finish the last tree can only add.
            TreeLayout::Trees { leaves } => vec![leaves as u64; self.rounds.div_ceil(leaves)],
        };
        // Fewer rounds fit than the trees have.
        let schema = participation.effective(all)?.participation;
        let exact = restart::squared_sensitivity(&trees, &schema);
        let mut certified =
            CertifiedSensitivity::known(exact.map(|exact| exact.squared_sensitivity), || {
                restart::squared_sensitivity_bound(&trees, &schema)
            })?;
        certified.exact = certified.exact
            && rounds == self.rounds
            && (self.layout == TreeLayout::CompleteNodes
                || reached(&trees, all, &schema)? >= certified.squared);
        Ok(certified)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        let rates = workload.rates(rounds)?;
        let factor = self.factor();
        let heights = factor.leaves.trailing_zeros() as usize + 1;
        let noise = heights;
        let mut iterates = Iterates::new(heights + 1, workload);
        let mut sources = Vec::with_capacity(heights);
        Ok(rates
            .enumerate()
            .map(|(t, rate)| {
                let u = t % factor.leaves;
                let inverse = 1.0 / factor.diagonal[t];
                let set = (0..heights).rev().filter(|height| u >> height & 1 == 1);
                sources.clear();
                sources.extend(
                    set.zip(&factor.blocks[t])
                        .map(|(height, entry)| (height, -entry * inverse)),
                );
                iterates.moments.assign(noise, &sources, inverse);
                let variance = iterates.step(&[(noise, 1.0)], rate);
                // The blocks that this round completes become one.
                let complete = u.trailing_ones() as usize;
                sources.clear();
                sources.extend((0..complete).chain([noise]).map(|block| (block, 1.0)));
                iterates.moments.assign(complete, &sources, 0.0);
                variance
            })
            .collect())
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let factor = self.factor();
        let diagonal: Vec<f64> = factor.diagonal[..rounds]
            .iter()
            .map(|entry| 1.0 / entry)
            .collect();
        let rows = factor.blocks.iter().zip(&diagonal);
        Ok(Recurrence::Blocks {
            leaves: factor.leaves,
            weights: rows
                .flat_map(|(blocks, inverse)| blocks.iter().map(move |entry| entry * inverse))
                .collect(),
            diagonal,
        })
    }
}

/// The squared norm that participating as early and as often as possible within the run attains.
fn reached(trees: &[u64], rounds: u64, schema: &Participation) -> Result<SquaredSensitivity> {
    let gap = schema.gap().get();
    let early: Vec<u64> = (0..schema.max_participation())
        .map_while(|j| j.checked_mul(gap).filter(|round| *round < rounds))
        .collect();
    Ok(restart::squared_norm(trees, &early)?)
}
