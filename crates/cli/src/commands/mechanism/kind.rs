//! Kinds of mechanisms by name, and how a matrix of each is made for a run.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use undertone_mechanisms::optimize::{self, Problem, blt::BltOptimizer};
use undertone_mechanisms::{
    BandedToeplitz, Identity, InverseToeplitz, NormalisedToeplitz, Strategy, Tree, TreeFull, TreeLayout,
    toeplitz,
};

use super::run::Run;

/// Bands of an inverse without --bands.
const INVERSE_BANDS: usize = 4;

/// Bands of a matrix without --bands where every user takes part once, so that no gap suggests a number.
const SINGLE_BANDS: usize = 64;

/// Longest run of a dense matrix: it has half of the square of the rounds as entries.
const MOST_DENSE: usize = 4096;

/// A kind of mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Independent noise in every round.
    Independent,
    /// Binary tree, online: what a deployed TreeAgg pays.
    Tree,
    /// Binary tree with the full decoder.
    TreeFull,
    /// Buffered linear Toeplitz, optimised.
    Blt,
    /// The same with columns of norm one, optimised for exactly the run.
    NormalisedBlt,
    /// BandFHU: the first coefficients of the square root.
    Fhu,
    /// BandToep: banded Toeplitz, optimised.
    BandedToeplitz,
    /// The same with columns of norm one.
    NormalisedBandedToeplitz,
    /// BandMF: banded, every entry optimised. Some twenty CPU seconds for 2000 rounds and 342 bands.
    #[value(alias = "bandmf")]
    Banded,
    /// BISR: banded inverse square root.
    Bisr,
    /// BandInvMF: Toeplitz with a banded inverse, optimised.
    InverseToeplitz,
    /// DP-lambda-CGD: each round takes back a share of the last round's noise.
    Lambda,
    /// The same with columns of norm one.
    NormalisedLambda,
    /// The square root of the prefix sum, all coefficients.
    SquareRoot,
    /// The same with columns of norm one.
    NormalisedSquareRoot,
    /// Any lower-triangular matrix, optimised: the best there is for short runs.
    Dense,
}

/// Options of a matrix's size.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SizeArgs {
    /// Buffers of a BLT; by default as many as lower the loss by a thousandth each.
    #[arg(long)]
    buffers: Option<usize>,
    /// Bands; by default the gap (64 for one participation), and 4 for an inverse.
    #[arg(long)]
    bands: Option<usize>,
}

/// A matrix, and what its optimiser told beside it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) strategy: Strategy,
    pub(super) search: Option<Search>,
}

/// What the search for a BLT told.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Search {
    /// The loss of the best matrix of 1, 2, .. buffers.
    pub(super) loss_by_buffers: Vec<f64>,
    /// The best local optimum whose first decay is well below 1: where published parameters lie.
    pub(super) interior_loss: Option<f64>,
    /// The best local optimum whose first decay is 1 to within rounding.
    pub(super) edge_loss: Option<f64>,
}

impl Kind {
    /// The name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether there is something to optimise.
    pub(super) fn is_optimised(self) -> bool {
        use Kind::{
            Banded, BandedToeplitz, Blt, Dense, InverseToeplitz, Lambda, NormalisedBandedToeplitz,
            NormalisedBlt, NormalisedLambda,
        };
        matches!(
            self,
            Blt | NormalisedBlt
                | BandedToeplitz
                | NormalisedBandedToeplitz
                | Banded
                | InverseToeplitz
                | Lambda
                | NormalisedLambda
                | Dense
        )
    }

    /// The matrix of this kind for a problem.
    pub(super) fn make(self, problem: &Problem, sizes: &SizeArgs) -> anyhow::Result<Made> {
        let rounds = problem.rounds;
        let bands = sizes.bands_of(self, problem)?;
        let plain = |strategy| {
            Ok(Made {
                strategy,
                search: None,
            })
        };
        match self {
            Self::Independent => plain(Strategy::Independent(Identity)),
            Self::Tree => plain(Strategy::Tree(Tree::new())),
            Self::TreeFull => plain(Strategy::TreeFull(TreeFull::new(
                rounds,
                TreeLayout::CompleteNodes,
            )?)),
            Self::Blt => {
                let found = sizes.blt(problem)?.optimize()?;
                let loss = |losses: undertone_mechanisms::Losses| losses.get(problem.objective);
                Ok(Made {
                    strategy: Strategy::Blt(found.best.strategy),
                    search: Some(Search {
                        loss_by_buffers: found.loss_by_buffers,
                        interior_loss: found.interior.map(|optimum| loss(optimum.losses)),
                        edge_loss: found.edge.map(|optimum| loss(optimum.losses)),
                    }),
                })
            }
            Self::NormalisedBlt => {
                let found = sizes.blt(problem)?.optimize_normalised()?;
                Ok(Made {
                    strategy: Strategy::NormalisedBlt(found.best.strategy),
                    search: Some(Search {
                        loss_by_buffers: found.loss_by_buffers,
                        interior_loss: None,
                        edge_loss: None,
                    }),
                })
            }
            Self::Fhu => plain(Strategy::BandedToeplitz(BandedToeplitz::fhu(bands)?)),
            Self::BandedToeplitz => plain(Strategy::BandedToeplitz(
                optimize::banded_toeplitz(problem, bands)?.0,
            )),
            Self::NormalisedBandedToeplitz => {
                let (banded, _) = optimize::banded_toeplitz(problem, bands)?;
                let normalised = NormalisedToeplitz::new(rounds, banded.coefficients().to_vec())?;
                plain(Strategy::NormalisedToeplitz(normalised))
            }
            Self::Banded => plain(Strategy::Banded(optimize::banded(problem, bands)?.0)),
            Self::Bisr => plain(Strategy::InverseToeplitz(InverseToeplitz::square_root(bands)?)),
            Self::InverseToeplitz => plain(Strategy::InverseToeplitz(
                optimize::inverse_toeplitz(problem, bands)?.0,
            )),
            Self::Lambda => plain(Strategy::InverseToeplitz(optimize::lambda(problem)?.0)),
            Self::NormalisedLambda => plain(Strategy::NormalisedInverseToeplitz(
                optimize::normalised_lambda(problem)?.0,
            )),
            Self::SquareRoot => plain(Strategy::BandedToeplitz(BandedToeplitz::new(toeplitz::fhu(
                rounds,
            ))?)),
            Self::NormalisedSquareRoot => plain(Strategy::NormalisedToeplitz(
                NormalisedToeplitz::square_root(rounds)?,
            )),
            Self::Dense => {
                ensure!(
                    rounds <= MOST_DENSE,
                    "dense: expected at most {MOST_DENSE} rounds, got {rounds}; banded and banded-toeplitz take more"
                );
                plain(Strategy::Dense(optimize::dense(problem)?.0))
            }
        }
    }
}

