//! Kinds of strategies and their sizes, as arguments.

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;
use undertone_mechanisms::Strategy;
use undertone_mechanisms::optimize::{self, OptimizedStrategy, Problem, Progress, Sizes};

use super::run::Run;

/// A kind of strategy, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Kind(pub(super) optimize::Kind);

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Kind; optimize::Kind::ALL.len()] = {
            let mut all = [Kind(optimize::Kind::Independent); optimize::Kind::ALL.len()];
            let mut place = 0;
            while place < all.len() {
                all[place] = Kind(optimize::Kind::ALL[place]);
                place += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.name()).help(self.0.about());
        Some(match self.0 {
            optimize::Kind::Banded => value.alias("bandmf"),
            _ => value,
        })
    }
}

/// Options of a matrix's size.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Size of the matrix")]
pub(super) struct SizeArgs {
    /// Set the number of buffers of a BLT (default: as many as lower the loss by 0.1 % each).
    #[arg(long)]
    buffers: Option<usize>,
    /// Set the number of bands (default: the gap, 64 for a single participation, and 4 for an inverse).
    #[arg(long)]
    bands: Option<usize>,
}

impl Kind {
    pub(super) const BLT: Self = Self(optimize::Kind::Blt);
    pub(super) const BANDED: Self = Self(optimize::Kind::Banded);
    pub(super) const DENSE: Self = Self(optimize::Kind::Dense);

    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        self.0.name()
    }

    /// `true` if the kind is found by an optimiser.
    pub(super) fn is_optimised(self) -> bool {
        self.0.is_optimised()
    }

    /// The matrix of this kind for a problem.
    pub(super) fn make(self, problem: &Problem, sizes: &SizeArgs) -> anyhow::Result<OptimizedStrategy> {
        self.make_watched(problem, sizes, &mut |_| ())
    }

    /// Makes the strategy, and calls `watch` for each step of BandMF's search.
    pub(super) fn make_watched(
        self,
        problem: &Problem,
        sizes: &SizeArgs,
        watch: &mut dyn FnMut(Progress),
    ) -> anyhow::Result<OptimizedStrategy> {
        ensure!(sizes.bands != Some(0), "--bands: expected at least 1, got 0");
        let SizeArgs { buffers, bands } = *sizes;
        let made = self.0.make_watched(problem, Sizes { buffers, bands }, watch);
        match buffers {
            Some(_) => made.context("--buffers"),
            None => Ok(made?),
        }
    }
}

impl SizeArgs {
    /// The sizes with this number of buffers.
    pub(super) fn with_buffers(buffers: usize) -> Self {
        Self {
            buffers: Some(buffers),
            bands: None,
        }
    }

    /// The sizes with this number of bands.
    pub(super) fn with_bands(bands: usize) -> Self {
        Self {
            buffers: None,
            bands: Some(bands),
        }
    }

    /// The number of bands that was asked for.
    pub(super) fn bands(&self) -> Option<usize> {
        self.bands
    }

    /// The sizes that a kind has.
    pub(super) fn of(&self, kind: Kind) -> Self {
        Self {
            buffers: self.buffers.filter(|_| kind.0.is_buffered()),
            bands: self.bands.filter(|_| kind.0.is_banded()),
        }
    }

    /// Refuses sizes that none of these kinds has.
    pub(super) fn check_any(&self, kinds: &[Kind]) -> anyhow::Result<()> {
        let has = |is_sized: fn(optimize::Kind) -> bool| kinds.iter().any(|kind| is_sized(kind.0));
        for (option, size, is_known) in [
            ("--buffers", self.buffers, has(optimize::Kind::is_buffered)),
            ("--bands", self.bands, has(optimize::Kind::is_banded)),
        ] {
            ensure!(
                size.is_none() || is_known,
                "{option}: none of the compared kinds has such a size"
            );
        }
        Ok(())
    }

    /// Refuses sizes that a kind does not have.
    pub(super) fn check(&self, kind: Kind) -> anyhow::Result<()> {
        let name = kind.name();
        if self.buffers.is_some() && !kind.0.is_buffered() {
            bail!("--buffers: {name} has no buffers; only blt and normalised-blt have buffers");
        }
        if self.bands.is_some() && !kind.0.is_banded() {
            bail!("--bands: {name} takes no number of bands");
        }
        Ok(())
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
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name() {
        for kind in Kind::value_variants() {
            assert_eq!(Kind::from_str(kind.name(), false).unwrap(), *kind);
        }
        assert_eq!(
            Kind::from_str("bandmf", false).unwrap(),
            Kind(optimize::Kind::Banded)
        );
    }
}
