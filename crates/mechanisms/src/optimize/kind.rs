//! Kinds of strategies by name, each with the way to make its matrix for a run.

use serde::{Deserialize, Serialize};

use super::blt::BltOptimizer;
use super::{
    Problem, Progress, banded_toeplitz, banded_watched, dense, inverse_toeplitz, lambda, normalised_lambda,
};
use crate::error::{Result, ensure};
use crate::strategy::Strategy;
use crate::strategy::banded_toeplitz::BandedToeplitz;
use crate::strategy::identity::IdentityMatrix;
use crate::strategy::inverse_toeplitz::InverseToeplitz;
use crate::strategy::normalised_toeplitz::NormalisedToeplitz;
use crate::strategy::tree::Tree;
use crate::strategy::tree_full::{TreeFull, TreeLayout};
use crate::toeplitz;

/// Bands of an inverse where none are asked for.
const INVERSE_BANDS: usize = 4;

/// Bands where none are asked for and every user takes part once, so that no gap suggests a number.
const SINGLE_BANDS: usize = 64;

/// Longest run of a dense matrix: it has half of the square of the rounds as entries.
const MAX_DENSE: usize = 4096;

/// A kind of strategy: a name in a run file or on a command line, which [`make`](Self::make) turns into a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// Independent noise in every round.
    Independent,
    /// Binary tree, online: the cost of a deployed TreeAgg.
    Tree,
    /// Binary tree with the full decoder.
    TreeFull,
    /// Buffered linear Toeplitz, optimised.
    Blt,
    /// A BLT with columns of norm one, optimised for exactly the run.
    NormalisedBlt,
    /// BandFHU: the first coefficients of the square root.
    Fhu,
    /// BandToep: banded Toeplitz, optimised.
    BandedToeplitz,
    /// BandToep with columns of norm one.
    NormalisedBandedToeplitz,
    /// BandMF: banded, every entry optimised.
    Banded,
    /// BISR: banded inverse square root.
    Bisr,
    /// BandInvMF: Toeplitz with a banded inverse, optimised.
    InverseToeplitz,
    /// DP-lambda-CGD: each round takes back a fraction of the last round's noise.
    Lambda,
    /// DP-lambda-CGD with columns of norm one.
    NormalisedLambda,
    /// The square root of the prefix sum, all coefficients.
    SquareRoot,
    /// The square root with columns of norm one.
    NormalisedSquareRoot,
    /// Any lower-triangular matrix, optimised.
    Dense,
}

/// Sizes of a matrix, where its kind has a choice. A new one is also a key of a run file, an option of the command line and an argument in
/// Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Buffers of a BLT; by default as many as lower the loss by a thousandth each.
    pub buffers: Option<usize>,
    /// Bands; by default the gap (64 for one participation), and 4 for an inverse.
    pub bands: Option<usize>,
}

/// An optimised matrix and the diagnostics of its search.
#[derive(Debug, Clone)]
pub struct OptimizedStrategy {
    /// The matrix.
    pub strategy: Strategy,
    /// Diagnostics of the search; `None` unless the matrix is a BLT.
    pub search: Option<BltDiagnostics>,
}

/// Losses that the search for a BLT found beside the best one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BltDiagnostics {
    /// The loss of the best matrix of 1, 2, .. buffers.
    pub loss_by_buffers: Vec<f64>,
    /// The best local optimum whose first decay is well below 1: where published parameters lie.
    pub interior_loss: Option<f64>,
    /// The best local optimum whose first decay is 1 to within rounding.
    pub edge_loss: Option<f64>,
}

impl Kind {
    /// Every kind, in the order in which tables show them.
    pub const ALL: [Self; 16] = [
        Self::Independent,
        Self::Tree,
        Self::TreeFull,
        Self::Blt,
        Self::NormalisedBlt,
        Self::Fhu,
        Self::BandedToeplitz,
        Self::NormalisedBandedToeplitz,
        Self::Banded,
        Self::Bisr,
        Self::InverseToeplitz,
        Self::Lambda,
        Self::NormalisedLambda,
        Self::SquareRoot,
        Self::NormalisedSquareRoot,
        Self::Dense,
    ];

