use crate::error::Result;
use crate::optimize::{Kind, Problem, Sizes};
use crate::strategy::Strategy;
use crate::strategy::tree::Tree;

/// A family of matrices that a plan considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Candidate {
    /// The matrix of a kind, made for the rounds and the schema of each report goal.
    Made(Kind, Sizes),
    /// Binary trees, a new one after `first` rounds and then every `period`, as adaptive clipping needs.
    RestartedTree {
        /// Rounds of the first tree.
        first: u64,
        /// Rounds of every later one.
        period: u64,
    },
}

impl Candidate {
    /// The trees of adaptive clipping in production, restarted at rounds `128 + 1024 i`.
    ///
    /// # Source
    /// \[Gboard\] Algorithm 1.
    pub const PRODUCTION_RESTARTS: Self = Self::RestartedTree {
        first: 128,
        period: 1024,
    };

    /// The name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Made(kind, _) => kind.name(),
            Self::RestartedTree { .. } => "tree-restarts",
        }
    }

    /// The matrix for a run.
    ///
    /// # Errors
    /// As [`Kind::make`], and a restart period of 0.
    pub fn make(self, problem: &Problem) -> Result<Strategy> {
        match self {
            Self::Made(kind, sizes) => Ok(kind.make(problem, sizes)?.strategy),
            Self::RestartedTree { first, period } => Ok(Strategy::Tree(Tree::with_restarts(first, period)?)),
        }
    }
}