impl SizeArgs {
    /// With so many buffers.
    pub(super) fn with_buffers(buffers: usize) -> Self {
        Self {
            buffers: Some(buffers),
            bands: None,
        }
    }

    /// Refuses sizes that a kind does not have.
    pub(super) fn check(&self, kind: Kind) -> anyhow::Result<()> {
        let name = kind.name();
        let buffered = matches!(kind, Kind::Blt | Kind::NormalisedBlt);
        if self.buffers.is_some() && !buffered {
            bail!("--buffers: {name} has none; only blt and normalised-blt have buffers");
        }
        if self.bands.is_some() && !kind.is_banded() {
            bail!("--bands: {name} takes no number of bands");
        }
        Ok(())
    }

    fn blt(&self, problem: &Problem) -> anyhow::Result<BltOptimizer> {
        let optimizer = BltOptimizer::new(problem.rounds, problem.participation)?
            .objective(problem.objective)
            .workload(problem.workload.clone());
        match self.buffers {
            Some(buffers) => optimizer.buffers(buffers).context("--buffers"),
            None => Ok(optimizer),
        }
    }

    fn bands_of(&self, kind: Kind, problem: &Problem) -> anyhow::Result<usize> {
        ensure!(self.bands != Some(0), "--bands: expected at least 1, got 0");
        let participation = &problem.participation;
        let suited = match kind {
            Kind::Bisr | Kind::InverseToeplitz => INVERSE_BANDS,
            _ if participation.max_participation() == 1 => SINGLE_BANDS,
            _ => usize::try_from(participation.gap().get()).unwrap_or(usize::MAX),
        };
        Ok(self.bands.unwrap_or(suited).min(problem.rounds))
    }
}

impl Kind {
    fn is_banded(self) -> bool {
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
}

/// Earlier rows of independent noise that a round makes again from their keys, where a strategy keeps none.
pub(super) fn remade_rows(strategy: &Strategy, run: &Run) -> usize {
    match strategy {
        Strategy::InverseToeplitz(strategy) => strategy.coefficients().len().min(run.rounds) - 1,
        Strategy::NormalisedInverseToeplitz(strategy) => strategy.coefficients().len().min(run.rounds) - 1,
        Strategy::Dense(_) => run.rounds - 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::{Gap, Participation};

    use super::*;

    #[test]
    fn every_kind_makes_a_matrix_of_a_certified_loss() {
        let run = Run::new(24, Participation::at_least(Gap::new(6).unwrap(), 4).unwrap()).unwrap();
        let problem = Problem::new(run.rounds, run.participation);
        let loss = |kind: Kind| {
            let made = kind.make(&problem, &SizeArgs::default()).unwrap();
            let losses = problem.losses(&made.strategy).unwrap();
            assert!(
                losses.rms_loss.is_finite() && losses.rms_loss > 0.0,
                "{}",
                kind.name()
            );
            losses.rms_loss
        };
        let independent = loss(Kind::Independent);
        for kind in Kind::value_variants() {
            if kind.is_optimised() {
                assert!(loss(*kind) <= independent, "{}", kind.name());
            } else {
                loss(*kind);
            }
        }
    }

    #[test]
    fn sizes() {
        let run = Run::new(24, Participation::at_least(Gap::new(6).unwrap(), 4).unwrap()).unwrap();
        let problem = Problem::new(run.rounds, run.participation);
        let check = |kind: Kind, bands, want: usize| {
            let sizes = SizeArgs { buffers: None, bands };
            assert_eq!(sizes.bands_of(kind, &problem).unwrap(), want);
        };
        check(Kind::BandedToeplitz, None, 6);
        check(Kind::Bisr, None, 4);
        check(Kind::Fhu, Some(100), 24);
        let single = Problem::new(24, Participation::single());
        assert_eq!(SizeArgs::default().bands_of(Kind::Fhu, &single).unwrap(), 24);
        let error = |sizes: SizeArgs, kind: Kind| sizes.check(kind).unwrap_err().to_string();
        assert!(error(SizeArgs::with_buffers(3), Kind::Banded).contains("--buffers: banded has none"));
        let bands = SizeArgs {
            buffers: None,
            bands: Some(3),
        };
        assert!(error(bands, Kind::Blt).contains("--bands: blt takes no number of bands"));
        assert!(
            SizeArgs {
                buffers: None,
                bands: Some(0)
            }
            .bands_of(Kind::Fhu, &problem)
            .is_err()
        );
    }
}