    /// The name in run files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Tree => "tree",
            Self::TreeFull => "tree-full",
            Self::Blt => "blt",
            Self::NormalisedBlt => "normalised-blt",
            Self::Fhu => "fhu",
            Self::BandedToeplitz => "banded-toeplitz",
            Self::NormalisedBandedToeplitz => "normalised-banded-toeplitz",
            Self::Banded => "banded",
            Self::Bisr => "bisr",
            Self::InverseToeplitz => "inverse-toeplitz",
            Self::Lambda => "lambda",
            Self::NormalisedLambda => "normalised-lambda",
            Self::SquareRoot => "square-root",
            Self::NormalisedSquareRoot => "normalised-square-root",
            Self::Dense => "dense",
        }
    }

    /// The description of the kind, in one line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Independent => "Use independent noise in each round.",
            Self::Tree => "Use the online binary tree, as deployed TreeAgg does.",
            Self::TreeFull => "Use a binary tree with the full decoder.",
            Self::Blt => "Use an optimised buffered linear Toeplitz matrix (BLT).",
            Self::NormalisedBlt => {
                "Use a BLT with columns of norm 1, optimised for exactly the given rounds."
            }
            Self::Fhu => "Use BandFHU: the first coefficients of the square root.",
            Self::BandedToeplitz => "Use BandToep: an optimised banded Toeplitz matrix.",
            Self::NormalisedBandedToeplitz => "Use BandToep with columns of norm 1.",
            Self::Banded => {
                "Use BandMF: a banded matrix with all entries optimised. It takes about 20 CPU seconds for 2000 rounds, 342 bands."
            }
            Self::Bisr => "Use BISR: the banded inverse square root.",
            Self::InverseToeplitz => "Use BandInvMF: an optimised Toeplitz matrix with a banded inverse.",
            Self::Lambda => {
                "Use DP-lambda-CGD: each round subtracts a fraction of the noise of the round before."
            }
            Self::NormalisedLambda => "Use DP-lambda-CGD with columns of norm 1.",
            Self::SquareRoot => "Use the square root of the prefix sum with all coefficients.",
            Self::NormalisedSquareRoot => "Use the square root of the prefix sum with columns of norm 1.",
            Self::Dense => {
                "Use an optimised lower-triangular matrix of any form: the smallest loss, for short runs only."
            }
        }
    }

    /// Returns true if the kind has parameters to optimise. `undertone verify` makes the matrix of each other kind again.
    #[must_use]
    pub fn is_optimised(self) -> bool {
        match self {
            Self::Blt
            | Self::NormalisedBlt
            | Self::BandedToeplitz
            | Self::NormalisedBandedToeplitz
            | Self::Banded
            | Self::InverseToeplitz
            | Self::Lambda
            | Self::NormalisedLambda
            | Self::Dense => true,
            Self::Independent
            | Self::Tree
            | Self::TreeFull
            | Self::Fhu
            | Self::Bisr
            | Self::SquareRoot
            | Self::NormalisedSquareRoot => false,
        }
    }

    /// Returns true if the kind uses [`Sizes::bands`].
    #[must_use]
    pub fn is_banded(self) -> bool {
        matches!(
            self,
            Self::Fhu
                | Self::BandedToeplitz
                | Self::NormalisedBandedToeplitz
                | Self::Banded
                | Self::Bisr
                | Self::InverseToeplitz
        )
    }

    /// Returns true if the kind uses [`Sizes::buffers`].
    #[must_use]
    pub fn is_buffered(self) -> bool {
        matches!(self, Self::Blt | Self::NormalisedBlt)
    }

    /// Makes the matrix of this kind for a problem.
    ///
    /// # Errors
    /// No bands or buffers; a dense matrix for more than 4096 rounds; as the optimisers.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::participation::{Gap, Participation};
    /// use undertone_mechanisms::optimize::{Kind, Problem, Sizes};
    ///
    /// let problem = Problem::new(204, Participation::fixed_epochs(Gap::new(34)?, 6)?);
    /// let tree = problem.losses(&Kind::Tree.make(&problem, Sizes::default())?.strategy)?;
    /// let blt = problem.losses(&Kind::Blt.make(&problem, Sizes::default())?.strategy)?;
    /// assert!(blt.rms_loss < 0.8 * tree.rms_loss);
    /// # Ok::<(), undertone_mechanisms::MechanismError>(())
    /// ```
    pub fn make(self, problem: &Problem, sizes: Sizes) -> Result<OptimizedStrategy> {
        self.make_watched(problem, sizes, &mut |_| ())
    }

    /// Makes the matrix as [`make`](Self::make) does, and calls `watch` after every step of the one search that takes
    /// more than moments: BandMF's.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_watched(
        self,
        problem: &Problem,
        sizes: Sizes,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<OptimizedStrategy> {
        let rounds = problem.rounds;
        let bands = sizes.bands_of(self, problem)?;
        let mut search = None;
        let strategy = match self {
            Self::Independent => Strategy::Independent(IdentityMatrix),
            Self::Tree => Strategy::Tree(Tree::new()),
            Self::TreeFull => Strategy::TreeFull(TreeFull::new(rounds, TreeLayout::CompleteNodes)?),
            Self::Blt => {
                let found = sizes.blt(problem)?.optimize()?;
                search = Some(BltDiagnostics {
                    loss_by_buffers: found.loss_by_buffers,
                    interior_loss: found
                        .interior
                        .map(|optimum| optimum.losses.get(problem.objective)),
                    edge_loss: found.edge.map(|optimum| optimum.losses.get(problem.objective)),
                });
                Strategy::Blt(found.best.strategy)
            }
            Self::NormalisedBlt => {
                let found = sizes.blt(problem)?.optimize_normalised()?;
                search = Some(BltDiagnostics {
                    loss_by_buffers: found.loss_by_buffers,
                    interior_loss: None,
                    edge_loss: None,
                });
                Strategy::NormalisedBlt(found.best.strategy)
            }
            Self::Fhu => Strategy::BandedToeplitz(BandedToeplitz::fhu(bands)?),
            Self::BandedToeplitz => Strategy::BandedToeplitz(banded_toeplitz(problem, bands)?.0),
            Self::NormalisedBandedToeplitz => {
                let (banded, _) = banded_toeplitz(problem, bands)?;
                Strategy::NormalisedToeplitz(NormalisedToeplitz::new(rounds, banded.coefficients().to_vec())?)
            }
            Self::Banded => Strategy::Banded(banded_watched(problem, bands, watch)?.0),
            Self::Bisr => Strategy::InverseToeplitz(InverseToeplitz::square_root(bands)?),
            Self::InverseToeplitz => Strategy::InverseToeplitz(inverse_toeplitz(problem, bands)?.0),
            Self::Lambda => Strategy::InverseToeplitz(lambda(problem)?.0),
            Self::NormalisedLambda => Strategy::NormalisedInverseToeplitz(normalised_lambda(problem)?.0),
            Self::SquareRoot => Strategy::BandedToeplitz(BandedToeplitz::new(toeplitz::fhu(rounds))?),
            Self::NormalisedSquareRoot => {
                Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(rounds)?)
            }
            Self::Dense => {
                let expected = "at most 4096; banded and banded-toeplitz take more";
                ensure(
                    rounds <= MAX_DENSE,
                    "rounds of a dense matrix",
                    expected,
                    rounds as f64,
                )?;
                Strategy::Dense(dense(problem)?.0)
            }
        };
        Ok(OptimizedStrategy { strategy, search })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Sizes {
    fn blt(self, problem: &Problem) -> Result<BltOptimizer> {
        let optimizer = BltOptimizer::of(problem)?;
        match self.buffers {
            Some(buffers) => optimizer.buffers(buffers),
            None => Ok(optimizer),
        }
    }

    fn bands_of(self, kind: Kind, problem: &Problem) -> Result<usize> {
        ensure(self.bands != Some(0), "bands", "at least 1", 0.0)?;
        let participation = &problem.participation;
        let suited = match kind {
            Kind::Bisr | Kind::InverseToeplitz => INVERSE_BANDS,
            _ if participation.max_participation() == 1 => SINGLE_BANDS,
            _ => usize::try_from(participation.gap().get()).unwrap_or(usize::MAX),
        };
        Ok(self.bands.unwrap_or(suited).min(problem.rounds))
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::testing::at_least;

    fn problem() -> Problem {
        Problem::new(24, at_least(6, 4))
    }

    #[test]
    fn every_kind_makes_a_matrix_of_a_certified_loss() {
        let problem = problem();
        let loss = |kind: Kind| {
            let made = kind.make(&problem, Sizes::default()).unwrap();
            let losses = problem.losses(&made.strategy).unwrap();
            assert!(losses.rms_loss.is_finite() && losses.rms_loss > 0.0, "{kind}");
            losses.rms_loss
        };
        let independent = loss(Kind::Independent);
        for kind in Kind::ALL {
            let loss = loss(kind);
            assert!(!kind.is_optimised() || loss <= independent, "{kind}");
        }
    }

    #[test]
    fn names_are_those_of_run_files() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn bands_follow_the_problem_and_fit_its_rounds() {
        let check = |problem: &Problem, kind: Kind, bands, want: usize| {
            let sizes = Sizes { buffers: None, bands };
            assert_eq!(sizes.bands_of(kind, problem).unwrap(), want);
        };
        check(&problem(), Kind::BandedToeplitz, None, 6);
        check(&problem(), Kind::Bisr, None, 4);
        check(&problem(), Kind::Fhu, Some(100), 24);
        check(&Problem::new(24, Participation::single()), Kind::Fhu, None, 24);
        let none = Sizes {
            buffers: None,
            bands: Some(0),
        };
        let error = none.bands_of(Kind::Fhu, &problem()).unwrap_err();
        assert_eq!(error.to_string(), "bands must be at least 1, got 0");
    }
}
