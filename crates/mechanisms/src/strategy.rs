//! Strategies, which say what noise goes into which round: one file per strategy, one type for all of them.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;

use crate::error::{Result, ensure};
use crate::loss::{CertifiedSensitivity, Errors};
use crate::recurrence::Recurrence;
use crate::workload::Workload;
use banded::Banded;
use banded_toeplitz::BandedToeplitz;
use blt::Blt;
use dense::Dense;
use identity::IdentityMatrix;
use inverse_toeplitz::InverseToeplitz;
use normalised_blt::NormalisedBlt;
use normalised_inverse_toeplitz::NormalisedInverseToeplitz;
use normalised_toeplitz::NormalisedToeplitz;
use tree::Tree;
use tree_full::TreeFull;

/// Reads a strategy from its fields by its constructor, so that a file holds none that the constructor refuses.
macro_rules! read_by {
    ($(#[$attribute:meta])* $new:ident($($argument:ident),*) of $strategy:ident { $($field:ident: $kind:ty),* }) => {
        $(#[$attribute])*
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Unchecked {
            $($field: $kind,)*
        }

        impl TryFrom<Unchecked> for $strategy {
            type Error = crate::error::MechanismError;

            fn try_from(value: Unchecked) -> Result<Self> {
                Self::$new($(value.$argument),*)
            }
        }
    };
}

pub(crate) mod banded;
pub(crate) mod banded_toeplitz;
pub(crate) mod blt;
mod coefficients;
pub(crate) mod dense;
pub(crate) mod described;
pub(crate) mod identity;
pub(crate) mod inverse_toeplitz;
pub(crate) mod normalised_blt;
pub(crate) mod normalised_inverse_toeplitz;
pub(crate) mod normalised_toeplitz;
pub(crate) mod tree;
pub(crate) mod tree_full;

/// Least squared sensitivity: far enough above the smallest numbers that no square that matters is lost.
const MIN_SQUARED: f64 = 1e-280;

/// A strategy matrix `C`: the run releases `C X + Z`, and each round receives its sum plus its row of `C^-1 Z`.
///
/// Serialises to its full description: a stored strategy is the matrix that was run, whatever found it.
///
/// # Guarantee
/// None by itself. [`squared_sensitivity`](Self::squared_sensitivity) is the bound on what one user does to `C X`, exact
/// or proved from above, for the matrix whose noise [`Strategy`] makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Strategy {
    /// `C = I`: independent noise.
    Independent(IdentityMatrix),
    /// The binary tree, online.
    Tree(Tree),
    /// The binary tree with the full decoder.
    TreeFull(TreeFull),
    /// Buffered linear Toeplitz.
    Blt(Blt),
    /// Buffered linear Toeplitz with columns of norm one.
    NormalisedBlt(NormalisedBlt),
    /// Banded Toeplitz: BandToep, BandFHU.
    BandedToeplitz(BandedToeplitz),
    /// Column-normalised Toeplitz: the normalised square root.
    NormalisedToeplitz(NormalisedToeplitz),
    /// Banded, entries of its own in every round: BandMF.
    Banded(Banded),
    /// Toeplitz with a banded inverse: BISR, BandInvMF, DP-lambda-CGD.
    InverseToeplitz(InverseToeplitz),
    /// A Toeplitz matrix whose inverse is banded, with columns of norm one.
    NormalisedInverseToeplitz(NormalisedInverseToeplitz),
    /// Any lower-triangular matrix.
    Dense(Dense),
}

/// Calls a method of whatever strategy it is.
macro_rules! each {
    ($self:ident, $strategy:ident => $call:expr) => {
        match $self {
            Strategy::Independent($strategy) => $call,
            Strategy::Tree($strategy) => $call,
            Strategy::TreeFull($strategy) => $call,
            Strategy::Blt($strategy) => $call,
            Strategy::NormalisedBlt($strategy) => $call,
            Strategy::BandedToeplitz($strategy) => $call,
            Strategy::NormalisedToeplitz($strategy) => $call,
            Strategy::Banded($strategy) => $call,
            Strategy::InverseToeplitz($strategy) => $call,
            Strategy::NormalisedInverseToeplitz($strategy) => $call,
            Strategy::Dense($strategy) => $call,
        }
    };
}

impl Strategy {
    /// Name in tables and plots, short.
    #[must_use]
    pub fn name(&self) -> String {
        each!(self, strategy => strategy.name())
    }

    /// The number of rounds the matrix was made for; `None` where it goes on for ever. A run may stop earlier, never later.
    #[must_use]
    pub fn rounds(&self) -> Option<usize> {
        match self {
            Self::Independent(_)
            | Self::Tree(_)
            | Self::Blt(_)
            | Self::BandedToeplitz(_)
            | Self::InverseToeplitz(_) => None,
            Self::TreeFull(strategy) => Some(strategy.rounds),
            Self::NormalisedBlt(strategy) => Some(strategy.rounds),
            Self::NormalisedToeplitz(strategy) => Some(strategy.rounds),
            Self::NormalisedInverseToeplitz(strategy) => Some(strategy.rounds),
            Self::Banded(strategy) => Some(strategy.matrix.rounds()),
            Self::Dense(strategy) => Some(strategy.matrix.rounds()),
        }
    }

    /// Vectors of the model's dimension that the noise of a run keeps between rounds.
    #[must_use]
    pub fn kept_vectors(&self, rounds: usize) -> usize {
        let kept = |bands: usize| bands.min(rounds).saturating_sub(1);
        match self {
            Self::Tree(strategy) => strategy.kept_vectors(rounds),
            Self::TreeFull(strategy) => strategy.kept_vectors(rounds),
            Self::Blt(strategy) => strategy.buffers(),
            Self::NormalisedBlt(strategy) => strategy.blt().buffers(),
            Self::BandedToeplitz(strategy) => kept(strategy.coefficients().len()),
            Self::NormalisedToeplitz(strategy) => kept(strategy.coefficients().len()),
            Self::Banded(strategy) => kept(strategy.bands()),
            // Nothing came before, or earlier rows are made again from their keys.
            Self::Independent(_)
            | Self::InverseToeplitz(_)
            | Self::NormalisedInverseToeplitz(_)
            | Self::Dense(_) => 0,
        }
    }

    /// Refuses no rounds, and more than the matrix has.
    fn check(&self, rounds: usize) -> Result<()> {
        identity::positive(rounds)?;
        let expected = match self {
            Self::NormalisedBlt(_) => "at most the number of rounds that the matrix was made for",
            _ => "at most the rounds that the matrix was made for",
        };
        let holds = self.rounds().is_none_or(|available| rounds <= available);
        ensure(holds, "rounds", expected, rounds as f64)?;
        Ok(())
    }

    /// Squared L2 sensitivity of the first `rounds` rounds under a participation schema, per squared clip norm.
    ///
    /// # Guarantee
    /// Never below the true value, under the zero-out relation, for every user who keeps to the schema.
    ///
    /// # Errors
    /// More rounds than the matrix has; a structure for which no bound is known; entries so small that their squares
    /// vanish.
    pub fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        self.check(rounds)?;
        let certified: CertifiedSensitivity =
            each!(self, strategy => strategy.squared_sensitivity(rounds, participation))?;
        // PRIVACY: a sensitivity whose square vanishes in double precision would make any noise look private.
        let expected = "at least 1e-280: entries of the matrix as small as these lose their squares";
        let squared = certified.squared.get();
        ensure(squared >= MIN_SQUARED, "squared sensitivity", expected, squared)?;
        Ok(certified)
    }

    /// Noise in the iterates of `rounds` rounds, for noise of standard deviation 1 in every entry of `Z`.
    ///
    /// # Errors
    /// No rounds, or more than the matrix or the workload has.
    pub fn errors(&self, rounds: usize, workload: &Workload) -> Result<Errors> {
        self.check(rounds)?;
        let variances = each!(self, strategy => strategy.variances(rounds, workload))?;
        Ok(Errors::from_variances(variances))
    }

    /// The noise as a recurrence over `rounds` rounds, with every number that a stream needs.
    ///
    /// # Errors
    /// No rounds, or more than the matrix has.
    pub fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        self.check(rounds)?;
        each!(self, strategy => strategy.recurrence(rounds))
    }
}

#[cfg(test)]
mod tests;
